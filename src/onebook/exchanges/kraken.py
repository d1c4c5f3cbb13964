"""Kraken spot (WebSocket v2): 100 levels a side in real time, snapshot on the socket.

Page: https://docs.kraken.com/api/docs/websocket-v2/book
(checksum: https://docs.kraken.com/api/docs/guides/spot-ws-book-v2)

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    channel, levels: 2026-07-10, third-party: tardis-node records v2 since then
    limits: 2026-01, page: docs.kraken.com, as of 2026

Sequencing: no numbers, but every frame has the CRC-32 of the ten best levels after it. The exchange
does not delete levels that leave the 100, so the book is truncated there (`Exchange.truncate`). To
resync, unsubscribe and subscribe.

Frames:

    {"method":"subscribe","result":{"channel":"book","symbol":"BTC/USD","depth":100,
     "snapshot":true},"success":true,"time_in":"...","time_out":"..."}        one per symbol
    {"error":"Currency pair not supported X/Y","method":"subscribe","success":false,
     "symbol":"X/Y"}
    {"channel":"book","type":"snapshot","data":[{"symbol":"BTC/USD",
     "bids":[{"price":45283.5,"qty":0.10000000}],"asks":[{"price":45285.2,"qty":0.00100000}],
     "checksum":3310070434,"timestamp":"..."}]}               then "type":"update"; qty 0 removes
    {"channel":"heartbeat"}                                  of the connection, one a second
    {"channel":"status","type":"update","data":[{"system":"online","api_version":"v2"}]}
    {"Error":"Exceeded msg rate"}                            too many requests: repeat later

Heartbeats are promised if nothing else is sent, and were recorded every second under load too (90
in 90 s). A `system` other than online (maintenance, cancel_only, post_only) means that orders are
not matched: https://docs.kraken.com/exchange/api-reference/spot-websocket-v2/status. Prices are
JSON numbers whose digits, as sent, enter the checksum.

Checked in 2026-11: ccxt and tardis-node (which has used v2 since 2026-07-10) agree on host and
frames; the host `ws-l3` of a newer client is for level 3 only.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import ChecksumLayout, ChecksumNumber, ChecksumOrder, LevelShape
from onebook.exchanges.kit import (
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Checksum,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    FeeColumn,
    Ignored,
    Limit,
    ListReader,
    LossDetection,
    Outputs,
    ProtocolError,
    RequestRejected,
    Scope,
    Trading,
    Unnumbered,
    Verify,
    control_reader,
    decode,
    each_of,
    items_reader,
    short,
    symbol_of,
    verbs,
)

CHANNEL: Final = "book"
DEPTH: Final = 100
LEVELS: Final = LevelShape.objects(price="price", amount="qty")
CHECKSUM: Final = ChecksumLayout(10, ChecksumOrder.ASKS_BIDS, ChecksumNumber.DIGITS)
# Codes of the REST list that the v2 socket spells differently; all others are the same on both.
SOCKET_CODES: Final = {"XBT": "BTC", "XDG": "DOGE"}


class Item(Struct, gc=False):
    """A snapshot or a delta."""

    symbol: str
    bids: Raw
    asks: Raw
    checksum: Checksum
    timestamp: str = ""


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    channel: str
    kind: str = field(name="type")
    data: tuple[Item, ...]


class Control(Struct):
    """The members of control frames."""

    channel: str = ""
    method: str = ""
    success: bool | None = None
    error: str = ""
    problem: str = field(name="Error", default="")
    symbol: str = ""
    result: Any = None
    data: Any = None


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)


def _follow(book: Unnumbered, kind: str, item: Item) -> Outputs:
    if kind == "update":
        outputs = book.delta(item.bids, item.asks, item.timestamp)
    elif kind == "snapshot":
        outputs = book.snapshot(item.bids, item.asks, item.timestamp)
    else:
        raise ProtocolError(f"book: unknown type {short(kind)!r}", book.instrument)
    return outputs and each_of(outputs, Verify(book.instrument, CHECKSUM, item.checksum))


data: Final = items_reader(_read, CHANNEL, _follow)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    match message.channel:
        case "heartbeat":
            return Alive()
        case "status":
            return _status(message.data)
        case "book":
            return BookFrame(symbol_of(message.data))
    if message.problem:
        return RequestRejected(message.problem)
    if message.method != "subscribe" or message.success is None:
        return Ignored(known=message.method in ("unsubscribe", "pong"))
    if message.success:
        return Accepted([symbol_of([message.result])])
    if message.error.startswith("Already subscribed"):
        return Ignored(known=True)  # requests crossed; the feed retries without a snapshot
    return RequestRejected(f"{message.symbol} {message.error}".lstrip())


def _status(data: Any) -> Event:
    """Decode the state of the trading engine; an unreadable one is ignored."""
    match data:
        case [{"system": str(system)}]:
            return Trading(open=system == "online", reason=short(system))
    return Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    params = {"channel": CHANNEL, "symbol": names, "depth": DEPTH}
    return {"method": verb, "params": params}


def _socket_name(listed: str) -> str:
    return "/".join(SOCKET_CODES.get(code, code) for code in listed.split("/"))


INSTRUMENTS: Final = ListReader(
    "kraken",
    rows="result",
    native="wsname",
    separator="/",
    spell=_socket_name,
    answered={"error": ([],)},
    not_spot_name=":",  # a suffix such as :BTNL marks another venue's book
    trading={"status": ("online", "limit_only", "reduce_only")},
    tick="tick_size",
    lot_decimals="lot_decimals",
    least_amount="ordermin",
    least_notional="costmin",
    taker=FeeColumn("fees"),
)

BOOKS: Final = BookChannel(
    data, control, *verbs(request), partial(Unnumbered, shape=LEVELS), names_per_request=50
)

EXCHANGE: Final = Exchange(
    name="kraken",
    display="Kraken",
    ws_url="wss://ws.kraken.com/v2",
    rest_url="https://api.kraken.com",
    instruments_path="/0/public/AssetPairs",
    parse_instruments=INSTRUMENTS,
    lists_fees=True,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    interval_ms=0,
    truncate=True,
    guard=LossDetection.CHECKSUM,
    limits=ExchangeLimits(
        topics=100,
        messages=(Limit(5, 1.0),),  # our choice: undocumented
        # Beyond 150 the address is blocked; after maintenance at most one every 5 s.
        connects=(Limit(150, 600.0, Scope.ADDRESS), Limit(1, 5.0, Scope.ADDRESS)),
        fetches=(Limit(30, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=5.0,
    heartbeat_max_s=5.0,  # heartbeats arrive every second
)
