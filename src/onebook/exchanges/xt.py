"""XT.com spot: the whole book as diffs every 100 ms, seeded by REST.

Pages: https://doc.xt.com/docs/spot/WebSocket%20Public/IncrementalDepth, `OrderbookManage`,
`RequestMessageFormat` and `Heartbeat` next to it, and `Market/GetDepthData` for the body.

Confirmed:

    channel, sequence: 2026-09-23, third-party: a hummingbot connector, 430 deltas without a gap
    channel, verbs, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    ping, limits: 2026-09-22, recorded: arbitrage-observatory, of futures

Sequencing: as for Binance. Deltas with `i <= lastUpdateId` of the REST body are dropped, the first
one kept contains `lastUpdateId + 1`, and from then on each `fi` is the last `i + 1`. A hummingbot
connector with this rule counted no gap in 430 deltas (2026-09-23); ccxt subscribes to the same
stream without checking numbers.

Frames:

    {"method":"subscribe","params":["depth_update@btc_usdt"],"id":"1"}
    {"code":0,"msg":"success","id":"1","sessionId":"5e15..."}
    {"code":1,"msg":"checkSymbol error, symbol:nope_usdt","id":"1"}
    {"topic":"depth_update","event":"depth_update@btc_usdt","data":{"s":"btc_usdt",
     "fi":121,"i":123,"a":[["34000","1.2"]],"b":[["32000","0.2"]]}}              "0" removes
    pong                                                               to our text `ping`

REST: {"rc":0,"mc":"SUCCESS","ma":[],"result":{"timestamp":1678169975184,
 "lastUpdateId":1675333221812,"bids":[["22444.51","0.129"]],"asks":[["22446.19","0.095"]]}}; a
refusal is HTTP 200 with `rc` 1 and without a result. Deltas have no time; the REST body has one.

A socket without our ping is closed, however busy: after 60 s according to the page, after 30 s on
the futures' socket (nemanull/arbitrage-observatory, 2026-09-23), so it is pinged every 15 s. On
that socket a delisted pair was acknowledged and stayed silent, a second request for a stream was
accepted again, and 200 streams in one request and 400 on one socket were served.

As of 2026-11 streams of futures have an argument for the interval. Those of spot have none; the
page states 100 ms.

Unconfirmed on spot: the two errors, which were recorded on futures; whether a request with one
unknown pair is refused as a whole (this is assumed: the others are requested again, which changes
nothing if they were accepted); how many streams a request may have (50 are sent); the answer to too
many requests.

The pages require the handshake to offer `permessage-deflate`, so it does. A client reports that
servers which do not grant it fall behind.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    Accepted,
    BookChannel,
    BookFrame,
    DepthBody,
    Event,
    Exchange,
    ExchangeLimits,
    FrameForm,
    Heartbeat,
    Ignored,
    Join,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    SeededEngine,
    Sequence64,
    ServerTime,
    control_reader,
    decode,
    join_by_rest,
)

TOPIC: Final = "depth_update"
PONG: Final = b"pong"
ONLINE: Final = "ONLINE"
SEED_LEVELS: Final = 500  # the maximum of a body


class Change(Struct, gc=False):
    """The data of a delta."""

    native: str = field(name="s")
    first: Sequence64 = field(name="fi")
    final: Sequence64 = field(name="i")
    bids: Raw = field(name="b")
    asks: Raw = field(name="a")


class Update(Struct, gc=False):
    """A frame with a delta."""

    topic: str
    data: Change


class Control(Struct):
    """The members of control frames."""

    topic: str = ""
    event: str = ""
    code: int | None = None
    msg: str = ""
    id: str | int | None = None


class Body(Struct):
    """The REST body."""

    result: DepthBody


_read = msgspec.json.Decoder(Update).decode
_control = control_reader(Control)
_body = msgspec.json.Decoder(Body).decode


def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    """Decode a delta."""
    message: Update = _read(frame)
    change = message.data
    book = books.get(change.native)
    if book is None or message.topic != TOPIC:
        return None
    return book.delta(change.first, change.final, change.bids, change.asks)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    if frame == PONG:
        return Ignored(known=True)
    message = decode(_control, frame, what="a frame")
    if message.topic:
        name = message.event.removeprefix(f"{TOPIC}@")
        return BookFrame(name) if message.topic == TOPIC else Ignored(known=False)
    if message.code is None:
        return Ignored(known=False)
    if message.code:
        return RequestRejected(message.msg, message.id, whole=True)
    return Accepted(number=message.id)


def request(names: Sequence[str], number: int, *, method: str) -> object:
    """Encode a request to subscribe or unsubscribe streams."""
    params = [f"{TOPIC}@{name}" for name in names]
    return {"method": method, "params": params, "id": str(number)}


INSTRUMENTS: Final = ListReader(
    "xt",  # the list is of spot only
    rows="result.symbols",
    native="symbol",
    base="baseCurrency",
    quote="quoteCurrency",
    trading={"state": (ONLINE,), "tradingEnabled": (True,), "openapiEnabled": (True,)},
    tick_decimals="pricePrecision",
    lot_decimals="quantityPrecision",
    least_amount="filters[filter=QUANTITY].min",
    least_notional="filters[filter=QUOTE_QTY].min",
)

BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=partial(request, method="subscribe"),
    unsubscribe=partial(request, method="unsubscribe"),
    track=join_by_rest("/v4/public/depth?symbol={symbol}&limit={levels}", SEED_LEVELS),
    names_per_request=50,
    seed=lambda body: _body(body).result,
)

EXCHANGE: Final = Exchange(
    name="xt",
    display="XT.com",
    ws_url="wss://stream.xt.com/public",
    rest_url="https://sapi.xt.com",
    instruments_path="/v4/public/symbol",
    parse_instruments=INSTRUMENTS,
    connector=partial(SeededEngine, BOOKS),
    depth=0,
    interval_ms=100,
    timed=False,
    time=ServerTime("/v4/public/time", "result.serverTime"),
    limits=ExchangeLimits(
        topics=100,  # our choice; 400 were served on futures
        messages=(Limit(5, 1.0),),  # our choice: undocumented
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(10, 1.0, Scope.ADDRESS),),
    ),
    heartbeat=Heartbeat(b"ping", 15.0),
    frames=FrameForm.DEFLATED,
    silence_max_s=30.0,
    snapshot_s=60.0,  # the books of a full socket use 20 s of the REST budget
)
