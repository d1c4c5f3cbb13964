"""Poloniex spot: 20 levels a side in real time, snapshot on the socket.

Page: https://api-docs.poloniex.com/spot/websocket/market-data#book-level-2

In step: `lastId` of each update is the `id` before it; every snapshot starts anew, and an update
that comes before the first one is ignored. Repair is unsubscribe and subscribe.

Frames:

    {"event":"subscribe","channel":"book_lv2","symbols":["BTC_USDT"]}
    {"channel":"book_lv2","action":"snapshot","data":[{"symbol":"BTC_USDT",
     "createTime":1648052239156,"asks":[["41983.43","0.1"]],"bids":[["41983.42","0.2"]],
     "lastId":12,"id":13,"ts":1648052239192}]}                then "action":"update"; "0" removes
    {"event":"error","message":"Invalid symbol: X_Y"}
    {"event":"pong"}                                          to our {"event":"ping"}
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from onebook.core import Reader
from onebook.exchanges.contract import (
    NOTHING,
    Acknowledged,
    Exchange,
    Heartbeat,
    Output,
    ProtocolError,
)
from onebook.exchanges.frames import (
    UNREADABLE,
    Sequence64,
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
from onebook.exchanges.sync import Chain
from onebook.model import Instrument

CHANNEL: Final = "book_lv2"
SYMBOLS_PER_FRAME: Final = 50


class Item(Struct, gc=False, rename="camel"):
    """A book or a change of it."""

    symbol: str
    asks: Raw
    bids: Raw
    last_id: Sequence64
    id: Sequence64


class Data(Struct, gc=False):
    """The frame of a book."""

    channel: str
    data: tuple[Item, ...]
    action: str


class Control(Struct):
    """Every frame that is not of a book."""

    event: str = ""
    channel: Any = None
    symbols: Any = None
    message: str = ""
    data: Any = None


class Scales(Struct, frozen=True, rename="camel"):
    """How many decimals prices and amounts have."""

    price_scale: int | None = None
    quantity_scale: int | None = None


class Listing(Struct, rename="camel"):
    """A row of the instrument list."""

    symbol: str
    base_currency_name: str
    quote_currency_name: str
    state: str
    symbol_trade_limit: Scales = Scales()


_data = Reader(Data).read
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(list[Raw]).decode


class Poloniex:
    """The protocol state of one connection."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._roster = Roster(instruments, Chain)
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
            return self._followed(message.action, items[0])
        return tuple(out for item in items for out in self._followed(message.action, item))

    def _followed(self, action: str, item: Item) -> tuple[Output, ...]:
        book = self._books.get(item.symbol)
        if book is None:
            return self._roster.absent(item.symbol)
        if action == "update":
            return book.delta(item.bids, item.asks, item.last_id, item.id)
        if action == "snapshot":
            return book.snapshot(item.bids, item.asks, item.id)
        raise ProtocolError(f"{CHANNEL} has no action {short(action)!r}", book.instrument)

    def _control(self, frame: bytes, error: Exception) -> tuple[Output, ...]:
        message = decode(_control, frame, what="a frame")
        if message.event == "subscribe" and message.channel == CHANNEL:
            return self._acknowledged(message.symbols)
        if message.event == "error":
            return self._roster.refused(message.message)
        if message.channel == CHANNEL and not message.event:
            instrument = self._roster.known(symbol_of(message.data))
            raise ProtocolError(f"a frame of {CHANNEL} is damaged: {short(error)}", instrument)
        return NOTHING

    def _acknowledged(self, symbols: Any) -> tuple[Output, ...]:
        names = symbols if isinstance(symbols, list) else []
        accepted = [self._roster.known(str(name)) for name in names]
        return tuple(Acknowledged(instrument) for instrument in accepted if instrument)


def _requested(event: str, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
    return tuple(
        send({"event": event, "channel": [CHANNEL], "symbols": [one.native for one in batch]})
        for batch in batches(instruments, SYMBOLS_PER_FRAME)
    )


def parse_instruments(body: bytes) -> list[Instrument]:
    """Read `/markets`."""
    return instruments_of(decode(_listings, body, what="the markets"), Listing, _listed)


def _listed(row: Listing) -> Instrument | None:
    return instrument_of(
        "poloniex",
        row.symbol,
        base=row.base_currency_name,
        quote=row.quote_currency_name,
        trading=row.state == "NORMAL",
        tick=step_of(row.symbol_trade_limit.price_scale),
        lot=step_of(row.symbol_trade_limit.quantity_scale),
    )


EXCHANGE: Final = Exchange(
    name="poloniex",
    display="Poloniex",
    ws_url="wss://ws.poloniex.com/ws/public",
    rest_url="https://api.poloniex.com",
    instruments_path="/markets",
    parse_instruments=parse_instruments,
    connector=Poloniex,
    depth=20,
    instruments_per_socket=100,
    frames_per_s=20.0,  # of 500
    connects_per_minute=60.0,
    fetches_per_minute=600.0,
    heartbeat=Heartbeat(b'{"event":"ping"}', every_s=20.0),  # 30 s without is closed, busy or not
    silence_max_s=30.0,  # a healthy socket answers each ping
)
