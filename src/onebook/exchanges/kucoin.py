"""KuCoin spot: 500 levels a side every 10 ms, snapshot on the socket.

Pages: https://www.kucoin.com/docs-new/3470221w0 (order book),
https://www.kucoin.com/docs-new/websocket-api/base-info/introduction-uta (welcome, ping, answers),
https://www.kucoin.com/docs-new/change-log (limits: the entry of 2026-02-09).

Sequencing: the first change of each delta (`O`) is the last one before it (`C`) + 1. The page lets
a delta reach back too (`O` <= last < `C`); none is known. A snapshot has `O` = `C` and replaces the
book whenever it arrives. Levels that leave the best 500 are removed by a delta. To resync,
unsubscribe and subscribe.

Frames, JSON in binary frames; no request is accepted before the welcome:

    {"sessionId":"e8e46556","message":"welcome","pingInterval":18000}
    {"sessionId":"e8e46556","data":"welcome","pingInterval":18000,"pingTimeout":10000}
    {"id":"1","result":true}                                              or "true"
    {"id":"1","result":false,"message":"invalid request data"}            or "reason"
    {"T":"obu.SPOT","dp":"increment@10ms","t":"snapshot","P":1768217874990007701,
     "d":{"s":"BTC-USDT","O":25984468414,"C":25984468414,"M":1768217874986000000,
     "a":[["90701.2","0.5771583"]],"b":[["90701.1","0.13918404"]]}}     then "delta"; "0" removes
    {"id":"ping","op":"pong","timestamp":1790113111261}      to our ping, or with "type" and "ts"

The first welcome was recorded until 2026-09-23. The second was announced on 2026-08-27 for all
public sockets, with pushes without blanks between members, and removed from the change log on
2026-09-11. KuCoin's own client (kucoin_universal_sdk 1.3.2, 2026-09-15) accepts the word in `data`,
`message`, `op` or `type`, and so does this connector. That client pings with `op`; the older
`{"id":"ping","type":"ping"}` was answered too. Some examples of the page have "obu.spot" as `T`,
recorded frames have "obu.SPOT": both are read.

Limits are those of the change log: 100 messages in 10 s and 200 topics per connection, 30 new
connections a minute, 512 connections per address. The socket of futures allowed more (300 messages
in 10 s, 600 topics; recorded in 2026-09).

Unknown symbols are accepted but send nothing, and neither does a book that does not change. The
depth "increment" has no snapshot and was announced to end on 2026-07-15. Since 2026-07-17 the
channel sends the auction book during a call auction; it may be crossed, and is then not shown.

cryptofeed's unreleased source of 2026 sequences the same channel by the same rule, from the same
snapshot. ccxt (`uta`) agrees on requests and snapshots, but reads no levels from increments: it
looks for `bids` and `asks` there.

`kucoin_classic` is the older feed, whose instrument list is used for both. The change log (to
2026-09-27) announces no end of that feed or list. A secondary source said that it ends on
2026-12-31, which is probably a misreading of the new addresses (V2) of the unified account's REST.

Confirmed:

    channel, verbs, ping: 2026-09-15, third-party: kucoin_universal_sdk 1.3.2, KuCoin's own client
    limits: 2026-02-09, page: change log, "Pro API WebSocket Rate Limits"
    sequence: 2026-09-23, recorded: arbitrage-observatory, 8,650 deltas of futures
    levels, depth: 2026-06-17, page: change log, `increment@10ms` with 500 levels

Unconfirmed on spot, because only the same socket of futures was recorded (2026-09): whether a
second subscription of a book starts with a snapshot again, and the answer to too many requests.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from onebook.exchanges.kit import (
    UNTIMED,
    Accepted,
    BookChannel,
    BookFrame,
    Chain,
    Engine,
    Event,
    Exchange,
    ExchangeReady,
    Heartbeat,
    Ignored,
    Limit,
    Outputs,
    ProtocolError,
    RequestRejected,
    Scope,
    Sequence64,
    control_reader,
    decode,
    short,
    text_in,
    verbs,
)
from onebook.exchanges.kucoin_classic import CLASSIC

TOPICS: Final = ("obu.SPOT", "obu.spot")
DEPTH: Final = "increment@10ms"
WELCOME: Final = "welcome"


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    native: str = field(name="s")
    first: Sequence64 = field(name="O")
    final: Sequence64 = field(name="C")
    bids: Raw = field(name="b")
    asks: Raw = field(name="a")


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    topic: str = field(name="T")
    depth: str = field(name="dp")
    type: str = field(name="t")
    book: BookMessage = field(name="d")
    at: int = field(name="P", default=UNTIMED)


class Control(Struct):
    """The members of control frames."""

    id: Sequence64 | str | None = None
    type: str = ""
    op: str = ""
    result: bool | str | None = None
    message: str = ""
    data: Any = None
    reason: str = ""
    topic: str = field(name="T", default="")
    depth: str = field(name="dp", default="")
    book: Any = field(name="d", default=None)


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    message: Data = _read(frame)
    change, at = message.book, message.at
    book = books.get(change.native)
    if book is None or message.topic not in TOPICS or message.depth != DEPTH:
        return None
    if message.type == "delta":
        return book.delta(change.bids, change.asks, _previous(book, change), change.final, at)
    if message.type == "snapshot":
        return book.snapshot(change.bids, change.asks, change.final, at)
    raise ProtocolError(f"{TOPICS[0]}: unknown type {short(message.type)!r}", book.instrument)


def _previous(book: Chain, change: BookMessage) -> int:
    """Return the state that a delta follows: the book's, if the delta starts before it."""
    last, before = book.last, change.first - 1
    return last if last is not None and before < last < change.final else before


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.topic in TOPICS and message.depth == DEPTH:
        return BookFrame(text_in(message.book, "s"))
    if WELCOME in (message.message, message.data, message.op, message.type):
        return ExchangeReady()
    if message.result in (True, "true"):
        return Accepted(number=message.id)
    if message.result is not None:
        return RequestRejected(message.reason or message.message, message.id)
    return Ignored(known="pong" in (message.type, message.op))


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe one book."""
    return {
        "id": str(number),
        "action": verb,
        "channel": "obu",
        "tradeType": "SPOT",
        "symbol": names[0],
        "depth": DEPTH,
        "rpiFilter": 0,
    }


def ping(now_ms: int) -> bytes:
    """Encode the ping that KuCoin's own client sends."""
    return msgspec.json.encode({"id": "ping", "op": "ping", "timestamp": now_ms})


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
        topics=100,  # of 200 allowed
        messages=(Limit(95, 10.0),),  # of 100: pings do not wait for the limit
        connects=(Limit(30, 60.0, Scope.ADDRESS),),
        connections=512,
    ),
    heartbeat=Heartbeat(b"", every_s=9.0, dated=ping),  # half the interval of the welcome
    snapshot_s=20.0,  # 6 s after the request were seen
    channels={"classic": CLASSIC},
)
