"""Exchanges without a connector whose books are provided by ccxt.pro.

ccxt (https://github.com/ccxt/ccxt) owns their sockets and protocols. `feeds.ccxt` writes its books
as frames in our own format, one JSON object each, which this module decodes like an exchange's
frames, so these books have the same health, silence limits and retries as all others:

    {"type":"book","native":N,"bids":[["1.5","2"],...],"asks":[...],"at":MS}   a whole book
    {"type":"lost","native":N,"words":W}      its book is invalid; it is requested again
    {"type":"refused","native":N,"words":W}   the exchange does not provide this book
    {"type":"unnamed","words":W}              one of the requested books was refused
    {"type":"open"}                           the first message of the exchange arrived

The commands to ccxt are `{"watch":[N,...]}`, which restarts a book that is already watched, and
`{"unwatch":[N]}`.

It is unknown whether a frame was lost and whether a book is whole: that depends on ccxt's own
checks. ccxt's numbers are floats, and it does not report the depth of a book, so every book counts
as bounded by its outermost level.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from onebook.config import CcxtSettings
from onebook.core.types import PAIRS
from onebook.exchanges.kit.codec import decode, send
from onebook.exchanges.kit.contract import (
    EXPECTED,
    NOTHING,
    ROWS_MAX,
    BookRefused,
    Exchange,
    Gap,
    Instruments,
    LossDetection,
    Output,
    ProtocolError,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.limits import ExchangeLimits, Limit, Scope
from onebook.exchanges.kit.listing import instrument_of, instruments_of
from onebook.model import VIA_CCXT, Instrument

QUIET_MAX_S: Final = 300.0  # without a message, before a book is stale and subscribed again
SNAPSHOT_S: Final = 30.0  # within which a subscription must deliver its first book
BOOKS_MAX: Final = 20  # per ccxt client; further books get another client
CONNECTS_PER_MINUTE: Final = 20  # ccxt clients of one exchange, reconnects included
KNOWN_LEVELS: Final = 1  # a side with this many levels ends at its outermost one: see above


class BookMessage(Struct, tag="book"):
    """A whole book; `at` is the exchange's time in Unix milliseconds, 0 if absent."""

    native: str
    bids: Raw
    asks: Raw
    at: int = 0


class Lost(Struct, tag="lost"):
    """A book that became invalid, and why."""

    native: str
    words: str


class Denied(Struct, tag="refused"):
    """A book that the exchange refused, and why."""

    native: str
    words: str


class Nameless(Struct, tag="unnamed"):
    """A refusal without a name, which ccxt raises for every waiting book."""

    words: str


class Opened(Struct, tag="open"):
    """The first message of the exchange arrived."""


class Command(Struct, omit_defaults=True):
    """A command to ccxt."""

    watch: list[str] = []
    unwatch: list[str] = []


class Market(Struct):
    """A row of the list that `feeds.ccxt` makes of ccxt's active spot markets.

    `base` and `quote` are ccxt's unified codes; `symbol` is ccxt's name of the pair.
    """

    native: str
    symbol: str
    base: str
    quote: str
    tick: str = ""
    lot: str = ""
    least_amount: str = ""
    least_notional: str = ""


_frame = msgspec.json.Decoder(BookMessage | Lost | Denied | Nameless | Opened).decode
_rows = msgspec.json.Decoder(list[Raw]).decode


class CcxtConnector:
    """The instruments of one connection, by native name; see `contract.Connector`."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._instruments = {each.native: each for each in instruments}

    def opened(self) -> Iterable[Output]:
        """Watch all instruments."""
        return self._watch(self._instruments.values())

    def reader(self) -> Callable[[bytes], Iterable[Output] | None]:
        """Return `received`: there are few kinds of frames, and all are cheap to decode."""
        return self.received

    def received(self, frame: bytes) -> Iterable[Output]:
        """Process one frame.

        Raises:
            ProtocolError: The frame is not one of those above.
        """
        message = decode(_frame, frame, what="a frame of ccxt")
        if isinstance(message, Opened):
            return EXPECTED
        if isinstance(message, Nameless):
            return (Unnamed(message.words),)
        instrument = self._instruments.get(message.native)
        if instrument is None:
            return EXPECTED  # since removed
        if isinstance(message, Lost):
            return (Gap(instrument, message.words),)
        if isinstance(message, Denied):
            return (BookRefused(instrument, message.words),)
        bids, asks = message.bids, message.asks
        return (Snapshot(instrument, bids, asks, PAIRS, KNOWN_LEVELS, message.at),)

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Reject a body: none is ever requested.

        Raises:
            ProtocolError: Always.
        """
        raise ProtocolError("a body that was not requested", instrument)

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Watch instruments again."""
        return self._watch(each for each in instruments if each.native in self._instruments)

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Watch more instruments."""
        new = [each for each in instruments if each.native not in self._instruments]
        self._instruments.update((each.native, each) for each in new)
        return self._watch(new)

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Stop watching instruments."""
        gone = [each.native for each in instruments if self._instruments.pop(each.native, None)]
        return (send(Command(unwatch=gone)),) if gone else NOTHING

    def _watch(self, instruments: Iterable[Instrument]) -> Iterable[Output]:
        natives = [each.native for each in instruments]
        return (send(Command(watch=natives)),) if natives else NOTHING


def exchange_of(name: str, display: str, settings: CcxtSettings) -> Exchange:
    """Return the facts of an exchange that is available through ccxt.

    Args:
        name: Its ccxt id.
        display: Its usual name.
        settings: The depth of its books.
    """
    return Exchange(
        name=name,
        display=display,
        ws_url="",
        rest_url="",
        instruments_path="",
        parse_instruments=partial(parse_instruments, name),
        connector=CcxtConnector,
        depth=settings.depth,
        guard=LossDetection.WHOLE,
        timed=False,
        limits=ExchangeLimits(
            topics=BOOKS_MAX,
            messages=(),
            connects=(Limit(CONNECTS_PER_MINUTE, 60.0, Scope.ADDRESS),),
            fetches=(),
        ),
        # ccxt sends its own pings and reports no pongs, so only messages prove that it is alive.
        silence_max_s=QUIET_MAX_S,
        quiet_max_s=QUIET_MAX_S,
        snapshot_s=SNAPSHOT_S,
        via=VIA_CCXT,
    )


def parse_instruments(name: str, body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse the list that `feeds.ccxt` makes; unsafe names are left out, as everywhere.

    Raises:
        ProtocolError: The body is not such a list, or has more rows than `rows_max`.
    """

    def listed(row: Market) -> Instrument | None:
        instrument = instrument_of(
            name,
            row.native,
            base=row.base,
            quote=row.quote,
            trading=True,
            tick=row.tick,
            lot=row.lot,
            least_amount=row.least_amount,
            least_notional=row.least_notional,
        )
        return None if instrument is None else replace(instrument, via=VIA_CCXT)

    rows = decode(_rows, body, what="the markets of ccxt", items_max=rows_max)
    return instruments_of(rows, Market, listed, rows_max=rows_max)
