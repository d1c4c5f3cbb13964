"""The books behind one view, and readers that merge them when they are read.

No event loop, no clock: time comes in as an argument. Per frame the work is constant: the first
change of a book notifies the readers of its sources, later changes find none to notify until they
have read (the newest book is kept, nothing is queued).

`Wiring` routes changes of books to sources, through the identity guard.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from onebook.books import Books, LiveBook
from onebook.clock import Clock
from onebook.config import StreamSettings
from onebook.core import View
from onebook.library.update import BestLevels, BookUpdate, ExchangeCondition, Moment, Naming
from onebook.model import Health, Instrument, Reason
from onebook.streams.guard import IdentityGuard
from onebook.streams.stream import Opening, StreamMembers, condition

# A book that is offline for one of these does not come back soon.
SETTLED: Final = (Reason.HALTED, Reason.NOT_LISTED, Reason.REFUSED)


class BookOptions(NamedTuple):
    """How a book is shown: levels a side, price step, amounts by exchange, least interval."""

    depth: int
    group: str | None
    split: bool
    interval_s: float


class Consumer(Protocol):
    """Reads a reader after it has something new."""

    def book_changed(self, reader: "BookReader") -> None:
        """A book changed. The reader is read later, never from here."""

    def status_changed(self, reader: "BookReader") -> None:
        """An exchange is shown no longer, or again: the reader may be read before its interval."""


class Idle:
    """A consumer that waits for nothing."""

    def book_changed(self, reader: "BookReader") -> None:
        """Do nothing."""

    def status_changed(self, reader: "BookReader") -> None:
        """Do nothing."""


IDLE: Final = Idle()


class BookSource:
    """The instruments of one symbol on some exchanges, and which of their books may be shown.

    Args:
        symbol: The pair.
        names: The exchanges, in the order of the update.
        books: Where the books are.
        opened_at: Monotonic seconds.
    """

    def __init__(self, symbol: str, names: Sequence[str], books: Books, opened_at: float) -> None:
        self.symbol = symbol
        self.names = tuple(names)
        self.naming = Naming(names)
        self.instruments: list[Instrument | None] = [None] * len(names)
        self.members = StreamMembers(names, self.instruments)
        self.opening = Opening(opened_at)
        self.clean: set[BookReader] = set()  # `Wiring` notifies them of the next change
        self.pacing: set[BookReader] = set()  # changed, and waiting for the end of their interval
        # Of exchanges without an instrument: why.
        self.missing: dict[str, tuple[Reason, str]] = dict.fromkeys(names, (Reason.SUBSCRIBING, ""))
        self.conditions: tuple[ExchangeCondition, ...] = ()
        self._books = books
        self.refresh()

    def join(self, instrument: Instrument) -> None:
        """Add the instrument of one of the exchanges; its book is open."""
        self.instruments[self.names.index(instrument.exchange)] = instrument
        self.missing.pop(instrument.exchange, None)
        self.refresh()

    def miss(self, name: str, reason: Reason, detail: str) -> None:
        """Note why there is no instrument of an exchange."""
        if self.missing.get(name) != (reason, detail):
            self.missing[name] = reason, detail
            self.refresh()

    def refresh(self) -> None:
        """Refresh which books may be shown, and notify all readers."""
        self.members.refresh(self._books)
        self.members.awaited |= any(
            reason is Reason.SUBSCRIBING for reason, _ in self.missing.values()
        )
        self.conditions = tuple(map(self._condition, self.names, self.instruments))
        readers = self.clean | self.pacing
        self.clean, self.pacing = set(), set()
        for reader in readers:
            reader.consumer.status_changed(reader)

    @property
    def offline(self) -> bool:
        """Whether no book is live and none is expected soon."""
        return not self.members.live and all(
            each.state is Health.OFFLINE and each.reason in SETTLED for each in self.conditions
        )

    def snapshot(self, options: BookOptions, time_us: int, now: float) -> BookUpdate:
        """Return the books as they are, merged."""
        return BookReader(self, options, IDLE).peek(time_us, now)

    def _condition(self, name: str, instrument: Instrument | None) -> ExchangeCondition:
        book = self._books.get(instrument) if instrument is not None else None
        if book is None:
            reason, detail = self.missing.get(name, (Reason.NOT_WANTED, ""))
            state = Health.SYNCING if reason is Reason.SUBSCRIBING else Health.OFFLINE
            return ExchangeCondition(name, state, False, reason, detail)
        shown = self.members.shows(book)
        state, why, detail = condition(book, shown=shown)
        return ExchangeCondition(name, state, shown, why, detail)


class BookReader:
    """One consumer's view of a source: merges when it is read, numbers what it returns."""

    def __init__(self, source: BookSource, options: BookOptions, consumer: Consumer) -> None:
        self.source = source
        self.consumer = consumer
        self.read_at = float("-inf")  # monotonic seconds of the last update
        self._number = 0
        self._conditions: tuple[ExchangeCondition, ...] | None = None
        self._best = BestLevels(source.naming)
        self._view = View(
            source.names, depth=options.depth, group=options.group, split=options.split
        )

    def read(self, time_us: int, now: float) -> BookUpdate | None:
        """Merge the books as they are; None where nothing that is shown changed since the last."""
        source = self.source
        source.clean.add(self)
        if not self._view.merge(source.members.cores) and source.conditions is self._conditions:
            return None
        self._number += 1
        self.read_at = now
        return self._update(time_us, now)

    def peek(self, time_us: int, now: float) -> BookUpdate:
        """Merge the books as they are, and do not wait for a change."""
        self._view.merge(self.source.members.cores)
        return self._update(time_us, now)

    def _update(self, time_us: int, now: float) -> BookUpdate:
        source = self.source
        self._conditions = conditions = source.conditions
        moments: list[Moment] = []
        for book in source.members.books:  # `LiveBook.horizon` and a loop without calls (hot path)
            moments.append((book.updated_at, book.core.horizon(book.window)))  # noqa: PERF401
        levels = self._view.levels()
        bid, ask = self._best.of(levels)
        return BookUpdate(
            source.symbol,
            self._number,
            time_us,
            bid,
            ask,
            levels,
            source.naming,
            conditions,
            moments,
            now,
        )

    def leave(self) -> None:
        """Detach from the source: its changes notify this reader no more."""
        self.source.clean.discard(self)
        self.source.pacing.discard(self)


