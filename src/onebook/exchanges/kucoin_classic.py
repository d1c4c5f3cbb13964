"""KuCoin spot, the classic feed: every change of the whole book, seeded by REST.

The fallback of `kucoin` (`feeds.overrides.kucoin.channel = "classic"`). Pages:
https://www.kucoin.com/docs-new/3470068w0 (order book),
https://www.kucoin.com/docs-new/websocket-api/base-info/introduction (token, ping, errors).

Each connection has its own token, address and ping interval, which `POST /api/v1/bullet-public`
returns:

    {"code":"200000","data":{"token":"2neAiuYv","instanceServers":[{"pingInterval":18000,
     "endpoint":"wss://ws-api-spot.kucoin.com/","pingTimeout":10000,"encrypt":true,
     "protocol":"websocket"}]}}

Sequencing: deltas are buffered from the acknowledgement until the REST body arrives, those with
`sequenceEnd` <= `sequence` are dropped, and from then on each `sequenceStart` is the last
`sequenceEnd` + 1. A row with a price of 0 has no level, it only uses up a number. The page drops
rows of the first delta that are not newer than the body. Here they are applied, which has the same
result: they have the amount of the body, or a newer row of their frame replaces it (each of 3,853
recorded frames has one row).

Frames; no request is accepted before the welcome:

    {"id":"NSkIrWGB1s","type":"welcome"}
    {"id":"1","type":"ack"}
    {"type":"message","topic":"/market/level2:BTC-USDT","subject":"trade.l2update","data":{
     "changes":{"asks":[["67993.3","1.21427407","14701689783"]],"bids":[]},"symbol":"BTC-USDT",
     "sequenceStart":14701689783,"sequenceEnd":14701689783,"time":1729816425625}}
    {"id":"1","type":"error","code":404,"data":"topic /market/level2:X-Y is not found"}
    {"id":"1","type":"error","code":509,"data":"exceed max permits per second"}
    {"id":"ping","type":"pong","timestamp":1790113097236506}     to our {"id":"ping","type":"ping"}

REST body, `/api/v1/market/orderbook/level2_100`: {"code":"200000","data":{"time":1619378326628,
"sequence":"1613277183892","bids":[["242.649","5"]],"asks":[["242.7","1"]]}}

Without a key at most 100 levels a side are available, so the book ends there and is reseeded before
the price approaches its end. ccxt keeps the same book. `symbol` always keeps a coin's first name
(BCHSV-USDT), the currencies of a row follow a renaming (BSV).

KuCoin wrote on 2026-06-03 that classic accounts may continue to use this API, and still extended
its list on 2026-09-21. A secondary source said that it ends on 2026-12-31, which is probably a
misreading (see `kucoin`).

Confirmed:

    channel, verbs, sequence: 2026-10-23, third-party: ccxt 4.5.90
    levels: 2024-10-24, recorded: 3,853 frames
    depth: 2026-10-23, third-party: ccxt 4.5.90, level2_100 is the most without a key
    ping: 2026-09-15, third-party: kucoin_universal_sdk 1.3.2
    limits: never: general knowledge, 100 messages in 10 s and 300 to 400 topics

Unconfirmed: whether an unknown symbol is still refused (seen in 2019), or accepted and silent, as
on the futures' socket in 2026; if it is refused, that the other symbols of its request are not
subscribed either; that a request may have the 100 symbols that are sent here.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Meta, Raw, Struct, field

from onebook.core.types import LevelShape
from onebook.exchanges.kit import (
    UNTIMED,
    Accepted,
    Address,
    BookChannel,
    BookFrame,
    Closing,
    Connect,
    Event,
    Exchange,
    ExchangeLimits,
    ExchangeReady,
    FeeColumn,
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
    SlowDown,
    control_reader,
    decode,
    fee_pages,
    join_by_rest,
    short,
    text_in,
    verbs,
)
from onebook.model import Instrument

TOPIC: Final = "/market/level2:"
SUBJECT: Final = "trade.l2update"
PING: Final = b'{"id":"ping","type":"ping"}'
PINGS_S: Final = (1.0, 20.0)  # bounds of the ping interval in the answer
NUMBERED: Final = LevelShape.rows(skip_zero_price=True)
SEED_LEVELS: Final = 100
SEED_WEIGHT: Final = 4
TOKEN_REFUSED: Final = 401
TOO_MUCH: Final = 509
UNAVAILABLE: Final = 500


class Changes(Struct, gc=False):
    """Changed levels."""

    bids: Raw
    asks: Raw


class Update(Struct, gc=False, rename="camel"):
    """The data of a delta."""

    symbol: str
    sequence_start: Sequence64
    sequence_end: Sequence64
    changes: Changes
    time: int = UNTIMED


class Data(Struct, gc=False):
    """A frame with a delta."""

    subject: str
    data: Update


class Control(Struct):
    """The members of control frames."""

    id: Sequence64 | str | None = None
    type: str = ""
    subject: str = ""
    code: int | None = None
    data: Any = None


class Depth(Struct):
    """A book in a REST body; its sequence is a string."""

    sequence: Sequence64
    bids: Raw
    asks: Raw
    at: int = field(name="time", default=UNTIMED)


class Body(Struct):
    """The REST body."""

    data: Depth


class Server(Struct, rename="camel"):
    """A server address, and the milliseconds between pings."""

    endpoint: str
    ping_interval: int


class Grant(Struct, rename="camel"):
    """The token and servers of one connection."""

    token: str
    instance_servers: Annotated[list[Server], Meta(min_length=1)]


class Granted(Struct):
    """The answer of bullet-public."""

    data: Grant


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)
_body = msgspec.json.Decoder(Body, strict=False).decode
_granted = msgspec.json.Decoder(Granted).decode


def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    """Decode a delta."""
    message: Data = _read(frame)
    update = message.data
    book = books.get(update.symbol)
    if book is None or message.subject != SUBJECT:
        return None
    first, final, changes = update.sequence_start, update.sequence_end, update.changes
    return book.delta(first, final, changes.bids, changes.asks, update.time)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    match message.type:
        case "message" if message.subject == SUBJECT:
            return BookFrame(text_in(message.data, "symbol"))
        case "welcome":
            return ExchangeReady()
        case "ack":
            return Accepted(number=message.id)
        case "error" if message.code == TOKEN_REFUSED:
            return Closing(f"the token is refused: {short(message.data)}")
        case "error" if message.code == TOO_MUCH:
            return SlowDown(short(message.data))
        case "error":
            return RequestRejected(str(message.data), message.id, whole=True, code=message.code)
    return Ignored(known=message.type == "pong")


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    return {"id": str(number), "type": verb, "topic": TOPIC + ",".join(names), "response": True}


def seed(body: bytes) -> Depth:
    """Decode the REST body that starts a book."""
    return _body(body).data


def address(body: bytes, instruments: Sequence[Instrument]) -> Address:
    """Decode the address and ping interval of a connection."""
    grant = decode(_granted, body, what="the answer of bullet-public").data
    server = grant.instance_servers[0]
    least_s, most_s = PINGS_S
    every_s = min(max(server.ping_interval / 1000, least_s), most_s)
    return Address(f"{server.endpoint}?token={quote(grant.token)}", Heartbeat(PING, every_s))


INSTRUMENTS: Final = ListReader(
    "kucoin",
    rows="data",
    native="symbol",
    base="baseCurrency",
    quote="quoteCurrency",
    trading={"enableTrading": (True,)},  # rows of futures have no such member
    tick="priceIncrement",
    lot="baseIncrement",
    least_amount="baseMinSize",
    least_notional="minFunds",
    taker=FeeColumn(
        "feeCategory",
        classes=fee_pages()["kucoin"].classes,
        factor="takerFeeCoefficient",
    ),
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    join_by_rest(
        "/api/v1/market/orderbook/level2_{levels}?symbol={symbol}",
        SEED_LEVELS,
        weight=SEED_WEIGHT,
        delta_shape=NUMBERED,
    ),
    names_per_request=100,
    seed=seed,
    welcomes=True,
    too_many=(TOO_MUCH,),
    unavailable=(UNAVAILABLE,),
)

CLASSIC: Final = Exchange(
    name="kucoin",
    display="KuCoin",
    ws_url="wss://ws-api-spot.kucoin.com/",  # usually; the answer has the address
    rest_url="https://api.kucoin.com",
    instruments_path="/api/v2/symbols",
    parse_instruments=INSTRUMENTS,
    lists_fees=True,
    connector=partial(SeededEngine, BOOKS),
    connect=Connect("POST", "/api/v1/bullet-public", address, weight=10),
    depth=0,
    interval_ms=0,
    time=ServerTime("/api/v1/timestamp", "data", weight=3),
    limits=ExchangeLimits(
        topics=100,  # of 400 allowed: a lost socket must not cost minutes of REST budget
        messages=(Limit(100, 10.0),),
        connects=(Limit(30, 60.0, Scope.ADDRESS),),
        fetches=(Limit(1_800, 30.0, Scope.ADDRESS),),  # of 2000
        connections=800,
    ),
    heartbeat=Heartbeat(PING, every_s=18.0),  # the exchange closes after 60 s without one
    silence_max_s=30.0,  # a healthy socket answers each ping; data arrives only on a change
    snapshot_s=60.0,  # the books of a full socket use 7 s of the REST budget
)
