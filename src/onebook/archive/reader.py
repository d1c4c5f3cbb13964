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

    def open(self, books: Books, exchange: str, symbol: str) -> LiveBook:
        """Open the book that the keyframe at this position describes."""
        limits = (self._rows[name][self._at].as_py() for name in ("levels_max", "window"))
        levels_max, window = limits
        return books.open(
            Instrument(exchange, symbol, symbol),
            levels_max=levels_max or LEVELS_MAX,
            window=window or 0,
        )

    def play(self, book: LiveBook, until_us: int) -> None:
        """Apply the messages received until a time."""
        playback, core = self._playback, book.core
        at = self._at
        stop = bisect_right(self.received, until_us, at)
        while at < stop:
            start, at = at, playback.play(core, at, stop)
            changed = playback.changed
            if changed >= start:
                book.updated_at = self.received[changed] / 1_000_000
            if self._kinds[at - 1] in STATES:
                self._set_state(book, at - 1)
        self._at = at

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
    known = folder.hours()
    hours = [each for each in known if at_us - LOOK_BACK_US - HOUR_US < each <= at_us]
    interval = _interval(folder, known, hours, at_us)
    past = Past(Books(), at_us)
    found: dict[str, LiveBook] = {}
    replays: dict[str, BookReplay] = {}
    rows = folder.rows(hours, symbol, None, at_us, exchanges)
    for exchange in sorted(rows):
        replay = BookReplay(rows[exchange], interval.run)
        if replay.seek(at_us):
            replays[exchange] = replay
            found[exchange] = replay.open(past.books, exchange, symbol)
            replay.play(found[exchange], at_us)
    for exchange, replay in replays.items():
        names = (each.partition(" ") for each in replay.twins.split(",") if each)
        found[exchange].twins = {
            found[name]: 0.0 for name, _, of in names if of == symbol and name in found
        }
    return past


def _interval(folder: HistoryFolder, known: list[int], hours: list[int], at_us: int) -> Interval:
    intervals = folder.coverage(hours)
    covering = [each for each in intervals if each.start_us <= at_us <= each.end_us]
    if covering:
        return covering[-1]
    nearest = folder.coverage(known)
    if not nearest:
        raise HistoryMissing(f"{folder.root} has no history.")
    before = [each.end_us for each in nearest if each.end_us < at_us]
    after = [each.start_us for each in nearest if each.start_us > at_us]
    sides = [f"recorded until {iso_us(max(before))}"] if before else []
    sides += [f"recorded again from {iso_us(min(after))}"] if after else []
    raise HistoryMissing(f"The history has a gap at {iso_us(at_us)}: {' and '.join(sides)}.")
