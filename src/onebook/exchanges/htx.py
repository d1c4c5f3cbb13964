"""HTX spot: 150 levels a side every 100 ms, in gzip, seeded by a request, and best prices at once.

Page: https://www.htx.com/en-us/opend/newApiPages/?id=7ec5362b-7773-11ed-9966-0242ac110003
("Market By Price (incremental update)"; only the servers at `/feed` have this channel).

Confirmed:

    channel, verbs, sequence, levels, depth: 2026-08-22, third-party: tardis-node 18.2.0
    channel, verbs: 2026-10-23, third-party: ccxt 4.5.90
    ping: 2026-09, recorded: arbitrage-observatory, of contracts
    limits: never: our choice, but `req` once in 100 ms


Sequencing: deltas are buffered from the acknowledgement until the requested whole book arrives. In
the first delta after it, `prevSeqNum` is its `seqNum`; in each later delta, that of the previous
delta. A delta is the difference of two windows, so if the whole book falls between the two, it is
requested again.

Frames, each a binary message in gzip; numbers are JSON numbers, small and large ones with an
exponent:

    {"id":"1","status":"ok","subbed":"market.btcusdt.mbp.150","ts":1489474081631}
    {"ch":"market.btcusdt.mbp.150","ts":1573199608679,"tick":{"seqNum":100020146795,
     "prevSeqNum":100020146794,"bids":[],"asks":[[645.14,26.75597395914065]]}}   0 removes
    {"id":"id2","rep":"market.btcusdt.mbp.150","status":"ok","data":{"seqNum":100020142010,
     "bids":[[618.37,71.594]],"asks":[[650.59,14.909733438479636]]}}             the whole book
    {"status":"error","ts":1586323747018,"id":"2","err-code":"bad-request",
     "err-msg":"invalid mbp.150.symbol linkusdt"}
    {"ping":1492420473027}                        every 5 s, to be answered with the same `pong`

ccxt's watchOrderBook agrees (topic, `req` on the socket, `prevSeqNum` equal to the last `seqNum`).
The `seqNum` of a whole book is that of one of the updates (announced for 2020-06-18). A side that
did not change is empty. If nothing changed, an update with two empty sides is sent every 100 ms: a
heartbeat of that book. The page announces the end of both, without a date: an unchanged side will
be absent, and an unchanged book silent. Therefore a frame without sides counts as one with two
empty sides, a silent book is compared with the answer to another `req` every 300 s, and pings prove
that the connection is alive. That answer must have both sides, which would reveal renamed members.
According to the page, the 400-level channel has no `req`. A level that leaves the 150 is sent as 0
(frames printed in 2023).

`mbp.20` is the same channel with 20 levels, sent at each change of them ("tick by tick": the page,
and its announcement of 2020-06) with the `seqNum` of the market: its best prices are those of this
number. It has its own chain and whole book (`sync.Shallow`), and is subscribed once the 150
levels have arrived. A side that did not change is absent from its frames. For
`mbp.5` the announcement names only nine pairs, and `market.$symbol.bbo` needs another socket.

Amounts are binary doubles with up to 18 decimals, `0.000508915855856983` next to `16.08`, which
need more digits than a book can hold (`DIGITS_MAX`). Amounts, but not prices, are therefore cut
toward zero at the 8th decimal; amounts above zero but below 10^-8 become 10^-8. One of the ten
books recorded in 2021 has amounts with 9 digits before the point and amounts with 11 after it, so a
cut at the 12th decimal would not be enough.

Unconfirmed: that `seqNum` counts the same states with 20 and with 150 levels (`onebook.fusing`
compares them), and that all pairs have 20 levels; the close after two unanswered pings (the page)
or four (other products); how many topics a socket may have; the limit of frames other than `req`,
which is one every 100 ms; that a display name in the list is the usual name of the coin; the age
limit of a connection.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import LevelShape
from onebook.exchanges.kit import (
    ABSENT,
    UNREADABLE,
    UNTIMED,
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Delta,
    Event,
    Exchange,
    ExchangeLimits,
    FastChannel,
    Fetch,
    FrameForm,
    Ignored,
    Join,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    SeededEngine,
    SeedRefused,
    Sequence64,
    ServerTime,
    Shallow,
    SocketSeed,
    control_reader,
    decode,
    send,
    short,
    verbs,
)
from onebook.model import Instrument

LEVELS: Final = 150
SHALLOW_LEVELS: Final = 20
DEEP: Final = f".mbp.{LEVELS}"
SHALLOW: Final = f".mbp.{SHALLOW_LEVELS}"
AMOUNTS_CUT: Final = LevelShape.rows(amount_decimals=8)
NOT_SUBSCRIBED: Final = "unsub with not subbed topic"
TOO_MANY: Final = ("rate-too-many-requests", "base-request-exceed-frequency-limit")
UNAVAILABLE: Final = ("gateway-internal-error", "system-maintenance", "timeout")


class Tick(Struct, gc=False):
    """Changes of a book."""

    sequence: Sequence64 = field(name="seqNum")
    previous: Sequence64 = field(name="prevSeqNum")
    bids: Raw = ABSENT
    asks: Raw = ABSENT


class Update(Struct, gc=False):
    """A frame with a delta."""

    ch: str
    tick: Tick
    ts: int = UNTIMED


class Depth(Struct):
    """A whole book."""

    sequence: Sequence64 = field(name="seqNum")
    bids: Raw
    asks: Raw


class Whole(Struct):
    """A frame with a whole book."""

    data: Depth
    ts: int = UNTIMED


class Control(Struct, rename="kebab"):
    """The members of control frames."""

    id: str | int | None = None
    ping: Any = None
    status: str = ""
    subbed: str = ""
    unsubbed: str = ""
    rep: str = ""
    ch: str = ""
    err_code: str = ""
    err_msg: str = ""


_read = msgspec.json.Decoder(Update).decode
_whole = msgspec.json.Decoder(Whole).decode
_control = control_reader(Control)


def topic(instrument: Instrument) -> str:
    """Return the channel of an instrument, as in its frames."""
    return f"market.{instrument.native}{DEEP}"


def deep(shallow: str) -> str:
    """Convert the name of a best-price channel to that of the depth channel."""
    return shallow.removesuffix(SHALLOW) + DEEP


def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    """Decode a delta."""
    message: Update = _read(frame)
    book, tick = books.get(message.ch), message.tick
    if book is None:
        return _top(books, message) if message.ch.endswith(SHALLOW) else None
    bids, asks = tick.bids, tick.asks
    outputs = book.delta(tick.previous + 1, tick.sequence, bids, asks, message.ts)
    if bids == asks == ABSENT and type(outputs) is Delta:
        return (Alive(book.instrument),)
    return outputs


def _top(books: dict[str, Join], message: Update) -> Outputs | None:
    book, tick = books.get(deep(message.ch)), message.tick
    if book is None or (shallow := book.shallow) is None:
        return None
    return shallow.delta(tick.previous + 1, tick.sequence, tick.bids, tick.asks, message.ts)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.ping is not None:
        return send({"pong": message.ping}, urgent=True)
    if message.status == "error":
        return _failed(message)
    if message.rep:
        try:
            whole = _whole(frame)
        except UNREADABLE:
            return _book_frame(message.rep)
        book, top = whole.data, message.rep.endswith(SHALLOW)
        name = deep(message.rep) if top else message.rep
        return SocketSeed(name, book.bids, book.asks, book.sequence, whole.ts, top)
    if message.subbed:
        return Accepted(number=message.id)
    if message.ch.endswith((DEEP, SHALLOW)):
        return _book_frame(message.ch)
    return Ignored(known=bool(message.unsubbed))


def _book_frame(name: str) -> BookFrame:
    top = name.endswith(SHALLOW)
    return BookFrame(deep(name) if top else name, top=top)


def _failed(message: Control) -> Event:
    words = short(message.err_msg)
    if words == NOT_SUBSCRIBED:
        return Ignored(known=True)
    if isinstance(message.id, str) and message.id.endswith(SHALLOW):
        return RequestRejected(words, message.id, code=message.err_code, top=True)
    if isinstance(message.id, str) and not message.id.isdecimal():
        # The id of a request for a book is its topic.
        return SeedRefused(message.id, words, message.err_code)
    return RequestRejected(words, message.id, code=message.err_code)


def subscription(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe a book."""
    return {verb: names[0], "id": str(number)}


