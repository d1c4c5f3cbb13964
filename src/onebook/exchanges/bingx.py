"""BingX spot: 1000 levels a side every 500 ms, in gzip, snapshot on the socket.

Page: https://bingx-api.github.io/docs/#/en-us/spot/socket/market.html ("Incremental and Full Depth
Information"). JKorf's BingX.Net agrees on the channel, its two actions and the fields of a book.
ccxt subscribes to `depth100` instead and agrees on address, acknowledgement and heartbeat.

Confirmed:

    channel, verbs, levels, depth: 2026-08-21, third-party: JKorf BingX.Net
    verbs, ping: 2026-10-23, third-party: ccxt 4.5.90, of another channel of the socket
    ping, sequence: 2026-09-22, recorded: arbitrage-observatory, frames of perpetuals
    limits: 2026-04-21, page: BingX-API/api-ai-skills

Sequencing: `lastUpdateId` only rises. According to the page each is the last one + 1, but
recordings of the perpetuals' socket, which has the same channel, skip up to 8 numbers hundreds of
times a minute while the books stay equal to REST (nemanull/arbitrage-observatory, 2026-09).
Therefore a higher number is applied, an equal one is ignored, and a lower one is a gap; lost frames
are not detected. The page itself says that frames may arrive out of order, and suggests keeping the
last three and sorting them by their numbers.

Frames, each a binary message in gzip:

    {"id":"1","code":0,"msg":"SUCCESS","timestamp":1690214699854}        accepted; or an empty msg
    {"id":"1","code":80015,"msg":"dataType not support"}                 refused
    {"code":0,"dataType":"BTC-USDT@incrDepth","data":{"action":"all","lastUpdateId":857550007,
     "bids":{"86378.9":"0.0001"},"asks":{"86379.1":"87.1230"},"timestamp":1790127586998}}
    {"ping":"2177c68e","time":"2022-06-07T16:27:36.323+0800"}            every 5 s; must be answered

Later frames have `"action":"update"`; an amount of zero removes a level. A side is either an object
of amounts by price, as the spot client reads it, or a list of pairs, as on the perpetuals' socket;
both forms are read. Code 100410 means too many requests. Codes for a busy exchange (100421, 100500,
100503, from ccxt and a copy of the page's list) are temporary. A refused topic may still send one
frame.

As of 2026-11 no recording has spot frames of this channel. We follow the page (a copy of it),
although ccxt and hummingbot use the whole books of `depth`, because the numbers of this channel
reveal a frame that arrives out of order.

Unconfirmed: which of the two forms a side has on spot; which field has the time of a book
(`timestamp` or `time` of the data, or a field outside it); whether ids also skip on spot; whether a
plain `Ping`, as on the perpetuals' socket, is sent here; how many connections an address may open
within a period.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    NO_LEVELS,
    UNTIMED,
    Accepted,
    BookChannel,
    BookFrame,
    Chain,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    FrameForm,
    Ignored,
    Limit,
    ListReader,
    LossDetection,
    Outputs,
    RequestRejected,
    Scope,
    Send,
    Sequence64,
    control_reader,
    decode,
    send,
    short,
    verbs,
)
from onebook.model import Instrument

CHANNEL: Final = "@incrDepth"
TOO_FREQUENT: Final = 100410


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    action: str
    sequence: Sequence64 = field(name="lastUpdateId")
    bids: Raw
    asks: Raw
    timestamp: int = UNTIMED
    time: int = UNTIMED


class Update(Struct, gc=False):
    """A frame with a snapshot or delta."""

    topic: str = field(name="dataType")
    data: BookMessage
    timestamp: int = UNTIMED


class Control(Struct):
    """The members of control frames."""

    id: str | int | None = None
    code: int = 0
    msg: str = ""
    topic: str = field(name="dataType", default="")
    data: Any = None
    ping: Any = None
    time: Any = ""


_read = msgspec.json.Decoder(Update).decode
_control = control_reader(Control)


def topic(instrument: Instrument) -> str:
    """Return the channel of an instrument, as in its frames."""
    return instrument.native + CHANNEL


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    message: Update = _read(frame)
    book = books.get(message.topic)
    if book is None:
        return None
    item = message.data
    bids, asks, sequence = _rows(bytes(item.bids)), _rows(bytes(item.asks)), item.sequence
    at = item.timestamp or item.time or message.timestamp
    if item.action == "all":
        return book.snapshot(bids, asks, sequence, at)
    if item.action != "update":
        raise ValueError(f"unknown action {short(item.action)!r}")
    last = book.last
    previous = last if last is not None and sequence > last else sequence - 1
    return book.delta(bids, asks, previous, sequence, at)


def _rows(side: bytes) -> bytes:
    """Convert an object of amounts by price to a list of pairs; a list is returned unchanged.

    Any other content becomes rows that the core rejects.
    """
    if not side.startswith(b"{"):
        return side
    pairs = side[1:-1].strip()
    if not pairs:
        return NO_LEVELS
    marked = pairs.replace(b'":', b"\0").replace(b",", b"],[").replace(b"\0", b'",')
    return b"[[" + marked + b"]]"


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    if frame == b"Ping":
        return Send(b"Pong", urgent=True)
    message = decode(_control, frame, what="a frame")
    if message.ping is not None:
        return send({"pong": message.ping, "time": message.time}, urgent=True)
    if message.code:
        return RequestRejected(message.msg, message.id, code=message.code)
    if message.topic.endswith(CHANNEL) or (message.data is not None and not message.topic):
        return BookFrame(message.topic)
    return Ignored(known=False) if message.id is None else Accepted(number=message.id)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe a book."""
    return {"id": str(number), "reqType": verb, "dataType": names[0]}


INSTRUMENTS: Final = ListReader(
    "bingx",
    rows="data.symbols",
    native="symbol",
    separator="-",
    answered={"code": (0, None)},
    spot={"contractId": ("", None)},
    trading={"status": (1,)},  # others: 0, 5, 10, 25
    halted={"apiStateBuy": (False,), "apiStateSell": (False,)},
    tick="tickSize",
    lot="stepSize",
    least_notional="minNotional",
)

BOOKS: Final = BookChannel(
    data, control, *verbs(request, "sub", "unsub"), Chain, key=topic, too_many=(TOO_FREQUENT,)
)

EXCHANGE: Final = Exchange(
    name="bingx",
    display="BingX",
    ws_url="wss://open-api-ws.bingx.com/market",
    rest_url="https://open-api.bingx.com",
    instruments_path="/openApi/spot/v1/common/symbols",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=1_000,
    interval_ms=500,
    frames=FrameForm.COMPRESSED,
    guard=LossDetection.ORDER,
    limits=ExchangeLimits(
        topics=180,  # of 200 allowed
        messages=(Limit(8, 1.0),),  # fewer than 10 subscriptions are allowed
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(100, 10.0, Scope.ADDRESS),),  # of 500; only for the instrument list
        connections=60,
    ),
    heartbeat_max_s=15.0,  # three pings of the server
)
