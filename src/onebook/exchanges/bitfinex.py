"""Bitfinex spot (WebSocket 2): 250 levels a side in real time, snapshot on the socket.

Pages: https://docs.bitfinex.com/reference/ws-public-books,
https://docs.bitfinex.com/docs/ws-general (flags, codes),
https://docs.bitfinex.com/docs/ws-websocket-checksum,
https://docs.bitfinex.com/reference/rest-public-conf (instruments).

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-22, recorded:
        arbitrage-observatory
    channel, verbs: 2026-10-23, third-party: ccxt 4.5.90

Sequencing: `conf` makes the exchange number all frames of a connection (SEQ_ALL), send the CRC-32
of the 25 best levels a side from time to time (OB_CHECKSUM), and add a time to each frame
(TIMESTAMP). A skipped number may belong to any book of the connection. The exchange removes levels
that leave the window. A snapshot is sent only after a subscription: to resync, unsubscribe and
subscribe. Prices have at most five significant digits, so P0 merges no levels.

Frames, whose last two elements are the number and the time:

    {"event":"info","version":2,"serverId":"083b...","platform":{"status":1}}      1: operative
    {"event":"subscribed","channel":"book","chanId":10092,"symbol":"tETHUSD","prec":"P0",
     "freq":"F0","len":"250","subId":1,"pair":"ETHUSD"}
    [10092,[[7254.7,3,3.3],[7254.8,1,-0.5]],1,1700000000000]      price, orders, amount; asks < 0
    [10092,[7254.7,0,1],2,1700000000000]                                0 orders removes the level
    [10092,"cs",-1108044634,3,1700000000000]
    [10092,"hb",4,1700000000000]
    {"event":"unsubscribed","status":"OK","chanId":10092}
    {"channel":"book","symbol":"tXYUSD","event":"error","msg":"symbol: invalid","code":10300}
    {"event":"info","code":20051,"msg":"Stopping. Please try to reconnect"}
    {"event":"info","code":20060,"msg":"Entering maintenance"}                 20061: it is over

Recorded (2021): the first number is 1. Heartbeats are numbered and arrive every 15 s for every
channel, busy or not, even before the acknowledgement, which took up to 13 s. Clients that agree:
GoCryptoTrader (`subId` in answers and errors, place of the numbers), tardis-node (number before
time), bitfinex-api-py (25 channels). BULK_UPDATES is not used because its frames look like
snapshots.

Checked in 2026-11: ccxt agrees; the longer ticker payload since 2026-04 does not concern books.

Unconfirmed: whether all refusals have `subId` and `symbol`; the words of 11000 and 10305; the
maximum rate of requests, and that exceeding it is answered by 11010 as in REST (ccxt has this
code).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from onebook.core import ChecksumLayout, ChecksumNumber, ChecksumOrder, LevelShape
from onebook.exchanges.kit import (
    HEARTBEAT,
    NO_LEVELS,
    NOTHING,
    ROWS_MAX,
    SEQUENCE_MAX,
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Closing,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Ignored,
    Instruments,
    Limit,
    LossDetection,
    Outputs,
    RequestRejected,
    Scope,
    Trackers,
    Trading,
    Unnumbered,
    Verify,
    control_reader,
    decode,
    each_of,
    instrument_of,
    instruments_of,
    short,
    step_of,
)
from onebook.model import Instrument

CHANNEL: Final = "book"
DEPTH: Final = 250
BOOK: Final = {"prec": "P0", "freq": "F0", "len": str(DEPTH)}
LEVELS: Final = LevelShape.rows(price=0, count=1, amount=2, signed=True, single=True)
CHECKSUM: Final = ChecksumLayout(
    25, ChecksumOrder.IN_TURN, ChecksumNumber.JAVASCRIPT, ":", negative_asks=True
)
TIMESTAMP: Final = 32_768
SEQ_ALL: Final = 65_536
OB_CHECKSUM: Final = 131_072

ALREADY_SUBSCRIBED: Final = 10_301
NOT_SUBSCRIBED: Final = (10_400, 10_401)  # an unsubscription of a channel that has already ended
NOT_READY: Final = 11_000
TOO_MANY: Final = 11_010  # "ratelimit: error", as in REST
STOPPING: Final = 20_051
MAINTENANCE: Final = 20_060
MAINTENANCE_OVER: Final = 20_061
OPERATIVE: Final = 1  # status of the platform, in the greeting

LOT: Final = step_of(8)
DERIVATIVE: Final = "F0"  # suffix of the currencies of perpetuals: BTCF0:USTF0
PAPER: Final = "TEST"  # prefix of the currencies of paper trading: TESTBTC:TESTUSD


class Frame(Struct, array_like=True, gc=False):
    """An array: a book, its heartbeat, or its checksum, which precedes the number."""

    channel: Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]
    payload: Raw
    first: Annotated[int, Meta(ge=-(2**31), le=SEQUENCE_MAX)]
    second: Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]


class Control(Struct, rename="camel"):
    """The members of frames that are objects."""

    event: str = ""
    channel: str = ""
    symbol: str = ""
    chan_id: int | None = None
    sub_id: int | str | None = None
    code: int = 0
    msg: str = ""
    platform: Any = None


_read = msgspec.json.Decoder(Frame).decode
_control = control_reader(Control)
_array = msgspec.json.Decoder(list[Any]).decode
_listings = msgspec.json.Decoder(tuple[list[Raw]]).decode


def data(books: Trackers[int, Unnumbered], frame: bytes) -> Outputs | None:
    """Decode a frame of a book; frames of unsubscribed channels are counted too."""
    message: Frame = _read(frame)
    book, number, payload = books.get(message.channel), message.first, bytes(message.payload)
    if number == books.due and book is not None and b"[0" <= payload < b"[:":
        books.due = number + 1  # usually the next frame, with one changed level
        return book.delta(payload, NO_LEVELS, message.second)
    return _followed(books, message, payload)


def _followed(books: Trackers[int, Unnumbered], message: Frame, payload: bytes) -> Outputs | None:
    follow = FOLLOW.get(payload[:2]) or FOLLOW.get(payload)
    if follow is None:
        raise ValueError(f"no levels in {short(payload)}")
    book = books.get(message.channel)
    if book is None and follow is not _alive and message.channel not in books.left:
        return None
    number = message.second if follow is _verified else message.first
    if books.repeats(number):
        return NOTHING
    lost = books.missed(number)
    if book is None:
        outputs: Outputs = HEARTBEAT if follow is _alive else NOTHING
    else:
        outputs = follow(book, payload, message)
    return (*lost, *each_of(outputs)) if lost else outputs


def _changed(book: Unnumbered, level: bytes, message: Frame) -> Outputs:
    return book.delta(level, NO_LEVELS, message.second)


def _replaced(book: Unnumbered, levels: bytes, message: Frame) -> Outputs:
    return book.snapshot(levels, NO_LEVELS, message.second)


def _verified(book: Unnumbered, payload: bytes, message: Frame) -> Outputs:
    return (Verify(book.instrument, CHECKSUM, message.first),) if book.live else NOTHING


def _alive(book: Unnumbered, payload: bytes, message: Frame) -> Outputs:
    return (Alive(book.instrument),)


Follow = Callable[[Unnumbered, bytes, Frame], Outputs]

# Handlers by the start (two bytes) or whole of a payload: level, book, checksum, heartbeat.
FOLLOW: Final[dict[bytes, Follow]] = {
    **{b"[%d" % digit: _changed for digit in range(10)},
    b"[[": _replaced,
    b"[]": _replaced,
    b'"cs"': _verified,
    b'"hb"': _alive,
}


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    if frame.lstrip().startswith(b"["):
        items = decode(_array, frame, what="a frame")
        return BookFrame(channel=items[0] if items and type(items[0]) is int else None)
    message = decode(_control, frame, what="a frame")
    match message.event:
        case "subscribed" if message.channel == CHANNEL and message.chan_id is not None:
            return Accepted([message.symbol], channel=message.chan_id)
        case "error":
            return _problem(message)
        case "info":
            return _info(message)
    return Ignored(known=message.event in ("conf", "pong", "subscribed", "unsubscribed"))


def _problem(message: Control) -> Event:
    words = f"{message.msg} ({message.code})"
    if message.code in NOT_SUBSCRIBED:
        return Ignored(known=True)
    return RequestRejected(
        words,
        number=message.sub_id,
        repeated=message.code == ALREADY_SUBSCRIBED,
        names=[message.symbol],
        code=message.code,
    )


def _info(message: Control) -> Event:
    if message.code == STOPPING:
        return Closing(short(message.msg))
    if message.code in (MAINTENANCE, MAINTENANCE_OVER):
        return Trading(open=message.code == MAINTENANCE_OVER, reason=short(message.msg))
    match message.platform:
        case {"status": int(status)}:
            return Trading(open=status == OPERATIVE, reason=f"the platform has status {status}")
    return Ignored(known=True)


def subscribe(names: Sequence[str], number: int) -> object:
    """Encode the subscription of a book."""
    return {"event": "subscribe", "channel": CHANNEL, "symbol": names[0], **BOOK, "subId": number}


def unsubscribe(ids: Sequence[int], number: int) -> object:
    """Encode the unsubscription of a book."""
    return {"event": "unsubscribe", "chanId": ids[0]}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse `/v2/conf/pub:list:pair:exchange`: a list that contains one list of names."""
    (pairs,) = decode(_listings, body, what="the pairs", items_max=rows_max)
    return instruments_of(pairs, str, _listed, rows_max=rows_max)


