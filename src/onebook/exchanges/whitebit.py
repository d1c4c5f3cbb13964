"""WhiteBIT spot: 100 levels every 100 ms, snapshot on the socket, real-time best prices, JSON-RPC.

Page: https://docs.whitebit.com/websocket/market-streams/depth

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-09-22, recorded: arbitrage-observatory,
        mostly of perpetuals
    limits: 2026-09-01, page: docs.whitebit.com, with the new address

Sequencing: each update's `past_update_id` equals the previous `update_id`. The id counts all
changes in the market, so it is not contiguous. A full book has no `past_update_id` and replaces the
book. It is sent after a subscription and after every 10 s without a change, as the heartbeat of its
book. To resync, subscribe again, which sends a full book. The page cuts the book to the limit after
each update. Frames without `update_id` are also applied, protected only by the order of the socket:
two clients saw them, and an older page (`whitebit-exchange/api-docs`) has no others. The next frame
with an id resumes the chain.

Frames:

    {"id":12,"result":{"status":"success"},"error":null}
    {"id":null,"method":"depth_update","params":[true,{"timestamp":1689600180.516447,
     "update_id":214403,"event_time":1749026542.817343,"asks":[["0.020846","29.369"]],
     "bids":[["0.02083","9.598"]]},"ETH_BTC"]}                        a full book
    {"id":null,"method":"depth_update","params":[false,{"timestamp":1689600180.516447,
     "update_id":214410,"past_update_id":214403,"event_time":1749026542.917343,
     "asks":[["0.020861","0"]]},"ETH_BTC"]}        "0" removes; an unchanged side is absent
    {"id":null,"method":"bookTicker_update","params":[[1751958383.593387,1751958383.593557,
     "ETH_BTC",214405,"0.02083","9.598","0.020846","29.369"]]}        the best prices, always whole
    {"id":12,"result":null,"error":{"code":9,"message":"market X_Y does not exist"}}
    {"id":0,"result":"pong","error":null}                              to our `ping`

`bookTicker_update` has the times of the change and of the message, the market, its `update_id`,
and price and amount of bid and ask. It is sent at once when one of them changes. `update_id` counts
all changes of the market, as in the depth: a perpetual had 24268451852 in a ticker, 24268455456 in
the depth seconds later. The first frame repeats the standing prices. No page says whether another
subscription replaces the markets of the previous one, so each lists all markets of the connection.

The fourth parameter of a subscription keeps the other markets of the socket; each request has one
market. Code 7 means too many requests. Codes 2, 3 and 5 (internal error, service unavailable,
service timeout) are temporary. A client that sends nothing for 60 s is disconnected, one that sends
invalid JSON at once. The host is the one that remains after 2027-03-01. ccxt has the older host,
the same request and frames, and ignores the ids. The book excludes RPI orders, which orders by API
cannot match.

A wire probe of 2026-09-22 agrees (nemanull/arbitrage-observatory), mostly of perpetuals, which
share the socket: no gap in 54,000 updates, updates chain on to full books, another subscription of
a market sends one full book, and a level that leaves the window was removed by an update.

As of 2026-11 it is unclear whether a subscription without the fourth parameter replaces the others
(JKorf sends none). Ours has it, because the page says that it keeps them.

Unconfirmed: that the best prices of both channels agree at equal ids (`onebook.fusing` compares
them); that `depth_unsubscribe` may name one market (WhiteBit.Net of JKorf does; the page has an
empty list, for all; only a removal sends it); that a side without any level is absent from a full
book; how much of 12,000 requests in 10 s holds for old servers, whose page says 200 a minute (397
in one burst were answered).
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct, field

from onebook.exchanges.kit import (
    ABSENT,
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Chain,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    FastChannel,
    FeeColumn,
    Heartbeat,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    RpcControl,
    Scope,
    Sequence64,
    TopOfBook,
    control_reader,
    decode,
    one_level,
    text_in,
    verbs,
)

LEVELS: Final = 100
TOPICS: Final = 50
UPDATE: Final = "depth_update"
BEST_PRICES: Final = "bookTicker_update"
BEST_PRICES_NAME: Final = b'"bookTicker_update"'
METHOD_BYTES_MAX: Final = 64  # the method's name is within this many bytes of a frame's start
NO_GROUPING: Final = "0"
TOO_MANY: Final = 7
UNKNOWN: Final = -1  # the state of a book after a frame without `update_id`
MICROSECONDS: Final = 1_000_000  # of a second

Seconds = Annotated[float, Meta(ge=0, lt=1e10)]


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    sequence: Sequence64 = field(name="update_id", default=UNKNOWN)
    previous: Sequence64 | None = field(name="past_update_id", default=None)
    bids: Raw = ABSENT
    asks: Raw = ABSENT
    at: Seconds = field(name="event_time", default=0.0)


class Params(Struct, gc=False, array_like=True):
    """A frame's parameters: whether the book is full, the book, and its market."""

    full: bool
    book: BookMessage
    market: str