class Wiring:
    """Sets the callbacks of `Books` and notifies each source of the changes of its books.

    Args:
        books: Where changes come from.
        clock: For the guard, which checks each symbol once a second.
        streams: The guard's limits.
        on_status: Called after a book's health or mark changed.
    """

    def __init__(
        self,
        books: Books,
        *,
        clock: Clock,
        streams: StreamSettings,
        on_status: Callable[[], object] = lambda: None,
    ) -> None:
        self._books = books
        self._on_status = on_status
        self._sources: dict[Instrument, tuple[BookSource, ...]] = {}
        self._guard = IdentityGuard(
            books, clock=clock, settings=streams, on_status=self._status_changed
        )
        books.subscribe(on_changed=self._changed)

    def attach(self, source: BookSource, instrument: Instrument) -> None:
        """Take an instrument, whose book is open, into a source."""
        self._sources[instrument] = (*self._sources.get(instrument, ()), source)
        source.join(instrument)

    def stop(self) -> None:
        """Remove the callbacks."""
        self._guard.stop()
        self._sources.clear()

    def _changed(self, book: LiveBook) -> None:
        """A live book has new levels (the hot path)."""
        try:  # a subscript is cheaper than a call of `get`
            sources = self._sources[book.instrument]
        except KeyError:
            return
        for source in sources:
            clean = source.clean  # the readers that have read everything so far
            while clean:
                reader = clean.pop()
                reader.consumer.book_changed(reader)

    def _status_changed(self, book: LiveBook) -> None:
        """A book's health or its mark changed."""
        for source in self._sources.get(book.instrument, ()):
            source.refresh()
        self._on_status()
