"""Phemex spot: 30 levels a side every 20 ms, as scaled integers, snapshot on the socket.

Page: https://github.com/phemex/phemex-api-docs/blob/master/Public-Spot-API-en.md, "Subscribe
OrderBook" and "Websocket API Standards".

Confirmed:

    channel, verbs, sequence, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    ping, limits: 2026-09-22, recorded: arbitrage-observatory, of perpetuals
    fees: 2025-05, recorded: a spot row in the tests of roq-phemex-futures, which states the
        same fraction as `defaultTakerFeeEr` in units of 10^-8

Sequencing: only the order of the socket. `sequence` rises by any number, so a lost delta is not
detected; a snapshot of each book every minute repairs it. Another subscription of a book sends
another snapshot. A single book cannot be unsubscribed: `orderbook.unsubscribe` ends all.

Frames:

    {"id":1,"method":"orderbook.subscribe","params":["sBTCUSDT"]}
    {"error":null,"id":1,"result":{"status":"success"}}
    {"error":{"code":6001,"message":"invalid argument"},"id":1,"result":null}
    {"book":{"asks":[[892697000000,1781800]],"bids":[[892376000000,6866500]]},"depth":30,
     "sequence":677996311,"symbol":"sBTCUSDT","timestamp":1590570810187570850,"type":"snapshot"}
    the same with "type":"incremental"; an amount of 0 removes a level
    {"error":null,"id":0,"result":"pong"}                              to our `server.ping`

A price is an integer in units of 10^-8 (`priceScale` of the pair), an amount in units of
10^-`valueScale` of the base currency; `/public/products` states both. Pairs whose currencies are
not listed are skipped, because a guessed scale would make every amount wrong. `timestamp` is in
nanoseconds.

In recordings a level that leaves the 30 is removed, but the page does not say so: the book is
therefore truncated to 30 after each change. A silent client is disconnected after 30 s, however
busy its connection. ccxt reads the same frames, assumes 8 if a currency has no scale, and truncates
a book when showing it.

Recorded in 2026-09 on perpetuals, which share the socket (nemanull/arbitrage-observatory): the
errors, a snapshot every 60 s, books equal to it, 101 subscriptions on a connection although the
page allows 20. Recordings of spot are from 2021. Unconfirmed: the answer to too many requests.

As of 2026-11 some names that begin with `s` are perpetuals (tardis-node, 2026-05 and -07), so the
`type` in the list decides.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from onebook.core import LevelShape
from onebook.exchanges.kit import (
    ROWS_MAX,
    UNREADABLE,
    UNTIMED,
    Accepted,
    BookChannel,
    BookFrame,
    Engine,
    ErrorBody,
    Event,
    Exchange,
    ExchangeLimits,
    FeeColumn,
    Heartbeat,
    Ignored,
    Instruments,
    Limit,
    LossDetection,
    Outputs,
    RequestRejected,
    Scope,
    Sequence64,
    ServerTime,
    Unnumbered,
    control_reader,
    decode,
    instrument_of,
    instruments_of,
)
from onebook.model import Instrument

DEPTH: Final = 30
SPOT: Final = "Spot"  # others: Perpetual, PerpetualV2
LISTED: Final = "Listed"
TAKER: Final = FeeColumn("defaultTakerFee", fraction=True)
SNAPSHOT: Final = "snapshot"
INCREMENTAL: Final = "incremental"


class Sides(Struct, gc=False):
    """The levels of a frame."""

    bids: Raw
    asks: Raw


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    book: Sides
    symbol: str
    type: str
    timestamp: int = UNTIMED


class Control(Struct):
    """The members of control frames."""

    book: Any = None
    depth: int | None = None
    symbol: str = ""
    id: Sequence64 | None = None
    error: ErrorBody | None = None
    result: Any = None


class Currency(Struct, rename="camel"):
    """A row of the currencies."""

    currency: str
    value_scale: int


class Listing(Struct, rename="camel"):
    """A row of the instrument list; steps look like `0.01 USDT`."""

    symbol: str
    type: str
    base_currency: str
    quote_currency: str
    price_scale: int
    status: str = ""
    quote_tick_size: str = ""
    base_tick_size: str = ""
    min_order_value: str = ""
    default_taker_fee: str = ""


class Products(Struct):
    """The instrument list."""

    products: list[Raw]
    currencies: list[Raw] = []


class Body(Struct):
    """The body of the instrument list."""

    data: Products


_read = msgspec.json.Decoder(BookMessage).decode
_control = control_reader(Control)
_body = msgspec.json.Decoder(Body).decode
_currency = msgspec.json.Decoder(Currency).decode


@cache
def shape(price_scale: int, amount_scale: int) -> LevelShape:
    """Return the level shape of these scales, cached: the core compares shapes by identity."""
    return LevelShape.rows(price_scale=price_scale, amount_scale=amount_scale)


def track(instrument: Instrument) -> Unnumbered:
    """Make the sequencing strategy of a book, with the scales of its instrument."""
    levels = shape(*instrument.scales)
    return Unnumbered(instrument, snapshot_shape=levels, delta_shape=levels)


def data(books: dict[str, Unnumbered], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    message: BookMessage = _read(frame)
    book = books.get(message.symbol)
    if book is None:
        return None
    sides = message.book
    if message.type == INCREMENTAL:
        return book.delta(sides.bids, sides.asks, message.timestamp)
    if message.type == SNAPSHOT:
        return book.snapshot(sides.bids, sides.asks, message.timestamp)
    raise ValueError(f"unknown type {message.type!r}")


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.error is not None:
        return RequestRejected(message.error.message, message.id)
    if message.book is not None or message.depth is not None:
        return BookFrame(message.symbol)
    return Ignored(known=False) if message.result is None else Accepted(number=message.id)


def subscribe(names: Sequence[str], number: int) -> object:
    """Encode the subscription of one book."""
    return {"id": number, "method": "orderbook.subscribe", "params": names}


def unsubscribe(names: Sequence[str], number: int) -> object:
    """Encode the unsubscription of all books."""
    return {"id": number, "method": "orderbook.unsubscribe", "params": []}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse `/public/products`; rows that are not spot are skipped."""
    lists = decode(_body, body, what="the products", items_max=rows_max).data
    listed = partial(_listed, _scales(lists.currencies))
    return instruments_of(lists.products, Listing, listed, rows_max=rows_max)


