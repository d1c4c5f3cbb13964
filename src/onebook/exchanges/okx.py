"""OKX spot: 400 levels a side every 100 ms, snapshot on the socket, with best prices every 10 ms.

Page: https://www.okx.com/docs-v5/en/#order-book-trading-market-data-ws-order-book-channel

Sequencing: each update's `prevSeqId` equals the `seqId` before it (ids may fall at maintenance). A
snapshot is sent only after a subscription: to resync, unsubscribe and subscribe.

Frames:

    {"event":"subscribe","arg":{"channel":"books","instId":"BTC-USDT"},"connId":"a4d3ae55"}
    {"arg":{"channel":"books","instId":"BTC-USDT"},"action":"snapshot","data":[{"asks":
     [["8476.98","415","0","13"]],"bids":[["8476.97","256","0","12"]],"ts":"1597026383085",
     "checksum":0,"prevSeqId":-1,"seqId":123456}]}                  then "action":"update"
    {"arg":{"channel":"bbo-tbt","instId":"BTC-USDT"},"data":[{"asks":[["8476.98","415","0","13"]],
     "bids":[["8476.97","256","0","12"]],"ts":"1597026383085","seqId":123456}]}   the best prices
    {"event":"error","code":"60018","msg":"Wrong URL or channel:books,instId:X-Y doesn't exist."}
    {"event":"notice","code":"64008","msg":"The connection will soon be closed ..."}
    pong                                                             to our text `ping`

After about 60 s without a change, a book sends an update with empty sides and `prevSeqId == seqId`
as its heartbeat. Code 60014 means too many requests. Temporary errors (50001, 50004, 50005, 50013,
50026, 60016 and 63999 in ccxt's table) are recognized by their words. `checksum` has been 0 since
2026 and is checked only if it is not 0. Recordings of 2022 have a checksum but no ids; every id is
then -1 and matches the previous one. `books-l2-tbt` (10 ms) needs the login of a VIP account.

`bbo-tbt` and `books` share one counter: the page names one `seqId` for each state of an instrument,
and a fixed order in which the channels of one connection send it, `bbo-tbt` first. Each frame of
`bbo-tbt` has both sides and names no predecessor; an unchanged one is repeated after about 60 s.
Neither channel has ELP or RPI orders. Both are in one request, which counts once.

The address has no port: 8443, which most clients still use, has been closed since 2026-10-31 (the
page's changelog of 2026-09-30; its addresses answer on 443). Since 2026-09-30 USD and USDC share a
book, which is listed as USDC (`BTC-USDC`); the USD pair that it replaced is no longer listed.

Confirmed:

    channel, verbs, ping, limits, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    channel, limits: 2026-10-01, page: change log, port 8443 ends, nothing else of this channel
    sequence: 2026-08-21, third-party: GoCryptoTrader, chains on prevSeqId and ignores the checksum

Unconfirmed: that the best prices of `bbo-tbt` and of `books` agree at equal `seqId`, which no
public frames show (`onebook.fusing` compares them).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from onebook.core import ChecksumLayout, ChecksumNumber, ChecksumOrder
from onebook.exchanges.kit import (
    ABSENT,
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Chain,
    Checksum,
    Closing,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Heartbeat,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    Sequence64,
    ServerTime,
    TopOfBook,
    Verify,
    control_reader,
    decode,
    each_of,
    short,
    text_in,
    verbs,
)

CHANNEL: Final = "books"
BEST_PRICES: Final = "bbo-tbt"
BEST_PRICES_NAME: Final = b'"bbo-tbt"'
ARG_BYTES_MAX: Final = 64  # the channel's name is within this many bytes of a frame's start
CHECKSUM: Final = ChecksumLayout(25, ChecksumOrder.IN_TURN, ChecksumNumber.TEXT, ":")
SERVICE_UPGRADE: Final = "64008"
TOO_FREQUENT: Final = "60014"
EVENTS: Final = ("subscribe", "unsubscribe", "notice", "channel-conn-count")


class Arg(Struct, gc=False, rename="camel", tag_field="channel", tag=CHANNEL):
    """The subject of a frame."""

    inst_id: str = ""


# Members are in wire order: msgspec searches for each after the previous one.
class Item(Struct, gc=False, rename="camel"):
    """A snapshot or a delta."""

    asks: Raw
    bids: Raw
    ts: str = ""
    checksum: Checksum = 0
    prev_seq_id: Sequence64 = -1
    seq_id: Sequence64 = -1


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    arg: Arg
    action: Literal["update", "snapshot"]
    data: tuple[Item, ...]


class TopArg(Struct, gc=False, rename="camel", tag_field="channel", tag=BEST_PRICES):
    """The subject of a frame of best prices."""

    inst_id: str


class Best(Struct, gc=False, rename="camel"):
    """The best prices of both sides."""

    asks: Raw
    bids: Raw
    seq_id: Sequence64
    ts: str = ""


class TopData(Struct, gc=False):
    """A frame with best prices."""

    arg: TopArg
    data: tuple[Best, ...]


class Control(Struct):
    """The members of control frames."""

    event: str = ""
    arg: Any = None
    code: str = ""
    msg: str = ""


_read = msgspec.json.Decoder(Data).decode
_read_top = msgspec.json.Decoder(TopData).decode
_control = control_reader(Control)


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    if frame.find(BEST_PRICES_NAME, 0, ARG_BYTES_MAX) > 0:
        return _top(books, frame)
    message = _read(frame)
    book = books.get(message.arg.inst_id)
    if book is None:
        return None
    items, whole = message.data, message.action == "snapshot"
    if len(items) == 1 and not whole and not items[0].checksum:  # nearly all
        item = items[0]
        if item.seq_id == item.prev_seq_id and _unchanged(book, item):
            return (Alive(book.instrument),)
        return book.delta(item.bids, item.asks, item.prev_seq_id, item.seq_id, item.ts)
    return tuple(out for item in items for out in each_of(_followed(book, item, whole=whole)))


def _top(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    message = _read_top(frame)
    book = books.get(message.arg.inst_id)
    if book is None:
        return None
    (top,) = message.data
    return TopOfBook(book.instrument, top.seq_id, top.bids, top.asks, at=top.ts)


def _unchanged(book: Chain, item: Item) -> bool:
    """Return whether it is the heartbeat of this book: no data, and nothing lost before it."""
    return item.seq_id == book.last and item.bids == item.asks == ABSENT


def _followed(book: Chain, item: Item, *, whole: bool) -> Outputs:
    if whole:
        outputs: Outputs = book.snapshot(item.bids, item.asks, item.seq_id, item.ts)
    else:
        outputs = book.delta(item.bids, item.asks, item.prev_seq_id, item.seq_id, item.ts)
    if item.checksum and book.last is not None:
        return each_of(outputs, Verify(book.instrument, CHECKSUM, item.checksum))
    return outputs


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    arg = message.arg if isinstance(message.arg, dict) else {}
    if arg.get("channel") == BEST_PRICES and not message.event:
        return BookFrame(text_in(arg, "instId"), top=True)
    name = str(arg.get("instId")) if arg.get("channel") == CHANNEL else None
    match message.event:
        case "error" if f"channel:{BEST_PRICES}," in message.msg:  # `books` has its own error
            return Ignored(known=True, refused=short(message.msg))
        case "subscribe" if name is not None:
            return Accepted([name])
        case "error":
            return RequestRejected(message.msg, code=message.code)
        case "notice" if message.code == SERVICE_UPGRADE:
            return Closing(short(message.msg))
        case "" if name is not None:
            return BookFrame(name)
    return Ignored(known=message.event in EVENTS)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    channels = (CHANNEL, BEST_PRICES)
    args = [{"channel": each, "instId": name} for name in names for each in channels]
    return {"op": verb, "args": args}


INSTRUMENTS: Final = ListReader(
    "okx",
    rows="data",
    native="instId",  # rows of instruments that have not opened may have empty currencies
    separator="-",
    answered={"code": ("0", None)},
    spot={"instType": ("SPOT", None)},
    trading={"state": ("live",)},
    tick="tickSz",
    lot="lotSz",
    least_amount="minSz",
)


# 50 names in two channels take about 5 KB of the 64 KB allowed for arguments.
BOOKS: Final = BookChannel(
    data, control, *verbs(request), Chain, names_per_request=50, too_many=(TOO_FREQUENT,)
)

EXCHANGE: Final = Exchange(
    name="okx",
    display="OKX",
    ws_url="wss://ws.okx.com/ws/v5/public",
    rest_url="https://www.okx.com",
    instruments_path="/api/v5/public/instruments?instType=SPOT",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=400,
    interval_ms=100,
    tops=True,
    time=ServerTime("/api/v5/public/time", "data.0.ts"),
    limits=ExchangeLimits(
        topics=50,  # in two channels each; each resync is two of 480 requests an hour
        messages=(Limit(4, 1.0),),  # our choice: undocumented
        requests=(Limit(480, 3_600.0),),  # subscribe, unsubscribe and login together
        connects=(Limit(3, 1.0, Scope.ADDRESS),),
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),
    ),
    heartbeat=Heartbeat(b"ping", every_s=10.0),  # closed after 30 s without one
    silence_max_s=15.0,  # a healthy socket answers each ping
    quiet_max_s=130.0,  # two of the heartbeats that an unchanged book sends about every 60 s
    former_names=("okex", "okex5", "myokx"),
)
