"""Poloniex spot: 20 levels a side in real time, snapshot on the socket.

Page: https://api-docs.poloniex.com/spot/websocket/market-data#book-level-2

Confirmed:

    channel, verbs, sequence, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    ping: 2026-09-23, recorded: arbitrage-observatory, of futures v3
    limits: never: the page, whose date is not known

Sequencing: `lastId` of each update is the `id` before it. Every snapshot starts a new chain, and an
update before the first snapshot is ignored. To resync, unsubscribe and subscribe.

Frames:

    {"event":"subscribe","channel":"book_lv2","symbols":["BTC_USDT"]}
    {"channel":"book_lv2","action":"snapshot","data":[{"symbol":"BTC_USDT",
     "createTime":1648052239156,"asks":[["41983.43","0.1"]],"bids":[["41983.42","0.2"]],
     "lastId":12,"id":13,"ts":1648052239192}]}                then "action":"update"; "0" removes
    {"event":"error","message":"Invalid symbol: X_Y"}         or, naming none, "no valid symbols"
    {"event":"error","message":"Already subscribed"}          and "Not subscribed": no refusals
    {"event":"pong"}                                          to our {"event":"ping"}

A wire probe of 2026-09-23 of futures v3, the newer engine of this family, agrees
(nemanull/arbitrage-observatory: no gap in 112,000 updates, a level that leaves the 20 is removed, a
client that sends nothing is disconnected after 30 s, however busy its socket). ccxt uses the same
channel without comparing ids, and lists the error "Platform in maintenance mode".

`ts` is when a frame was sent, `createTime` when its record was made. A book that does not change
is silent: unconfirmed beyond the page, which promises nothing else.

As of 2026-11 no source says whether the exchange itself is in good health. Its books are judged by
their silence, like all others.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    UNTIMED,
    Accepted,
    BookChannel,
    BookFrame,
    Chain,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Heartbeat,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    ProtocolError,
    RequestRejected,
    Scope,
    Sequence64,
    ServerTime,
    control_reader,
    decode,
    items_reader,
    short,
    symbol_of,
    texts_of,
    verbs,
)

CHANNEL: Final = "book_lv2"
EVENTS: Final = ("subscribe", "unsubscribe", "pong")
SETTLED: Final = ("Already subscribed", "Not subscribed")  # two requests crossed on the wire


class Item(Struct, gc=False, rename="camel"):
    """A snapshot or a delta."""

    symbol: str
    asks: Raw
    bids: Raw
    last_id: Sequence64
    id: Sequence64
    ts: int = UNTIMED


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    channel: str
    data: tuple[Item, ...]
    kind: str = field(name="action")


class Control(Struct):
    """The members of control frames."""

    event: str = ""
    channel: Any = None
    symbols: Any = None
    message: str = ""
    data: Any = None


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)


def _follow(book: Chain, kind: str, item: Item) -> Outputs:
    if kind == "update":
        return book.delta(item.bids, item.asks, item.last_id, item.id, item.ts)
    if kind == "snapshot":
        return book.snapshot(item.bids, item.asks, item.id, item.ts)
    raise ProtocolError(f"{CHANNEL}: unknown action {short(kind)!r}", book.instrument)


data: Final = items_reader(_read, CHANNEL, _follow)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.event == "subscribe" and message.channel == CHANNEL:
        return Accepted(texts_of(message.symbols))
    if message.event == "error" and message.message.startswith(SETTLED):
        return Ignored(known=True)
    if message.event == "error":
        return RequestRejected(message.message)
    if message.channel == CHANNEL and not message.event and message.symbols is None:
        return BookFrame(symbol_of(message.data))
    return Ignored(known=message.event in EVENTS)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    return {"event": verb, "channel": [CHANNEL], "symbols": names}


INSTRUMENTS: Final = ListReader(
    "poloniex",
    native="symbol",
    base="baseCurrencyName",
    quote="quoteCurrencyName",
    not_spot_name="_PERP",
    trading={"state": ("NORMAL",)},
    tick_decimals="symbolTradeLimit.priceScale",
    lot_decimals="symbolTradeLimit.quantityScale",
    least_amount="symbolTradeLimit.minQuantity",
    least_notional="symbolTradeLimit.minAmount",
)

BOOKS: Final = BookChannel(data, control, *verbs(request), Chain, names_per_request=50)

EXCHANGE: Final = Exchange(
    name="poloniex",
    display="Poloniex",
    ws_url="wss://ws.poloniex.com/ws/public",
    rest_url="https://api.poloniex.com",
    instruments_path="/markets",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=20,
    interval_ms=0,
    time=ServerTime("/timestamp", "serverTime"),
    limits=ExchangeLimits(
        topics=100,
        messages=(Limit(20, 1.0),),  # of 500 allowed
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        connections=2_000,
        fetches=(Limit(600, 60.0, Scope.ADDRESS),),
    ),
    heartbeat=Heartbeat(b'{"event":"ping"}', every_s=20.0),  # closed 30 s after the last one
    silence_max_s=30.0,  # a healthy socket answers each ping; data arrives only on a change
)
