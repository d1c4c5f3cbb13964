"""Order books and their health: applies a connector's outputs, and reports which books are live.

Enforces the first principle: a book is live or it is not shown. A snapshot makes it live; a gap, a
wrong checksum, an implausible level, a crossed book or silence makes it stale immediately, and only
a new snapshot makes it live again. No I/O, no clock (`now` is monotonic seconds) and no await: this
is the middle of the data path (ARCHITECTURE.md). Feeds perform the resyncs, `streams` merges and
publishes.
"""

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Final, NamedTuple, ParamSpec

from onebook.core import Book
from onebook.core.types import (
    LEVELS_MAX,
    ChecksumLayout,
    ChecksumNumber,
    ChecksumOrder,
    LevelError,
)
from onebook.exchanges.kit import UNTIMED, Delta, Moment, Snapshot, TopOfBook, Verify, microseconds
from onebook.fusing import Fusing, TopCounts
from onebook.model import Health, Instrument, Reason
from onebook.orderbook import ExchangeTimes, LayerTimes
from onebook.skew import ClockSkew

# A checksum of the best levels, to recognise an unchanged book.
FROZEN_TOP: Final = ChecksumLayout(25, ChecksumOrder.IN_TURN, ChecksumNumber.TEXT, ":")
SAME_BOOK: Final = "the resync returned the same levels as before the silence"
CRC_MASK: Final = 0xFFFFFFFF  # exchanges print the same 32 bits signed or unsigned

# Constants, because Python 3.11 resolves an enum member by a call.
LIVE: Final = Health.LIVE
OFFLINE: Final = Health.OFFLINE


class Event(Enum):
    """Events that change the health of a book."""

    RESTARTED = "restarted"
    FILLED = "filled"
    INVALIDATED = "invalidated"
    REFUSED = "refused"


# The transition table. An offline book ignores all events until its feed starts it again, so that a
# late frame of a halted instrument cannot make it live.
MOVES: Final[dict[tuple[Health, Event], Health]] = {
    (Health.SYNCING, Event.RESTARTED): Health.SYNCING,
    (Health.SYNCING, Event.FILLED): Health.LIVE,
    (Health.SYNCING, Event.INVALIDATED): Health.STALE,
    (Health.SYNCING, Event.REFUSED): Health.OFFLINE,
    (Health.LIVE, Event.RESTARTED): Health.SYNCING,
    (Health.LIVE, Event.FILLED): Health.LIVE,
    (Health.LIVE, Event.INVALIDATED): Health.STALE,
    (Health.LIVE, Event.REFUSED): Health.OFFLINE,
    (Health.STALE, Event.RESTARTED): Health.SYNCING,
    (Health.STALE, Event.FILLED): Health.LIVE,
    (Health.STALE, Event.INVALIDATED): Health.STALE,
    (Health.STALE, Event.REFUSED): Health.OFFLINE,
    (Health.OFFLINE, Event.RESTARTED): Health.SYNCING,
    (Health.OFFLINE, Event.FILLED): Health.OFFLINE,
    (Health.OFFLINE, Event.INVALIDATED): Health.OFFLINE,
    (Health.OFFLINE, Event.REFUSED): Health.OFFLINE,
}

# Events of `set_health`. Live is absent, because only a snapshot makes a book live.
ASKED: Final = {
    Health.SYNCING: Event.RESTARTED,
    Health.STALE: Event.INVALIDATED,
    Health.OFFLINE: Event.REFUSED,
}


class IdentityMark(NamedTuple):
    """Reason why the identity guard flagged a live book; `detail` is human-readable."""

    reason: Reason
    detail: str


