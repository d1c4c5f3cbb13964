"""WOO X spot: the best 10 levels a side, whole in every frame, at most every 200 ms.

Pages: https://developer.woox.io/api-reference/endpoint/websocket/ORDERBOOK10 (`orderbook10`: 10
levels, pushed every 200 ms); `websocket_introduction`, `subscribe`, `Unsubscribe`,
`public_data/orderbook` next to it.

**The book contains retail-only orders (RPI)**. They match orders from WOO X's own apps and copy
trading, but never orders by API. In recordings of perpetuals the spread with them was 11 ppm, and
3,652 ppm without them. The channel without them, `orderbookupdate`, accepts subscriptions for spot
but sends nothing (found by the maintainers of ccxt, pull request 29578 of 2026-08), so it cannot be
followed. To trade by API, exclude WOO X (`["all", "-woo"]`).

Sequencing: each frame has the whole book, so a lost frame does no harm. If no frame arrives within
15 s of the subscription, the book starts from REST; after minutes without a frame it is compared
with REST. `rpi=true` requests the book with the same orders. REST bodies and frames contain the
time of the book's last change, so that the older of the two is dropped.

Frames:

    {"id":"1","cmd":"SUBSCRIBE","params":["orderbook10@SPOT_BTC_USDT"]}
    {"id":"1","cmd":"SUBSCRIBE","success":true,"time":1790137718411,
     "data":["orderbook10@SPOT_BTC_USDT"]}
    {"id":"8","cmd":"SUBSCRIBE","success":false,"time":1790137718411,"data":"Command type invalid!"}
    {"id":"2","cmd":"UN_SUBSCRIBE","success":true,"time":1759568478343,
     "data":["orderbook10@SPOT_BTC_USDT"]}
    {"topic":"orderbook10@SPOT_BTC_USDT","ts":1790137719008,"data":{"ts":1790137718138,
     "bids":[["87062","13.89220"]],"asks":[["87063","4.53491"]],"s":"SPOT_BTC_USDT"}}

The answer lists the accepted topics, without unknown pairs and topics that are already subscribed.
Unknown commands and requests with too many topics get the same refusal. The inner `ts` of a frame
is the time of the book, which is used; the outer `ts` is when the frame was sent. The levels of a
REST body are objects:
{"success":true,"timestamp":1751620923344,"data":{"asks":[{"price":"2","quantity":"1"}],"bids":[]}}

The page allows 20 topics in a request, but the exchange accepted only 10. A socket was closed after
60 s without a frame from the client, although the page says that the client need not send anything;
a protocol ping kept it open. These limits and the frames above were recorded in 2026-09 on
perpetuals, which use the same socket (nemanull/arbitrage-observatory, its profile of the exchange).
ccxt's `woo` (4.5.90) still uses the v1 socket; its source for v3 (the pull request above) sends and
reads the same frames for spot. The name here is ccxt's id, `woo`.

Confirmed:

    channel, verbs: 2026-08-05, third-party: ccxt pull request 29578, for spot
    channel, levels, depth: 2026-09-22, recorded: arbitrage-observatory, frames of perpetuals
    ping, limits: 2026-09-22, recorded: arbitrage-observatory, on the same socket
    sequence: 2026-09-22, page: ORDERBOOK10, each frame is a snapshot

Unconfirmed: which levels of a frame are retail-only orders, and so not available by API; frames of
spot, which were not recorded; whether the first frame arrives at the subscription or with the next
change; the answer to too many requests.
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
    ServerTime,
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
    """Make the sequencing strategy of a book: REST starts it if no frame arrives."""
    query = f"symbol={quote(instrument.native)}&maxLevel={DEPTH}&rpi=true"
    return QuietBook(Fetch(instrument, f"/v3/public/orderbook?{query}"), body_shape=LEVELS)


INSTRUMENTS: Final = ListReader(
    "woo",
    rows="data.rows",
    native="symbol",
    base="baseAsset",
    quote="quoteAsset",
    not_spot_name="PERP_",  # spot names begin with SPOT_
    trading={"status": ("TRADING",)},
    tick="quoteTick",
    lot="baseTick",
    least_amount="baseMin",
    least_notional="minNotional",
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
    time=ServerTime("/v3/public/systemInfo", "timestamp"),
    limits=ExchangeLimits(
        topics=100,
        messages=(Limit(20, 1.0),),  # of 200 topics a second that the page advises
        connects=(Limit(100, 300.0, Scope.ADDRESS),),
        fetches=(Limit(10, 1.0, Scope.ADDRESS),),
        connections=100,
    ),
    silence_max_s=30.0,  # our pings are answered; data arrives only on a change
    snapshot_s=15.0,  # a book without a frame by then is fetched by REST
    former_names=("woox",),
)
