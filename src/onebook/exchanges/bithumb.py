"""Bithumb spot (API 2): the best 15 levels a side, whole in every frame.

Pages: https://apidocs.bithumb.com/v2.1.5/reference/%ED%98%B8%EA%B0%80-orderbook, and those on
addresses, requests and connections beside it.

In step: every frame has the whole book, so that a lost one does no harm; the first is the snapshot
that answers a request, and nothing else does. A request replaces all before it: it names every
book of the connection, brings a snapshot of each, and there is no other way to unsubscribe.

Frames, JSON in binary messages; the time is in microseconds:

    [{"ticket":"onebook-1"},{"type":"orderbook","codes":["KRW-BTC"]},{"format":"DEFAULT"}]
    {"type":"orderbook","code":"KRW-BTC","total_ask_size":450.35,"total_bid_size":63.24,
     "orderbook_units":[{"ask_price":478800,"bid_price":478300,"ask_size":4.2,"bid_size":2.1}],
     "timestamp":1725927377820000,"stream_type":"SNAPSHOT"}          then "stream_type":"REALTIME"
    {"error":{"name":"WRONG_FORMAT","message":".."}}                         it closes afterwards
    {"status":"UP"}                                                          to a text `PING`

Sizes have four decimals, so that dust is a level of size 0, which is none; a side with fewer levels
than the other is padded with zeros. A suffix of the code (`.30`) brings 15 levels all the same. A
socket without traffic for 60 s (the page: 120) is closed; our protocol pings are traffic. The page
has the names of all members, and the time in milliseconds, which a wire probe of 2026-09 saw in
microseconds: either is read. ccxt watches the older socket (`pubwss.bithumb.com`) instead.

Unconfirmed beyond that probe: that requests replace each other and that errors end the connection.
Unconfirmed: that unknown codes are silent; that the limits of messages are those of Upbit, whose
protocol this is; that the error for too many requests says so in its name.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from onebook.core import LevelShape, Reader
from onebook.exchanges.contract import (
    ROWS_MAX,
    Exchange,
    Guard,
    Ignored,
    Instruments,
    Output,
)
from onebook.exchanges.engine import BookChannel, BookFrame, Engine, Event, Rejected
from onebook.exchanges.frames import decode, instrument_of, instruments_of, text_in
from onebook.exchanges.limits import Limit, Limits, Scope
from onebook.exchanges.sync import Whole
from onebook.model import Instrument

CHANNEL: Final = "orderbook"
UNITS: Final = LevelShape.objects(
    "bid_price",
    "bid_size",
    skip_zero_price=True,
    asks=LevelShape.objects("ask_price", "ask_size", skip_zero_price=True),
)
TOPICS: Final = 50  # ours: the pages state none


class Book(Struct, gc=False, tag_field="type", tag=CHANNEL):
    """The frame of a whole book."""

    code: str
    timestamp: int
    orderbook_units: Raw


class Control(Struct):
    """Every frame that is not of a book."""

    type: str = ""
    code: str = ""
    status: str = ""
    error: Any = None


class Listing(Struct):
    """A row of the instrument list."""

    market: str


_read = Reader(Book).read
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(list[Raw]).decode


def data(books: dict[str, Whole], frame: bytes) -> tuple[Output, ...] | None:
    """Read a whole book."""
    message: Book = _read(frame)
    book = books.get(message.code)
    if book is None:
        return None
    units = message.orderbook_units
    return book.snapshot(units, units, message.timestamp)


def control(frame: bytes) -> Event:
    """Read a frame that is not of a book."""
    message = decode(_control, frame, what="a frame")
    if message.error is not None:
        name, words = (text_in(message.error, member) for member in ("name", "message"))
        return Rejected(f"{name.replace('_', ' ')}: {words}")
    if message.type == CHANNEL:
        return BookFrame(message.code)
    return Ignored(known=bool(message.status))


def subscribe(names: Sequence[str], number: int) -> object:
    """Ask for these books and no others."""
    books = {"type": CHANNEL, "codes": names}
    return [{"ticket": f"onebook-{number}"}, books, {"format": "DEFAULT"}]


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Read `/v1/market/all`: spot alone, without steps and without a state."""
    rows = decode(_listings, body, what="the markets")
    return instruments_of(rows, Listing, _listed, rows_max=rows_max)


def _listed(row: Listing) -> Instrument | None:
    quote, _, base = row.market.partition("-")
    return instrument_of("bithumb", row.market, base=base, quote=quote, trading=True)


BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=None,
    track=partial(Whole, shape=UNITS, unanswered=True),
    names_per_request=TOPICS,
)

EXCHANGE: Final = Exchange(
    name="bithumb",
    display="Bithumb",
    ws_url="wss://ws-api.bithumb.com/websocket/v1",
    rest_url="https://api.bithumb.com",
    instruments_path="/v1/market/all",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=15,
    guard=Guard.WHOLE,
    limits=Limits(
        topics=TOPICS,
        messages=(Limit(5, 1.0), Limit(100, 60.0)),
        connects=(Limit(10, 1.0, Scope.ADDRESS),),  # more, and the address is blocked for 10 min
        fetches=(Limit(30, 1.0, Scope.ADDRESS),),  # of 150
    ),
)