class LiveBook:
    """One instrument's levels and whether they may be shown.

    `changes` counts the changes that were shown, `audits` the comparisons with a REST snapshot.
    `at` is the exchange's time of the newest levels, `top_at` that of the newest fast top, which
    arrived at `top_received_at`; `skew` is the offset of the exchange's clock.
    `updated_at` is the time of the last data, live or not, and `changed_at` that of the last health
    change, both in monotonic seconds. `reason` is the code why the book is not live (None while it
    is), `detail` describes the case. `frozen_top` is the checksum of the best levels at the start
    of a silence: until `frozen_until` a resync with the same levels does not make the book live.
    `window` is the number of levels a side that the exchange keeps updated, 0 for all, and
    `levels_max` the number that the book keeps. `fusing`
    decides which fast top is shown; None if the exchange sends none. The identity
    guard (`streams.identity`) sets `mark`; `agreed_at`, since when the book agrees with the others;
    and `twins`, other books with the same levels and the time of the last equal check.
    """

    __slots__ = (
        "agreed_at",
        "at",
        "audits",
        "changed_at",
        "changes",
        "core",
        "detail",
        "frozen_top",
        "frozen_until",
        "fusing",
        "health",
        "instrument",
        "levels_max",
        "mark",
        "reason",
        "skew",
        "top_at",
        "top_received_at",
        "twins",
        "updated_at",
        "window",
    )

    def __init__(
        self,
        instrument: Instrument,
        levels_max: int,
        window: int = 0,
        tops: TopCounts | None = None,
        *,
        skew: ClockSkew | None = None,
    ) -> None:
        self.instrument = instrument
        self.core = Book(levels_max)
        self.levels_max = levels_max
        self.window = window
        self.fusing = None if tops is None else Fusing(tops)
        self.skew = skew or ClockSkew()
        self.at: Moment = UNTIMED
        self.top_at: Moment = UNTIMED
        self.top_received_at = 0.0
        self.health = Health.SYNCING
        self.reason: Reason | None = Reason.SUBSCRIBING
        self.detail = ""
        self.frozen_top: int | None = None
        self.frozen_until = 0.0
        self.updated_at = 0.0
        self.changed_at = 0.0
        self.changes = 0
        self.audits = 0
        self.mark: IdentityMark | None = None
        self.agreed_at: float | None = None
        self.twins: dict[LiveBook, float] = {}

    def horizon(self) -> tuple[str | None, str | None]:
        """Return the outermost known bid and ask price; None for a side known in full."""
        return self.core.horizon(self.window)

    def times(self, wall_us: int, now: float) -> ExchangeTimes:
        """Return when the shown prices were sent and received; `wall_us` is the Unix time `now`."""
        depth = LayerTimes(_known(self.at), wall_us - round((now - self.updated_at) * 1_000_000))
        top = depth
        if self.core.overlaid:
            received_us = wall_us - round((now - self.top_received_at) * 1_000_000)
            top = LayerTimes(_known(self.top_at), received_us)
        offset = self.skew.offset(now)
        if offset is None:
            return ExchangeTimes(top, depth, None, None)
        error_us = None if offset.error_s is None else round(offset.error_s * 1_000_000)
        offset_us = round((offset.offset_s - now) * 1_000_000) + wall_us
        return ExchangeTimes(top, depth, offset_us, error_us)

    def measure(self) -> None:
        """Measure the exchange's clock by the newest message of each channel."""
        at_us = microseconds(self.at)
        if at_us:
            self.skew.received(at_us, self.updated_at)
        top_at_us = microseconds(self.top_at)
        if top_at_us:
            self.skew.received(top_at_us, self.top_received_at)


def _known(at: Moment) -> int | None:
    """Return an exchange's time in microseconds; None if it sent none."""
    return microseconds(at) or None


P = ParamSpec("P")
Applied = Callable[[LiveBook, Snapshot | Delta | TopOfBook, float], None]


def chain(first: Callable[P, None] | None, then: Callable[P, None]) -> Callable[P, None]:
    """Combine two callbacks; a single one is returned unwrapped to save a call on the hot path."""
    if first is None:
        return then

    def both(*arguments: P.args, **named: P.kwargs) -> None:
        first(*arguments, **named)
        then(*arguments, **named)

    return both


