"""Rebuilds the books of a symbol as they were at a past moment.

`BookReplay` plays the rows of one book, from a keyframe to any later moment; no level becomes a
Python object.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from typing import Final

import pyarrow as pa
from msgspec import Struct

from onebook.archive.folder import HOUR_US, LOOK_BACK_US, HistoryFolder, Interval
from onebook.archive.format import KINDS, SIDES, codes, integers
from onebook.books import Books, IdentityMark, LiveBook
from onebook.clock import iso_us
from onebook.core import NO_SIDE, TapeKind, TapePlayer
from onebook.core.types import LEVELS_MAX
from onebook.model import Health, Instrument, Reason
from onebook.orderbook import HistoryMissing

STATES: Final = (int(TapeKind.KEYFRAME), int(TapeKind.HEALTH))


class Past(Struct):
    """The books of a moment; their times are seconds since 1970."""

    books: Books
    at_us: int
    hours: list[int]  # that were read


class BookReplay:
    """Rows of one book in one run, which are played into a `LiveBook`.

    Args:
        rows: The rows in order, as `HistoryFolder.rows` returns them; those of other runs are left
            out.
        run: The run.
    """

    def __init__(self, rows: pa.Table, run: int) -> None:
        runs = integers(rows["run"], pa.int64())
        start = bisect_left(runs, run)
        self._rows = rows = rows.slice(start, bisect_right(runs, run) - start)
        self.received = integers(rows["received"], pa.int64())
        self._messages = integers(rows["message"], pa.int64())
        self._kinds = codes(rows["kind"], KINDS, 0)
        self._at = 0
        self.twins = ""  # of the last state
        self._playback = TapePlayer(
            self._messages,
            self._kinds,
            codes(rows["side"], SIDES, NO_SIDE),
            *(integers(rows[name], pa.int64()) for name in ("price", "amount")),
            *(integers(rows[name], pa.int8()) for name in ("price_scale", "amount_scale")),
            *(integers(rows[name], pa.int64()) for name in ("bid_horizon", "ask_horizon")),
        )

    def seek(self, at_us: int) -> bool:
        """Go to the last keyframe received until a time; return whether there is one."""
        stop = bisect_right(self.received, at_us)
        last = bytes(self._kinds[:stop]).rfind(TapeKind.KEYFRAME)
        if last >= 0:
            self._at = bisect_left(self._messages, self._messages[last])
        return last >= 0

    def seek_first(self) -> bool:
        """Go to the first keyframe; return whether there is one."""
        found = bytes(self._kinds).find(TapeKind.KEYFRAME)
        self._at = max(found, 0)
        return found >= 0

    def seek_after(self, message: int) -> None:
        """Go behind a message."""
        self._at = bisect_right(self._messages, message)

    def count(self, start_us: int, end_us: int) -> int:
        """Return the number of rows that were received in this time."""
        return bisect_right(self.received, end_us) - bisect_left(self.received, start_us)

    def due(self, until_us: int) -> bool:
        """Return whether the next message was received until a time."""
        return self._at < len(self.received) and self.received[self._at] <= until_us

    @property
    def last(self) -> int:
        """Number of the message before this position; -1 if there is none."""
        return self._messages[self._at - 1] if self._at else -1

    def open(self, instrument: Instrument) -> LiveBook:
        """Return a new book as the keyframe at this position describes it."""
        limits = (self._rows[name][self._at].as_py() for name in ("levels_max", "window"))
        levels_max, window = limits
        return LiveBook(instrument, levels_max or LEVELS_MAX, window or 0)

    def times(self, until_us: int) -> dict[int, None]:
        """Return the times at which the messages from here until a time were received."""
        stop = bisect_right(self.received, until_us, self._at)
        return dict.fromkeys(self.received[self._at : stop])

    def play(self, book: LiveBook, until_us: int) -> bool:
        """Apply the messages received until a time; return whether any has the book's state."""
        playback, core = self._playback, book.core
        at, has_state = self._at, False
        stop = bisect_right(self.received, until_us, at)
        while at < stop:
            start, at = at, playback.play(core, at, stop)
            changed = playback.changed
            if changed >= start:
                book.updated_at = self.received[changed] / 1_000_000
            if self._kinds[at - 1] in STATES:
                self._set_state(book, at - 1)
                has_state = True
        self._at = at
        return has_state

    def _set_state(self, book: LiveBook, row: int) -> None:
        health, why, detail, twins, updated = (
            self._rows[name][row].as_py()
            for name in ("health", "reason", "detail", "twins", "updated")
        )
        book.health = Health(health or Health.OFFLINE)
        reason = None if why is None else Reason(why)
        live = book.health is Health.LIVE
        book.mark = IdentityMark(reason, detail or "") if live and reason else None
        book.reason = None if live else reason
        book.detail = "" if live else detail or ""
        if updated is not None:
            book.updated_at = updated.timestamp()
        if not live:
            book.core.clear()
        self.twins = twins or ""


def books_at(
    folder: HistoryFolder, symbol: str, at_us: int, exchanges: Collection[str] | None = None
) -> Past:
    """Return the books of a symbol after the last message received until `at_us`.

    Raises:
        HistoryMissing: This moment was not recorded.
    """
    hours = hours_of(at_us - LOOK_BACK_US, at_us)
    interval = covering(folder, hours, at_us)
    hours = [each for each in hours if each + HOUR_US > interval.start_us]
    past = Past(Books(), at_us, hours)
    found: dict[str, LiveBook] = {}
    replays: dict[str, BookReplay] = {}
    rows = folder.rows(hours, symbol, None, at_us, exchanges)
    for exchange in sorted(rows):
        replay = BookReplay(rows[exchange], interval.run)
        if replay.seek(at_us):
            replays[exchange] = replay
            found[exchange] = book = replay.open(Instrument(exchange, symbol, symbol))
            past.books.adopt(book)
            replay.play(book, at_us)
    for exchange, replay in replays.items():
        found[exchange].twins = dict.fromkeys(twins_of(replay.twins, past.books), 0.0)
    return past


def twins_of(names: str, books: Books) -> list[LiveBook]:
    """Return the open books among recorded names such as `okx BTC/USDT,okxus BTC/USDT`."""
    found = {(each.instrument.exchange, each.instrument.symbol): each for each in books}
    pairs = (each.partition(" ") for each in names.split(",") if each)
    return [found[name, symbol] for name, _, symbol in pairs if (name, symbol) in found]


def hours_of(start_us: int, end_us: int) -> list[int]:
    """Return the start of each hour that has a part of this time."""
    return [*range(start_us // HOUR_US * HOUR_US, end_us + 1, HOUR_US)]


def covering(folder: HistoryFolder, hours: list[int], at_us: int) -> Interval:
    """Return the recorded time around a moment, as far as it is in these hours.

    Raises:
        HistoryMissing: This moment was not recorded.
    """
    intervals = folder.coverage(hours)
    found = [each for each in intervals if each.start_us <= at_us <= each.end_us]
    if found:
        return found[-1]
    nearest = folder.coverage(folder.hours())
    if not nearest:
        raise HistoryMissing(f"{folder.files.name} has no history.")
    before = [each.end_us for each in nearest if each.end_us < at_us]
    after = [each.start_us for each in nearest if each.start_us > at_us]
    sides = [f"recorded until {iso_us(max(before))}"] if before else []
    sides += [f"recorded again from {iso_us(min(after))}"] if after else []
    raise HistoryMissing(f"The history has a gap at {iso_us(at_us)}: {' and '.join(sides)}.")
