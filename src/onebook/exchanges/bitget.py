"""Bitget spot (v3): 1000 levels about every 50 ms, snapshot on the socket, and fast best prices.

Page: https://www.bitget.com/docs/uta/websocket/public/Order-Book-Channel. Futures frames of 2026-09
recorded by others on this socket agree with it and with those of v2; ccxt's `watchOrderBook` reads
the same fields. The v2 socket ("maintenance only") has 500 levels.

The list's states `limit_open`, `limit_close` and `restrictedAPI` restrict who may place which
orders, but not the matching (JKorf's names of v3), so such a pair trades, as does one that is
`online` or, in v2, `gray`. Pairs that are `listed` or `offline` are halted.

Confirmed:

    channel, verbs, ping, limits, sequence, depth: 2026-09-15, recorded: arbitrage-observatory, of
        futures
    channel, levels: 2026-04-28, recorded: tardis-node test frames, spot, v3
    channel: 2026-10-10, third-party: a report of the update preview, which changes `books50` alone

Sequencing: `pseq` of each update equals the `seq` before it (no gap in 280,000 frames); the page
allows the first update to start before the snapshot. A `pseq` of 0 means a restart and is a gap. To
resync, unsubscribe and subscribe.

Frames:

    {"action":"snapshot","arg":{"instType":"spot","topic":"books","symbol":"BTCUSDT"},"data":[
     {"a":[["101","3"]],"b":[["100","2"]],"seq":1304314508780744705,"pseq":0,
     "ts":"1746698732562"}],"ts":1746698732563}                      then "action":"update"
    {"action":"snapshot","arg":{"instType":"spot","topic":"books1","symbol":"BTCUSDT"},"data":[
     {"a":[["101","3"]],"b":[["100","2"]],"seq":1304314508780744706,"pseq":0,
     "ts":"1746698732565"}],"ts":1746698732566}                       the best prices, always whole
    {"event":"subscribe","arg":{"instType":"spot","topic":"books","symbol":"BTCUSDT"},"connId":"a"}
    {"event":"error","code":30001,"msg":"{\\"instType\\":\\"spot\\",\\"symbol\\":\\"NO\\",...}
     doesn't exist","connId":"a"}
    pong                                                             to our text `ping`

`books1` has the `seq` of `books`: in 2,920 futures frames of equal `seq`, recorded in 2026-09, both
and v2 had the same best levels. The page states 1 ms for it, 3 ms were seen for futures. Both are
in one request, and each argument has its own answer.

The page shows `seq` as a string, the exchange sends a number: both are read. The time of a frame is
that of its item, when the book was made. A book that does not change is silent. A client that sends
no `ping` is disconnected after about two minutes, even while it receives data. A request with 25 or
more arguments closed the connection, one with 20 did not: we send 20, two for each pair. Errors
30006 and 30007 mean too many requests.

In all frames recorded in 2022 the checksum covers 25 levels a side, bid and ask in turn, as
spelled.

As of 2026-11 the rule of the v3 checksum is unknown. It is 0 in snapshots and non-zero in the spot
updates recorded on 2026-04-28 (tardis-node's tests), but no recording has a whole book together
with its update. It is ignored, because `pseq` reveals each lost frame.

Unconfirmed: how often `books1` is sent for spot (60 ms on older pages, which would save nothing);
whether unsubscriptions count towards the 240 requests an hour; that `books50`, which is not used
here, becomes incremental on 2026-12-01 (only a secondary source says so) while `books` stays as it
is. According to ccxt, books of tokenized stocks may contain an object in place of a list; such
books are not shown.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct, field

from onebook.exchanges.kit import (
    SEQUENCE_MAX,
    Accepted,
    BookChannel,
    BookFrame,
    Chain,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Heartbeat,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    ServerTime,
    TopOfBook,
    control_reader,
    decode,
    each_of,
    short,
    text_in,
    verbs,
)

TOPIC: Final = "books"
BEST_PRICES: Final = "books1"
BEST_PRICES_NAME: Final = b'"books1"'
ARG_BYTES_MAX: Final = 100  # the topic's name is within this many bytes of a frame's start
SPOT: Final = "spot"
RESTARTED: Final = 0  # `pseq` of an update after a restart, and of every snapshot
TOO_MANY: Final = ("30006", "30007")
# From ccxt's table: system error, offline, request failed, offline, upgrade; then codes of REST.
UNAVAILABLE: Final = ("30009", "30019", "30030", "30037", "30038", "40010", "40015", "40200")

Number = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]


class Arg(Struct, gc=False, tag_field="topic", tag=TOPIC):
    """The subject of a frame."""

    symbol: str
    family: str = field(name="instType")


class Item(Struct, gc=False):
    """A snapshot or a delta."""

    bids: Raw = field(name="b")
    asks: Raw = field(name="a")
    sequence: Number = field(name="seq")
    previous: Number = field(name="pseq", default=0)
    ts: str = ""


class Update(Struct, gc=False, tag_field="action", tag="update"):
    """A frame with changes of a book."""

    arg: Arg
    data: tuple[Item, ...]


class Whole(Update, tag="snapshot"):
    """A frame with a whole book."""


class TopArg(Arg, gc=False, tag_field="topic", tag=BEST_PRICES):
    """The subject of a frame of best prices."""


class Best(Struct, gc=False):
    """A frame with the best prices of both sides."""

    arg: TopArg
    data: tuple[Item, ...]


class Control(Struct):
    """The members of control frames."""

    event: str = ""
    arg: Any = None
    code: int | str = ""
    msg: str = ""


_read = msgspec.json.Decoder(Update | Whole, strict=False).decode  # numbers may be strings
_read_top = msgspec.json.Decoder(Best, strict=False).decode
_control = control_reader(Control)


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    if frame.find(BEST_PRICES_NAME, 0, ARG_BYTES_MAX) > 0:
        return _top(books, frame)
    message: Update | Whole = _read(frame)
    book = books.get(message.arg.symbol)
    if book is None or message.arg.family != SPOT:
        return None
    items, follow = message.data, _replaced if type(message) is Whole else _changed
    if len(items) == 1:
        return follow(book, items[0])
    return tuple(out for item in items for out in each_of(follow(book, item)))


def _top(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    message: Best = _read_top(frame)
    book = books.get(message.arg.symbol)
    if book is None or message.arg.family != SPOT:
        return None
    (item,) = message.data
    return TopOfBook(book.instrument, item.sequence, item.bids, item.asks, at=item.ts)


def _replaced(book: Chain, item: Item) -> Outputs:
    return book.snapshot(item.bids, item.asks, item.sequence, item.ts)


def _changed(book: Chain, item: Item) -> Outputs:
    """Apply an update; it may start before the book's number if it ends after it."""
    previous, sequence, last = item.previous, item.sequence, book.last
    if last is not None and RESTARTED < previous < last < sequence:
        previous = last
    return book.delta(item.bids, item.asks, previous, sequence, item.ts)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    topic, family = text_in(message.arg, "topic"), text_in(message.arg, "instType")
    if (topic, family, message.event) == (BEST_PRICES, SPOT, ""):
        return BookFrame(text_in(message.arg, "symbol"), top=True)
    is_book = (topic, family) == (TOPIC, SPOT)
    name = text_in(message.arg, "symbol") if is_book else ""
    match message.event:
        case "subscribe" if name:
            return Accepted([name])
        case "error" if BEST_PRICES in message.msg:  # `books` has its own error
            return Ignored(known=True, refused=short(message.msg))
        case "error":
            return RequestRejected(message.msg, code=str(message.code))
        case "" if is_book:
            return BookFrame(name)
    return Ignored(known=message.event in ("subscribe", "unsubscribe"))


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    topics = (TOPIC, BEST_PRICES)
    args = [{"instType": SPOT, "topic": each, "symbol": name} for name in names for each in topics]
    return {"op": verb, "args": args}


