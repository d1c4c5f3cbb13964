"""Gemini spot: the whole book, changes every 100 ms, snapshot on the socket, real-time best prices.

Page: https://developer.gemini.com/websocket/streams

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-15, recorded:
        arbitrage-observatory
    channel, sequence: 2026-09-22, third-party: hummingbot

Sequencing: `U` of each change is the `u` before it, so frames overlap by one state. The first frame
after a subscription is the whole book; its only distinction is `U == u`. A change that ends at the
same `u` may follow and is already part of the book. To resync, unsubscribe and subscribe.

Frames:

    {"e":"depthUpdate","E":1789456740173524809,"s":"btcusd","U":1764527605192163,
     "u":1764527605192163,"b":[["77401.500","0.1200"]],"a":[["77402.000","0.0000"]]}   0 removes
    {"u":1764527605192164,"E":1789456740173600000,"s":"btcusd","b":"77401.500","B":"0.1200",
     "a":"77402.500","A":"0.3000"}                       `@bookTicker`: the best prices, without `e`
    {"id":"1","status":200}                  between the snapshots of its request, or after them
    {"id":"1","status":400,"error":{"code":-1013,"msg":"Invalid stream name: xy@depth@100ms"}}

A parameter of the address requests snapshots (`snapshot=-1`: all levels). One unknown name fails
the whole request. Frames of `@depth` and `@depth@100ms` look the same, so only one of the two is
subscribed. `@bookTicker` is subscribed in separate requests, so that it cannot fail those of the
depth. The server pings every 20 s; a book that does not change is silent. In the list of
symbols, `quote_increment` is the step of prices and `tick_size` that of amounts.

Recorded on this channel in 2026-09 (ziyangliu-666/FastMM): BTC/USD, 4,658 levels with asks up to
9e12, and perpetuals; each `U` was the `u` before it, and the best levels of the perpetuals were
those of `bookTicker`. hummingbot has used this channel by the same rule since 2026-09; ccxt uses
the archived v2 socket. Recorders of Gemini's prediction markets, on the same address in 2026-09,
write `SUBSCRIBE` in capitals, also take the first frame as the whole book, and read the same
weights and 300 connections in five minutes from `conninfo`.

As of 2026-11 clients disagree on two rules. Here the first frame must have `U == u`, as in
hummingbot (tardis-node accepts any): another frame is ignored because it may be a late one of the
previous subscription. hummingbot accepts a `U` of the last `u + 1`. Here it is a gap: states
overlap, so such a frame would hide a lost one.

The `u` of `@bookTicker` is from the range of all symbols that the depth counts in: one beside a
snapshot was higher by one. A frame without both sides is ignored, as a side may be left out because
it did not change.

Unconfirmed: that the best prices of both channels agree at equal ids (`onebook.fusing` compares
them); the members of a partial frame of `@bookTicker`; that a subscription returns a new snapshot
after an unsubscription; the words of -1003 (too many requests); how many streams a connection may
have (20 were seen).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from onebook.exchanges.kit import (
    NOTHING,
    Accepted,
    BestPrices,
    BookChannel,
    BookFrame,
    Chain,
    DepthUpdate,
    Engine,
    ErrorBody,
    Event,
    Exchange,
    ExchangeLimits,
    FastChannel,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    control_reader,
    decode,
    top_of,
    verbs,
)

STREAM: Final = "@depth@100ms"
BEST_PRICES: Final = "@bookTicker"
UPDATE: Final = "depthUpdate"
UPDATE_NAME: Final = b'"depthUpdate"'
OK: Final = 200
TOO_MANY_REQUESTS: Final = -1003


class Update(DepthUpdate, gc=False, tag_field="e", tag=UPDATE):
    """Changes of a book, or the whole book."""


class Control(Struct):
    """The members of control frames."""

    id: int | str | None = None
    status: int | None = None
    error: ErrorBody | None = None
    event: Any = field(name="e", default=None)
    native: str = field(name="s", default="")
    final: Any = field(name="u", default=None)


_read = msgspec.json.Decoder(Update).decode
_read_top = msgspec.json.Decoder(BestPrices).decode
_control = control_reader(Control)


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    if frame.find(UPDATE_NAME) < 0:
        best = _read_top(frame)
        top_book = books.get(best.native)
        return None if top_book is None else top_of(top_book.instrument, best)
    message: Update = _read(frame)
    book = books.get(message.native)
    if book is None:
        return None
    first, final, last = message.first, message.final, book.last
    if last is None:
        if first != final:  # a late frame of the previous subscription
            return NOTHING
        return book.snapshot(message.bids, message.asks, final, message.at)
    previous = last if first <= last < final else first
    return book.delta(message.bids, message.asks, previous, final, message.at)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    problem = message.error
    if message.event == UPDATE:
        return BookFrame(message.native)
    if message.final is not None and message.event is None:
        return BookFrame(message.native, top=True)
    if problem is not None:
        words = problem.msg.replace(STREAM, "")
        return RequestRejected(words, message.id, whole=True, code=problem.code)
    return Accepted(number=message.id) if message.status == OK else Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str, stream: str = STREAM) -> object:
    """Encode a request to subscribe or unsubscribe streams."""
    return {"id": str(number), "method": verb, "params": [name + stream for name in names]}


INSTRUMENTS: Final = ListReader(
    "gemini",
    native="symbol",
    spell=str.lower,  # frames have lower case, the list has capitals
    base="base_currency",
    quote="quote_currency",
    spot={"product_type": ("spot", None)},
    trading={"status": ("open", "limit_only")},
    tick="quote_increment",
    lot="tick_size",
    least_amount="min_order_size",
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    Chain,
    names_per_request=20,
    too_many=(TOO_MANY_REQUESTS,),
    fast=FastChannel(*verbs(partial(request, stream=BEST_PRICES)), names_per_request=20),
)

EXCHANGE: Final = Exchange(
    name="gemini",
    display="Gemini",
    ws_url="wss://ws.gemini.com/?snapshot=-1",
    rest_url="https://api.gemini.com",
    instruments_path="/v1/symbols/details/all",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=0,
    interval_ms=100,
    tops=True,
    limits=ExchangeLimits(
        topics=25,  # in two streams each; our choice: undocumented
        messages=(Limit(10, 1.0),),  # our choice: 7,000 weights in 10 s, weight per request unknown
        connects=(Limit(300, 300.0, Scope.ADDRESS),),
        fetches=(Limit(120, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=45.0,
)
