"""HitBTC spot, API v3: the whole book in real time, snapshot on the socket, numbered deltas.

Page: https://api.hitbtc.com/#subscribe-to-full-order-book (not read except for the sentences quoted
by a profile of the exchange: the rest is from a recording, wire probes, ccxt and cryptofeed)

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-22, recorded:
        arbitrage-observatory, of perpetuals
    channel, verbs: 2026-10-23, third-party: ccxt 4.5.90
    fees: 2026-09-24, recorded: a row of a perpetual on Gleec, the same engine, by
        arbitrage-observatory

Sequencing: each update's `s` is the previous one + 1; a snapshot is sent only after a
subscription.

Frames (recorded from FMFW, the same engine, in 2021: 869 updates of ten symbols without a gap):

    {"result":{"ch":"orderbook/full","subscriptions":["NEOBTC","EOSUSDT"]},"id":1234}
    {"ch":"orderbook/full","snapshot":{"NEOBTC":{"t":1633806854624,"s":1498336,
     "a":[["0.0008790","18.89"]],"b":[["0.0008785","17.00"]]}}}
    {"ch":"orderbook/full","update":{"NEOBTC":{"t":1633806854817,"s":1498337,
     "a":[["0.0008842","94.00"],["0.0008844","0"]],"b":[]}}}                      "0" removes
    {"error":{"code":2003,"message":"Unknown channel","description":"..."},"id":16}

`a` are asks. The answer to a request lists all symbols of the channel on this socket. Unknown
symbols are missing from it, without an error (although the page has code 2001 for this). A second
subscription of a symbol does not send a second snapshot. The server sends protocol pings every 30 s
and closes with 4002 if no pong arrives for 60 s. There is no other heartbeat, so silence does not
prove that a book is dead. cryptofeed (FMFW) applies `s` in the same way; ccxt reads the same fields
but ignores `s`.

Wire probes of HitBTC in 2026-09 agree, of perpetuals (spot uses the same socket;
nemanull/arbitrage-observatory): no gap in 17,719 updates, books equal to those of REST, 50 symbols
in a request, one snapshot each (empty if the book is), updates without a level that count in `s`,
404 for an unknown method, and code 1 without an `id` for a message that is not JSON. Probes of the
same engine at FMFW and Changelly PRO in the same month agree.

As of 2026-11 ccxt 4.5.90 also reads frames with `data` in place of `snapshot`; they belong to the
channels of partial books. Such a frame of `orderbook/full` invalidates its book, because it does
not say whether it is whole.

Unconfirmed: that an unsubscription and another subscription on the same socket return another
snapshot (otherwise the feed opens another connection); what the answer to an unsubscription lists,
which is not read; how many symbols a socket or a request may have (50 were seen).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    NAME,
    UNTIMED,
    BookChannel,
    BookFrame,
    Chain,
    Engine,
    ErrorBody,
    Event,
    Exchange,
    ExchangeLimits,
    FeeColumn,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    Sequence64,
    accepted_of,
    control_reader,
    decode,
    each_of,
    text_in,
    verbs,
)

CHANNEL: Final = "orderbook/full"
TOO_MANY: Final = 429
UNAVAILABLE: Final = (500, 503, 504)  # internal error, service unavailable, gateway timeout


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    sequence: Sequence64 = field(name="s")
    asks: Raw = field(name="a")
    bids: Raw = field(name="b")
    at: int = field(name="t", default=UNTIMED)


class Data(Struct, gc=False, tag_field="ch", tag=CHANNEL):
    """A frame with snapshots or deltas by symbol."""

    update: dict[str, BookMessage] | None = None
    snapshot: dict[str, BookMessage] | None = None


class Control(Struct):
    """The members of control frames."""

    id: int | str | None = None
    ch: str = ""
    update: Any = None
    snapshot: Any = None
    data: Any = None
    result: Any = None
    error: ErrorBody | None = None


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of books."""
    message = _read(frame)
    whole = message.update is None
    changes = message.snapshot if whole else message.update
    if not changes:
        raise ValueError("neither a snapshot nor an update")
    if len(changes) == 1:  # nearly always
        ((name, one),) = changes.items()
        return _followed(books[name], one, whole=whole) if name in books else None
    known = [(books[name], each) for name, each in changes.items() if name in books]
    if not known:
        return None
    return tuple(out for book, each in known for out in each_of(_followed(book, each, whole=whole)))


def _followed(book: Chain, one: BookMessage, *, whole: bool) -> Outputs:
    if whole:
        return book.snapshot(one.bids, one.asks, one.sequence, one.at)
    return book.delta(one.bids, one.asks, one.sequence - 1, one.sequence, one.at)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.ch == CHANNEL:
        books = message.update or message.snapshot or message.data
        names = list(books) if isinstance(books, dict) else []
        return BookFrame(names[0] if len(names) == 1 else "")
    problem = message.error
    if problem is not None:
        words = f"{problem.message} {problem.description}".strip()
        return RequestRejected(words, message.id, code=problem.code)
    if text_in(message.result, "ch") == CHANNEL:
        return accepted_of(message.result.get("subscriptions"), message.id)
    return Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    return {"method": verb, "ch": CHANNEL, "params": {"symbols": names}, "id": number}


INSTRUMENTS: Final = ListReader(
    "hitbtc",
    native=NAME,
    base="base_currency",
    quote="quote_currency",
    spot={"type": ("spot",)},
    trading={"status": ("working",)},
    tick="tick_size",
    lot="quantity_increment",
    taker=FeeColumn("take_rate", fraction=True),
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    Chain,
    names_per_request=50,
    too_many=(TOO_MANY,),
    unavailable=UNAVAILABLE,
)

EXCHANGE: Final = Exchange(
    name="hitbtc",
    display="HitBTC",
    ws_url="wss://api.hitbtc.com/api/3/ws/public",
    rest_url="https://api.hitbtc.com",
    instruments_path="/api/3/public/symbol",
    parse_instruments=INSTRUMENTS,
    lists_fees=True,
    connector=partial(Engine, BOOKS),
    depth=0,
    interval_ms=0,
    limits=ExchangeLimits(
        topics=100,  # our choice, because each sends a full-depth book
        messages=(Limit(10, 1.0),),  # plus a burst of ten
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),  # only for the instrument list
        connections=100,
    ),
    snapshot_s=20.0,  # the whole books of a full socket
)
