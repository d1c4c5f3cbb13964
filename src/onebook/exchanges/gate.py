"""Gate spot: 400 levels a side every 100 ms, snapshot on the socket, with best prices every 10 ms.

Page: https://www.gate.com/docs/developers/apiv4/ws/en/#order-book-v2-api. Mirrors of the page from
2025 and 2026 agree, as does a delta recorded in 2026-06 (U 38149401423, u 38149401433).

Sequencing: `U` of each delta is the last `u + 1`; a frame with `full` replaces the book whenever it
arrives. To resync, unsubscribe and subscribe: a second subscription of a stream is refused.

Frames:

    {"channel":"spot.obu","result":{"t":1747054612673,"full":true,"s":"ob.BTC_USDT.400",
     "u":73777715168,"b":[["104027.1","5.09"]],"a":[["104027.2","0.44"]]},"time_ms":1747054612848}
    {"channel":"spot.obu","result":{"t":1747054612695,"s":"ob.BTC_USDT.400","U":73777715169,
     "u":73777715212,"b":[["104024.5","1.03"]],"a":[["104027.2","0"]]},"time_ms":1747054612925}
    {"time":1747054612,"time_ms":1747054612850,"channel":"spot.book_ticker","event":"update",
     "result":{"t":1747054612690,"u":73777715190,"s":"BTC_USDT","b":"104027.1","B":"5.09",
     "a":"104027.2","A":"0.44"}}                                      the best prices, always whole
    {"time":1747054611,"id":1,"channel":"spot.obu","event":"subscribe",
     "payload":["ob.BTC_USDT.400"],"result":{"status":"success"}}
    the same with "error":{"code":2,"message":"Alert sub ob.BTC_USDT.400"} if it is repeated
    {"time":1770600979,"time_ms":1770600979609,"channel":"spot.system","event":"update","result":{
     "type":"upgrade","msg":"The connection will soon be closed for a service upgrade. Please
     reconnect."}}

`u` of `spot.book_ticker` is the update id of the book: it rises by one with each change, as `U` and
`u` of `spot.obu` do. A price of "" is an empty side. In frames of 2026-06-26 the ticker was at
38149398912, and the deltas 4.5 s later at 38149401423. The answer to its subscription decides
nothing here. Its payload may list several pairs; ccxt lists all of them in one request.

The time of a frame is `t`, when the book was made; `time_ms`, when it was sent, is up to 0.2 s
later. A side without changes may be absent. The server sends pings of the WebSocket protocol, so
`spot.ping` is not needed. Each request has one stream, because a client reports that only some of
several streams in one request were subscribed.

Each request contains its time, which must be within 60 s of the exchange's. tardis-node sends
milliseconds there and is served, so the rule is not enforced on public channels. On the testnet the
first snapshot has been sent before the answer to the subscription since 2026-03-31: both orders are
accepted. The EU host has no `spot.obu` (ccxt issue 29016, 2026-06-26).

Since 2026-08-31 there are unified order books: orders and trades of a pair such as BTC_USD may
settle in USDC, so a `_USD` and a `_USDC` pair may be one book under two names, as at OKX. No field
of the list says so. Both are therefore listed here as the exchange lists them, and the second is
marked `shared_book` while their levels are equal (docs/explanation/identity.md).

Confirmed:

    channel, sequence, levels: 2025-08, recorded: tardis-node test frames of spot.obu, 400 levels
    channel, verbs, depth: 2026-10-23, third-party: ccxt 4.5.90
    sequence: 2026-06-26, recorded: one delta, U 38149401423, u 38149401433
    ping: 2026-09-27, page: System API, pings of the protocol
    limits: never: our choice, the page states none for connections and requests
    fees: 2026-10-03, recorded: a spot row in the tests of ergo-arbitrage, in percent

Unconfirmed: that the best prices of both channels agree at equal ids, of which no recording is
known (`onebook.fusing` compares them); whether a `_USD` pair and the `_USDC` pair of its coin are
one book; the answer to an unknown pair here ("unknown currency pair: X" on other channels; on
futures it is accepted and silent) and to too many requests; whether a level that leaves the 400 is
always sent as removed; limits of connections and requests: Gate said in 2022 that there are none,
and advised 100 connections.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    NO_LEVELS,
    UNTIMED,
    Accepted,
    BestPrices,
    BookChannel,
    BookFrame,
    Chain,
    Closing,
    Dated,
    Engine,
    ErrorBody,
    Event,
    Exchange,
    ExchangeLimits,
    FastChannel,
    FeeColumn,
    Ignored,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    Sequence64,
    ServerTime,
    control_reader,
    decode,
    short,
    text_in,
    texts_of,
    top_of,
    verbs,
)
from onebook.model import Instrument

CHANNEL: Final = "spot.obu"
BEST_PRICES: Final = "spot.book_ticker"
BEST_PRICES_NAME: Final = b'"spot.book_ticker"'
CHANNEL_BYTES_MAX: Final = 100  # the channel's name is within this many bytes of a frame's start
PONG: Final = "spot.pong"
SYSTEM: Final = "spot.system"
UPGRADE: Final = "upgrade"
DEPTH: Final = 400
REPEATED: Final = "Alert sub"
UNAVAILABLE: Final = 3  # a server error
NO_CHANGE: Final = Raw(NO_LEVELS)


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    stream: str = field(name="s")
    final: Sequence64 = field(name="u")
    first: Sequence64 = field(name="U", default=0)
    full: bool = False
    bids: Raw = field(name="b", default=NO_CHANGE)
    asks: Raw = field(name="a", default=NO_CHANGE)
    at: int = field(name="t", default=UNTIMED)


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    channel: str
    result: BookMessage


class Ticker(BestPrices, gc=False):
    """The best prices of a pair."""

    at: int = field(name="t", default=UNTIMED)


class TopData(Struct, gc=False):
    """A frame with best prices."""

    result: Ticker


class Control(Struct):
    """The members of control frames."""

    channel: str = ""
    event: str = ""
    id: Sequence64 | None = None
    payload: Any = None
    error: ErrorBody | None = None
    result: Any = None


_read = msgspec.json.Decoder(Data).decode
_read_top = msgspec.json.Decoder(TopData).decode
_control = control_reader(Control)


def stream(instrument: Instrument) -> str:
    """Return the stream of an instrument, as in its frames."""
    return stream_of(instrument.native)


def stream_of(native: str) -> str:
    """Return the stream of a pair."""
    return f"ob.{native}.{DEPTH}"


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    if frame.find(BEST_PRICES_NAME, 0, CHANNEL_BYTES_MAX) > 0:
        best = _read_top(frame).result
        top_book = books.get(stream_of(best.native))
        return None if top_book is None else top_of(top_book.instrument, best)
    message: Data = _read(frame)
    change = message.result
    book = books.get(change.stream)
    if book is None or message.channel != CHANNEL:
        return None
    if change.full:
        return book.snapshot(change.bids, change.asks, change.final, change.at)
    if not 0 < change.first <= change.final:
        raise ValueError(f"the ids {change.first} to {change.final} are not a range")
    return book.delta(change.bids, change.asks, change.first - 1, change.final, change.at)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.channel == SYSTEM and text_in(message.result, "type") == UPGRADE:
        return Closing(short(text_in(message.result, "msg")))
    if message.channel == BEST_PRICES:
        return _best_prices_control(message)
    if message.channel not in (CHANNEL, ""):
        return Ignored(known=message.channel == PONG)
    if message.event == "unsubscribe":
        return Ignored(known=True)
    names = texts_of(message.payload)
    if message.error is not None:
        words = message.error.message
        return RequestRejected(
            words if message.id else " ".join([words, *names]),
            message.id,
            repeated=words.startswith(REPEATED),
            code=message.error.code,
        )
    if message.event == "subscribe":
        return Accepted(number=message.id) if message.id else Accepted(names)
    if message.channel and not message.event and message.payload is None:
        return BookFrame(text_in(message.result, "s"))
    return Ignored(known=False)


def _best_prices_control(message: Control) -> Event:
    """Decode an answer, or best prices that `data` did not process."""
    if message.error is not None:
        return RequestRejected(message.error.message, message.id, code=message.error.code)
    if message.event == "update":
        return BookFrame(stream_of(text_in(message.result, "s")), top=True)
    return Accepted(number=message.id) if message.id else Ignored(known=True)


def request(names: Sequence[str], number: int, verb: str, channel: str = CHANNEL) -> object:
    """Encode a request to subscribe or unsubscribe streams, with the sending time in seconds."""
    rest = {"id": number, "channel": channel, "event": verb, "payload": names}
    return Dated(lambda now_ms: {"time": now_ms // 1_000, **rest})


def best_prices(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe the best prices of streams."""
    natives = [name.removeprefix("ob.").rpartition(".")[0] for name in names]
    return request(natives, number, verb, BEST_PRICES)


