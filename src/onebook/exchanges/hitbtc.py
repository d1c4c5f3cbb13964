"""HitBTC spot, API v3: the whole book in real time, snapshot on the socket, numbered deltas.

Page: https://api.hitbtc.com/#subscribe-to-full-order-book (not read: what follows is of a
recording, ccxt and cryptofeed)

In step: each update's `s` is one more than that of the frame before it; a snapshot comes only
after a subscription.

Frames (recorded from FMFW, the same engine, in 2021: 869 updates of ten symbols without a gap):

    {"result":{"ch":"orderbook/full","subscriptions":["NEOBTC","EOSUSDT"]},"id":1234}
    {"ch":"orderbook/full","snapshot":{"NEOBTC":{"t":1633806854624,"s":1498336,
     "a":[["0.0008790","18.89"]],"b":[["0.0008785","17.00"]]}}}
    {"ch":"orderbook/full","update":{"NEOBTC":{"t":1633806854817,"s":1498337,
     "a":[["0.0008842","94.00"],["0.0008844","0"]],"b":[]}}}                      "0" removes
    {"jsonrpc":"2.0","error":{"code":2001,"message":"Symbol not found","description":"..."},"id":1}

`a` are asks. The answer to a request lists the symbols that were taken: unknown ones are missing
there without an error. A second subscription of a symbol brings no second snapshot. The server
pings on the protocol level every 30 s and closes with 4002 where no pong came for 60 s; there is no
other heartbeat, so a silent book says nothing. cryptofeed (FMFW) follows `s` in the same way; ccxt
reads the same members and does not look at `s`.

Unconfirmed: that an unsubscription and another subscription on the same socket bring a new snapshot
(where they do not, the feed opens another connection); what the answer to an unsubscription lists,
which is not read; how many symbols a socket or a request may have; that all errors have this form.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.contract import (
    ROWS_MAX,
    Exchange,
    Ignored,
    Instruments,
    Output,
    ProtocolError,
    SlowDown,
)
from onebook.exchanges.engine import (
    Accepted,
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Rejected,
)
from onebook.exchanges.frames import (
    Sequence64,
    decode,
    instrument_of,
    instruments_of,
    short,
    text_in,
    texts_of,
)
from onebook.exchanges.limits import Limit, Limits, Scope
from onebook.exchanges.moments import UNTIMED
from onebook.exchanges.sync import Chain
from onebook.model import Instrument

CHANNEL: Final = "orderbook/full"
OMITTED: Final = "it is not among the subscriptions that the exchange lists"
TOO_MANY: Final = 429
SPOT: Final = "spot"


class Book(Struct, gc=False):
    """A book or a change of it."""

    sequence: Sequence64 = field(name="s")
    asks: Raw = field(name="a")
    bids: Raw = field(name="b")
    at: int = field(name="t", default=UNTIMED)


class Data(Struct, gc=False, tag_field="ch", tag=CHANNEL):
    """A frame of books, by symbol."""

    update: dict[str, Book] | None = None
    snapshot: dict[str, Book] | None = None


class Control(Struct):
    """Every frame that is not of a book."""

    id: int | str | None = None
    ch: str = ""
    update: Any = None
    snapshot: Any = None
    result: Any = None
    error: Any = None


class Facts(Struct):
    """What the symbol list says of one symbol."""

    type: str
    status: str
    base: str = field(name="base_currency")
    quote: str = field(name="quote_currency")
    tick: str = field(name="tick_size", default="")
    lot: str = field(name="quantity_increment", default="")


class Listing(Struct, array_like=True):
    """A symbol and its facts."""

    native: str
    facts: Facts


_read = msgspec.json.Decoder(Data).decode  # names are keys, which the compiled reader has not
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(dict[str, Raw]).decode


def data(books: dict[str, Chain], frame: bytes) -> tuple[Output, ...] | None:
    """Follow a frame of books; nearly always there is one in a frame."""
    message = _read(frame)
    whole = message.update is None
    changes = message.snapshot if whole else message.update
    if not changes:
        raise ValueError("it has neither a snapshot nor an update")
    known = [(books[name], each) for name, each in changes.items() if name in books]
    if not known:
        return None
    return tuple(out for book, each in known for out in _followed(book, each, whole=whole))


def _followed(book: Chain, one: Book, *, whole: bool) -> tuple[Output, ...]:
    if whole:
        return book.snapshot(one.bids, one.asks, one.sequence, one.at)
    return book.delta(one.bids, one.asks, one.sequence - 1, one.sequence, one.at)


def control(frame: bytes) -> Event:
    """Read a frame that is not of a book."""
    message = decode(_control, frame, what="a frame")
    if message.ch == CHANNEL:
        books = message.snapshot if message.update is None else message.update
        names = list(books) if isinstance(books, dict) else []
        return BookFrame(names[0] if len(names) == 1 else "")
    if isinstance(message.error, dict):
        words = short(
            f"{text_in(message.error, 'message')} {text_in(message.error, 'description')}"
        )
        if message.error.get("code") == TOO_MANY:
            return SlowDown(words.strip())
        return Rejected(words.strip(), message.id)
    if text_in(message.result, "ch") == CHANNEL:
        names = texts_of(message.result.get("subscriptions"))
        return Accepted(names, message.id, omission=OMITTED)
    return Ignored(known=False)


def subscribe(names: Sequence[str], number: int, *, method: str = "subscribe") -> object:
    """Ask for books."""
    return {"method": method, "ch": CHANNEL, "params": {"symbols": names}, "id": number}


def parse_instruments(
    body: bytes, *, rows_max: int = ROWS_MAX, exchange: str = "hitbtc"
) -> Instruments:
    """Read `/api/3/public/symbol`, an object whose members have the names of the symbols."""
    symbols = decode(_listings, body, what="the symbols")
    rows = [Raw(msgspec.json.encode(row)) for row in symbols.items()]
    found = instruments_of(rows, Listing, partial(_listed, exchange), rows_max=rows_max)
    if not found:  # an error is an object with members, too
        raise ProtocolError(f"the symbols hold no spot pair: {short(list(symbols))}")
    return found


def _listed(exchange: str, row: Listing) -> Instrument | None:
    facts = row.facts
    if facts.type != SPOT:
        return None
    return instrument_of(
        exchange,
        row.native,
        base=facts.base,
        quote=facts.quote,
        trading=facts.status == "working",
        tick=facts.tick,
        lot=facts.lot,
    )


BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=partial(subscribe, method="unsubscribe"),
    track=Chain,
    names_per_request=50,
)

EXCHANGE: Final = Exchange(
    name="hitbtc",
    display="HitBTC",
    ws_url="wss://api.hitbtc.com/api/3/ws/public",
    rest_url="https://api.hitbtc.com",
    instruments_path="/api/3/public/symbol",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=0,
    interval_ms=0,
    limits=Limits(
        topics=100,  # ours: each is a whole book in real time
        messages=(Limit(10, 1.0),),  # and a burst of ten more
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # ours: the page states none
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),  # only the instruments
        connections=100,
    ),
    snapshot_s=20.0,  # the whole books of a full socket
)