def _listed(pair: str) -> Instrument | None:
    """Make an instrument; three-letter codes are joined, longer ones separated by a colon."""
    base, colon, quote = pair.partition(":")
    if not colon:
        base, quote = (pair[:3], pair[3:]) if len(pair) == 6 else ("", "")
    if any(each.endswith(DERIVATIVE) or each.startswith(PAPER) for each in (base, quote)):
        return None
    return instrument_of("bitfinex", f"t{pair}", base=base, quote=quote, trading=True, lot=LOT)


BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=unsubscribe,
    track=partial(Unnumbered, shape=LEVELS),
    configure=({"event": "conf", "flags": TIMESTAMP | SEQ_ALL | OB_CHECKSUM},),
    channel_ids=True,
    too_many=(TOO_MANY,),
    unavailable=(NOT_READY,),
)

EXCHANGE: Final = Exchange(
    name="bitfinex",
    display="Bitfinex",
    ws_url="wss://api-pub.bitfinex.com/ws/2",
    rest_url="https://api-pub.bitfinex.com",
    instruments_path="/v2/conf/pub:list:pair:exchange",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    interval_ms=0,
    guard=LossDetection.COUNT,
    limits=ExchangeLimits(
        topics=25,  # 30 according to another page
        messages=(Limit(5, 1.0),),  # our choice: undocumented
        # Beyond it the address is blocked for a minute.
        connects=(Limit(20, 60.0, Scope.ADDRESS),),
        fetches=(Limit(30, 60.0, Scope.ADDRESS),),  # of 90 for the instrument list
    ),
    silence_max_s=20.0,
    heartbeat_max_s=20.0,  # heartbeats arrive every 15 s
    quiet_max_s=35.0,  # two heartbeats
    snapshot_s=30.0,  # recorded acknowledgements took up to 13 s
    former_names=("bitfinex2",),
)