INSTRUMENTS: Final = ListReader(
    "gate",
    native="id",
    base="base",
    quote="quote",
    not_spot={"type": ("premium",)},  # coins that are not issued yet
    halted={"trade_status": ("untradable",)},
    tick_decimals="precision",
    lot_decimals="amount_precision",
    least_amount="min_base_amount",
    least_notional="min_quote_amount",
    taker=FeeColumn("fee"),
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    Chain,
    key=stream,
    unavailable=(UNAVAILABLE,),
    fast=FastChannel(*verbs(best_prices), names_per_request=50),
)

EXCHANGE: Final = Exchange(
    name="gate",
    display="Gate",
    ws_url="wss://api.gateio.ws/ws/v4/",
    rest_url="https://api.gateio.ws",
    instruments_path="/api/v4/spot/currency_pairs",
    parse_instruments=INSTRUMENTS,
    lists_fees=True,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    interval_ms=100,
    tops=True,
    time=ServerTime("/api/v4/spot/time", "server_time"),
    limits=ExchangeLimits(
        topics=50,  # in two channels; our choice: slow readers are disconnected
        messages=(Limit(50, 1.0),),  # our choice: undocumented
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(100, 10.0, Scope.ADDRESS),),  # of 200 per path
        connections=100,
    ),
    former_names=("gateio",),
)
