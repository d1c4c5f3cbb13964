"""Crypto.com spot (Exchange v1): 50 levels a side every 10 ms, snapshot on the socket.

Page: https://exchange-docs.crypto.com/exchange/v1/rest-ws/index.html#book-instrument_name-depth.
Frames of 2026-09 recorded by others agree, including those of `BTC_USD`, and ccxt's
`watchOrderBook` applies them in the same way.

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-22, recorded:
        arbitrage-observatory, BTC_USD too
    channel, verbs: 2026-10-23, third-party: ccxt 4.5.90

Sequencing: `pu` of each delta equals the `u` before it; ids jump by thousands. A snapshot arrives
about 1 s after a subscription. To resync, unsubscribe and subscribe.

Frames:

    {"id":1,"method":"subscribe","code":0,"channel":"book.BTC_USD.50"}        one per channel
    {"id":-1,"method":"subscribe","code":0,"result":{"instrument_name":"BTC_USD",
     "subscription":"book.BTC_USD.50","channel":"book","depth":50,"data":[{"asks":
     [["2749.62","0.2008","2"]],"bids":[["2749.61","0.0786","2"]],"t":1790114273395,
     "tt":1790114273346,"u":375554806244928,"cs":-1183713967}]}}
    the same with "channel":"book.update" and "data":[{"update":{"asks":[["2750.20","0","0"]],
     "bids":[]},"t":1790114273659,"tt":1790114273655,"u":375554807336512,"pu":375554807297984}]
    {"id":11,"method":"subscribe","code":40003,"channel":"book.NO_PE.50","message":"Unknown symbol"}
    {"id":9,"method":"subscribe","code":40107,"message":"Maximum subscriptions exceeded"}
    {"id":1790114291578,"method":"public/heartbeat","code":0}

The exchange sends `public/heartbeat` every 30 s. The page requires an answer with the same id
within 5 s; a client that never answers is disconnected at the third. A book that does not change
sends an empty update with `u == pu` about every 5 s as its heartbeat. A level that leaves the 50 is
removed by a delta. 150 levels are available only as whole books, twice a second. The time of a
frame is `t`, when it was sent.

`cs` is a checksum whose rule is unpublished, so it is ignored. The page requires a `nonce`, but
requests without one were accepted. It advises waiting 1 s after connecting, because the first
calendar second has only its share of the 100 messages; we send few at once instead.

Of the page's codes, 42901 (TOO_MANY_REQUESTS) means too many requests. 40801 (REQUEST_TIMEOUT) and
50001 (ERR_INTERNAL) are temporary, as is 9010001 (maintenance), which ccxt lists.

Checked in 2026-11: the page's list of breaking changes has none of `book` after 2025-12-17, and
three clients agree.

Unconfirmed: how many connections an address may open; what an empty side looks like.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from onebook.exchanges.kit import (
    ABSENT,
    UNTIMED,
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Chain,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    Sequence64,
    control_reader,
    decode,
    each_of,
    send,
    text_in,
    verbs,
)
from onebook.model import Instrument

DEPTH: Final = 50
FREQUENCY_MS: Final = 10
HEARTBEAT: Final = "public/heartbeat"
NO_PREVIOUS: Final = -1
TOO_MANY: Final = 42901
UNAVAILABLE: Final = (40801, 50001, 9010001)  # timed out, internal error, maintenance


# Members are in wire order: msgspec searches for each after the previous one.
class SideLevels(Struct, frozen=True, gc=False):
    """Both sides of a delta."""

    asks: Raw
    bids: Raw


NO_CHANGE: Final = SideLevels(ABSENT, ABSENT)


class Item(Struct, gc=False, kw_only=True):
    """A snapshot or a delta; the levels of a delta are in `update`."""

    update: SideLevels = NO_CHANGE
    asks: Raw = ABSENT
    bids: Raw = ABSENT
    t: int = UNTIMED
    u: Sequence64
    pu: Sequence64 = NO_PREVIOUS


class Result(Struct, gc=False):
    """The result of a frame."""

    subscription: str
    channel: Literal["book.update", "book"]
    data: list[Item]


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    result: Result


class Control(Struct):
    """The members of control frames."""

    id: int = -1
    method: str = ""
    code: int = 0
    channel: str = ""
    message: str = ""
    result: Any = None


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)


def channel(instrument: Instrument) -> str:
    """Return the channel of an instrument, as in its frames."""
    return f"book.{instrument.native}.{DEPTH}"


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    message = _read(frame).result
    book = books.get(message.subscription)
    if book is None:
        return None
    follow = _changed if message.channel == "book.update" else _replaced
    items = message.data
    if len(items) == 1:
        return follow(book, items[0])
    return tuple(out for item in items for out in each_of(follow(book, item)))


def _changed(book: Chain, item: Item) -> Outputs:
    """Apply a delta; one without levels is a heartbeat of its book."""
    levels = item.update
    if levels is NO_CHANGE:
        raise ValueError("no levels")
    bids, asks = levels.bids, levels.asks
    if item.u == item.pu == book.last and bids == asks == ABSENT:
        return (Alive(book.instrument),)
    return book.delta(bids, asks, item.pu, item.u, item.t)


def _replaced(book: Chain, item: Item) -> Outputs:
    if item.bids is ABSENT or item.asks is ABSENT:
        raise ValueError("a side is missing")
    return book.snapshot(item.bids, item.asks, item.u, item.t)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.method == HEARTBEAT:
        return send({"id": message.id, "method": "public/respond-heartbeat"}, urgent=True)
    if message.method == "unsubscribe":
        return Ignored(known=True)
    if message.code:
        words = f"{message.message} {message.channel}".strip()  # the channel may be absent
        return RequestRejected(words, code=message.code)
    if text_in(message.result, "channel").startswith("book"):
        return BookFrame(text_in(message.result, "subscription"))
    if message.method == "subscribe" and message.channel.startswith("book."):
        return Accepted([message.channel])
    return Ignored(known=message.method == "subscribe" and message.result is None)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe channels."""
    params: dict[str, object] = {"channels": names}
    if verb == "subscribe":
        params["book_subscription_type"] = "SNAPSHOT_AND_UPDATE"
        params["book_update_frequency"] = FREQUENCY_MS
    return {"id": number, "method": verb, "params": params}


INSTRUMENTS: Final = ListReader(
    "cryptocom",
    rows="result.data",
    native="symbol",
    base="base_ccy",
    quote="quote_ccy",
    answered={"code": (0,)},
    spot={"inst_type": ("CCY_PAIR",)},
    trading={"tradable": (True,)},
    tick="price_tick_size",
    lot="qty_tick_size",
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    Chain,
    names_per_request=100,
    key=channel,
    too_many=(TOO_MANY,),
    unavailable=UNAVAILABLE,
)

EXCHANGE: Final = Exchange(
    name="cryptocom",
    display="Crypto.com",
    ws_url="wss://stream.crypto.com/exchange/v1/market",
    rest_url="https://api.crypto.com",
    instruments_path="/exchange/v1/public/get-instruments",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    interval_ms=10,
    limits=ExchangeLimits(
        topics=200,  # of 400 allowed
        messages=(Limit(10, 1.0),),  # of 100; see above
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(100, 1.0, Scope.ADDRESS),),
    ),
    heartbeat_max_s=65.0,  # two heartbeats of the exchange
    silence_max_s=15.0,  # three pings of the exchange
    quiet_max_s=20.0,  # four empty updates of an unchanged book
)
