"""Deribit spot: the whole book every 100 ms, snapshot on the socket, and best prices at once.

Pages: https://docs.deribit.com/subscriptions/orderbook/bookinstrument_nameinterval and
https://docs.deribit.com/subscriptions/market-data/quoteinstrument_name

Confirmed:

    channel, verbs, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    ping, sequence: 2026-09-23, recorded: arbitrage-observatory, of derivatives
    limits: never: general knowledge
    fees: 2026-08-14, recorded: rows of futures, not of spot, in the tests of another client

Sequencing: each change's `prev_change_id` is the `change_id` before it; a snapshot has none and
is sent only after a subscription. To resync, unsubscribe and subscribe.

Frames (JSON-RPC 2.0):

    {"jsonrpc":"2.0","id":2,"result":["book.BTC_USDC.100ms"],"testnet":false}
    {"jsonrpc":"2.0","method":"subscription","params":{"channel":"book.BTC_USDC.100ms","data":{
     "type":"snapshot","timestamp":1655395057025,"instrument_name":"BTC_USDC",
     "change_id":1550694837,"bids":[["new",20987.0,0.487]],"asks":[["new",20999.0,0.092]]}}}
     then "type":"change","prev_change_id":1550694837,"bids":[["delete",20975.0,0.0]]
    {"jsonrpc":"2.0","method":"subscription","params":{"channel":"quote.BTC_USDC","data":{
     "timestamp":1655395057100,"instrument_name":"BTC_USDC","best_bid_price":20987.0,
     "best_bid_amount":0.487,"best_ask_price":null,"best_ask_amount":0.0}}}    null: an empty side
    {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params","data":{
     "reason":"value must be a list","param":"channels"}}}
    {"jsonrpc":"2.0","method":"heartbeat","params":{"type":"heartbeat"}}
     or "type":"test_request", which must be answered by a `public/test` request

We request heartbeats (`public/set_heartbeat`, at least 10 s apart); an unanswered `test_request`
closes the connection. On a busy connection only the test requests arrive (wire probe of 2026-09-23,
nemanull/arbitrage-observatory, on derivatives, which share the socket). The result of a request
lists the accepted channels, `[]` if none. A second request for an open channel is accepted but
sends no snapshot. Exceeding the request limit (10028) also closes the connection; a subscription
costs 3,000 of 30,000 credits, of which 10,000 are restored per second. Other errors after which
nautilus_trader repeats a request are recognized by their words: maintenance (11051), an internal
error (11094), unavailable (13028), timed out (13888). Rows with `is_cbe_routed` are left out: their
orders are matched at Coinbase, whose books are already merged. `raw` needs a login; `agg2` is sent
about every second.

`platform_state` (its page: https://docs.deribit.com/subscriptions/platform/platform_state)
announces the start and end of maintenance, `{"maintenance":true}`, during which books are not
shown. According to the help centre, clients cannot communicate at all during a planned one. It also
announces locked price indexes, `{"price_index":"sol_usdc","locked":true}`, which do not affect
books here.

`quote` is sent at each change of the best prices (10 to 15 a second on BTC where `book` had 3, on
derivatives), and names no `change_id`, only a time in milliseconds. So best prices are ordered
with the levels by `timestamp`, the time of the last change in both: they are shown only if their
millisecond is later than that of the levels, because states of one millisecond have no order.
Channels of both are in one request, and the answer lists what it accepted of them.

ccxt's watchOrderBook (which does not check the ids) and nautilus_trader agree on frames, ccxt's
watchBidsAsks on those of `quote`.
Unconfirmed: that both channels take their times from one clock; the gateway at drb.coinbase.com,
which was to take over derivatives in 2026-09; whether a lock of a price index stops orders of the
spot pair of that name.

As of 2026-11 few books are left here: most spot pairs, including BTC_USDC, are matched at Coinbase
Exchange (flagged `is_cbe_routed`, 2026-08) and left out, because their orders are in Coinbase's
books.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct, field

from onebook.core import LevelShape
from onebook.exchanges.kit import (
    MILLISECONDS_MAX,
    UNTIMED,
    Alive,
    BookChannel,
    BookFrame,
    Chain,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    FeeColumn,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    RpcControl,
    Scope,
    Sequence64,
    ServerTime,
    TopOfBook,
    Trading,
    accepted_of,
    best_prices_at,
    control_reader,
    decode,
    levels_at,
    one_level,
    send,
    text_in,
    verbs,
)
from onebook.model import Instrument

LEVELS: Final = LevelShape.rows(price=1, amount=2)
Time = Annotated[int, Meta(ge=0, le=MILLISECONDS_MAX)]
BEST_PREFIX: Final = "quote."
BEST_PREFIX_NAME: Final = b'"quote.'
CHANNEL_BYTES_MAX: Final = 100  # the channel's name is within this many bytes of a frame's start
HEARTBEAT_S: Final = 10
PLATFORM: Final = "platform_state"
TOO_MANY: Final = (10028, 10047, 10066)  # limits: per period, per kind, burst
UNAVAILABLE: Final = (10040, 10041)  # retry, settlement; others are recognized by their words


def _rpc(method: str, number: int, params: object) -> object:
    return {"jsonrpc": "2.0", "id": number, "method": f"public/{method}", "params": params}


# Requests of books are numbered from 1; all others have the number 0.
TEST: Final = send(_rpc("test", 0, {}), urgent=True)


# Members are in wire order: msgspec searches for each after the previous one.
class WholeBook(Struct, gc=False, kw_only=True, tag_field="type", tag="snapshot"):
    """A whole book."""

    timestamp: Time = UNTIMED
    change_id: Sequence64
    bids: Raw
    asks: Raw


class BookChange(Struct, gc=False, kw_only=True, tag_field="type", tag="change"):
    """A change of a book."""

    timestamp: Time = UNTIMED
    prev_change_id: Sequence64
    change_id: Sequence64
    bids: Raw
    asks: Raw


class Params(Struct, gc=False):
    """The parameters of a notification."""

    channel: str
    data: BookChange | WholeBook


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    params: Params


class QuotedPrices(Struct, gc=False):
    """The best prices of an instrument."""

    timestamp: Time
    instrument_name: str
    bid: Raw = field(name="best_bid_price")
    bid_amount: Raw = field(name="best_bid_amount")
    ask: Raw = field(name="best_ask_price")
    ask_amount: Raw = field(name="best_ask_amount")


class QuoteParams(Struct, gc=False):
    """The parameters of a notification with best prices."""

    data: QuotedPrices


class QuoteData(Struct, gc=False):
    """A frame with best prices."""

    params: QuoteParams


_read = msgspec.json.Decoder(Data).decode
_read_quote = msgspec.json.Decoder(QuoteData).decode
_control = control_reader(RpcControl)


def topic(instrument: Instrument) -> str:
    """Return the channel of an instrument."""
    return topic_of(instrument.native)


def topic_of(native: str) -> str:
    """Return the channel of a name."""
    return f"book.{native}.100ms"


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book, or best prices."""
    if frame.find(BEST_PREFIX_NAME, 0, CHANNEL_BYTES_MAX) > 0:
        return _top(books, frame)
    params = _read(frame).params
    book, message = books.get(params.channel), params.data
    if book is None:
        return None
    at, bids, asks = message.timestamp, message.bids, message.asks
    order = levels_at(at)
    if type(message) is BookChange:
        return book.delta(bids, asks, message.prev_change_id, message.change_id, at, order)
    return book.snapshot(bids, asks, message.change_id, at, order)


