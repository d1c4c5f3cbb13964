"""Kraken spot (WebSocket v2): 100 levels a side in real time, snapshot on the socket.

Page: https://docs.kraken.com/api/docs/websocket-v2/book
(checksum: https://docs.kraken.com/api/docs/guides/spot-ws-book-v2)

In step: no numbers, but every frame carries the CRC-32 of the ten best levels, which must agree
after it; levels pushed out of the 100 are not deleted by the exchange, so the book is cut there
(`Exchange.truncate`). Repair is unsubscribe and subscribe.

Frames:

    {"method":"subscribe","result":{"channel":"book","symbol":"BTC/USD","depth":100,
     "snapshot":true},"success":true,"time_in":"...","time_out":"..."}        one per symbol
    {"error":"Currency pair not supported X/Y","method":"subscribe","success":false,
     "symbol":"X/Y"}
    {"channel":"book","type":"snapshot","data":[{"symbol":"BTC/USD",
     "bids":[{"price":45283.5,"qty":0.10000000}],"asks":[{"price":45285.2,"qty":0.00100000}],
     "checksum":3310070434,"timestamp":"..."}]}               then "type":"update"; qty 0 removes
    {"channel":"heartbeat"}             about one a second when nothing else is sent
    {"channel":"status","type":"update","data":[{"system":"online","api_version":"v2"}]}

A heartbeat speaks for the connection and only when all its books are quiet, so it gives no
output: the feed counts it, as every frame, against `silence_max_s`. Prices are JSON numbers whose
literal digits count for the checksum.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from onebook.core import Reader
from onebook.exchanges.contract import (
    DIGITS_10,
    NOTHING,
    OBJECTS,
    Acknowledged,
    Exchange,
    Output,
    ProtocolError,
    Verify,
)
from onebook.exchanges.frames import (
    UNREADABLE,
    Checksum,
    batches,
    decode,
    instrument_of,
    instruments_of,
    send,
    short,
    step_of,
    symbol_of,
)
from onebook.exchanges.roster import Roster
from onebook.exchanges.subscriptions import Subscriptions
from onebook.exchanges.sync import Unnumbered
from onebook.model import Instrument

CHANNEL: Final = "book"
DEPTH: Final = 100
SYMBOLS_PER_FRAME: Final = 50
# The REST list still says what the v2 socket has renamed.
RENAMED: Final = {"XBT": "BTC", "XDG": "DOGE"}
TRADING: Final = ("online", "limit_only", "reduce_only")
US_MARGIN_VENUE: Final = ":"  # a suffix such as :BTNL marks another venue's book


class Item(Struct, gc=False):
    """A book or a change of it."""

    symbol: str
    bids: Raw
    asks: Raw
    checksum: Checksum


class Data(Struct, gc=False):
    """The frame of a book."""

    channel: str
    type: str
    data: tuple[Item, ...]


class Control(Struct):
    """Every frame that is not of a book."""

    channel: str = ""
    method: str = ""
    success: bool | None = None
    error: str = ""
    symbol: str = ""
    result: Any = None
    data: Any = None


class Listing(Struct):
    """A row of the instrument list."""

    wsname: str
    status: str
    tick_size: str = ""
    lot_decimals: int | None = None


class Listings(Struct):
    """The instrument list."""

    error: list[str]
    result: dict[str, Raw] = {}


_data = Reader(Data).read
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(Listings).decode


class Kraken:
    """The protocol state of one connection."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        make = partial(Unnumbered, snapshot_shape=OBJECTS, delta_shape=OBJECTS)
        self._roster = Roster(instruments, make)
        self._books = self._roster.trackers
        asked = Subscriptions(self._roster, _requested)
        self.opened, self.fetched, self.resync = asked.opened, asked.fetched, asked.resync
        self.add, self.remove = asked.add, asked.remove

    def received(self, frame: bytes) -> tuple[Output, ...]:
        """Act on one frame."""
        try:
            message = _data(frame)
        except UNREADABLE as error:
            return self._control(frame, error)
        if message.channel != CHANNEL:
            return NOTHING
        items = message.data
        if len(items) == 1:
            return self._followed(message.type, items[0])
        return tuple(out for item in items for out in self._followed(message.type, item))

    def _followed(self, kind: str, item: Item) -> tuple[Output, ...]:
        book = self._books.get(item.symbol)
        if book is None:
            return self._roster.absent(item.symbol)
        if kind == "update":
            outputs = book.delta(item.bids, item.asks)
        elif kind == "snapshot":
            outputs = book.snapshot(item.bids, item.asks)
        else:
            raise ProtocolError(f"book has no type {short(kind)!r}", book.instrument)
        return (*outputs, Verify(book.instrument, DIGITS_10, item.checksum)) if outputs else NOTHING

    def _control(self, frame: bytes, error: Exception) -> tuple[Output, ...]:
        message = decode(_control, frame, what="a frame")
        if message.channel == CHANNEL:
            instrument = self._roster.known(symbol_of(message.data))
            raise ProtocolError(f"a frame of book is damaged: {short(error)}", instrument)
        if message.method != "subscribe":
            return NOTHING
        if message.success:
            instrument = self._roster.known(symbol_of([message.result]))
            return (Acknowledged(instrument),) if instrument else NOTHING
        if message.error.startswith("Already subscribed"):
            return NOTHING  # two requests crossed; the feed asks again if no snapshot comes
        return self._roster.refused(f"{message.symbol} {message.error}".lstrip())


def _requested(method: str, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
    return tuple(
        send(
            {
                "method": method,
                "params": {
                    "channel": CHANNEL,
                    "symbol": [one.native for one in batch],
                    "depth": DEPTH,
                },
            }
        )
        for batch in batches(instruments, SYMBOLS_PER_FRAME)
    )


def parse_instruments(body: bytes) -> list[Instrument]:
    """Read `/0/public/AssetPairs`."""
    listings = decode(_listings, body, what="the asset pairs")
    if listings.error:
        raise ProtocolError(f"the asset pairs are refused: {short(listings.error[0])}")
    return instruments_of(listings.result.values(), Listing, _listed)


def _listed(row: Listing) -> Instrument | None:
    base, _, quote = row.wsname.partition("/")
    base, quote = RENAMED.get(base, base), RENAMED.get(quote, quote)
    if US_MARGIN_VENUE in row.wsname:
        return None
    return instrument_of(
        "kraken",
        f"{base}/{quote}",
        base=base,
        quote=quote,
        trading=row.status in TRADING,
        tick=row.tick_size,
        lot=step_of(row.lot_decimals),
    )


EXCHANGE: Final = Exchange(
    name="kraken",
    display="Kraken",
    ws_url="wss://ws.kraken.com/v2",
    rest_url="https://api.kraken.com",
    instruments_path="/0/public/AssetPairs",
    parse_instruments=parse_instruments,
    connector=Kraken,
    depth=DEPTH,
    truncate=True,
    instruments_per_socket=100,
    frames_per_s=5.0,
    connects_per_minute=12.0,  # about 150 in 10 minutes, then the address is shut out
    fetches_per_minute=30.0,
    silence_max_s=5.0,  # heartbeats come every second
)
