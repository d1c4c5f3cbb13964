"""Plays the recorded books of some pairs into `Books`, in the order in which they were received.

A caller that shows every change steps from one to the next; one that shows the books at some
moments plays all changes before such a moment in one go, several times cheaper.

The history is read in windows, so that memory is bounded. A time that was not recorded makes all
books stale, with the reason; they return with the next recorded state.
"""

from collections.abc import Callable, Collection, Sequence
from heapq import heapify, heappop, heappush
from itertools import product
from typing import Final

from onebook.archive.folder import LOOK_BACK_US, HistoryFolder
from onebook.archive.format import HOUR_US, Interval
from onebook.archive.playback import BookReplay
from onebook.archive.reader import covering, hours_of, twins_of
from onebook.books import Books, IdentityMark, LiveBook
from onebook.clock import iso_us
from onebook.model import Health, Instrument, Reason

WINDOW_US: Final = 60_000_000  # that is read first; later ones have about as many rows as wanted
WINDOW_MIN_US: Final = 1_000_000
# Messages and levels of a window, about 13 MB. Its first and last row groups are read with the
# windows beside it, too, so that short windows would read most rows several times.
WINDOW_ROWS: Final = 400_000
WINDOW_FACTOR: Final = 4  # by which a window is longer or shorter than the one before it, at most
NOW: Final = 1 << 62  # an end that is never reached

BookName = tuple[str, str]  # exchange, symbol


