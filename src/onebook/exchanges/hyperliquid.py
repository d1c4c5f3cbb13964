"""Hyperliquid spot: whole books, 5 levels every 500 ms or 20 every 5 s, best prices at each block.

Pages: https://hyperliquid.gitbook.io/hyperliquid-docs/for-developers/api/websocket/subscriptions
(`l2Book`), `info-endpoint/spot` (`spotMeta`), `rate-limits-and-user-limits` next to it.

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-24, recorded:
        arbitrage-observatory
    channel, verbs: 2026-08-21, third-party: JKorf HyperLiquid.Net, `fast` with 5 levels

Sequencing: every frame has the whole book, so a lost frame does no harm; frames have no numbers.
The default channel is `fast`. Since 2026-06 the other channel, here called `slow`
(`feeds.overrides.hyperliquid.channel`), is sent every 5 s, although the page (which has the levels
of both: 5 for fast, 20 for slow) still says half a second; a book that old crosses those of other
exchanges (nemanull/arbitrage-observatory, 2026-09-24: medians of 5.4 s and 0.54 s, 20 and 5 levels
in each of 2,314 and 21,503 frames, none crossed; spot shares the socket). Frames of both channels
look alike, so a connection subscribes to only one of them. ccxt uses `slow`.

    {"method":"subscribe","subscription":{"type":"l2Book","coin":"@107","fast":true}}
    {"channel":"subscriptionResponse","data":{"method":"subscribe","subscription":{"type":"l2Book",
     "coin":"@107","nSigFigs":null,"mantissa":null,"fast":true}}}
    {"channel":"l2Book","data":{"coin":"@107","time":1790232236546,
     "levels":[[{"px":"84143.0","sz":"10.25923","n":36}],[{"px":"84144.0","sz":"50.66","n":18}]]}}
    {"channel":"bbo","data":{"coin":"@107","time":1790232237145,"bbo":[{"px":"84143.0",
     "sz":"10.25923","n":36},{"px":"84144.0","sz":"50.66422","n":18}]}}    null: an empty side
    {"channel":"error","data":"Already subscribed: {\\"type\\":\\"l2Book\\", ... }"}
    {"channel":"pong"}                                                to our {"method":"ping"}

`bbo` is sent after each block that changed it (p50 68 ms apart), and states both sides. `time` is
that of the block in both channels, and a block is one state, so `time` orders and numbers them: in
11 of 11 checks of 2026-09-24 the best levels of a book were the newest `bbo` up to its `time`. Only
the book of 5 levels is fused.

The first frame of a connection may be the text `Websocket connection established.`. Both clients of
the exchange ignore it: hyperliquid-python-sdk by its words, hyperliquid-rust-sdk because it is not
an object.

A request has one coin. An unchanged book is sent again with a new `time`. An unknown coin closes
the connection, and with it all other books, without a message, so only listed pairs are requested.

The list is a POST of `{"type":"spotMeta"}` to `/info`. A pair is called `PURR/USDC` or `@107`, and
its coins are indexes into `tokens`. Deployers choose the names of coins: a coin bridged from
another chain has a different name (UBTC), which `currencies` translates. A price has at most 5
significant figures and 8 minus `szDecimals` decimals; the latter is used as the step.

As of 2026-11 it is unclear whether an unsubscription must repeat `fast`; we repeat it, so that its
members equal those of the subscription.

Unconfirmed: that the best prices of both channels agree at equal `time` for spot (`onebook.fusing`
compares them); the answer to too many messages; that the greeting is still sent (the recordings
above do not mention it).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from onebook.core import LevelShape
from onebook.exchanges.kit import (
    NO_LEVELS,
    ROWS_MAX,
    UNREADABLE,
    Accepted,
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    FastChannel,
    Heartbeat,
    Ignored,
    Instruments,
    Limit,
    LossDetection,
    Outputs,
    RequestRejected,
    Scope,
    TopOfBook,
    WholeBooks,
    control_reader,
    decode,
    instrument_of,
    instruments_of,
    short,
    step_of,
    text_in,
    verbs,
)
from onebook.model import Instrument

CHANNEL: Final = "l2Book"
BEST_PRICES: Final = "bbo"
BEST_PRICES_NAME: Final = b'"bbo"'
CHANNEL_BYTES_MAX: Final = 32  # the channel's name is within this many bytes of a frame's start
NO_LEVEL: Final = Raw(b"null")
LEVELS: Final = LevelShape.objects("px", "sz")
REPEATED: Final = "Already subscribed"
LEFT: Final = "Already unsubscribed"
GREETING: Final = b"Websocket connection established."  # not JSON
LEAST_NOTIONAL: Final = "10"  # in the quote; the page of error responses, `MinTradeSpotNtl`
DECIMALS: Final = 8  # of a price, minus those of the amounts of its coin


class Sides(Struct, gc=False, array_like=True):
    """The levels of a book."""

    bids: Raw
    asks: Raw


class BookMessage(Struct, gc=False):
    """A whole book."""

    coin: str
    time: int
    levels: Sides


class Frame(Struct, gc=False):
    """A frame with a snapshot or delta."""

    channel: str
    data: BookMessage


class Best(Struct, gc=False):
    """The best bid and ask of a coin."""

    coin: str
    time: int
    bbo: Sides


class BestFrame(Struct, gc=False):
    """A frame with best prices."""

    data: Best


class Control(Struct):
    """The members of control frames."""

    channel: str = ""
    data: Any = None


class Token(Struct, rename="camel"):
    """A coin, known by its index."""

    name: str
    index: int
    sz_decimals: int


class Listing(Struct):
    """A row of the instrument list: name, base and quote coin."""

    name: str
    tokens: tuple[int, int]


class Meta(Struct):
    """The instrument list."""

    universe: list[Raw]
    tokens: list[Raw]


_read = msgspec.json.Decoder(Frame).decode
_read_best = msgspec.json.Decoder(BestFrame).decode
_control = control_reader(Control)
_meta = msgspec.json.Decoder(Meta).decode
_token = msgspec.json.Decoder(Token).decode


def data(books: dict[str, WholeBooks], frame: bytes) -> Outputs | None:
    """Decode a whole book, or best prices."""
    if frame.find(BEST_PRICES_NAME, 0, CHANNEL_BYTES_MAX) > 0:
        return _top(books, frame)
    message: Frame = _read(frame)
    body = message.data
    book = books.get(body.coin)
    if book is None or message.channel != CHANNEL:
        return None
    return book.snapshot(body.levels.bids, body.levels.asks, body.time)


def _top(books: dict[str, WholeBooks], frame: bytes) -> Outputs | None:
    best = _read_best(frame).data
    book = books.get(best.coin)
    if book is None:
        return None
    bids, asks = (
        NO_LEVELS if level == NO_LEVEL else b"[%b]" % level
        for level in (best.bbo.bids, best.bbo.asks)
    )
    return TopOfBook(book.instrument, best.time, bids, asks, book.shape, best.time)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    match message.channel, message.data:
        case "subscriptionResponse", {
            "method": "subscribe",
            "subscription": {"type": "l2Book", **subscription},
        }:
            return Accepted([text_in(subscription, "coin")])
        case "subscriptionResponse", {
            "method": "subscribe",
            "subscription": {"type": "bbo", "coin": str(coin)},
        }:
            return Accepted([coin], top=True)
        case "subscriptionResponse" | "pong", _:
            return Ignored(known=True)
        case "error", words if str(words).startswith(LEFT):
            return Ignored(known=True)
        case "error", words if f'"type":"{BEST_PRICES}"' in str(words):
            return Ignored(known=True, refused=short(words))
        case "error", words:
            return RequestRejected(str(words), repeated=str(words).startswith(REPEATED))
        case "l2Book", body:
            return BookFrame(text_in(body, "coin"))
        case "bbo", body:
            return BookFrame(text_in(body, "coin"), top=True)
    return Ignored(known=False)


def request(names: Sequence[str], number: int, *, method: str, fast: bool) -> object:
    """Encode a request to subscribe or unsubscribe one book."""
    return {"method": method, "subscription": {"type": CHANNEL, "coin": names[0], "fast": fast}}


def best_prices(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe the best prices of one coin."""
    return {"method": verb, "subscription": {"type": BEST_PRICES, "coin": names[0]}}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse `spotMeta`."""
    meta = decode(_meta, body, what="spotMeta", items_max=rows_max)
    listed = partial(_listed, _tokens(meta.tokens))
    return instruments_of(meta.universe, Listing, listed, rows_max=rows_max)


def _tokens(rows: Sequence[Raw]) -> dict[int, Token]:
    """Decode the coins; invalid rows are skipped."""
    tokens = {}
    for row in rows:
        try:
            token = _token(row)
        except UNREADABLE:
            continue
        tokens[token.index] = token
    return tokens


def _listed(tokens: dict[int, Token], row: Listing) -> Instrument | None:
    base, quote = (tokens.get(index) for index in row.tokens)
    if base is None or quote is None:
        return None
    return instrument_of(
        "hyperliquid",
        row.name,
        base=base.name,
        quote=quote.name,
        trading=True,
        tick=step_of(DECIMALS - base.sz_decimals),
        lot=step_of(base.sz_decimals),
        least_notional=LEAST_NOTIONAL,
    )


SLOW_BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=partial(request, method="subscribe", fast=False),
    unsubscribe=partial(request, method="unsubscribe", fast=False),
    track=partial(WholeBooks, shape=LEVELS, timed=True),
    names_per_request=1,
    expected=(GREETING,),
)
BOOKS: Final = replace(
    SLOW_BOOKS,
    subscribe=partial(request, method="subscribe", fast=True),
    unsubscribe=partial(request, method="unsubscribe", fast=True),
    fast=FastChannel(*verbs(best_prices)),
)

SLOW: Final = Exchange(
    name="hyperliquid",
    display="Hyperliquid",
    ws_url="wss://api.hyperliquid.xyz/ws",
    rest_url="https://api.hyperliquid.xyz",
    instruments_path="/info",
    instruments_body=b'{"type":"spotMeta"}',
    parse_instruments=parse_instruments,
    connector=partial(Engine, SLOW_BOOKS),
    depth=20,
    interval_ms=5000,
    guard=LossDetection.WHOLE,
    limits=ExchangeLimits(
        topics=50,  # in two channels each, of 1000 per address on 10 connections
        messages=(Limit(2_000, 60.0, Scope.ADDRESS),),
        connects=(Limit(30, 60.0, Scope.ADDRESS),),
        fetches=(Limit(1_200, 60.0, Scope.ADDRESS),),
        connections=10,
    ),
    heartbeat=Heartbeat(b'{"method":"ping"}', 10.0),  # silent connections are closed after 60 s
    silence_max_s=20.0,
    quiet_max_s=60.0,  # an unchanged book is sent again
)
EXCHANGE: Final = replace(
    SLOW,
    connector=partial(Engine, BOOKS),
    depth=5,
    interval_ms=500,
    tops=True,
    channels={"slow": SLOW},
)
