"""KuCoin spot: 500 levels a side every 10 ms, snapshot on the socket.

Pages: https://www.kucoin.com/docs-new/3470221w0 (order book),
https://www.kucoin.com/docs-new/websocket-api/base-info/introduction-uta (welcome, ping, answers).

In sync: the first change of each delta (`O`) is the last one before it (`C`) + 1. The page lets a
delta reach back too (`O` <= last < `C`); none is known. A snapshot has `O` = `C` and replaces the
book whenever it comes. Levels that leave the best 500 are removed by a delta. Repair is unsubscribe
and subscribe.

Frames, JSON in binary frames; nothing may be asked for before the welcome:

    {"sessionId":"e8e46556","message":"welcome","pingInterval":18000}
    {"id":"1","result":true}                                              or "true"
    {"id":"1","result":false,"message":"invalid request data"}            or "reason"
    {"T":"obu.SPOT","dp":"increment@10ms","t":"snapshot","P":1768217874990007701,
     "d":{"s":"BTC-USDT","O":25984468414,"C":25984468414,"M":1768217874986000000,
     "a":[["90701.2","0.5771583"]],"b":[["90701.1","0.13918404"]]}}     then "delta"; "0" removes
    {"type":"pong","id":"ping","ts":1790113111261396000}     to our {"id":"ping","type":"ping"}

Unknown symbols are accepted and stay silent. A book that does not change is silent too. The plain
"increment" depth has no snapshot and was to end on 2026-07-15.

cryptofeed's source of 2026 (its releases end before it) follows the same channel by the same rule
and starts at the same snapshot; ccxt (`uta`) agrees on requests and snapshots and takes no level
from an increment, as it looks for `bids` and `asks` there. Unconfirmed on spot, as only the same
socket of futures was recorded (2026-09): that a subscription brings a snapshot again after an
unsubscription, and what the answer to one request too many looks like.

`kucoin_classic` is the older feed, and the instrument list of both. Unconfirmed: that the classic
V1 ends on 2026-12-31 (a secondary source alone says so), and whether its list of symbols would too.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from onebook.exchanges.channel import (
    Accepted,
    BookChannel,
    BookFrame,
    Event,
    ExchangeReady,
    RequestRejected,
    verbs,
)
from onebook.exchanges.contract import Exchange, Heartbeat, Ignored, Outputs, ProtocolError
from onebook.exchanges.controls import control_reader
from onebook.exchanges.engine import Engine
from onebook.exchanges.frames import Sequence64, decode, short, text_in
from onebook.exchanges.kucoin_classic import CLASSIC, PING
from onebook.exchanges.limits import Limit, Scope
from onebook.exchanges.moments import UNTIMED
from onebook.exchanges.sync import Chain

TOPIC: Final = "obu.SPOT"
DEPTH: Final = "increment@10ms"


class BookMessage(Struct, gc=False):
    """A book or a change of it."""

    native: str = field(name="s")
    first: Sequence64 = field(name="O")
    final: Sequence64 = field(name="C")
    bids: Raw = field(name="b")
    asks: Raw = field(name="a")


class Data(Struct, gc=False):
    """The frame of a book."""

    topic: str = field(name="T")
    depth: str = field(name="dp")
    type: str = field(name="t")
    book: BookMessage = field(name="d")
    at: int = field(name="P", default=UNTIMED)


class Control(Struct):
    """Every frame that is not of a book."""

    id: Sequence64 | str | None = None
    type: str = ""
    op: str = ""
    result: bool | str | None = None
    message: str = ""
    reason: str = ""
    topic: str = field(name="T", default="")
    depth: str = field(name="dp", default="")
    book: Any = field(name="d", default=None)


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Follow a frame of a book."""
    message: Data = _read(frame)
    change, at = message.book, message.at
    book = books.get(change.native)
    if book is None or message.topic != TOPIC or message.depth != DEPTH:
        return None
    if message.type == "delta":
        return book.delta(change.bids, change.asks, _previous(book, change), change.final, at)
    if message.type == "snapshot":
        return book.snapshot(change.bids, change.asks, change.final, at)
    raise ProtocolError(f"{TOPIC} has no type {short(message.type)!r}", book.instrument)


def _previous(book: Chain, change: BookMessage) -> int:
    """Name the state that a delta follows: the book's, where it reaches back before that."""
    last, before = book.last, change.first - 1
    return last if last is not None and before < last < change.final else before


def control(frame: bytes) -> Event:
    """Read a frame that is not of a book."""
    message = decode(_control, frame, what="a frame")
    if message.topic == TOPIC and message.depth == DEPTH:
        return BookFrame(text_in(message.book, "s"))
    if message.message == "welcome":
        return ExchangeReady()
    if message.result in (True, "true"):
        return Accepted(number=message.id)
    if message.result is not None:
        return RequestRejected(message.reason or message.message, message.id)
    return Ignored(known="pong" in (message.type, message.op))


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Ask for a book; this channel takes one name in a request."""
    return {
        "id": str(number),
        "action": verb,
        "channel": "obu",
        "tradeType": "SPOT",
        "symbol": names[0],
        "depth": DEPTH,
        "rpiFilter": 0,
    }


BOOKS: Final = BookChannel(
    data, control, *verbs(request, "SUBSCRIBE", "UNSUBSCRIBE"), Chain, welcomes=True
)

EXCHANGE: Final[Exchange] = replace(
    CLASSIC,
    ws_url="wss://x-push-spot.kucoin.com",
    connector=partial(Engine, BOOKS),
    connect=None,
    depth=500,
    interval_ms=10,
    limits=replace(
        CLASSIC.limits,
        topics=100,  # of 600
        messages=(Limit(300, 10.0),),
        connects=(Limit(250, 300.0, Scope.ADDRESS),),
    ),
    heartbeat=Heartbeat(PING, every_s=9.0),  # half the interval of the welcome
    snapshot_s=20.0,  # 6 s after the request were seen, and a full socket needs 5 s for requests
    channels={"classic": CLASSIC},
)
