"""Exchanges whose books come through ccxt.pro in place of a connector of ours.

ccxt (https://github.com/ccxt/ccxt) owns their sockets and protocols; what it knows comes as frames
of our own, one JSON object each, which `feeds.ccxt` writes and this module reads as it would an
exchange's. So their books have the same health, silence limits and retries as all others:

    {"type":"book","native":N,"bids":[["1.5","2"],...],"asks":[...],"at":MS}   a whole book
    {"type":"lost","native":N,"words":W}      its book cannot be trusted; it is asked for again
    {"type":"refused","native":N,"words":W}   the exchange does not give this book
    {"type":"unnamed","words":W}              one of the books that were asked for is refused
    {"type":"open"}                           the first message of the exchange arrived

and the other way `{"watch":[N,...]}`, again for one that is watched already, and `{"unwatch":[N]}`.

What is not known here: whether a frame was lost, whether a book is whole. ccxt checks what it
checks, its numbers are floats, and it does not say how deep a book is; so every book counts as
bounded by its outermost level.
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
SNAPSHOT_S: Final = 30.0  # a subscription may take to deliver its first book
BOOKS_MAX: Final = 20  # of one ccxt client; further books get another one
CONNECTS_PER_MINUTE: Final = 20  # ccxt clients of one exchange, reconnects included
KNOWN_LEVELS: Final = 1  # a side with so many levels ends at its outermost one: see above


class BookMessage(Struct, tag="book"):
    """A whole book; `at` is the exchange's time in Unix milliseconds, 0 where it names none."""

    native: str
    bids: Raw
    asks: Raw
    at: int = 0


class Lost(Struct, tag="lost"):
    """A book that cannot be trusted any more, and why."""

    native: str
    words: str


class Denied(Struct, tag="refused"):
    """A book that the exchange does not give, and why."""

    native: str
    words: str


class Nameless(Struct, tag="unnamed"):
    """A refusal that names no book: ccxt gives it to every one that waits."""

    words: str


class Opened(Struct, tag="open"):
    """The exchange was reached."""


class Command(Struct, omit_defaults=True):
    """What a connection asks of ccxt."""

    watch: list[str] = []
    unwatch: list[str] = []


class Market(Struct):
    """A row of the list that `feeds.ccxt` makes of ccxt's markets: spot and active ones alone.

    `base` and `quote` are ccxt's unified codes; `symbol` is how ccxt names the pair.
    """

    native: str
    symbol: str
    base: str
    quote: str
    tick: str = ""
    lot: str = ""


_frame = msgspec.json.Decoder(BookMessage | Lost | Denied | Nameless | Opened).decode
_rows = msgspec.json.Decoder(list[Raw]).decode


class CcxtConnector:
    """The instruments of one connection, by the exchange's own names; see `contract.Connector`."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._instruments = {each.native: each for each in instruments}

    def opened(self) -> Iterable[Output]:
        """Watch all of them."""
        return self._watch(self._instruments.values())

    def reader(self) -> Callable[[bytes], Iterable[Output] | None]:
        """Return what reads every frame: there are few kinds, and none is costly."""
        return self.received

    def received(self, frame: bytes) -> Iterable[Output]:
        """Act on one frame.

        Raises:
            ProtocolError: It is none of those above.
        """
        message = decode(_frame, frame, what="a frame of ccxt")
        if isinstance(message, Opened):
            return EXPECTED
        if isinstance(message, Nameless):
            return (Unnamed(message.words),)
        instrument = self._instruments.get(message.native)
        if instrument is None:
            return EXPECTED  # it was removed while this was on its way
        if isinstance(message, Lost):
            return (Gap(instrument, message.words),)
        if isinstance(message, Denied):
            return (BookRefused(instrument, message.words),)
        bids, asks = message.bids, message.asks
        return (Snapshot(instrument, bids, asks, PAIRS, KNOWN_LEVELS, message.at),)

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Refuse a body: none is ever asked for.

        Raises:
            ProtocolError: Always.
        """
        raise ProtocolError("a body that was not asked for", instrument)

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Watch these anew."""
        return self._watch(each for each in instruments if each.native in self._instruments)

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Watch more."""
        new = [each for each in instruments if each.native not in self._instruments]
        self._instruments.update((each.native, each) for each in new)
        return self._watch(new)

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Watch these no longer."""
        gone = [each.native for each in instruments if self._instruments.pop(each.native, None)]
        return (send(Command(unwatch=gone)),) if gone else NOTHING

    def _watch(self, instruments: Iterable[Instrument]) -> Iterable[Output]:
        natives = [each.native for each in instruments]
        return (send(Command(watch=natives)),) if natives else NOTHING


def exchange_of(name: str, display: str, settings: CcxtSettings) -> Exchange:
    """Return the facts of an exchange that is reached through ccxt.

    Args:
        name: Its ccxt id.
        display: The name people know.
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
        # ccxt pings by itself and reports no pongs, so that messages are all that proves a socket.
        silence_max_s=QUIET_MAX_S,
        quiet_max_s=QUIET_MAX_S,
        snapshot_s=SNAPSHOT_S,
        via=VIA_CCXT,
    )


def parse_instruments(name: str, body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Read the list that `feeds.ccxt` makes; names that are not sound are left out as everywhere.

    Raises:
        ProtocolError: It is no such list, or has more rows than `rows_max`.
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
        )
        return None if instrument is None else replace(instrument, via=VIA_CCXT)

    rows = decode(_rows, body, what="the markets of ccxt", items_max=rows_max)
    return instruments_of(rows, Market, listed, rows_max=rows_max)
