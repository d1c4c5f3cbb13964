"""Coinbase (Exchange feed): the whole book, changes in batches of 50 ms, snapshot on the socket.

Page: https://docs.cdp.coinbase.com/exchange/websocket-feed/channels#level2-channel

In step: the changes have neither a number nor a checksum, so only the order of the socket guards
the book, and `heartbeat` (one a second and product) tells a quiet book from a dead one; its
`sequence` counts messages of other channels. Repair is unsubscribe and subscribe.

Frames:

    {"type":"subscriptions","channels":[{"name":"level2_batch","product_ids":["BTC-USD"]}]}
    {"type":"snapshot","product_id":"BTC-USD","bids":[["10101.10","0.45"]],
     "asks":[["10102.55","0.57"]]}
    {"type":"l2update","product_id":"BTC-USD","time":"2026-08-14T20:42:27.265Z",
     "changes":[["buy","10101.80","0.162"]]}                      "0.00000000" removes
    {"type":"heartbeat","sequence":90,"last_trade_id":20,"product_id":"BTC-USD","time":"..."}
    {"type":"error","message":"Failed to subscribe","reason":"X-Y is not a valid product"}

`level2` needs a login since 2023, `level2_batch` does not. The snapshot of a busy product is one
frame of several MB. An error costs its whole request: what is not yet settled is asked again.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import Reader
from onebook.exchanges.contract import (
    NO_LEVELS,
    NOTHING,
    SIDED,
    Acknowledged,
    Alive,
    Exchange,
    Output,
    ProtocolError,
)
from onebook.exchanges.frames import (
    UNREADABLE,
    batches,
    decode,
    instrument_of,
    instruments_of,
    send,
    short,
)
from onebook.exchanges.roster import Roster
from onebook.exchanges.sync import Unnumbered
from onebook.model import Instrument

CHANNEL: Final = "level2_batch"
CHANNELS: Final = (CHANNEL, "heartbeat")
PRODUCTS_PER_FRAME: Final = 50


class Change(Struct, gc=False, tag_field="type", tag="l2update"):
    """Changed levels."""

    product_id: str
    changes: Raw


class Book(Struct, gc=False, tag_field="type", tag="snapshot"):
    """The whole book."""

    product_id: str
    bids: Raw
    asks: Raw


class Heartbeat(Struct, gc=False, tag_field="type", tag="heartbeat"):
    """A product is alive."""

    product_id: str


class Channel(Struct):
    """What is subscribed on one channel."""

    name: str = ""
    products: list[str] = field(name="product_ids", default_factory=list)


class Control(Struct):
    """Every frame that is not of a book."""

    type: str = ""
    product_id: Any = None
    channels: Any = None
    message: str = ""
    reason: str = ""


class Listing(Struct):
    """A row of the instrument list."""

    id: str
    base_currency: str
    quote_currency: str
    status: str
    trading_disabled: bool = False
    quote_increment: str = ""
    base_increment: str = ""


_data: Callable[[bytes], Change | Heartbeat | Book] = Reader(Change | Heartbeat | Book).read
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(list[Raw]).decode


class Coinbase:
    """The protocol state of one connection."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._roster = Roster(instruments, partial(Unnumbered, delta_shape=SIDED))
        self._books = self._roster.trackers
        self._settled: set[str] = set()  # natives that were confirmed or refused

    def opened(self) -> tuple[Output, ...]:
        """Subscribe to everything."""
        return _requested("subscribe", self._roster.all(), channels=CHANNELS)

    def received(self, frame: bytes) -> tuple[Output, ...]:
        """Act on one frame."""
        try:
            message = _data(frame)
        except UNREADABLE as error:
            return self._control(frame, error)
        book = self._books.get(message.product_id)
        if book is None:
            return self._roster.absent(message.product_id)
        if type(message) is Change:
            return book.delta(message.changes, NO_LEVELS)
        if type(message) is Book:
            return book.snapshot(message.bids, message.asks)
        return (Alive(book.instrument),)

    def fetched(self, instrument: Instrument, body: bytes) -> tuple[Output, ...]:
        """Ignore a body: this connector asks for none."""
        return NOTHING

    def resync(self, instrument: Instrument) -> tuple[Output, ...]:
        """Subscribe again: the only way to another snapshot."""
        again = self._roster.restarted(instrument)
        self._settled.difference_update(one.native for one in again)
        return (
            *_requested("unsubscribe", again, channels=(CHANNEL,)),
            *_requested("subscribe", again, channels=CHANNELS),
        )

    def add(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        """Subscribe to more."""
        return _requested("subscribe", self._roster.add(instruments), channels=CHANNELS)

    def remove(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        """Unsubscribe."""
        gone = self._roster.remove(instruments)
        self._settled.difference_update(one.native for one in gone)
        return _requested("unsubscribe", gone, channels=CHANNELS)

    def _control(self, frame: bytes, error: Exception) -> tuple[Output, ...]:
        message = decode(_control, frame, what="a frame")
        match message.type:
            case "subscriptions":
                return self._acknowledged(message.channels)
            case "error":
                return self._refused(f"{message.message}: {message.reason}")
            case "l2update" | "snapshot" | "heartbeat":
                native = str(message.product_id)
                reason = f"a frame of {short(native)} is damaged: {short(error)}"
                raise ProtocolError(reason, self._roster.known(native))
        return NOTHING

    def _acknowledged(self, channels: Any) -> tuple[Output, ...]:
        """Read the list of everything subscribed, which comes after each request."""
        try:
            listed = msgspec.convert(channels, list[Channel])
        except UNREADABLE as error:
            raise ProtocolError(f"the subscriptions cannot be read: {short(error)}") from None
        names = (name for channel in listed if channel.name == CHANNEL for name in channel.products)
        new = [name for name in names if name in self._books and name not in self._settled]
        self._settled.update(new)
        return tuple(Acknowledged(self._books[name].instrument) for name in new)

    def _refused(self, words: str) -> tuple[Output, ...]:
        """Give up the products that are named, ask again for the others of the request."""
        refused = self._roster.refused(words)
        self._settled.update(one.instrument.native for one in refused)
        rest = [one for one in self._roster.all() if one.native not in self._settled]
        return (*refused, *_requested("subscribe", rest, channels=CHANNELS))


def _requested(
    kind: str, instruments: Sequence[Instrument], *, channels: Sequence[str]
) -> tuple[Output, ...]:
    return tuple(
        send(
            {"type": kind, "product_ids": [one.native for one in batch], "channels": channels},
        )
        for batch in batches(instruments, PRODUCTS_PER_FRAME)
    )


def parse_instruments(body: bytes) -> list[Instrument]:
    """Read `/products`."""
    return instruments_of(decode(_listings, body, what="the products"), Listing, _listed)


def _listed(row: Listing) -> Instrument | None:
    return instrument_of(
        "coinbase",
        row.id,
        base=row.base_currency,
        quote=row.quote_currency,
        trading=row.status == "online" and not row.trading_disabled,
        tick=row.quote_increment,
        lot=row.base_increment,
    )


EXCHANGE: Final = Exchange(
    name="coinbase",
    display="Coinbase",
    ws_url="wss://ws-feed.exchange.coinbase.com",
    rest_url="https://api.exchange.coinbase.com",
    instruments_path="/products",
    parse_instruments=parse_instruments,
    connector=Coinbase,
    depth=0,
    instruments_per_socket=50,  # each brings its whole book and a heartbeat a second
    frames_per_s=8.0,
    connects_per_minute=60.0,
    fetches_per_minute=300.0,
    silence_max_s=5.0,  # heartbeats come every second
    quiet_max_s=5.0,  # and for every product: nothing else shows that one of them died
    former_names=("coinbasepro", "coinbaseexchange", "gdax"),
)
