"""WOO X spot: the best 10 levels a side, whole in every frame, at most every 200 ms.

Pages: https://developer.woox.io/api-reference/endpoint/websocket/ORDERBOOK10 (`orderbook10`: 10
levels, pushed every 200 ms); `websocket_introduction`, `subscribe`, `Unsubscribe`,
`public_data/orderbook` beside it.

**The book contains retail-only orders (RPI)**, which match orders made in WOO X's own apps and copy
trading, and never an order by API: on perpetuals, where both books were recorded, the one with them
was 11 ppm wide and the one without them 3,652. The channel without them, `orderbookupdate`, is
accepted for spot and sends nothing (the maintainers of ccxt found so, pull request 29578 of
2026-08), so it cannot be followed. Exclude WOO X to trade by API (`["all", "-woo"]`).

Sequencing: each frame has the whole book, so a lost frame does no harm. A book without a frame
for 15 s is started by REST, and one without a frame for minutes is compared with REST;
`rpi=true` asks for the book with the same orders. A body and a frame name the time of the book's
last change, so that the older of the two is dropped.

Frames:

    {"id":"1","cmd":"SUBSCRIBE","params":["orderbook10@SPOT_BTC_USDT"]}
    {"id":"1","cmd":"SUBSCRIBE","success":true,"time":1790137718411,
     "data":["orderbook10@SPOT_BTC_USDT"]}
    {"id":"8","cmd":"SUBSCRIBE","success":false,"time":1790137718411,"data":"Command type invalid!"}
    {"id":"2","cmd":"UN_SUBSCRIBE","success":true,"time":1759568478343,
     "data":["orderbook10@SPOT_BTC_USDT"]}
    {"topic":"orderbook10@SPOT_BTC_USDT","ts":1790137719008,"data":{"ts":1790137718138,
     "bids":[["87062","13.89220"]],"asks":[["87063","4.53491"]],"s":"SPOT_BTC_USDT"}}

The answer lists the accepted topics: unknown pairs and topics that are already subscribed are
absent. An unknown command is refused as a request of too many topics is. The time of a frame is
that of its data, when the book was made; the outer `ts` is when it was sent. The levels of a REST
body are objects:
{"success":true,"timestamp":1751620923344,"data":{"asks":[{"price":"2","quantity":"1"}],"bids":[]}}

The page allows 20 topics in a request, the wire took 10; a socket was closed after 60 s without a
frame of ours, although the page says that nothing need be sent; a protocol ping was enough. These
and the frames above were recorded in 2026-09 on perpetuals, which share the socket
(nemanull/arbitrage-observatory, its profile of the exchange). ccxt's `woo` (4.5.90) still follows
the socket of v1; its source for v3 (that pull request) sends and reads the same for spot. ccxt's id
is `woo`, so that this is its name here.

Confirmed:

    channel, verbs: 2026-08-05, third-party: ccxt pull request 29578, for spot
    channel, levels, depth: 2026-09-22, recorded: arbitrage-observatory, frames of perpetuals
    ping, limits: 2026-09-22, recorded: arbitrage-observatory, on the same socket
    sequence: 2026-09-22, page: ORDERBOOK10, each frame is a snapshot

Unconfirmed: which levels of a frame are retail-only orders, so that a level may not be there for an
order by API; frames of spot, which were not recorded; whether a frame comes at the subscription or
with the next change; the answer to too many requests.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from onebook.core.types import LevelShape
from onebook.exchanges.kit import (
    UNTIMED,
    BookChannel,
    BookFrame,
    Event,
    Exchange,
    ExchangeLimits,
    Fetch,
    Ignored,
    Limit,
    ListReader,
    LossDetection,
    Outputs,
    QuietBook,
    QuietEngine,
    RequestRejected,
    Scope,
    accepted_of,
    control_reader,
    decode,
    verbs,
)
from onebook.model import Instrument

CHANNEL: Final = "orderbook10@"
DEPTH: Final = 10
LEVELS: Final = LevelShape.objects("price", "quantity")


class WholeBook(Struct, gc=False):
    """The data of a frame."""

    bids: Raw
    asks: Raw
    at: int = field(name="ts", default=UNTIMED)


class BookMessage(Struct, gc=False):
    """A frame with a whole book."""

    topic: str
    data: WholeBook


class Control(Struct):
    """The members of control frames."""

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

    timestamp: int
    data: Sides


_read = msgspec.json.Decoder(BookMessage).decode
_control = control_reader(Control)
_body = msgspec.json.Decoder(Body).decode


def topic(instrument: Instrument) -> str:
    """Return the topic of an instrument, as in its frames."""
    return CHANNEL + instrument.native


def data(books: dict[str, QuietBook], frame: bytes) -> Outputs | None:
    """Decode a whole book."""
    message: BookMessage = _read(frame)
    book = books.get(message.topic)
    if book is None:
        return None
    whole = message.data
    return book.snapshot(whole.bids, whole.asks, whole.at)


def seed(body: bytes) -> WholeBook:
    """Decode a REST body."""
    message = _body(body)
    return WholeBook(message.data.bids, message.data.asks, message.timestamp)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
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
    """Encode a request to subscribe or unsubscribe topics."""
    return {"id": str(number), "cmd": verb, "params": names}


def quiet(instrument: Instrument) -> QuietBook:
    """Make the strategy of a book: a REST body starts it if no frame arrives."""
    query = f"symbol={quote(instrument.native)}&maxLevel={DEPTH}&rpi=true"
    return QuietBook(Fetch(instrument, f"/v3/public/orderbook?{query}"), body_shape=LEVELS)


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
    data, control, *verbs(request, "SUBSCRIBE", "UN_SUBSCRIBE"), quiet, 10, key=topic, seed=seed
)

EXCHANGE: Final = Exchange(
    name="woo",
    display="WOO X",
    ws_url="wss://wss.woox.io/v3/public",
    rest_url="https://api.woox.io",
    instruments_path="/v3/public/instruments",
    parse_instruments=INSTRUMENTS,
    connector=partial(QuietEngine, BOOKS),
    depth=DEPTH,
    interval_ms=200,
    guard=LossDetection.WHOLE,
    limits=ExchangeLimits(
        topics=100,
        messages=(Limit(20, 1.0),),  # of 200 topics a second that the page advises
        connects=(Limit(100, 300.0, Scope.ADDRESS),),
        fetches=(Limit(10, 1.0, Scope.ADDRESS),),
        connections=100,
    ),
    silence_max_s=30.0,  # our pings are answered; data is promised only on a change
    snapshot_s=15.0,  # without a frame by then, the book is fetched by REST
    former_names=("woox",),
)