def _scales(rows: Sequence[Raw]) -> dict[str, int]:
    """Decode the scale of each currency; invalid rows are skipped."""
    scales = {}
    for row in rows:
        try:
            currency = _currency(row)
        except UNREADABLE:
            continue
        scales[currency.currency] = currency.value_scale
    return scales


def _listed(scales: dict[str, int], row: Listing) -> Instrument | None:
    amount_scale = scales.get(row.base_currency)
    if row.type != SPOT or amount_scale is None:
        return None
    return instrument_of(
        "phemex",
        row.symbol,
        base=row.base_currency,
        quote=row.quote_currency,
        trading=row.status == LISTED,
        tick=row.quote_tick_size.partition(" ")[0],
        lot=row.base_tick_size.partition(" ")[0],
        least_notional=row.min_order_value.partition(" ")[0],
        taker_fee=TAKER.percent(row.default_taker_fee),
        scales=(row.price_scale, amount_scale),
    )


BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=unsubscribe,
    track=track,
    names_per_request=1,
    unsubscribes_all=True,
    renews=True,
)

EXCHANGE: Final = Exchange(
    name="phemex",
    display="Phemex",
    ws_url="wss://ws.phemex.com",
    rest_url="https://api.phemex.com",
    instruments_path="/public/products",
    parse_instruments=parse_instruments,
    lists_fees=True,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    interval_ms=20,
    guard=LossDetection.ORDER,
    truncate=True,
    time=ServerTime("/public/time", "data.serverTime"),
    limits=ExchangeLimits(
        topics=20,
        messages=(Limit(20, 1.0),),
        connects=(Limit(200, 300.0, Scope.ADDRESS),),
        fetches=(Limit(10, 1.0, Scope.ADDRESS),),  # our choice: only for the instrument list
        connections=5,
    ),
    heartbeat=Heartbeat(b'{"id":0,"method":"server.ping","params":[]}', 5.0),
    silence_max_s=15.0,  # three heartbeats without an answer, as the page advises
    quiet_max_s=150.0,  # each book gets a snapshot a minute
)
