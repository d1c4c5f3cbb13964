"""Plays the recorded books of some pairs into `Books`, change by change, as they were received.

The history is read in windows, so that memory is bounded. A time that was not recorded makes all
books stale, with the reason; they return with the next recorded state.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
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
WINDOW_ROWS: Final = 200_000
NOW: Final = 1 << 62  # an end that is never reached

BookName = tuple[str, str]  # exchange, symbol


class HistoryPlayer:
    """The books of some pairs from a moment on.

    `load` reads the next window, and `step` or `play` applies it. Only `load` reads files: it may
    run in a thread while nothing else is called.

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
        self._replays: list[tuple[BookName, BookReplay]] = []
        self.until_us = start_us
        self.gap = ""  # why books become stale at `at_us`
        self._moments: list[tuple[int, int]] | None = []  # received, replay; None: not made yet
        self._place = 0

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
        self._replays, self._moments, self._place = [], None, 0
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
                    self._replays.append((name, replay))
        if not continued:
            self._played, self._twins, self._run = {}, {}, interval.run
        self.at_us, self.until_us = at_us, stop_us
        if rows > 2 * WINDOW_ROWS:
            self._window_us = max(WINDOW_MIN_US, self._window_us // 2)
        elif 4 * rows < WINDOW_ROWS:
            self._window_us = min(HOUR_US, self._window_us * 2)

    # Applying

    @property
    def due_us(self) -> int | None:
        """The next moment at which a book changes in this window; None if it was applied."""
        if self._moments is None:
            self._moments = [] if self.gap else self._sorted()
        if self._place < len(self._moments):
            return self._moments[self._place][0]
        return self.at_us if self.gap else None

    def _sorted(self) -> list[tuple[int, int]]:
        return sorted(
            (max(received, self.at_us), at)
            for at, (_, replay) in enumerate(self._replays)
            for received in replay.times(self.until_us)
        )

    def step(self) -> None:
        """Apply what was received at `due_us`."""
        due_us = self.due_us
        if due_us is None:
            return
        changed, moments = [], self._moments or []
        while self._place < len(moments) and moments[self._place][0] == due_us:
            changed.append(self._replays[moments[self._place][1]])
            self._place += 1
        self._apply(changed, due_us)

    def play(self, until_us: int) -> None:
        """Apply what was received until a time in this window, each book in one go."""
        until_us = min(until_us, self.until_us)
        self._apply(self._replays, until_us)
        if self._moments is not None:
            self._place = bisect_right(self._moments, (until_us, len(self._replays)))

    def _apply(self, replays: Sequence[tuple[BookName, BookReplay]], until_us: int) -> None:
        """Play into books, then notify their subscribers, so that none sees a part of a moment."""
        before: dict[LiveBook, Health] = {}  # of books with another state
        if self.gap:
            self._lose(before)
        played = [self._play(*each, until_us, before) for each in replays]
        changed = dict.fromkeys([*before, *(book for book in played if book is not None)])
        self.at_us = max(self.at_us, until_us)
        if before:
            for name, instrument in self.instruments.items():
                twins = twins_of(self._twins.get(name, ""), self.books)
                self._book(instrument).twins = dict.fromkeys(twins, 0.0)
        for book in changed:
            self.books.replayed(book, before.get(book))

    def _book(self, instrument: Instrument) -> LiveBook:
        book = self.books.get(instrument)
        assert book is not None  # all were opened
        return book

    def _play(
        self, name: BookName, replay: BookReplay, until_us: int, before: dict[LiveBook, Health]
    ) -> LiveBook | None:
        """Play into one book, and return it if anything was due."""
        if not replay.due(until_us):
            return None
        book = self._book(self.instruments[name])
        was, twins = _state_of(book), self._twins.get(name, "")
        if name not in self._played:
            changes, book = book.changes, replay.open(book.instrument)
            book.changes = changes
            self.books.adopt(book)
        has_state = replay.play(book, until_us)
        self._played[name] = replay.last
        if has_state:
            self._twins[name] = replay.twins
            if was != _state_of(book) or twins != replay.twins:
                before[book] = was[0]
        return book

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