def _top(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    quote = _read_quote(frame).params.data
    book = books.get(topic_of(quote.instrument_name))
    if book is None:
        return None
    bids = one_level(quote.bid, quote.bid_amount)
    asks = one_level(quote.ask, quote.ask_amount)
    number = best_prices_at(quote.timestamp)
    return TopOfBook(book.instrument, number, bids, asks, at=quote.timestamp)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    match message.method:
        case "subscription":
            name = text_in(message.params, "channel")
            if name == PLATFORM:
                return _platform(message.params)
            if name.startswith(BEST_PREFIX):
                return BookFrame(topic_of(name.removeprefix(BEST_PREFIX)), top=True)
            return BookFrame(name) if name.startswith("book.") else Ignored(known=False)
        case "heartbeat":
            return TEST if text_in(message.params, "type") == "test_request" else Alive()
    if (problem := message.error) is not None:
        words = f"{problem.message} {text_in(problem.data, 'reason')}"
        return RequestRejected(words.rstrip(), message.id, code=problem.code)
    if isinstance(message.result, list):
        return accepted_of(message.result, message.id)
    return Ignored(known=message.result is not None)


def _platform(params: Any) -> Event:
    """Decode a notification of the platform; locks of price indexes are ignored."""
    match params:
        case {"data": {"maintenance": bool(maintenance)}}:
            return Trading(open=not maintenance, reason="maintenance of the platform")
    return Ignored(known=True)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books and their best prices."""
    natives = [name.removeprefix("book.").rpartition(".")[0] for name in names]
    channels = [*names, *(BEST_PREFIX + native for native in natives)]
    return _rpc(verb, number, {"channels": channels})


INSTRUMENTS: Final = ListReader(
    "deribit",
    rows="result",
    native="instrument_name",
    base="base_currency",
    quote="quote_currency",
    spot={"kind": ("spot",)},
    not_spot={"is_cbe_routed": (True,)},
    trading={"is_active": (True, None)},
    tick="tick_size",
    lot="min_trade_amount",
    least_amount="min_trade_amount",
    taker=FeeColumn("taker_commission", fraction=True),
)


BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    partial(Chain, shape=LEVELS),
    names_per_request=100,
    key=topic,
    configure=(
        _rpc("set_heartbeat", 0, {"interval": HEARTBEAT_S}),
        _rpc("subscribe", 0, {"channels": [PLATFORM]}),
    ),
    too_many=TOO_MANY,
    unavailable=UNAVAILABLE,
)

EXCHANGE: Final = Exchange(
    name="deribit",
    display="Deribit",
    ws_url="wss://www.deribit.com/ws/api/v2",
    rest_url="https://www.deribit.com",
    instruments_path="/api/v2/public/get_instruments?currency=any&kind=spot",
    parse_instruments=INSTRUMENTS,
    lists_fees=True,
    connector=partial(Engine, BOOKS),
    depth=0,
    interval_ms=100,
    tops=True,
    time=ServerTime("/api/v2/public/get_time", "result"),
    limits=ExchangeLimits(
        topics=100,  # in two channels each; our choice, of 500 channels in one request
        messages=(Limit(20, 1.0, Scope.ADDRESS),),
        requests=(Limit(3, 1.0, Scope.ADDRESS),),  # of 3.3, with bursts of 10
        connects=(Limit(1, 1.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(1, 1.0, Scope.ADDRESS),),
        connections=32,
    ),
    silence_max_s=2.5 * HEARTBEAT_S,
    heartbeat_max_s=2.5 * HEARTBEAT_S,
)
