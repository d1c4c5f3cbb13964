"""Binance spot: the whole book as diffs every 100 ms, seeded by REST.

Page: https://developers.binance.com/docs/binance-spot-api-docs/web-socket-streams
(how to keep a local book: section "How to manage a local order book correctly").

In step: deltas are held from the acknowledgement on, the REST body drops those with
`u <= lastUpdateId`, the first kept contains `lastUpdateId + 1`, then each `U` is the last `u + 1`.

Frames of the combined stream:

    {"stream":"bnbbtc@depth@100ms","data":{"e":"depthUpdate","E":1672515782136,"s":"BNBBTC",
     "U":157,"u":160,"b":[["0.0024","10"]],"a":[["0.0026","100"]]}}     a delta; "0" removes
    {"result":null,"id":1}                                               a request was accepted
    {"code":2,"msg":"Invalid request: ...","id":1}                       a request was refused
    {"error":{"code":2,"msg":"Invalid request: ..."},"id":1}             the same, newer servers
    {"stream":"!serverShutdown","data":{"e":"serverShutdown","E":1672515782136}}

REST body, `/api/v3/depth`: {"lastUpdateId":160,"bids":[["0.0024","10"]],"asks":[["0.0026","100"]]}

The server's pings every 20 s are protocol frames, which the feed's socket answers. Levels beyond
the 1000 of the body stay unknown until they change: limit 5000 would cost five times the budget.
"""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import Reader
from onebook.exchanges.contract import (
    NOTHING,
    Acknowledged,
    Closing,
    Exchange,
    Fetch,
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
from onebook.exchanges.sync import Join
from onebook.model import Instrument

PARAMS_PER_FRAME_MAX: Final = 200
SEED_LEVELS: Final = 1_000
SEED_WEIGHT: Final = 50


class Change(Struct, gc=False, tag_field="e", tag="depthUpdate"):
    """The data of a delta."""

    native: str = field(name="s")
    first: Sequence64 = field(name="U")
    final: Sequence64 = field(name="u")
    bids: Raw = field(name="b")
    asks: Raw = field(name="a")


class Update(Struct, gc=False):
    """The frame of a delta."""

    data: Change


class Problem(Struct):
    """Why a request was refused."""

    msg: str = ""


class Control(Struct):
    """Every frame that is not a delta."""

    id: Sequence64 | str | None = None
    e: str = ""
    code: int | None = None
    msg: str = ""
    error: Problem | None = None
    data: Any = None


class Depth(Struct):
    """The REST body."""

    sequence: Sequence64 = field(name="lastUpdateId")
    bids: Raw
    asks: Raw


class Filter(Struct):
    """A trading rule; only two of its kinds carry a step."""

    tick: str = field(name="tickSize", default="")
    lot: str = field(name="stepSize", default="")
    kind: str = field(name="filterType", default="")


class Listing(Struct, rename="camel"):
    """A row of the instrument list."""

    symbol: str
    base_asset: str
    quote_asset: str
    status: str
    is_spot_trading_allowed: bool
    filters: list[Filter] = []


class Listings(Struct):
    """The instrument list."""

    symbols: list[Raw]


_update = Reader(Update).read
_control = msgspec.json.Decoder(Control).decode
_depth = msgspec.json.Decoder(Depth).decode
_listings = msgspec.json.Decoder(Listings).decode


def _join(instrument: Instrument) -> Join:
    path = f"/api/v3/depth?symbol={quote(instrument.native)}&limit={SEED_LEVELS}"
    return Join(Fetch(instrument, path, SEED_WEIGHT))


class Binance:
    """The protocol state of one connection."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._roster = Roster(instruments, _join)
        self._books = self._roster.trackers
        self._requests = Requests()
        self._streaming: set[str] = set()  # natives whose stream the exchange has confirmed

    def opened(self) -> tuple[Output, ...]:
        """Subscribe to everything."""
        return self._subscribe(self._roster.all())

    def received(self, frame: bytes) -> tuple[Output, ...]:
        """Act on one frame."""
        try:
            change = _update(frame).data
        except UNREADABLE:
            return self._control(frame)
        book = self._books.get(change.native)
        if book is None:
            return self._roster.absent(change.native)
        return book.delta(change.first, change.final, change.bids, change.asks)

    def fetched(self, instrument: Instrument, body: bytes) -> tuple[Output, ...]:
        """Start a book at its REST body."""
        try:
            depth = _depth(body)
        except UNREADABLE as error:
            reason = f"the depth of {instrument.native} cannot be read: {short(error)}"
            raise ProtocolError(reason, instrument) from None
        book = self._roster.find(instrument)
        return book.seeded(depth.bids, depth.asks, depth.sequence) if book else NOTHING

    def resync(self, instrument: Instrument) -> tuple[Output, ...]:
        """Fetch the book again; the stream itself is asked for only if it never was confirmed."""
        book = self._roster.find(instrument)
        if book is None:
            return NOTHING
        if instrument.native in self._streaming:
            return book.restart()
        return self._subscribe([instrument])

    def add(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        """Subscribe to more."""
        return self._subscribe(self._roster.add(instruments))

    def remove(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        """Unsubscribe."""
        gone = self._roster.remove(instruments)
        self._streaming.difference_update(one.native for one in gone)
        return self._requested("UNSUBSCRIBE", gone, awaited=())

    def _subscribe(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        return self._requested("SUBSCRIBE", instruments, awaited=instruments)

    def _requested(
        self, method: str, instruments: Sequence[Instrument], *, awaited: Sequence[Instrument]
    ) -> tuple[Output, ...]:
        return tuple(
            send(
                {
                    "method": method,
                    "params": [f"{one.native.lower()}@depth@100ms" for one in batch],
                    "id": self._requests.issue(batch if awaited else ()),
                }
            )
            for batch in batches(instruments, PARAMS_PER_FRAME_MAX)
        )

    def _control(self, frame: bytes) -> tuple[Output, ...]:
        message = decode(_control, frame, what="a frame")
        data = message.data if isinstance(message.data, dict) else {"e": message.e}
        if data.get("e") == "serverShutdown":
            return (Closing("the exchange announced a shutdown of this server"),)
        if data.get("e") == "depthUpdate":
            native = str(data.get("s"))
            raise ProtocolError(
                f"a delta of {short(native)!r} is damaged", self._roster.known(native)
            )
        problem = message.error.msg if message.error else message.msg
        if message.error or message.code is not None:
            return self._refused(message.id, problem)
        return self._acknowledged(message.id)

    def _acknowledged(self, number: int | str | None) -> tuple[Output, ...]:
        outputs: list[Output] = []
        for instrument in self._answered(number):
            if instrument.native not in self._streaming:  # else it was asked for twice
                self._streaming.add(instrument.native)
                outputs += (Acknowledged(instrument), *self._books[instrument.native].restart())
        return tuple(outputs)

    def _refused(self, number: int | str | None, problem: str) -> tuple[Output, ...]:
        refused = self._answered(number)
        if not refused:
            raise ProtocolError(f"the exchange refuses a request: {short(problem)}")
        return tuple(Refused(one, short(problem)) for one in refused)

    def _answered(self, number: int | str | None) -> list[Instrument]:
        """Whom an answer is about, without those removed meanwhile."""
        return [one for one in self._requests.answered(number) if self._roster.find(one)]


def parse_instruments(body: bytes) -> list[Instrument]:
    """Read `/api/v3/exchangeInfo`; what is not spot is left out."""
    return instruments_of(decode(_listings, body, what="exchangeInfo").symbols, Listing, _listed)


def _listed(row: Listing) -> Instrument | None:
    if not row.is_spot_trading_allowed:
        return None
    rules = {rule.kind: rule for rule in row.filters}
    return instrument_of(
        "binance",
        row.symbol,
        base=row.base_asset,
        quote=row.quote_asset,
        trading=row.status == "TRADING",
        tick=rules.get("PRICE_FILTER", Filter()).tick,
        lot=rules.get("LOT_SIZE", Filter()).lot,
    )


EXCHANGE: Final = Exchange(
    name="binance",
    display="Binance",
    ws_url="wss://stream.binance.com:9443/stream",
    rest_url="https://api.binance.com",
    instruments_path="/api/v3/exchangeInfo?showPermissionSets=false",
    parse_instruments=parse_instruments,
    connector=Binance,
    depth=0,
    instruments_per_socket=200,  # of 1024: a lost socket must not cost an hour of REST budget
    frames_per_s=4.0,  # of 5, our pongs count too; over it is a disconnect, then a ban
    connects_per_minute=60.0,  # 300 in 5 minutes
    fetches_per_minute=5_000.0,  # of 6000; the rest is for the instruments and for others
    silence_max_s=30.0,  # the server pings every 20 s
    snapshot_s=300.0,  # the books of a full socket are two minutes of the REST budget
    lifetime_s=86_000.0,  # it ends connections after 24 h
)
