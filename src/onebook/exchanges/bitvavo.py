"""Bitvavo spot: the whole book as numbered deltas, seeded by a request on the same socket.

Pages: https://docs.bitvavo.com/docs/websocket-api/book-subscription and
https://docs.bitvavo.com/docs/manage-order-book

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-22, recorded:
        arbitrage-observatory
    verbs: 2026-10-23, third-party: ccxt 4.5.90, the same requests

Sequencing: deltas are buffered from the acknowledgement until the answer to `getBook` has the book;
those up to its `nonce` are dropped, and from then on each `nonce` is the last one + 1. The numbers
fall when the exchange restarts its engine while the socket stays open; this counts as a gap.

Frames:

    {"event":"subscribed","subscriptions":{"book":["BTC-EUR"]}}        all those of the socket
    {"event":"book","market":"BTC-EUR","nonce":438524,"bids":[["9209.3","0"]],
     "asks":[["9220.20","0.015"]],"timestamp":1542967486256000000}     "0" removes
    {"action":"getBook","requestId":1,"response":{"market":"BTC-EUR","nonce":438523,
     "bids":[["4999.9","0.015"]],"asks":[["5001.1","0.015"]],"timestamp":1542967486256000000}}
    {"action":"subscribe","errorCode":205,"error":"market parameter NOPE-EUR is invalid."}
    {"action":"getBook","requestId":91,"market":"WMTX-EUR","errorCode":431,"error":"getBook is not
     available for WMTX-EUR in state HALTED"}

Levels are not sorted, and prices are padded with zeros in deltas but not in books. We request 1000
levels a side, the maximum; deltas cover all levels, so the levels beyond are unknown (horizon).
Timestamps are in nanoseconds (in milliseconds in the page's examples). A subscription to a halted
market is accepted but silent. The server sends protocol pings every 50 s; there is no other
heartbeat. According to https://docs.bitvavo.com/docs/errors an error may also arrive without its
action: `{"event":"error","errorCode":431,...}`. A second subscription of a market is accepted and
does not duplicate its events. A name in lower case is refused without repeating it: "market
parameter is invalid.".

A wire probe of 2026-09-23 agrees (nemanull/arbitrage-observatory): 437 markets on a socket, no gap
in 89,000 events, books equal to REST. ccxt sends the same requests, but accepts any higher `nonce`
as the next one, so that its book stops changing after a restart.

Checked in 2026-11: ccxt has rewritten its book since July 2026 with the same requests, and no limit
has changed.

Unconfirmed: the answer to an unsubscription; whether one bad market fails the whole request (the
others are then subscribed again, which changes nothing if they were accepted); which code for too
many requests the socket sends (103 in the help centre, 105 or 110 by REST, 112 of a session).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    UNREADABLE,
    UNTIMED,
    Accepted,
    BookChannel,
    BookFrame,
    Event,
    Exchange,
    ExchangeLimits,
    Fetch,
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
    SocketSeed,
    control_reader,
    decode,
    short,
    text_in,
    texts_of,
    verbs,
)
from onebook.model import Instrument

CHANNEL: Final = "book"
SEED: Final = "getBook"
SEED_LEVELS: Final = 1_000
TOO_MANY: Final = (103, 105, 110, 112)
NO_BOOK: Final = (430, 431)  # no event of the market in time; the market is halted or in an auction
UNAVAILABLE: Final = (107, 108, 109)  # the matching engine is overloaded or answers too late


class BookMessage(Struct, gc=False):
    """A whole book."""

    market: str
    nonce: Sequence64
    bids: Raw
    asks: Raw
    timestamp: int = UNTIMED


class Update(BookMessage, gc=False, tag_field="event", tag=CHANNEL):
    """A frame with a delta."""


class Whole(Struct):
    """The reply to a request for a book."""

    response: BookMessage


class Control(Struct):
    """The members of control frames."""

    event: str = ""
    action: str = ""
    market: str = ""
    code: int | None = field(name="errorCode", default=None)
    error: str = ""
    subscriptions: Any = None
    response: Any = None


_read = msgspec.json.Decoder(Update).decode
_whole = msgspec.json.Decoder(Whole).decode
_control = control_reader(Control)


def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    """Decode a delta."""
    update: Update = _read(frame)
    book = books.get(update.market)
    if book is None:
        return None
    return book.delta(update.nonce, update.nonce, update.bids, update.asks, update.timestamp)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.code is not None:
        return _failed(message)
    if message.action == SEED:
        try:
            book = _whole(frame).response
        except UNREADABLE:
            return BookFrame(text_in(message.response, "market"))
        return SocketSeed(book.market, book.bids, book.asks, book.nonce, book.timestamp)
    if message.event == CHANNEL:
        return BookFrame(message.market)
    if message.event == "subscribed" and isinstance(message.subscriptions, dict):
        return Accepted(texts_of(message.subscriptions.get(CHANNEL)))
    return Ignored(known=message.event == "unsubscribed")


def _failed(message: Control) -> Event:
    words = short(message.error)
    if message.action == SEED or message.code in NO_BOOK:
        return SeedRefused(message.market, words, message.code)
    if message.action == "unsubscribe":
        return Ignored(known=True)
    return RequestRejected(words, code=message.code, whole=True)


def subscription(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe the deltas of markets."""
    return {"action": verb, "channels": [{"name": CHANNEL, "markets": names}]}


def request(names: Sequence[str], number: int) -> object:
    """Encode the request for the whole book of a market."""
    return {"action": SEED, "requestId": number, "market": names[0], "depth": SEED_LEVELS}


def join(instrument: Instrument) -> Join:
    """Join a book requested on the socket."""
    return Join(Fetch(instrument, ""), SEED_LEVELS, restarts=True)


INSTRUMENTS: Final = ListReader(
    "bitvavo",  # it has only spot markets
    native="market",
    base="base",
    quote="quote",
    trading={"status": ("trading",)},
    tick="tickSize",
    lot_decimals="quantityDecimals",
    least_amount="minOrderInBaseAsset",
    least_notional="minOrderInQuoteAsset",
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(subscription),
    join,
    names_per_request=100,
    request=request,
    too_many=TOO_MANY,
    unavailable=UNAVAILABLE,
)

EXCHANGE: Final = Exchange(
    name="bitvavo",
    display="Bitvavo",
    ws_url="wss://ws.bitvavo.com/v2/",
    rest_url="https://api.bitvavo.com",
    instruments_path="/v2/markets",
    parse_instruments=INSTRUMENTS,
    connector=partial(SeededEngine, BOOKS),
    depth=0,
    time=ServerTime("/v2/time", "time"),
    limits=ExchangeLimits(
        topics=100,  # our choice: the book of each costs a point
        # Of 1000 points a minute for REST and sockets together; exceeding it blocks for 15 min.
        messages=(Limit(600, 60.0, Scope.ADDRESS),),
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(100, 60.0, Scope.ADDRESS),),  # only for the instrument list
    ),
    snapshot_s=60.0,  # the books of all markets take 45 s of requests at the rate above
)
