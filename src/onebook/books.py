"""Every live book and its health: what a connector says goes in, what may be shown comes out.

The rule of the house is here: a book is live or it is not shown. A snapshot makes it live; a gap,
a wrong checksum, a level that cannot be trusted, a crossing or silence ends that at once, and only
a fresh snapshot brings it back. No I/O, no clock (`now` is monotonic seconds) and no await: this
is the middle of the walk of a frame (ARCHITECTURE.md). Asking the exchange again is the feed's
work, merging and publishing is the work of `streams`.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from onebook.core import Book
from onebook.core.types import LEVELS_MAX, LevelError
from onebook.exchanges.contract import DIGITS_10, TEXT_25, Delta, Snapshot, Verify
from onebook.model import Health, Instrument

# Why a book stopped being live, in the words that clients read in `exchange_status`; what the
# core says of a changed book is one of them too.
CHECKSUM: Final = "checksum"
LEVELS: Final = "levels"
NOT_WANTED: Final = "not wanted"

DIGITS_LEVELS: Final = 10  # levels a side under a `DIGITS_10` checksum
TEXT_LEVELS: Final = 25  # levels a side under a `TEXT_25` checksum
CRC_MASK: Final = 0xFFFFFFFF  # exchanges print the same 32 bits signed or unsigned

LIVE: Final = Health.LIVE


class Event(Enum):
    """What can happen to the health of a book."""

    RESTARTED = "restarted"
    FILLED = "filled"
    DOUBTED = "doubted"
    REFUSED = "refused"


# The whole machine. An offline book hears nothing until its feed starts it again, so that a late
# frame of a halted instrument cannot bring it back.
MOVES: Final[dict[tuple[Health, Event], Health]] = {
    (Health.SYNCING, Event.RESTARTED): Health.SYNCING,
    (Health.SYNCING, Event.FILLED): Health.LIVE,
    (Health.SYNCING, Event.DOUBTED): Health.STALE,
    (Health.SYNCING, Event.REFUSED): Health.OFFLINE,
    (Health.LIVE, Event.RESTARTED): Health.SYNCING,
    (Health.LIVE, Event.FILLED): Health.LIVE,
    (Health.LIVE, Event.DOUBTED): Health.STALE,
    (Health.LIVE, Event.REFUSED): Health.OFFLINE,
    (Health.STALE, Event.RESTARTED): Health.SYNCING,
    (Health.STALE, Event.FILLED): Health.LIVE,
    (Health.STALE, Event.DOUBTED): Health.STALE,
    (Health.STALE, Event.REFUSED): Health.OFFLINE,
    (Health.OFFLINE, Event.RESTARTED): Health.SYNCING,
    (Health.OFFLINE, Event.FILLED): Health.OFFLINE,
    (Health.OFFLINE, Event.DOUBTED): Health.OFFLINE,
    (Health.OFFLINE, Event.REFUSED): Health.OFFLINE,
}

# What `set_health` may ask for. Live is missing: only a snapshot makes a book live.
ASKED: Final = {
    Health.SYNCING: Event.RESTARTED,
    Health.STALE: Event.DOUBTED,
    Health.OFFLINE: Event.REFUSED,
}


class LiveBook:
    """One instrument's levels and whether they may be shown.

    `updated_at` is when data last arrived and `changed_at` when the health last moved, both in
    monotonic seconds; `reason` says why the book is not live, "" while it is or begins.
    """

    __slots__ = (
        "changed_at",
        "core",
        "health",
        "instrument",
        "reason",
        "updated_at",
    )

    def __init__(self, instrument: Instrument, levels_max: int) -> None:
        self.instrument = instrument
        self.core = Book(levels_max)
        self.health = Health.SYNCING
        self.reason = ""
        self.updated_at = 0.0
        self.changed_at = 0.0


def ignore_change(book: LiveBook) -> None:
    """Stand in until `streams` listens."""


def ignore_health(book: LiveBook, previous: Health) -> None:
    """Stand in until `streams` listens."""


class Books:
    """Every open book by its instrument.

    `on_changed` hears of each change applied to a live book, `on_health` of each move of health
    with the previous one; both are set once, before the first book is opened.
    """

    def __init__(self) -> None:
        self._books: dict[Instrument, LiveBook] = {}
        self.on_changed: Callable[[LiveBook], None] = ignore_change
        self.on_health: Callable[[LiveBook, Health], None] = ignore_health

    def open(self, instrument: Instrument, *, levels_max: int = LEVELS_MAX) -> LiveBook:
        """Return the book of `instrument`, a new and syncing one if there was none."""
        book = self._books.get(instrument)
        if book is None:
            book = self._books[instrument] = LiveBook(instrument, levels_max)
        return book

    def close(self, instrument: Instrument) -> None:
        """Forget a book; whoever still shows it hears that it went offline."""
        self.set_health(instrument, Health.OFFLINE, NOT_WANTED, 0.0)
        self._books.pop(instrument, None)

    def get(self, instrument: Instrument) -> LiveBook | None:
        """Return the open book of `instrument`."""
        return self._books.get(instrument)

    def live(self) -> Iterator[LiveBook]:
        """Yield the books that may be shown now."""
        return (book for book in self._books.values() if book.health is LIVE)

    def __iter__(self) -> Iterator[LiveBook]:
        return iter(self._books.values())

    def __len__(self) -> int:
        return len(self._books)

    def apply(self, output: Snapshot | Delta | Verify, now: float) -> str | None:
        """Carry out one value of a connector.

        Returns:
            None where all is well; otherwise why the book has just become stale, and the feed
            must ask the exchange again. Data of a book that is not open, and changes of one that
            is not live, are ignored.
        """
        if type(output) is Delta:
            return self.change(output, now)
        book = self._books.get(output.instrument)
        if book is None:
            return None
        if type(output) is Snapshot:
            return self._fill(book, output, now)
        assert type(output) is Verify
        return self._verify(book, output, now)

    def change(self, delta: Delta, now: float) -> str | None:
        """Do what `apply` does, for what comes most (the hot path)."""
        book = self._books.get(delta.instrument)
        if book is None or book.health is not LIVE:
            return None
        try:
            reason = book.core.apply(delta.bids, delta.asks, delta.shape)
        except LevelError:
            reason = LEVELS
        if reason is not None:
            return self._doubt(book, reason, now)
        book.updated_at = now
        self.on_changed(book)
        return None

    def set_health(self, instrument: Instrument, health: Health, reason: str, now: float) -> None:
        """Move a book to syncing, stale or offline, as `MOVES` allows."""
        book = self._books.get(instrument)
        if book is not None:
            self._move(book, ASKED[health], reason, now)

    def _fill(self, book: LiveBook, snapshot: Snapshot, now: float) -> str | None:
        if book.health is Health.OFFLINE:
            return None
        try:
            reason = book.core.replace(snapshot.bids, snapshot.asks, snapshot.shape)
        except LevelError:
            reason = LEVELS
        if reason is not None:
            return self._doubt(book, reason, now)
        book.updated_at = now
        self._move(book, Event.FILLED, "", now)
        self.on_changed(book)
        return None

    def _verify(self, book: LiveBook, verify: Verify, now: float) -> str | None:
        if book.health is not LIVE:
            return None
        if (checksum(book.core, verify.layout) ^ verify.expected) & CRC_MASK:
            return self._doubt(book, CHECKSUM, now)
        return None

    def _doubt(self, book: LiveBook, reason: str, now: float) -> str:
        self._move(book, Event.DOUBTED, reason, now)
        return reason

    def _move(self, book: LiveBook, event: Event, reason: str, now: float) -> None:
        previous = book.health
        health = MOVES[previous, event]
        if health is not LIVE:
            book.core.clear()  # levels in doubt are nowhere, not only unseen
        if health is previous:
            return
        book.health = health
        book.reason = reason
        book.changed_at = now
        self.on_health(book, previous)


def checksum(core: Book, layout: str) -> int:
    """Return the checksum of a book in the layout that an exchange uses."""
    if layout == DIGITS_10:
        return core.crc_digits(DIGITS_LEVELS)
    assert layout == TEXT_25, layout
    return core.crc_text(TEXT_LEVELS)
