"""Bybit spot (v5): 200 levels a side every 100 ms, snapshot on the socket.

Page: https://bybit-exchange.github.io/docs/v5/websocket/public/orderbook

In step: `u` of each delta is the last `u + 1`; a snapshot replaces the book whenever it comes,
and `u` 1 is one too (the service restarted). Repair is unsubscribe and subscribe.

Frames:

    {"topic":"orderbook.200.BTCUSDT","ts":1672304484978,"type":"snapshot","data":{"s":"BTCUSDT",
     "b":[["16493.50","0.006"]],"a":[["16611.00","0.029"]],"u":18521288,"seq":7961638724},
     "cts":1672304484976}                                    then "type":"delta"; "0" removes
    {"success":true,"ret_msg":"subscribe","conn_id":"2324","req_id":"1","op":"subscribe"}
    {"success":false,"ret_msg":"Invalid symbol :[orderbook.200.XY]","req_id":"1","op":"subscribe"}
    {"success":true,"ret_msg":"pong","conn_id":"2324","op":"ping"}

Why 200: 50 levels come five times as often and are fewer than a view may show; 1000 come every
200 ms, slower than our default beat. `seq` belongs to the engine and is not consecutive.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import Reader
from onebook.exchanges.contract import (
    NOTHING,
    Acknowledged,
    Exchange,
    Heartbeat,
    Output,
    ProtocolError,
    Refused,
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
)
from onebook.exchanges.roster import Requests, Roster
from onebook.exchanges.subscriptions import Subscriptions
from onebook.exchanges.sync import Chain
from onebook.model import Instrument

DEPTH: Final = 200
TOPIC_PREFIX: Final = f"orderbook.{DEPTH}."
ARGS_PER_FRAME_MAX: Final = 10
RESTARTED: Final = 1  # `u` of a snapshot after a restart of the service


class Book(Struct, gc=False):
    """A book or a change of it."""

    native: str = field(name="s")
    bids: Raw = field(name="b")
    asks: Raw = field(name="a")
    sequence: Sequence64 = field(name="u")


class Data(Struct, gc=False):
    """The frame of a book."""

    topic: str
    type: str
    data: Book


class Control(Struct):
    """Every frame that is not of a book."""

    op: str = ""
    success: bool | None = None
    ret_msg: str = ""
    req_id: str = ""
    topic: Any = None


class PriceFilter(Struct, frozen=True):
    """The step of prices."""

    tick: str = field(name="tickSize", default="")


class LotFilter(Struct, frozen=True):
    """The step of amounts."""

    lot: str = field(name="basePrecision", default="")


class Listing(Struct, rename="camel"):
    """A row of the instrument list."""

    symbol: str
    base_coin: str
    quote_coin: str
    status: str
    price_filter: PriceFilter = PriceFilter()
    lot_size_filter: LotFilter = LotFilter()


class Rows(Struct):
    """The rows of the instrument list."""

    list: list[Raw]


class Listings(Struct):
    """The instrument list."""

    result: Rows


_data = Reader(Data).read
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(Listings).decode


def topic(instrument: Instrument) -> str:
    """Name the subscription of an instrument."""
    return TOPIC_PREFIX + instrument.native


class Bybit:
    """The protocol state of one connection."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._roster = Roster(instruments, Chain, key=topic)
        self._books = self._roster.trackers
        asked = Subscriptions(self._roster, self._requested)
        self.opened, self.fetched, self.resync = asked.opened, asked.fetched, asked.resync
        self.add, self.remove = asked.add, asked.remove
        self._requests = Requests()

    def received(self, frame: bytes) -> tuple[Output, ...]:
        """Act on one frame."""
        try:
            message = _data(frame)
        except UNREADABLE as error:
            return self._control(frame, error)
        book = self._books.get(message.topic)
        if book is None:
            return self._foreign(message.topic)
        data = message.data
        if data.native != book.instrument.native:
            raise ProtocolError(f"{message.topic} brings {short(data.native)!r}", book.instrument)
        sequence = data.sequence
        if message.type == "delta" and sequence != RESTARTED:
            return book.delta(data.bids, data.asks, sequence - 1, sequence)
        if message.type in ("snapshot", "delta"):
            return book.snapshot(data.bids, data.asks, sequence)
        raise ProtocolError(f"{message.topic} has no type {short(message.type)!r}", book.instrument)

    def _requested(self, operation: str, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        return tuple(
            send(
                {
                    "op": operation,
                    "args": [topic(one) for one in batch],
                    "req_id": str(self._requests.issue(batch)),
                }
            )
            for batch in batches(instruments, ARGS_PER_FRAME_MAX)
        )

    def _foreign(self, name: str) -> tuple[Output, ...]:
        return self._roster.absent(name) if name.startswith(TOPIC_PREFIX) else NOTHING

    def _control(self, frame: bytes, error: Exception) -> tuple[Output, ...]:
        message = decode(_control, frame, what="a frame")
        name = str(message.topic)
        if name.startswith(TOPIC_PREFIX):
            reason = f"a frame of {short(name)} is damaged: {short(error)}"
            raise ProtocolError(reason, self._roster.known(name))
        if message.op not in ("subscribe", "unsubscribe"):
            return NOTHING
        asked = self._asked(message.req_id)
        if message.op == "unsubscribe":
            return NOTHING
        if message.success:
            return tuple(Acknowledged(one) for one in asked)
        return self._refused(message.ret_msg, asked)

    def _asked(self, number: str) -> list[Instrument]:
        """Whom an answer is about, without those removed meanwhile."""
        return [one for one in self._requests.answered(number) if self._roster.find(one)]

    def _refused(self, words: str, asked: list[Instrument]) -> tuple[Output, ...]:
        """One bad topic costs the whole request: the others are asked for again."""
        named = self._roster.named_in(words) or asked
        if not named:
            raise ProtocolError(f"the exchange refuses a request: {short(words)}")
        rest = [one for one in asked if one not in named]
        if "already subscribed" in words:
            verdicts: tuple[Output, ...] = tuple(Acknowledged(one) for one in named)
        else:
            verdicts = tuple(Refused(one, short(words)) for one in named)
        return verdicts + self._requested("subscribe", rest)


def parse_instruments(body: bytes) -> list[Instrument]:
    """Read `/v5/market/instruments-info`."""
    rows = decode(_listings, body, what="the instruments").result.list
    return instruments_of(rows, Listing, _listed)


def _listed(row: Listing) -> Instrument | None:
    return instrument_of(
        "bybit",
        row.symbol,
        base=row.base_coin,
        quote=row.quote_coin,
        trading=row.status == "Trading",
        tick=row.price_filter.tick,
        lot=row.lot_size_filter.lot,
    )


EXCHANGE: Final = Exchange(
    name="bybit",
    display="Bybit",
    ws_url="wss://stream.bybit.com/v5/public/spot",
    rest_url="https://api.bybit.com",
    instruments_path="/v5/market/instruments-info?category=spot",
    parse_instruments=parse_instruments,
    connector=Bybit,
    depth=DEPTH,
    instruments_per_socket=200,  # 6 KB of the 21,000 characters that arguments may have
    frames_per_s=10.0,
    connects_per_minute=60.0,  # of 500 in 5 minutes
    fetches_per_minute=600.0,
    heartbeat=Heartbeat(b'{"op":"ping"}', every_s=20.0),
    silence_max_s=30.0,  # a healthy socket answers each ping
)