class HistoryPlayer:
    """The books of some pairs from a moment on.

    `load` reads the next window, and `play` applies it. Only `load` reads files: it may run in a
    thread while nothing else is called.

    Args:
        folder: The history.
        symbols: The pairs; None for all.
        start_us: The first moment; None for the first recorded one.
        end_us: The last moment; None for the end of the history when it is reached.
        exchanges: The exchanges; None for all.

    Raises:
        HistoryMissing: The first moment was not recorded.
    """

    def __init__(
        self,
        folder: HistoryFolder,
        symbols: Sequence[str] | None,
        start_us: int | None = None,
        end_us: int | None = None,
        exchanges: Collection[str] | None = None,
    ) -> None:
        self._folder = folder
        self._hours = folder.hours(start_us or 0)
        if start_us is None:
            recorded = (folder.coverage([each]) for each in self._hours)
            start_us = next((each[0].start_us for each in recorded if each), 0)
        covering(folder, folder.coverage(hours_of(start_us, start_us)), start_us)
        self.start_us = self.at_us = start_us  # everything received until `at_us` was applied
        self._end_us = NOW if end_us is None else end_us
        self.books = Books()
        self.instruments: dict[BookName, Instrument] = {}
        for exchange, symbol in sorted(self._recorded(symbols, exchanges)):
            instrument = Instrument(exchange, symbol, symbol)
            self.instruments[exchange, symbol] = instrument
            _set_state(self.books.open(instrument), Health.OFFLINE, "")
        self._symbols = list(dict.fromkeys(symbol for _, symbol in self.instruments))
        self._exchanges = None if exchanges is None else set(exchanges)
        self._window_us = WINDOW_US
        self._started = False
        self._run = 0  # that is played; 0 before the first one and in a gap
        self._played: dict[BookName, int] = {}  # the last message of each book of this run
        self._twins: dict[BookName, str] = {}
        # The window: what is to be applied, and until when.
        self._replays: list[tuple[Instrument, BookReplay]] = []
        self._due: list[tuple[int, int]] = []  # heap: when the next message is due, its replay
        self._states: list[int] = []  # when the state of a book changes, the next one last
        self._last_us = start_us  # when the last message is due
        self.until_us = start_us
        self.gap = ""  # why books become stale at `at_us`

    def _recorded(
        self, symbols: Sequence[str] | None, exchanges: Collection[str] | None
    ) -> set[BookName]:
        """Return the recorded books; those that are named are not looked for in the files."""
        if symbols is not None and exchanges is not None:
            return set(product(exchanges, symbols))
        first = self.start_us // HOUR_US * HOUR_US
        hours = [each for each in self._hours if first <= each <= self._end_us]
        return {
            (exchange, symbol)
            for exchange, symbol in self._folder.books(hours)
            if (symbols is None or symbol in symbols)
            and (exchanges is None or exchange in exchanges)
        }

    # Reading

    def load(self) -> bool:
        """Read the next window, if this one was applied; return False at the end.

        Raises:
            OSError: A file cannot be read.
        """
        if self.due_us is not None:
            return True
        self.at_us = max(self.at_us, self.until_us)
        if self._started and self.at_us >= self._end_us:
            return False
        interval = self._next()
        if interval is None:
            return False
        continued = interval.run == self._run and interval.start_us <= self.at_us
        self._replays = []
        if self._run and not continued:
            since, until = iso_us(self.at_us), iso_us(interval.start_us)
            self._run, self.gap = 0, f"nothing was recorded from {since} to {until}"
        elif interval.start_us > self._end_us:
            self.at_us = self._end_us
            return False
        else:
            self._read(interval, continued)
        self._started = True
        return True

    def _next(self) -> Interval | None:
        """Return the recorded time that continues or follows this moment, at most to an hour."""
        first = self.at_us // HOUR_US * HOUR_US
        if not self._hours or self._hours[-1] <= first:
            self._hours = self._folder.hours(first)
        for hour_us in self._hours:
            if hour_us < first:
                continue
            found = [
                each
                for each in self._folder.coverage([hour_us])
                if each.end_us > self.at_us or (each.end_us == self.at_us and not self._started)
            ]
            begun = [each for each in found if each.start_us <= self.at_us]
            if found:
                return begun[-1] if begun else min(found, key=lambda each: each.start_us)
        return None

    def _read(self, interval: Interval, continued: bool) -> None:
        at_us = max(self.at_us, interval.start_us)
        stop_us = min(interval.end_us, self._end_us, at_us + self._window_us)
        since_us = at_us if continued else at_us - LOOK_BACK_US
        hours, rows = hours_of(since_us, stop_us), 0
        for symbol in self._symbols:
            tables = self._folder.rows(hours, symbol, since_us, stop_us, self._exchanges)
            for exchange, table in sorted(tables.items()):
                replay, name = BookReplay(table, interval.run), (exchange, symbol)
                rows += replay.count(at_us, stop_us)
                if continued and name in self._played:
                    replay.seek_after(self._played[name])
                elif (continued or not replay.seek(at_us)) and replay.seek_first() is None:
                    continue
                if name in self.instruments:
                    self._replays.append((self.instruments[name], replay))
        if not continued:
            self._played, self._twins, self._run = {}, {}, interval.run
        self.at_us, self.until_us = at_us, stop_us
        self._plan()
        self._resize_window(rows, stop_us - at_us)

    def _resize_window(self, rows: int, lasted_us: int) -> None:
        wanted_us = lasted_us * WINDOW_ROWS // max(rows, 1)
        least_us = max(self._window_us // WINDOW_FACTOR, WINDOW_MIN_US)
        most_us = min(self._window_us * WINDOW_FACTOR, HOUR_US)
        self._window_us = min(max(wanted_us, least_us), most_us)

    def _plan(self) -> None:
        """Find what is due when in the window; earlier messages are due at its start."""
        due, states, lasts = [], set[int](), []
        for at, (_, replay) in enumerate(self._replays):
            if replay.due_us is not None and replay.due_us <= self.until_us:
                due.append((max(replay.due_us, self.at_us), at))
                states.update(max(each, self.at_us) for each in replay.states(self.until_us))
                lasts.append(replay.last_us(self.until_us) or 0)
        heapify(due)
        self._due, self._states = due, sorted(states, reverse=True)
        self._last_us = max([self.at_us, *lasts])

    # Applying

    @property
    def due_us(self) -> int | None:
        """The next moment at which a book changes in this window; None if it was applied."""
        if self.gap:
            return self.at_us
        return self._due[0][0] if self._due else None

    def stop_us(self, awaited: Callable[[Instrument], bool]) -> int | None:
        """Return the next moment that must be played on its own; None if the window was applied.

        At this moment the book of an awaited instrument changes, the state of any book does, or the
        window ends. What is due before it changes only levels that no view awaits.
        """
        due_us = self.due_us
        if self.gap or due_us is None or awaited(self._replays[self._due[0][1]][0]):
            return due_us
        later = self._states[-1] if self._states else self._last_us
        found = [at_us for at_us, at in self._due if awaited(self._replays[at][0])]
        return min([later, *found])

    def play(self, until_us: int) -> None:
        """Apply what is due until a time in this window, each book in one go."""
        until_us = min(until_us, self.until_us)
        if until_us < self.at_us:
            return
        changed: list[int] = []
        while self._due and self._due[0][0] <= until_us:
            changed.append(heappop(self._due)[1])
        while self._states and self._states[-1] <= until_us:
            self._states.pop()
        if not changed and not self.gap:
            self.at_us = until_us
            return
        self._apply([self._replays[at] for at in changed], until_us)
        for at in changed:
            due_us = self._replays[at][1].due_us
            if due_us is not None and due_us <= self.until_us:
                heappush(self._due, (due_us, at))

    def _apply(self, replays: Sequence[tuple[Instrument, BookReplay]], until_us: int) -> None:
        """Play into books, then notify their subscribers, so that none sees a part of a moment."""
        before: dict[LiveBook, Health] = {}  # of books with another state
        changed: dict[LiveBook, int] = {}  # and at how many moments they did
        if self.gap:
            self._lose(before)
            changed.update(dict.fromkeys(before, 0))
        for each in replays:
            self._play(*each, until_us, before, changed)
        self.at_us = until_us
        if before:
            for name, instrument in self.instruments.items():
                twins = twins_of(self._twins.get(name, ""), self.books)
                self._book(instrument).twins = dict.fromkeys(twins, 0.0)
        for book, moments in changed.items():
            self.books.replayed(book, before.get(book), moments)

    def _book(self, instrument: Instrument) -> LiveBook:
        book = self.books.get(instrument)
        assert book is not None  # all were opened
        return book

    def _play(
        self,
        instrument: Instrument,
        replay: BookReplay,
        until_us: int,
        before: dict[LiveBook, Health],
        changed: dict[LiveBook, int],
    ) -> None:
        """Play into one book."""
        name, book = (instrument.exchange, instrument.symbol), self._book(instrument)
        was, twins = _state_of(book), self._twins.get(name, "")
        if name not in self._played:
            changes, book = book.changes, replay.open(book.instrument)
            book.changes = changes
            self.books.adopt(book)
        changed[book] = replay.moments(until_us)
        has_state = replay.play(book, until_us)
        self._played[name] = replay.last
        if has_state:
            self._twins[name] = replay.twins
            if was != _state_of(book) or twins != replay.twins:
                before[book] = was[0]

    def _lose(self, before: dict[LiveBook, Health]) -> None:
        """Make the recorded books stale."""
        for name in self._played:
            book = self._book(self.instruments[name])
            before[book] = book.health
            _set_state(book, Health.STALE, self.gap)
        self._played, self._twins, self.gap = {}, {}, ""


def _state_of(book: LiveBook) -> tuple[Health, Reason | None, str, IdentityMark | None]:
    return book.health, book.reason, book.detail, book.mark


def _set_state(book: LiveBook, health: Health, detail: str) -> None:
    book.core.clear()
    book.health, book.reason, book.detail, book.mark = health, Reason.NOT_RECORDED, detail, None
