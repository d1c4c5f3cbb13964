"""Bitstamp spot: the best 100 levels a side, whole in every frame.

Page: https://www.bitstamp.net/websocket/v2/ ("Live order book", `order_book_[pair]`); the list is
described at https://www.bitstamp.net/api/ ("Markets"). Not read except for copies of its beginning
(requests, channels) and the sentences quoted by a profile of the exchange.

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-09-15, recorded: arbitrage-observatory
    limits: 2026-09-15, recorded: arbitrage-observatory, 1,024 channels and 512 bytes

Sequencing: a frame with the whole book is sent whenever one of the best 100 levels changes, so a
lost frame does no harm. A subscription is not answered by a book: the first one is sent with the
next change. A book without a change for 15 s is therefore started from REST, and a book without a
frame for minutes is compared with REST. The REST body has all levels, of which the best 100 are
kept, and lags by seconds: it is dropped if a frame has arrived since its request. The other
channel, `diff_order_book`, has neither numbers nor another way to detect a gap.

Frames:

    {"event":"bts:subscription_succeeded","channel":"order_book_btcusd","data":{}}
    {"data":{"timestamp":"1643643584","microtimestamp":"1643643584684047","bids":
     [["38416.05","0.07000000"]],"asks":[["38416.06","0.20000000"]]},
     "channel":"order_book_btcusd","event":"data"}
    {"timestamp":"1643643584","microtimestamp":"1643643584684047","bids":[["38416.05","0.07000000"]],
     "asks":[["38416.06","0.20000000"]]}       REST, of a whole book; group=1 adds up orders
    {"event":"bts:error","channel":"","data":{"code":null,"message":"Bad subscription string."}}
    {"event":"bts:request_reconnect","channel":"","data":""}        it closes within seconds

Unknown pairs with a well-formed name are acknowledged and silent. A name with capitals or a slash
is an error, "Invalid channel provided.", which does not repeat the name. A client frame of 512
bytes or more closes the connection, so each request has one channel. The page warns that a book may
be crossed until its next frame; a crossed book is not shown. ccxt's watchOrderBook agrees on
address, requests and the shape of frames (it uses `diff_order_book`).

Wire probes of 2026-09-15 agree (nemanull/arbitrage-observatory, of perpetuals on the same socket
and of BTC/USD): 13,577 frames, each a whole book, in order and without a number; no frame before
the next change; a protocol ping every 54 s; a list of 277 rows, each with the `market_type` SPOT or
PERPETUAL.

Checked in 2026-11: ccxt and hummingbot use `diff_order_book`, and nothing newer about `order_book`
was found.

Unconfirmed: that the time of a body is that of its book, and not of the answer; that the error for
too many requests contains a phrase of `roster.RATE_LIMITS`; how many requests and connections
are too many.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    Accepted,
    BookChannel,
    BookFrame,
    Closing,
    Event,
    Exchange,
    ExchangeLimits,
    Fetch,
    Ignored,
    Limit,
    ListReader,
    LossDetection,
    Outputs,
    QuietBook,
    QuietEngine,
    RequestRejected,
    Scope,
    control_reader,
    decode,
    text_in,
    verbs,
)
from onebook.model import Instrument

CHANNEL: Final = "order_book_"
EVENTS: Final = ("bts:unsubscription_succeeded", "bts:heartbeat")


class SideLevels(Struct, gc=False):
    """A whole book."""

    bids: Raw
    asks: Raw
    at: str = field(name="microtimestamp")


class BookMessage(Struct, gc=False, tag_field="event", tag="data"):
    """A frame with a whole book."""

    channel: str
    data: SideLevels


class Control(Struct):
    """The members of control frames."""

    event: str = ""
    channel: str = ""
    data: Any = None


_read = msgspec.json.Decoder(BookMessage).decode
_body = msgspec.json.Decoder(SideLevels).decode
_control = control_reader(Control)


def topic(instrument: Instrument) -> str:
    """Return the channel of an instrument, as in its frames."""
    return CHANNEL + instrument.native


def data(books: dict[str, QuietBook], frame: bytes) -> Outputs | None:
    """Decode a whole book."""
    message: BookMessage = _read(frame)
    book = books.get(message.channel)
    if book is None:
        return None
    levels = message.data
    return book.snapshot(levels.bids, levels.asks, levels.at)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    match message.event:
        case "bts:subscription_succeeded":
            return Accepted([message.channel])
        case "bts:error":
            return RequestRejected(text_in(message.data, "message"))
        case "bts:request_reconnect":
            return Closing("the exchange asks to reconnect")
        case "data" if message.channel.startswith(CHANNEL):
            return BookFrame(message.channel)
    return Ignored(known=message.event in EVENTS)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe a book."""
    return {"event": verb, "data": {"channel": names[0]}}


def quiet(instrument: Instrument) -> QuietBook:
    """Make the sequencing strategy of a book: REST starts it if no frame arrives."""
    return QuietBook(Fetch(instrument, f"/api/v2/order_book/{quote(instrument.native)}/?group=1"))


INSTRUMENTS: Final = ListReader(
    "bitstamp",
    native="market_symbol",
    base="base_currency",
    quote="counter_currency",
    spot={"market_type": ("SPOT", "spot", "Spot", None)},
    trading={"trading": ("Enabled",)},
    tick_decimals="counter_decimals",
    lot_decimals="base_decimals",
    least_amount="minimum_order_amount",
    least_notional="minimum_order_value",
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request, "bts:subscribe", "bts:unsubscribe"),
    quiet,
    key=topic,
    seed=_body,
)

EXCHANGE: Final = Exchange(
    name="bitstamp",
    display="Bitstamp",
    ws_url="wss://ws.bitstamp.net",
    rest_url="https://www.bitstamp.net",
    instruments_path="/api/v2/markets/",
    parse_instruments=INSTRUMENTS,
    connector=partial(QuietEngine, BOOKS),
    depth=100,
    truncate=True,  # a REST body has more levels than the channel
    interval_ms=0,
    guard=LossDetection.WHOLE,
    limits=ExchangeLimits(
        topics=100,  # of 1,024 allowed: each frame of a busy book is about 5 KB
        messages=(Limit(10, 1.0),),  # our choice: undocumented
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(600, 60.0, Scope.ADDRESS),),  # of 8,000 in ten minutes
    ),
    snapshot_s=15.0,  # a book without a change by then is fetched by REST
)