def request(names: Sequence[str], number: int) -> object:
    """Encode the request for the whole book of a topic."""
    return {"req": names[0], "id": names[0]}


def best_prices(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe the book with the best prices."""
    return subscription([name.removesuffix(DEEP) + SHALLOW for name in names], number, verb)


def join(instrument: Instrument) -> Join:
    """Join a book requested on the socket; the exchange sends what enters and leaves the window."""
    fetch = Fetch(instrument, "")
    again = send(request([f"market.{instrument.native}{SHALLOW}"], 0))
    shallow = Shallow(fetch, again, levels=SHALLOW_LEVELS, shape=AMOUNTS_CUT)
    return Join(fetch, exact=True, shape=AMOUNTS_CUT, shallow=shallow)


INSTRUMENTS: Final = ListReader(
    "htx",
    rows="data",
    native="sc",
    base="bcdn",
    quote="qcdn",
    answered={"status": ("ok", None)},
    trading={"te": (True,), "state": ("online",)},
    tick_decimals="tpp",
    lot_decimals="tap",
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(subscription, "sub", "unsub"),
    join,
    key=topic,
    request=request,
    too_many=TOO_MANY,
    unavailable=UNAVAILABLE,
    fast=FastChannel(*verbs(best_prices, "sub", "unsub"), after_levels=True),
)

EXCHANGE: Final = Exchange(
    name="htx",
    display="HTX",
    ws_url="wss://api.huobi.pro/feed",
    rest_url="https://api.huobi.pro",
    instruments_path="/v2/settings/common/symbols",
    parse_instruments=INSTRUMENTS,
    connector=partial(SeededEngine, BOOKS),
    depth=LEVELS,
    interval_ms=100,
    frames=FrameForm.COMPRESSED,
    tops=True,
    time=ServerTime("/v1/common/timestamp", "data"),
    limits=ExchangeLimits(
        topics=50,  # in two channels, one of ten frames a second; the page advises against many
        messages=(Limit(1, 0.15),),  # `req` once in 100 ms
        connects=(Limit(60, 60.0, Scope.ADDRESS),),
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),  # only for the instrument list
    ),
    heartbeat_max_s=15.0,  # three pings of the server
    snapshot_s=60.0,  # a full socket takes two hundred requests at the rate above
    former_names=("huobi", "huobipro"),
)
