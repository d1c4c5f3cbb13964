"""P2B (P2PB2B) spot: 100 levels a side, changes each second, one market on a connection.

Pages: https://github.com/P2B-team/P2B-WSS-Public/blob/main/wss_documentation.md (socket),
https://github.com/P2B-team/p2b-api-docs/blob/master/api-doc.md (markets).

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-09-22, recorded: arbitrage-observatory
    channel, depth: 2026-06, third-party: a survey of the page
    limits: never: our choice, the page states none

Sequencing: no numbers and no checksum, only the order of the socket. A full book (`true`) is sent
after a subscription and again about every 60 s while the market changes, and replaces the book, so
in a busy market a lost change is repaired within a minute. Levels that leave the 100 are removed by
a change. A subscription replaces the previous one of its connection (`ExchangeLimits.topics` is 1,
and the supervisor opens a connection for each market). To resync, subscribe again.

Frames, JSON-RPC, with blanks after colons and commas:

    {"method":"depth.subscribe","params":["BTC_USDT",100,"0"],"id":3}     "0": levels are not merged
    {"error": null, "result": {"status": "success"}, "id": 3}
    {"method": "depth.update", "params": [true, {"asks": [["19509.81", "0.277"]],
     "bids": [["19509.8", "1"]]}, "BTC_USDT"], "id": null}                            a full book
    {"method": "depth.update", "params": [false, {"asks": [["19509.81", "0"]]}, "BTC_USDT"],
     "id": null}                                   "0" removes; an unchanged side is absent
    {"error": {"code": 1, "message": "invalid argument"}, "result": null, "id": 11}
    {"error": {"code": 7, "message": "invalid format"}, "result": null}     if it is not JSON
    {"error": null, "result": "pong", "id": 0}                              to our `server.ping`

Frames have no time. Unknown markets are accepted and stay silent, as does a market that does not
change. The exchange closes a socket 60 s (the page: 100) after it last sent a frame, so pings keep
it open. The list of markets has no state and no derivatives.

A wire probe of 2026-09 agrees (nemanull/arbitrage-observatory: a book kept from these frames
equalled REST in its 20 best levels, and differed from the next full book in up to 5 of 200), as
does ccxt 4.5.90, which merges levels unless `interval` is 0.

Checked in 2026-11: a survey of the page in 2026-06 has the same intervals (a full book every 60 s,
changes every second) and limits.

Unconfirmed: that a second subscription of the same market returns a full book, as one of another
market does; whether a side without any level is absent from a full book or empty; how many
connections an address may have or open (12 at once were seen); the words for one request too many.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    ABSENT,
    ROWS_MAX,
    Accepted,
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Heartbeat,
    Ignored,
    Instruments,
    Limit,
    LossDetection,
    Outputs,
    RequestRejected,
    RpcControl,
    Scope,
    Unnumbered,
    control_reader,
    decode,
    instrument_of,
    instruments_of,
    text_in,
)
from onebook.model import Instrument

LEVELS: Final = 100
UPDATE: Final = "depth.update"
NOT_MERGED: Final = "0"


class Sides(Struct, gc=False):
    """A snapshot or a delta."""

    bids: Raw = ABSENT
    asks: Raw = ABSENT


class Depth(Struct, gc=False, array_like=True):
    """A frame's parameters: whether the book is full, the book, and its market."""

    full: bool
    sides: Sides
    market: str


class Update(Struct, gc=False, tag_field="method", tag=UPDATE):
    """A frame with a snapshot or delta."""

    params: Depth


class Steps(Struct, frozen=True):
    """The steps of prices and amounts, 0 if unknown, and the minimums of an order."""

    tick_size: str = ""
    step_size: str = ""
    min_amount: str = ""
    min_total: str = ""


class Listing(Struct):
    """A row of the market list."""

    name: str
    stock: str
    money: str
    limits: Steps = Steps()


class Listings(Struct):
    """The market list."""

    markets: list[Raw] = field(name="result")


_read = msgspec.json.Decoder(Update).decode
_control = control_reader(RpcControl)
_listings = msgspec.json.Decoder(Listings).decode


def data(books: dict[str, Unnumbered], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    message = _read(frame).params
    book = books.get(message.market)
    if book is None:
        return None
    bids, asks = message.sides.bids, message.sides.asks
    if bids is ABSENT and asks is ABSENT:
        raise ValueError("neither bids nor asks")
    return (book.snapshot if message.full else book.delta)(bids, asks)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.method == UPDATE or (not message.method and message.params is not None):
        match message.params:
            case [_, _, str(market)]:
                return BookFrame(market)
        return BookFrame()
    if message.error is not None:
        return RequestRejected(message.error.message, message.id)
    if text_in(message.result, "status") == "success":
        return Accepted(number=message.id)
    return Ignored(known=message.result == "pong")


def subscribe(names: Sequence[str], number: int) -> object:
    """Encode the subscription of a book, which replaces the previous one of the connection."""
    return {"method": "depth.subscribe", "params": [names[0], LEVELS, NOT_MERGED], "id": number}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse `/api/v2/public/markets`: spot only, without a trading state."""
    rows = decode(_listings, body, what="the markets", items_max=rows_max).markets
    return instruments_of(rows, Listing, _listed, rows_max=rows_max)


def _listed(row: Listing) -> Instrument | None:
    tick, lot = (
        step if step.strip("0.") else "" for step in (row.limits.tick_size, row.limits.step_size)
    )
    return instrument_of(
        "p2b",
        row.name,
        base=row.stock,
        quote=row.money,
        trading=True,
        tick=tick,
        lot=lot,
        least_amount=row.limits.min_amount,
        least_notional=row.limits.min_total,
    )


BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=None,
    track=Unnumbered,
    names_per_request=1,
)

EXCHANGE: Final = Exchange(
    name="p2b",
    display="P2B",
    ws_url="wss://apiws.p2pb2b.com/",
    rest_url="https://api.p2pb2b.com",
    instruments_path="/api/v2/public/markets",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=LEVELS,
    interval_ms=1000,
    guard=LossDetection.ORDER,
    timed=False,
    limits=ExchangeLimits(
        topics=1,
        messages=(Limit(5, 1.0),),  # our choice, as are the next two
        connects=(Limit(60, 60.0, Scope.ADDRESS),),
        fetches=(Limit(60, 60.0, Scope.ADDRESS),),
        connections=200,  # our choice: more than there are markets
    ),
    heartbeat=Heartbeat(b'{"method":"server.ping","params":[],"id":0}', every_s=15.0),
    silence_max_s=35.0,  # two pings without an answer
    former_names=("p2pb2b",),
)