INSTRUMENTS: Final = ListReader(
    "bitget",
    rows="data",
    native="symbol",
    base="baseCoin",
    quote="quoteCoin",
    answered={"code": ("00000", None)},
    spot={"category": ("SPOT", "spot")},
    trading={"status": ("online", "gray", "limit_open", "limit_close", "restrictedAPI")},
    tick_decimals="pricePrecision",
    lot_decimals="quantityPrecision",
    least_amount="minOrderQty",
    least_notional="minOrderAmount",
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    Chain,
    names_per_request=10,
    too_many=TOO_MANY,
    unavailable=UNAVAILABLE,
)

EXCHANGE: Final = Exchange(
    name="bitget",
    display="Bitget",
    ws_url="wss://ws.bitget.com/v3/ws/public",
    rest_url="https://api.bitget.com",
    instruments_path="/api/v3/market/instruments?category=SPOT",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=1_000,
    interval_ms=50,
    tops=True,
    time=ServerTime("/api/v2/public/time", "data.serverTime"),
    limits=ExchangeLimits(
        # Each book takes two channels; Bitget allows 1,000 per connection and advises 50. A resync
        # takes two of the 240 requests an hour.
        topics=25,
        messages=(Limit(10, 1.0),),
        requests=(Limit(240, 3_600.0),),
        connects=(Limit(300, 300.0, Scope.ADDRESS),),
        fetches=(Limit(20, 1.0, Scope.ADDRESS),),
        connections=100,
    ),
    heartbeat=Heartbeat(b"ping", every_s=20.0),
    silence_max_s=30.0,  # a healthy socket answers each ping
)