class Books:
    """Every open book by its instrument.

    Subscribers are notified of each change applied to a live book, and of each health change with
    the previous one; a new reason of a stale or offline book counts as a health change.
    `on_applied` also gets the connector's output and its time, and `on_marked` each book whose
    mark the identity guard changed.
    """

    def __init__(self) -> None:
        self._books: dict[Instrument, LiveBook] = {}
        self._by_symbol: dict[str, dict[Instrument, LiveBook]] = {}
        self._skews: dict[str, ClockSkew] = {}  # by exchange
        self._on_changed: Callable[[LiveBook], None] | None = None
        self._on_health: Callable[[LiveBook, Health], None] | None = None
        self._on_applied: Applied | None = None
        self._on_marked: Callable[[LiveBook], None] | None = None

    def subscribe(
        self,
        *,
        on_changed: Callable[[LiveBook], None] | None = None,
        on_health: Callable[[LiveBook, Health], None] | None = None,
        on_applied: Applied | None = None,
        on_marked: Callable[[LiveBook], None] | None = None,
    ) -> None:
        """Subscribe to changes; callbacks are called in order of subscription."""
        if on_changed is not None:
            self._on_changed = chain(self._on_changed, on_changed)
        if on_health is not None:
            self._on_health = chain(self._on_health, on_health)
        if on_applied is not None:
            self._on_applied = chain(self._on_applied, on_applied)
        if on_marked is not None:
            self._on_marked = chain(self._on_marked, on_marked)

    def marked(self, book: LiveBook) -> None:
        """Notify subscribers that the identity guard changed the mark of a book."""
        if self._on_marked is not None:
            self._on_marked(book)

    def replayed(self, book: LiveBook, previous: Health | None, moments: int) -> None:
        """Notify subscribers of a book that a replay has changed at some moments.

        `previous` is its health before, if its state changed.
        """
        if previous is not None and self._on_health is not None:
            self._on_health(book, previous)
        if book.health is LIVE:
            book.changes += moments
            if self._on_changed is not None:
                self._on_changed(book)

    def open(
        self,
        instrument: Instrument,
        *,
        levels_max: int = LEVELS_MAX,
        window: int = 0,
        tops: TopCounts | None = None,
    ) -> LiveBook:
        """Return the book of `instrument`; a new one is syncing.

        `tops` counts the exchange's fast best prices, which are then shown over the levels.
        """
        book = self._books.get(instrument)
        if book is None:
            skew = self._skews.setdefault(instrument.exchange, ClockSkew())
            book = LiveBook(instrument, levels_max, window, tops, skew=skew)
            self._books[instrument] = book
            self._by_symbol.setdefault(instrument.symbol, {})[instrument] = book
        return book

    def adopt(self, book: LiveBook) -> None:
        """Add a book that other `Books` opened, whose subscribers alone are notified of it."""
        self._books[book.instrument] = book
        self._by_symbol.setdefault(book.instrument.symbol, {})[book.instrument] = book

    def close(self, instrument: Instrument) -> None:
        """Close a book; its subscribers are notified that it is offline."""
        self.set_health(instrument, Health.OFFLINE, Reason.NOT_WANTED, 0.0)
        if self._books.pop(instrument, None) is None:
            return
        peers = self._by_symbol[instrument.symbol]
        del peers[instrument]
        if not peers:
            del self._by_symbol[instrument.symbol]

    def of(self, symbol: str) -> Collection[LiveBook]:
        """Return the open books of a symbol, live or not."""
        return self._by_symbol.get(symbol, {}).values()

    def get(self, instrument: Instrument) -> LiveBook | None:
        """Return the open book of `instrument`."""
        return self._books.get(instrument)

    def skew(self, exchange: str) -> ClockSkew:
        """Return the measurements of an exchange's clock."""
        return self._skews.setdefault(exchange, ClockSkew())

    def live(self) -> Iterator[LiveBook]:
        """Yield the books that may be shown now."""
        return (book for book in self._books.values() if book.health is LIVE)

    def __iter__(self) -> Iterator[LiveBook]:
        return iter(self._books.values())

    def __len__(self) -> int:
        return len(self._books)

    # `change`, `fill` and `verify` return None, or the reason why the book has just become stale,
    # so that the feed resyncs it. Events of books that are not open are ignored.

    def change(self, delta: Delta, now: float) -> Reason | None:
        """Apply changed levels to a live book (the hot path)."""
        try:  # a subscript is cheaper than a call of `get`, and an absent book is rare
            book = self._books[delta.instrument]
        except KeyError:
            return None
        if book.health is not LIVE:
            book.updated_at = now
            return self._unfreeze(book)
        try:
            reason = book.core.apply(delta.bids, delta.asks, delta.shape)
        except LevelError:
            reason = Reason.LEVELS
        if reason is not None:
            return self._invalidate(book, Reason(reason), now)
        book.updated_at = now
        book.at = delta.at
        book.changes += 1
        fusing = book.fusing
        if fusing is not None:
            fusing.changed(book.core, delta.sequence)
        on_applied = self._on_applied
        if on_applied is not None:
            on_applied(book, delta, now)
        on_changed = self._on_changed  # a local, as in `FeedSession.received`
        if on_changed is not None:
            on_changed(book)
        return None

    def top(self, top: TopOfBook, now: float = 0.0) -> bool:
        """Show a newer best bid and ask over the levels of a live book; return whether it did.

        It neither makes a book live nor proves that its levels arrive: `updated_at` is unchanged.
        """
        book = self._books.get(top.instrument)
        if book is None or book.health is not LIVE or book.fusing is None:
            return False
        if not book.fusing.top(book.core, top):
            return False
        book.top_at = top.at
        book.top_received_at = now
        book.changes += 1
        if self._on_applied is not None:
            self._on_applied(book, top, now)
        if self._on_changed is not None:
            self._on_changed(book)
        return True

    def _unfreeze(self, book: LiveBook) -> Reason | None:
        """Unfreeze a book that changed; the returned reason requests its resync."""
        if book.frozen_top is None or book.health is not Health.STALE:
            return None
        book.frozen_top = None
        return Reason.SILENT

    def set_health(
        self,
        instrument: Instrument,
        health: Health,
        reason: Reason,
        now: float,
        *,
        detail: str = "",
    ) -> None:
        """Move a book to syncing, stale or offline, as `MOVES` allows."""
        book = self._books.get(instrument)
        if book is not None:
            self._move(book, ASKED[health], reason, now, detail)

    def remember_top(self, book: LiveBook, until: float) -> None:
        """Reject snapshots with the current levels of a book until `until`."""
        if book.health is LIVE:
            book.frozen_top = book.core.crc(FROZEN_TOP)
            book.frozen_until = until

    def fill(self, snapshot: Snapshot, now: float) -> Reason | None:
        """Replace an entire book, which makes it live."""
        book = self._books.get(snapshot.instrument)
        if book is None or book.health is OFFLINE:
            return None
        try:
            reason = book.core.replace(
                snapshot.bids, snapshot.asks, snapshot.shape, snapshot.levels_asked
            )
        except LevelError:
            reason = Reason.LEVELS
        if reason is not None:
            return self._invalidate(book, Reason(reason), now)
        if book.frozen_top is not None:
            same = book.core.crc(FROZEN_TOP) == book.frozen_top
            if same and now < book.frozen_until:
                return self._invalidate(book, Reason.SILENT, now, SAME_BOOK)
            book.frozen_top = None
        book.updated_at = now
        book.at = snapshot.at
        book.changes += 1
        if book.fusing is not None:
            book.fusing.changed(book.core, snapshot.sequence)
        if book.health is not LIVE:
            self._move(book, Event.FILLED, None, now)
        if self._on_applied is not None:
            self._on_applied(book, snapshot, now)
        if self._on_changed is not None:
            self._on_changed(book)
        return None

    def verify(self, verify: Verify, now: float) -> Reason | None:
        """Compare a live book with the exchange's checksum."""
        book = self._books.get(verify.instrument)
        if book is None or book.health is not LIVE:
            return None
        if (book.core.crc(verify.layout) ^ verify.expected) & CRC_MASK:
            return self._invalidate(book, Reason.CHECKSUM, now)
        return None

    def _invalidate(self, book: LiveBook, reason: Reason, now: float, detail: str = "") -> Reason:
        self._move(book, Event.INVALIDATED, reason, now, detail)
        return reason

    def _move(
        self, book: LiveBook, event: Event, reason: Reason | None, now: float, detail: str = ""
    ) -> None:
        previous = book.health
        health = MOVES[previous, event]
        if health is not LIVE:
            book.core.clear()  # drop untrusted levels: a resync starts from an empty book
        if health is previous and (ASKED.get(health) is not event or reason is book.reason):
            return
        if health is not previous:
            book.health = health
            book.changed_at = now
        book.reason = reason
        book.detail = detail
        if self._on_health is not None:
            self._on_health(book, previous)
