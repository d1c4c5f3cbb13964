"""WOO X spot: 50 levels a side every 50 ms, seeded by REST.

Pages: https://developer.woox.io/api-reference/endpoint/websocket/Orderbook_update (how to keep a
local book); `websocket_introduction`, `Subscription commands`, `public_data/orderbook` beside it.

In sync: a state of the book is named by its time. The first delta after the body is the one whose
`prevTs` is the body's `timestamp`, then each `prevTs` is the last `ts`. Recorded in 2026-09 on
perpetuals, which share the socket and the channel (nemanull/arbitrage-observatory, its profile of
the exchange): no gap in 281 frames, and books equal to REST. The body was up to 46 s older than the
stream there, so that it may be fetched several times before a delta follows it.

Frames:

    {"id":"1","cmd":"SUBSCRIBE","params":["orderbookupdate@SPOT_BTC_USDT@50"]}
    {"id":"1","cmd":"SUBSCRIBE","success":true,"time":1790137718411,
     "data":["orderbookupdate@SPOT_BTC_USDT@50"]}
    {"id":"8","cmd":"SUBSCRIBE","success":false,"time":1790137718411,"data":"Command type invalid!"}
    {"topic":"orderbookupdate@SPOT_BTC_USDT@50","ts":1618826337580,"data":{"s":"SPOT_BTC_USDT",
     "prevTs":1618826337380,"ts":1618826337570,"asks":[["56749.15","3.92864"]],
     "bids":[["56745.2","0"]]}}                                          "0" removes

The answer lists what is accepted: an unknown pair is left out, and so is a topic that is subscribed
already. The time of a frame is its outer `ts`, when it was sent; a body has none, only that of the
book's last change. Its levels are objects:
{"success":true,"timestamp":1751620923344,"data":{"asks":[{"price":"2","quantity":"1"}],"bids":[]}}

The book is that without RPI orders, which orders by API cannot meet: it is thin, on perpetuals many
times as wide as that with them (`orderbookupdaterpi`, not read here). The page allows 20 topics in
a request, the wire took 10; a socket was closed after 60 s without a frame of ours, although the
page says that nothing need be sent; a protocol ping was enough.

ccxt's `woo` (4.5.90) follows the socket of v1, whose `orderbook` frames are whole. Its newer source
is on v3: the same request, topic and members for `orderbookupdate`, seeded by REST, and every delta
that is newer than the body is applied; it does not compare `prevTs`. For spot it takes
`orderbook10` by default.

Unconfirmed: that a level that leaves or enters the 50 is always sent; what the answer is to too
many requests. ccxt's id is `woo`, so that this is its name here.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import LevelShape
from onebook.exchanges.channel import (
    BookChannel,
    BookFrame,
    Event,
    RequestRejected,
    verbs,
)
from onebook.exchanges.contract import (
    Exchange,
    Fetch,
    Ignored,
    Outputs,
)
from onebook.exchanges.controls import accepted_of, control_reader
from onebook.exchanges.engine import SeededEngine
from onebook.exchanges.frames import Sequence64, decode
from onebook.exchanges.join import Join
from onebook.exchanges.limits import ExchangeLimits, Limit, Scope
from onebook.exchanges.listing import ListReader
from onebook.exchanges.moments import UNTIMED
from onebook.model import Instrument

CHANNEL: Final = "orderbookupdate@"
DEPTH: Final = 50
LEVELS: Final = LevelShape.objects("price", "quantity")


class Change(Struct, gc=False):
    """The data of a delta: it leads from the state of `previous` to that of `final`."""

    previous: Sequence64 = field(name="prevTs")
    final: Sequence64 = field(name="ts")
    bids: Raw
    asks: Raw


class Update(Struct, gc=False):
    """The frame of a delta."""

    topic: str
    data: Change
    at: int = field(name="ts", default=UNTIMED)


class Control(Struct):
    """Every frame that is not a delta."""

    cmd: str = ""
    topic: str = ""
    id: str | int | None = None
    success: bool | None = None
    data: Any = None


class Sides(Struct):
    """The levels of a REST body."""

    bids: Raw
    asks: Raw


class Body(Struct):
    """The REST body."""

    timestamp: Sequence64
    data: Sides


class Depth(Struct):
    """The book of a REST body."""

    bids: Raw
    asks: Raw
    sequence: int


_read = msgspec.json.Decoder(Update).decode
_control = control_reader(Control)
_body = msgspec.json.Decoder(Body).decode


def topic(instrument: Instrument) -> str:
    """Name the topic of an instrument, as its frames do."""
    return f"{CHANNEL}{instrument.native}@{DEPTH}"


def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    """Follow a delta."""
    message: Update = _read(frame)
    book = books.get(message.topic)
    if book is None:
        return None
    change = message.data
    if change.previous >= change.final:
        raise ValueError(f"the times {change.previous} and {change.final} do not follow")
    return book.delta(change.previous + 1, change.final, change.bids, change.asks, message.at)


def seed(body: bytes) -> Depth:
    """Read a REST body."""
    message = _body(body)
    return Depth(message.data.bids, message.data.asks, message.timestamp)


def control(frame: bytes) -> Event:
    """Read a frame that is not a delta."""
    message = decode(_control, frame, what="a frame")
    if message.topic:
        book = message.topic.startswith(CHANNEL)
        return BookFrame(message.topic) if book else Ignored(known=False)
    if message.cmd == "SUBSCRIBE" and message.success:
        return accepted_of(message.data, message.id)
    if message.cmd and message.success is False:
        return RequestRejected(str(message.data), message.id or None)
    return Ignored(known=bool(message.cmd))


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Ask for topics, or for them no longer."""
    return {"id": str(number), "cmd": verb, "params": names}


def join(instrument: Instrument) -> Join:
    """Seed a book by REST."""
    path = f"/v3/public/orderbook?symbol={quote(instrument.native)}&maxLevel={DEPTH}"
    return Join(Fetch(instrument, path), snapshot_shape=LEVELS, exact=True)


INSTRUMENTS: Final = ListReader(
    "woo",
    rows="data.rows",
    native="symbol",
    base="baseAsset",
    quote="quoteAsset",
    not_spot_name="PERP_",  # those of spot begin with SPOT_
    trading={"status": ("TRADING",)},
    tick="quoteTick",
    lot="baseTick",
)

BOOKS: Final = BookChannel(
    data, control, *verbs(request, "SUBSCRIBE", "UNSUBSCRIBE"), join, 10, key=topic, seed=seed
)

EXCHANGE: Final = Exchange(
    name="woo",
    display="WOO X",
    ws_url="wss://wss.woox.io/v3/public",
    rest_url="https://api.woox.io",
    instruments_path="/v3/public/instruments",
    parse_instruments=INSTRUMENTS,
    connector=partial(SeededEngine, BOOKS),
    depth=DEPTH,
    interval_ms=50,
    limits=ExchangeLimits(
        topics=100,
        messages=(Limit(20, 1.0),),  # of 200 topics a second that the page advises
        connects=(Limit(100, 300.0, Scope.ADDRESS),),
        fetches=(Limit(10, 1.0, Scope.ADDRESS),),
        connections=100,
    ),
    silence_max_s=30.0,  # our pings are answered; data is promised only on a change
    snapshot_s=90.0,  # bodies lag behind the stream
    former_names=("woox",),
)
