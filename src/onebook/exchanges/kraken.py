"""Kraken spot (WebSocket v2): 100 levels a side in real time, snapshot on the socket.

Page: https://docs.kraken.com/api/docs/websocket-v2/book
(checksum: https://docs.kraken.com/api/docs/guides/spot-ws-book-v2)

In step: no numbers, but every frame carries the CRC-32 of the ten best levels, which must agree
after it; levels pushed out of the 100 are not deleted by the exchange, so the book is cut there
(`Exchange.truncate`). Repair is unsubscribe and subscribe.

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
    {"Error":"Exceeded msg rate"}                            too many requests: ask again later

Heartbeats are promised where nothing else is sent, and were recorded each second under load too
(90 in 90 s).
`system` other than online (maintenance, cancel_only, post_only) means that no order is matched:
https://docs.kraken.com/exchange/api-reference/spot-websocket-v2/status. Prices are JSON numbers
whose literal digits count for the checksum.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import ChecksumLayout, ChecksumNumber, ChecksumOrder, LevelShape, Reader
from onebook.exchanges.contract import (
    NOTHING,
    ROWS_MAX,
    Alive,
    Exchange,
    Guard,
    Ignored,
    Instruments,
    Output,
    ProtocolError,
    Trading,
    Verify,
)
from onebook.exchanges.engine import (
    Accepted,
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Rejected,
)
from onebook.exchanges.frames import (
    Checksum,
    decode,
    instrument_of,
    instruments_of,
    items_reader,
    short,
    step_of,
    symbol_of,
)
from onebook.exchanges.limits import Limit, Limits, Scope
from onebook.exchanges.sync import Unnumbered
from onebook.model import Instrument

CHANNEL: Final = "book"
DEPTH: Final = 100
LEVELS: Final = LevelShape.objects(price="price", amount="qty")
CHECKSUM: Final = ChecksumLayout(10, ChecksumOrder.ASKS_BIDS, ChecksumNumber.DIGITS)
# Codes of the REST list that the v2 socket spells differently; all others are the same on both.
SOCKET_CODES: Final = {"XBT": "BTC", "XDG": "DOGE"}
TRADING: Final = ("online", "limit_only", "reduce_only")
US_MARGIN_VENUE: Final = ":"  # a suffix such as :BTNL marks another venue's book


class Item(Struct, gc=False):
    """A book or a change of it."""

    symbol: str
    bids: Raw
    asks: Raw
    checksum: Checksum
    timestamp: str = ""


class Data(Struct, gc=False):
    """The frame of a book."""

    channel: str
    kind: str = field(name="type")
    data: tuple[Item, ...]


class Control(Struct):
    """Every frame that is not of a book."""

    channel: str = ""
    method: str = ""
    success: bool | None = None
    error: str = ""
    problem: str = field(name="Error", default="")
    symbol: str = ""
    result: Any = None
    data: Any = None


class Listing(Struct):
    """A row of the instrument list."""

    wsname: str
    status: str
    tick_size: str = ""
    lot_decimals: int | None = None


class Listings(Struct):
    """The instrument list."""

    error: list[str]
    result: dict[str, Raw] = {}


_read = Reader(Data).read
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(Listings).decode


def _follow(book: Unnumbered, kind: str, item: Item) -> tuple[Output, ...]:
    if kind == "update":
        outputs = book.delta(item.bids, item.asks, item.timestamp)
    elif kind == "snapshot":
        outputs = book.snapshot(item.bids, item.asks, item.timestamp)
    else:
        raise ProtocolError(f"book has no type {short(kind)!r}", book.instrument)
    return (*outputs, Verify(book.instrument, CHECKSUM, item.checksum)) if outputs else NOTHING


def control(frame: bytes) -> Event:
    """Read a frame that is not of a book."""
    message = decode(_control, frame, what="a frame")
    match message.channel:
        case "heartbeat":
            return Alive()
        case "status":
            return _status(message.data)
        case "book":
            return BookFrame(symbol_of(message.data))
    if message.problem:
        return Rejected(message.problem)
    if message.method != "subscribe":
        return Ignored(known=message.method in ("unsubscribe", "pong"))
    if message.success:
        return Accepted([symbol_of([message.result])])
    if message.error.startswith("Already subscribed"):
        return Ignored(known=True)  # two requests crossed; the feed asks again without a snapshot
    return Rejected(f"{message.symbol} {message.error}".lstrip())


def _status(data: Any) -> Event:
    """Read the state of the trading engine; what is not readable changes nothing."""
    match data:
        case [{"system": str(system)}]:
            return Trading(open=system == "online", reason=short(system))
    return Ignored(known=False)


def subscribe(names: Sequence[str], number: int) -> object:
    """Ask for books."""
    return {"method": "subscribe", "params": _params(names)}


def unsubscribe(names: Sequence[str], number: int) -> object:
    """Ask for them no longer."""
    return {"method": "unsubscribe", "params": _params(names)}


def _params(names: Sequence[str]) -> object:
    return {"channel": CHANNEL, "symbol": names, "depth": DEPTH}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Read `/0/public/AssetPairs`."""
    listings = decode(_listings, body, what="the asset pairs")
    if listings.error:
        raise ProtocolError(f"the asset pairs are refused: {short(listings.error[0])}")
    rows = listings.result.values()
    return instruments_of(rows, Listing, _listed, rows_max=rows_max)


def _listed(row: Listing) -> Instrument | None:
    base, _, quote = row.wsname.partition("/")
    if US_MARGIN_VENUE in row.wsname:
        return None
    return instrument_of(
        "kraken",
        "/".join(SOCKET_CODES.get(code, code) for code in (base, quote)),
        base=base,
        quote=quote,
        trading=row.status in TRADING,
        tick=row.tick_size,
        lot=step_of(row.lot_decimals),
    )


BOOKS: Final = BookChannel(
    data=items_reader(_read, CHANNEL, _follow),
    control=control,
    subscribe=subscribe,
    unsubscribe=unsubscribe,
    track=partial(Unnumbered, snapshot_shape=LEVELS, delta_shape=LEVELS),
    names_per_request=50,
)

EXCHANGE: Final = Exchange(
    name="kraken",
    display="Kraken",
    ws_url="wss://ws.kraken.com/v2",
    rest_url="https://api.kraken.com",
    instruments_path="/0/public/AssetPairs",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    interval_ms=0,
    truncate=True,
    guard=Guard.CHECKSUM,
    limits=Limits(
        topics=100,
        messages=(Limit(5, 1.0),),  # ours: the page states none
        # Beyond 150 the address is shut out; no faster than every 5 s after maintenance.
        connects=(Limit(150, 600.0, Scope.ADDRESS), Limit(1, 5.0, Scope.ADDRESS)),
        fetches=(Limit(30, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=5.0,
    heartbeat_max_s=5.0,  # heartbeats come every second
)
