"""Bybit spot (v5): 200 levels every 100 ms, snapshot on the socket, with best prices every 10 ms.

Page: https://bybit-exchange.github.io/docs/v5/websocket/public/orderbook

Confirmed:

    channel, verbs, ping, limits, levels, depth: 2026-07-24, page: the repository of the page
    channel: 2026-10-01, page: change log, nothing newer of this channel
    sequence: 2026-07-24, page: of `full` alone; barter-rs enforces it on every book

Sequencing: `u` of each delta is the last `u + 1`. A snapshot replaces the book whenever it arrives;
a frame with `u` 1 is a snapshot too (the service restarted). A snapshot without levels is not a
book: the page of `orderbook.full`
(https://bybit-exchange.github.io/docs/v5/websocket/public/full-ob) has `u` 1 with empty sides for a
delisting, an auction and a change of the tick. The book then counts as halted and is subscribed
again later. To resync, unsubscribe and subscribe.

Frames:

    {"topic":"orderbook.200.BTCUSDT","ts":1672304484978,"type":"snapshot","data":{"s":"BTCUSDT",
     "b":[["16493.50","0.006"]],"a":[["16611.00","0.029"]],"u":18521288,"seq":7961638724},
     "cts":1672304484976}                                    then "type":"delta"; "0" removes
    {"topic":"orderbook.1.BTCUSDT","ts":1672304484990,"type":"snapshot","data":{"s":"BTCUSDT",
     "b":[["16493.50","0.008"]],"a":[["16611.00","0.029"]],"u":18521299,"seq":7961638730},
     "cts":1672304484988}                                    the best prices, always whole
    {"success":true,"ret_msg":"subscribe","conn_id":"2324","req_id":"1","op":"subscribe"}
    {"success":false,"ret_msg":"Invalid symbol :[orderbook.200.XY]","req_id":"1","op":"subscribe"}
    {"success":true,"ret_msg":"pong","conn_id":"2324","op":"ping"}

The time of a frame is `ts`, when it was made, as with the other exchanges. `cts`, when the matching
engine produced its data, is a little earlier and comparable with the times of trades.

A book that does not change is silent: only `orderbook.1` is repeated after 3 s. A refusal may lack
`req_id`.

`orderbook.1` has its own `u`. `seq` is the engine's "cross sequence", by which the page compares
books of different depth: the smaller one is older. It therefore orders best prices and levels
(`Delta.sequence`), but it is not consecutive and proves no loss. Best prices are subscribed in
separate requests, because one refused topic fails a whole request. Neither channel has RPI
orders. `orderbook.50` (20 ms) would send its best price 1 ms later than `orderbook.1` at the
median, as measured on perpetuals in 2026-09, and needs its own chain.

The page states only for `full` that `u` rises by 1. barter-rs requires it of every book, and no gap
was recorded in this channel. A jump would count as a gap, at the cost of a snapshot.

Why 200 levels: the 50-level channel updates five times as often, but a view may show more levels.
The 1000-level channel updates every 200 ms, slower than our default interval.

Unconfirmed: that the best prices of `orderbook.1` and `orderbook.200` agree at equal `seq`
(`onebook.fusing` compares them).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    ABSENT,
    UNTIMED,
    Accepted,
    BookChannel,
    BookFrame,
    BookHalted,
    Chain,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    FastChannel,
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
    TopOfBook,
    control_reader,
    decode,
    short,
    verbs,
)
from onebook.model import Instrument

DEPTH: Final = 200
TOPIC_PREFIX: Final = f"orderbook.{DEPTH}."
BEST_PREFIX: Final = "orderbook.1."
BEST_NAME: Final = b'"orderbook.1.'
TOPIC_BYTES_MAX: Final = 64  # the topic's name is within this many bytes of a frame's start
OPERATIONS: Final = ("unsubscribe", "ping", "pong")
NO_LEVELS: Final = "a book without levels: a delisting, an auction or a change of its steps"
RESTARTED: Final = 1  # `u` of a snapshot after a restart of the service


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    native: str = field(name="s")
    bids: Raw = field(name="b")
    asks: Raw = field(name="a")
    update: Sequence64 = field(name="u")
    sequence: Sequence64 = field(name="seq")


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    topic: str
    type: str
    data: BookMessage
    ts: int = UNTIMED


class Control(Struct):
    """The members of control frames."""

    op: str = ""
    success: bool | None = None
    ret_msg: str = ""
    req_id: str = ""
    topic: Any = None


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)


def topic(instrument: Instrument) -> str:
    """Return the channel of an instrument."""
    return TOPIC_PREFIX + instrument.native


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    message: Data = _read(frame)
    if frame.find(BEST_NAME, 0, TOPIC_BYTES_MAX) > 0:
        return _top(books, message)
    book = books.get(message.topic)
    if book is None:
        return None
    change = message.data
    if change.native != book.instrument.native:
        raise ProtocolError(f"{message.topic} contains {short(change.native)!r}", book.instrument)
    update, order = change.update, change.sequence
    if message.type == "delta" and update != RESTARTED:
        return book.delta(change.bids, change.asks, update - 1, update, message.ts, order)
    if message.type in ("snapshot", "delta"):
        if change.bids == change.asks == ABSENT:
            book.restart()
            return (BookHalted(book.instrument, NO_LEVELS),)
        return book.snapshot(change.bids, change.asks, update, message.ts, order)
    raise ProtocolError(f"{message.topic}: unknown type {short(message.type)!r}", book.instrument)


def _top(books: dict[str, Chain], message: Data) -> Outputs | None:
    best = message.data
    book = books.get(TOPIC_PREFIX + best.native)
    if book is None or message.topic != BEST_PREFIX + best.native:
        return None
    return TopOfBook(book.instrument, best.sequence, best.bids, best.asks, at=message.ts)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    name = str(message.topic)
    if name.startswith(TOPIC_PREFIX):
        return BookFrame(name)
    if name.startswith(BEST_PREFIX):
        return BookFrame(TOPIC_PREFIX + name.removeprefix(BEST_PREFIX), top=True)
    if message.op != "subscribe":
        return Ignored(known=message.op in OPERATIONS)
    if message.success is None:
        return Ignored(known=False)
    if message.success:
        return Accepted(number=message.req_id)
    if BEST_PREFIX in message.ret_msg and not message.req_id:
        return Ignored(known=True, refused=short(message.ret_msg))
    repeated = "already subscribed" in message.ret_msg
    return RequestRejected(message.ret_msg, message.req_id, whole=True, repeated=repeated)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    return {"op": verb, "args": names, "req_id": str(number)}


INSTRUMENTS: Final = ListReader(
    "bybit",
    rows="result.list",
    native="symbol",
    base="baseCoin",
    quote="quoteCoin",
    answered={"result.category": ("spot", None)},
    spot={"contractType": ("", None)},
    trading={"status": ("Trading",)},
    tick="priceFilter.tickSize",
    lot="lotSizeFilter.basePrecision",
    least_amount="lotSizeFilter.minOrderQty",
    least_notional="lotSizeFilter.minOrderAmt",
)


def best_prices(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe best prices."""
    topics = [BEST_PREFIX + name.removeprefix(TOPIC_PREFIX) for name in names]
    return request(topics, number, verb)


# A request has at most 10 arguments.
BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    Chain,
    names_per_request=10,
    key=topic,
    fast=FastChannel(*verbs(best_prices), names_per_request=10),
)

EXCHANGE: Final = Exchange(
    name="bybit",
    display="Bybit",
    ws_url="wss://stream.bybit.com/v5/public/spot",
    rest_url="https://api.bybit.com",
    instruments_path="/v5/market/instruments-info?category=spot",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    interval_ms=100,
    tops=True,
    time=ServerTime("/v5/market/time", "time"),
    limits=ExchangeLimits(
        topics=200,  # in two channels: 10 of the 21 KB that arguments may have
        messages=(Limit(10, 1.0),),  # our choice: undocumented
        connects=(Limit(500, 300.0, Scope.ADDRESS),),
        fetches=(Limit(600, 60.0, Scope.ADDRESS),),
    ),
    holds={403: 600.0},  # "access too frequent": at least 10 minutes
    heartbeat=Heartbeat(b'{"op":"ping"}', every_s=20.0),
    silence_max_s=30.0,  # a healthy socket answers each ping
)