class Update(Struct, gc=False, tag_field="method", tag=UPDATE):
    """A frame with a snapshot or delta."""

    params: Params


class Best(Struct, gc=False, array_like=True):
    """The best prices of a market."""

    changed_at: Seconds
    at: Seconds
    market: str
    sequence: Sequence64
    bid: Raw
    bid_amount: Raw
    ask: Raw
    ask_amount: Raw


class Tops(Struct, gc=False, tag_field="method", tag=BEST_PRICES):
    """A frame with best prices."""

    params: tuple[Best, ...]


_read = msgspec.json.Decoder(Update).decode
_read_tops = msgspec.json.Decoder(Tops).decode
_control = control_reader(RpcControl)


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    if frame.find(BEST_PRICES_NAME, 0, METHOD_BYTES_MAX) > 0:
        return _top(books, frame)
    params = _read(frame).params
    book = books.get(params.market)
    if book is None:
        return None
    change = params.book
    bids, asks, at = change.bids, change.asks, round(change.at * MICROSECONDS)
    if bids is ABSENT and asks is ABSENT:
        raise ValueError("neither bids nor asks")
    if params.full:
        repeated = book.last is not None
        outputs = book.snapshot(bids, asks, change.sequence, at)
        return (*outputs, Alive(book.instrument)) if repeated else outputs
    previous, last = change.previous, book.last
    if UNKNOWN in (change.sequence, last):
        previous = UNKNOWN if last is None else last
    if previous is None:
        raise ValueError("past_update_id is missing")
    return book.delta(bids, asks, previous, change.sequence, at)


def _top(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    (best,) = _read_tops(frame).params
    book = books.get(best.market)
    if book is None:
        return None
    bids = one_level(best.bid, best.bid_amount)
    asks = one_level(best.ask, best.ask_amount)
    at = round(best.at * MICROSECONDS)
    return TopOfBook(book.instrument, best.sequence, bids, asks, at=at)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.method == UPDATE:
        match message.params:
            case [_, _, str(market)]:
                return BookFrame(market)
        return BookFrame("")
    if message.method == BEST_PRICES:
        match message.params:
            case [[_, _, str(market), *_]]:
                return BookFrame(market, top=True)
        return Ignored(known=False)
    if message.error is not None:
        return RequestRejected(message.error.message, message.id, code=message.error.code)
    if text_in(message.result, "status") == "success":
        return Accepted(number=message.id)
    return Ignored(known=message.result == "pong")


def subscribe(names: Sequence[str], number: int) -> object:
    """Encode the subscription of a book, which keeps the others of the socket."""
    params = [names[0], LEVELS, NO_GROUPING, True]
    return {"id": number, "method": "depth_subscribe", "params": params}


def unsubscribe(names: Sequence[str], number: int) -> object:
    """Encode the unsubscription of a book."""
    return {"id": number, "method": "depth_unsubscribe", "params": [names[0]]}


def best_prices(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe the best prices of markets."""
    return {"id": number, "method": f"bookTicker_{verb}", "params": names}


INSTRUMENTS: Final = ListReader(
    "whitebit",
    native="name",
    base="stock",
    quote="money",
    spot={"type": ("spot",)},
    trading={"tradesEnabled": (True,)},
    tick_decimals="moneyPrec",
    lot_decimals="stockPrec",
    least_amount="minAmount",
    least_notional="minTotal",
    taker=FeeColumn("takerFee"),
)

BOOKS: Final = BookChannel(
    data,
    control,
    subscribe,
    unsubscribe,
    Chain,
    renews=True,
    too_many=(TOO_MANY,),
    fast=FastChannel(*verbs(best_prices), names_per_request=TOPICS, lists_all=True),
)

EXCHANGE: Final = Exchange(
    name="whitebit",
    display="WhiteBIT",
    ws_url="wss://wss.whitebit.com/ws",
    rest_url="https://whitebit.com",
    instruments_path="/api/v4/public/markets",
    parse_instruments=INSTRUMENTS,
    lists_fees=True,
    connector=partial(Engine, BOOKS),
    depth=LEVELS,
    interval_ms=100,
    tops=True,
    truncate=True,
    limits=ExchangeLimits(
        topics=TOPICS,  # in two channels; our choice: at the rate below subscribed in 20 s
        messages=(Limit(180, 60.0),),  # 200 on the older page; 12,000 in 10 s on the newer one
        connects=(Limit(300, 60.0, Scope.ADDRESS),),  # of 1000 allowed
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),  # only for the instrument list
    ),
    heartbeat=Heartbeat(b'{"id":0,"method":"ping","params":[]}', every_s=15.0),  # of 60 s
    silence_max_s=25.0,  # a pong is due within 10 s
    heartbeat_max_s=25.0,  # two of the full books that each idle market sends every 10 s
    quiet_max_s=25.0,
    snapshot_s=30.0,
)
