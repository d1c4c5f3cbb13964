"""Coinbase, the Advanced Trade feed: the whole book, every change numbered, snapshot on the socket.

An alternative to `coinbase` (`feeds.overrides.coinbase.channel = "advanced"`) if detecting lost
frames matters more than small frames: the books are those of Coinbase Exchange, but each message of
a connection has a number. It needs no key. Pages:
https://docs.cdp.coinbase.com/coinbase-app/advanced-trade-apis/websocket/websocket-channels and
`websocket-rate-limits` next to it, and the AsyncAPI document of 2026.

Confirmed:

    channel, verbs, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    ping, sequence: 2026-08-21, third-party: GoCryptoTrader
    limits: 2026-09, recorded: two projects, 31 products of `level2` are refused

Sequencing: `sequence_num` starts at 0 and rises by 1 with every message of a connection, of any
channel and product, so a skipped message may belong to any book (GoCryptoTrader counts in the same
way; the page speaks of products). To resync, unsubscribe and subscribe. `heartbeats` of the
connection arrive every second.

Frames; a request has one channel:

    {"type":"subscribe","channel":"heartbeats"}
    {"type":"subscribe","product_ids":["BTC-USD"],"channel":"level2"}
    {"channel":"subscriptions","timestamp":"...","sequence_num":1,
     "events":[{"subscriptions":{"level2":["BTC-USD"],"heartbeats":["heartbeats"]}}]}
    {"channel":"l2_data","timestamp":"2026-02-09T20:32:50.714964855Z","sequence_num":2,"events":[
     {"type":"snapshot","product_id":"BTC-USD","updates":[{"side":"bid",
     "event_time":"1970-01-01T00:00:00Z","price_level":"21921.73","new_quantity":"0.063"}]}]}
     then "type":"update"; the sides are bid and offer, "0" removes
    {"channel":"heartbeats","timestamp":"...","sequence_num":3,
     "events":[{"current_time":"...","heartbeat_counter":3049}]}
    {"type":"error","message":"too many L2 streams requested in a single session"}

A connection can have 30 products. For the simulated exchange's books (130 levels a side), a
snapshot is four times as long as in `level2_batch`, a change three times. The snapshot of BTC-USD
had 5.08 MB in 2026, with 27,017 asks, so frames may have up to 10 MiB, as in Coinbase's own SDK. A
book keeps all levels (`core.types.LEVELS_MAX`). A product in USDC is answered with the book of the
same product in USD, except USDT-USDC and EURC-USDC: the others are not listed here.

The list is that of Exchange. According to its page (`get-all-known-trading-pairs` of its REST
interface), orders of a product that is `trading_disabled`, `cancel_only` or `post_only` are not
matched; such products are listed as halted. A `limit_only` product trades.

ccxt reads the same frames but ignores their numbers; nautilus_trader reads the same fields.
Unconfirmed: whether errors have a number; the words of the error for an unknown product and whether
the other products of its request are still subscribed; which limits are shared with Exchange; what
`auction_mode` means for a book (such a product counts as trading).

Checked in 2026-11: spot stays on this interface, because only international derivatives move to
Deribit.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import LevelShape
from onebook.exchanges.kit import (
    NO_LEVELS,
    NOTHING,
    ROWS_MAX,
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Counted,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Ignored,
    Instruments,
    Limit,
    ListReader,
    LossDetection,
    Outputs,
    Plain,
    RequestRejected,
    Scope,
    Sequence64,
    ServerTime,
    Trackers,
    Unnumbered,
    control_reader,
    decode,
    each_of,
    short,
    texts_of,
    verbs,
)

CHANNEL: Final = "level2"
DATA: Final = "l2_data"
LEVELS: Final = LevelShape.objects("price_level", "new_quantity", "side")
ALIAS: Final = "-USDC"  # suffix of products that are answered with the book of the USD product ...
OWN_BOOKS: Final = ("USDT-USDC", "EURC-USDC")  # ... except these
UNMATCHED: Final = ("trading_disabled", "cancel_only", "post_only")  # see above


class Change(Struct, gc=False):
    """A snapshot or a delta."""

    type: str
    product: str = field(name="product_id")
    updates: Raw


class BookMessage(Struct, gc=False, tag_field="channel", tag=DATA):
    """A frame with snapshots or deltas of several books."""

    number: Sequence64 = field(name="sequence_num")
    events: tuple[Change, ...]
    at: str = field(name="timestamp", default="")


class Control(Struct):
    """The members of control frames."""

    channel: str = ""
    number: Sequence64 | None = field(name="sequence_num", default=None)
    events: Any = None
    type: str = ""
    message: str = ""


_read = msgspec.json.Decoder(BookMessage).decode
_control = control_reader(Control)


def data(books: Trackers[str, Unnumbered], frame: bytes) -> Outputs | None:
    """Decode a frame of books; frames of unsubscribed books are counted too."""
    message: BookMessage = _read(frame)
    for change in message.events:
        if change.product not in books and change.product not in books.left:
            return None
        if change.type not in ("update", "snapshot"):
            raise ValueError(f"unknown type {short(change.type)!r}")
    if books.repeats(message.number):
        return NOTHING
    outputs = books.missed(message.number)
    for change in message.events:
        if (book := books.get(change.product)) is not None:
            follow = book.delta if change.type == "update" else book.snapshot
            outputs += each_of(follow(change.updates, NO_LEVELS, message.at))
    return outputs


def control(frame: bytes) -> Event:
    """Decode a control frame; a frame that may belong to a book is not counted."""
    message = decode(_control, frame, what="a frame")
    if message.channel == DATA:
        match message.events:
            case [{"product_id": str(product)}]:
                return BookFrame(product)
        return BookFrame()
    event, named = _event(message), message.channel or message.type
    return event if message.number is None or not named else Counted(message.number, event)


def _event(message: Control) -> Plain:
    if message.type == "error":
        return RequestRejected(message.message, whole=True)
    if message.channel == "heartbeats":
        return Alive()
    if message.channel == "subscriptions":
        match message.events:
            case [{"subscriptions": {**channels}}]:
                return Accepted(texts_of(channels.get(CHANNEL)))
        return Ignored(known=True)
    return Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    return {"type": verb, "product_ids": names, "channel": CHANNEL}


INSTRUMENTS: Final = ListReader(
    "coinbase",
    native="id",
    base="base_currency",
    quote="quote_currency",
    spot={"product_type": ("SPOT", None)},
    trading={"status": ("online",), **dict.fromkeys(UNMATCHED, (False, None))},
    tick="quote_increment",
    lot="base_increment",
    least_notional="min_market_funds",
)


def parse_own_books(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse `/products`, without the products that share another product's book."""
    found = INSTRUMENTS(body, rows_max=rows_max)
    found[:] = [one for one in found if one.native in OWN_BOOKS or not one.native.endswith(ALIAS)]
    return found


HEARTBEATS: Final = {"type": "subscribe", "channel": "heartbeats"}
TRACK: Final = partial(Unnumbered, shape=LEVELS)
BOOKS: Final = BookChannel(
    data, control, *verbs(request), TRACK, names_per_request=10, configure=(HEARTBEATS,)
)

ADVANCED: Final = Exchange(
    name="coinbase",
    display="Coinbase",
    ws_url="wss://advanced-trade-ws.coinbase.com",
    rest_url="https://api.exchange.coinbase.com",
    instruments_path="/products",
    parse_instruments=parse_own_books,
    connector=partial(Engine, BOOKS),
    depth=0,
    frame_bytes=10 << 20,  # as in its SDK
    guard=LossDetection.COUNT,
    time=ServerTime("/time", "iso"),
    limits=ExchangeLimits(
        topics=30,
        messages=(Limit(8, 1.0, Scope.ADDRESS),),
        connects=(Limit(8, 1.0, Scope.ADDRESS),),
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=5.0,
    heartbeat_max_s=5.0,  # the connection sends a heartbeat every second
)
