"""Bithumb spot (API 2): Upbit's protocol (`upbit`) with long names; the best 15 levels a side.

Pages: https://apidocs.bithumb.com/v2.1.5/reference/%ED%98%B8%EA%B0%80-orderbook, and the pages on
addresses, requests and connections next to it.

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-23, recorded:
        arbitrage-observatory
    verbs: 2026-10-23, third-party: ccxt 4.5.90
    channel: 2026-09-07, page: change log, public v1 sockets stay

Sequencing: as for Upbit. Every frame has the whole book; each request replaces the previous one.

Frames, JSON in binary messages; times are in microseconds:

    [{"ticket":"onebook-1"},{"type":"orderbook","codes":["KRW-BTC"]},{"format":"DEFAULT"}]
    {"type":"orderbook","code":"KRW-BTC","total_ask_size":450.35,"total_bid_size":63.24,
     "orderbook_units":[{"ask_price":478800,"bid_price":478300,"ask_size":4.2,"bid_size":2.1}],
     "timestamp":1725927377820000,"stream_type":"SNAPSHOT"}          then "stream_type":"REALTIME"
    {"error":{"name":"WRONG_FORMAT","message":".."}}                         it closes afterwards
    {"status":"UP"}                                                          to a text `PING`

Sizes have four decimals, so dust appears as a level of size 0, which is skipped; a side with fewer
levels than the other is padded with zeros. A code with a suffix (`.30`) also returns 15 levels. A
socket without traffic for 60 s (the page: 120) is closed; our protocol pings count as traffic. The
time is in microseconds on the wire, in milliseconds in an older version of the page, and a string
in a frame that ccxt quotes: all are read.

A wire probe of 2026-09-23 agrees (nemanull/arbitrage-observatory: 493 markets on a socket, unknown
codes are silent). So does ccxt 4.5.90, which sends the same request (4.5.68 sent that of the older
socket, `pubwss.bithumb.com`) and replaces the book by each frame.

As of 2026-11 the unit of times differs: REST has used milliseconds since 2025-11-11, a probe of the
socket found microseconds. Both are read, by their number of digits.

Unconfirmed beyond that probe: that requests replace each other and that errors end the connection.
Unconfirmed: that the limits of messages are those of Upbit, whose protocol this is; that the error
for too many requests says so in its name.
"""

from functools import partial
from typing import Any, Final

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from onebook.core import LevelShape
from onebook.exchanges import upbit
from onebook.exchanges.kit import Engine, Exchange, Limit, Moment, Scope

UNITS: Final = LevelShape.objects(
    "bid_price",
    "bid_size",
    skip_zero_price=True,
    asks=LevelShape.objects("ask_price", "ask_size", skip_zero_price=True),
)


class BookMessage(Struct, gc=False, tag_field="type", tag=upbit.CHANNEL):
    """A frame with a whole book."""

    code: str
    at: Moment = field(name="timestamp")
    units: Raw = field(name="orderbook_units")
    stream: str = field(name="stream_type", default="")


class Control(Struct):
    """The members of control frames."""

    type: str = ""
    code: str = ""
    status: str = ""
    error: Any = None


BOOKS: Final = upbit.channel("DEFAULT", BookMessage, Control, UNITS)

EXCHANGE: Final[Exchange] = replace(
    upbit.EXCHANGE,
    name="bithumb",
    display="Bithumb",
    ws_url="wss://ws-api.bithumb.com/websocket/v1",
    rest_url="https://api.bithumb.com",
    parse_instruments=upbit.INSTRUMENTS.of("bithumb"),
    connector=partial(Engine, BOOKS),
    depth=15,
    limits=replace(
        upbit.EXCHANGE.limits,
        connects=(Limit(10, 1.0, Scope.ADDRESS),),  # beyond it the address is blocked for 10 min
        fetches=(Limit(30, 1.0, Scope.ADDRESS),),  # of 150 allowed
    ),
)
