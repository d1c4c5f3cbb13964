"""Upbit spot (Korea): the best 30 levels a side, whole in every frame.

Pages: https://docs.upbit.com/kr/reference/websocket-orderbook and `websocket-guide`, `rate-limits`,
`list-market-pairs` next to it. sg-, id- and th-api.upbit.com belong to other exchanges.

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-22, recorded:
        arbitrage-observatory

Sequencing: every frame has the whole book, so a lost frame does no harm. The only answer to a
request is the first frame, the snapshot. Each request replaces the previous one, so it must list
every book of the connection and gets a snapshot of each; there is no other way to unsubscribe.

Frames, JSON in binary messages; in the `SIMPLE` format members have short names:

    [{"ticket":"onebook-1"},{"type":"orderbook","codes":["KRW-BTC"]},{"format":"SIMPLE"}]
    {"ty":"orderbook","cd":"KRW-BTC","tms":1618678262640,"tas":25.75,"tbs":14.4,"obu":[{"ap":1.37E8,
     "bp":1.36E8,"as":0.28,"bs":0.68}],"st":"SNAPSHOT","lv":0}              then "st":"REALTIME"
    {"error":{"name":"NO_CODES","message":"..."}}                            it closes afterwards
    {"status":"UP"}                                                          to a text `PING`

`lv` is 0: levels are not grouped. A side with fewer levels than the other is padded with zeros.
Unknown codes are silent, the other codes of their request are served. Recordings of 2021 have 15
levels. A socket without traffic for 60 s (the page: 120) is closed; our protocol pings count as
traffic. ccxt's watchOrderBook agrees: each frame replaces the book, each request lists all codes.

Checked in 2026-11: 1, 5, 15 and 30 levels have been available since 2025-07; the default of 30 is
requested.

Unconfirmed: that the error for too many requests says so in its name.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import LevelShape
from onebook.exchanges.kit import (
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Ignored,
    Limit,
    ListReader,
    LossDetection,
    Outputs,
    RequestRejected,
    Scope,
    WholeBooks,
    control_reader,
    decode,
    text_in,
)

CHANNEL: Final = "orderbook"
REALTIME: Final = "REALTIME"
UNITS: Final = LevelShape.objects(
    "bp", "bs", skip_zero_price=True, asks=LevelShape.objects("ap", "as", skip_zero_price=True)
)
TOPICS: Final = 50  # our choice: each sends up to ten frames of 2 KB a second; 855 were served


class BookMessage(Struct, gc=False, tag_field="ty", tag=CHANNEL):
    """A frame with a whole book."""

    code: str = field(name="cd")
    at: int = field(name="tms")
    units: Raw = field(name="obu")
    stream: str = field(name="st", default="")


class Control(Struct):
    """The members of control frames."""

    type: str = field(name="ty", default="")
    code: str = field(name="cd", default="")
    status: str = ""
    error: Any = None


def channel(
    form: str, book_type: type[Struct], control_type: type[Struct], units: LevelShape
) -> BookChannel:
    """Make the book channel of one frame format; the types have the attributes of those above."""
    read: Any = msgspec.json.Decoder(book_type).decode
    read_control: Any = control_reader(control_type)

    def data(books: dict[str, WholeBooks], frame: bytes) -> Outputs | None:
        message = read(frame)
        book = books.get(message.code)
        if book is None:
            return None
        answers = message.stream != REALTIME
        return book.snapshot(message.units, message.units, message.at, answers=answers)

    def control(frame: bytes) -> Event:
        message = decode(read_control, frame, what="a frame")
        if message.error is not None:
            name, words = (text_in(message.error, member) for member in ("name", "message"))
            return RequestRejected(f"{name.replace('_', ' ')}: {words}")
        if message.type == CHANNEL:
            return BookFrame(message.code)
        return Ignored(known=bool(message.status))

    def subscribe(names: Sequence[str], number: int) -> object:
        books = {"type": CHANNEL, "codes": names}
        return [{"ticket": f"onebook-{number}"}, books, {"format": form}]

    track = partial(WholeBooks, shape=units)
    return BookChannel(data, control, subscribe, None, track, TOPICS)


INSTRUMENTS: Final = ListReader(
    "upbit",  # the list is of spot only, with neither steps nor states
    native="market",
    separator="-",
    quote_first=True,
)

BOOKS: Final = channel("SIMPLE", BookMessage, Control, UNITS)

EXCHANGE: Final = Exchange(
    name="upbit",
    display="Upbit",
    ws_url="wss://api.upbit.com/websocket/v1",
    rest_url="https://api.upbit.com",
    instruments_path="/v1/market/all",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=30,
    guard=LossDetection.WHOLE,
    limits=ExchangeLimits(
        topics=TOPICS,
        messages=(Limit(5, 1.0), Limit(100, 60.0)),
        connects=(Limit(5, 1.0, Scope.ADDRESS),),
        fetches=(Limit(10, 1.0, Scope.ADDRESS),),
    ),
)
