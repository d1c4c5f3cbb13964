"""Plays the rows of one recorded book; no level becomes a Python object."""

import re
from bisect import bisect_left, bisect_right
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from onebook.archive.format import KINDS, codes, integers, levels_of
from onebook.books import IdentityMark, LiveBook
from onebook.core import TapeKind, TapePlayer
from onebook.core.types import LEVELS_MAX
from onebook.exchanges.kit import UNTIMED
from onebook.model import Health, Instrument, Reason

STATES: Final = (int(TapeKind.KEYFRAME), int(TapeKind.HEALTH))
STATE: Final = re.compile(b"[%c%c]" % STATES)  # among the kinds
STATE_TEXTS: Final = ["health", "reason", "detail", "twins"]


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
        self._times = integers(rows["exchange_time"], pa.int64())
        self._kinds = bytes(codes(rows["kind"], KINDS))
        self._numbers: memoryview | None = None  # of the moments, once they are counted
        self._at = 0
        self.twins = ""  # of the last state
        bid_starts, bid_prices, bid_amounts = levels_of(rows["bids"])
        ask_starts, ask_prices, ask_amounts = levels_of(rows["asks"])
        self._starts = bid_starts, ask_starts
        self._playback = TapePlayer(
            self._kinds,
            integers(rows["price_scale"], pa.int8()),
            integers(rows["amount_scale"], pa.int8()),
            integers(rows["bid_horizon"], pa.int64()),
            integers(rows["ask_horizon"], pa.int64()),
            bid_starts,
            ask_starts,
            bid_prices,
            bid_amounts,
            ask_prices,
            ask_amounts,
        )

    def has(self, at_us: int) -> bool:
        """Return whether the rows have everything from a keyframe to a time."""
        return bool(len(self.received)) and self.received[-1] >= at_us and self.seek(at_us)

    def seek(self, at_us: int) -> bool:
        """Go to the last keyframe received until a time; return whether there is one."""
        stop = bisect_right(self.received, at_us)
        last = self._kinds.rfind(TapeKind.KEYFRAME, 0, stop)
        if last >= 0:
            self._at = last
        return last >= 0

    def seek_first(self) -> int | None:
        """Go to the first keyframe; return its time, None if there is none."""
        first = self._kinds.find(TapeKind.KEYFRAME)
        if first < 0:
            return None
        self._at = first
        return self.received[first]

    def seek_after(self, message: int) -> None:
        """Go behind a message."""
        self._at = bisect_right(self._messages, message)

    def count(self, start_us: int, end_us: int) -> int:
        """Return the number of messages and levels that were received in this time."""
        start, stop = bisect_left(self.received, start_us), bisect_right(self.received, end_us)
        return stop - start + sum(each[stop] - each[start] for each in self._starts)

    @property
    def due_us(self) -> int | None:
        """When the next message was received."""
        return self.received[self._at] if self._at < len(self.received) else None

    def last_us(self, until_us: int) -> int | None:
        """Return when the last message from here until a time was received."""
        stop = bisect_right(self.received, until_us, self._at)
        return self.received[stop - 1] if stop > self._at else None

    def states(self, until_us: int) -> list[int]:
        """Return when the state of the book changes from here until a time, its first one included.

        A keyframe that repeats the state before it changes nothing.
        """
        stop = bisect_right(self.received, until_us, self._at)
        places = [each.start() for each in STATE.finditer(self._kinds, self._at, stop)]
        texts = self._rows.select(STATE_TEXTS).unify_dictionaries()
        states = texts.take(pa.array(places, pa.int64())).to_pylist()
        changes = zip(places, states, [None, *states], strict=False)
        return [self.received[place] for place, state, before in changes if state != before]

    @property
    def last(self) -> int:
        """Number of the message before this position; -1 if there is none."""
        return self._messages[self._at - 1] if self._at else -1

    def open(self, instrument: Instrument) -> LiveBook:
        """Return a new book as the keyframe at this position describes it."""
        limits = (self._rows[name][self._at].as_py() for name in ("levels_max", "window"))
        levels_max, window = limits
        return LiveBook(instrument, levels_max or LEVELS_MAX, window or 0)

    def moments(self, until_us: int) -> int:
        """Return at how many times the messages from here until a time were received."""
        stop = bisect_right(self.received, until_us, self._at)
        if stop - self._at <= 1:
            return stop - self._at
        if self._numbers is None:
            times = pa.array(self.received, pa.int64())
            further = pc.not_equal(times[1:], times[:-1]).cast(pa.int64())
            self._numbers = integers(pa.chunked_array([pc.cumulative_sum(further)]), pa.int64())
        first = self._numbers[self._at - 1] if self._at else 0
        return 1 + int(self._numbers[stop - 2]) - int(first)

    def play(self, book: LiveBook, until_us: int) -> bool:
        """Apply the messages received until a time; return whether any has the book's state."""
        playback, core = self._playback, book.core
        begun, has_state = self._at, False
        stop = bisect_right(self.received, until_us, begun)
        # The last keyframe has everything before it.
        at = max(begun, self._kinds.rfind(TapeKind.KEYFRAME, begun, stop))
        while at < stop:
            start, at = at, playback.play(core, at, stop)
            changed = playback.changed
            if changed >= start:
                book.updated_at = self.received[changed] / 1_000_000
                book.at = self._times[changed]
            if self._kinds[at - 1] in STATES:
                self._set_state(book, at - 1)
                has_state = True
        self._at = at
        if at > begun and core.overlaid:
            self._set_top_times(book, begun, at)
        return has_state

    def _set_top_times(self, book: LiveBook, start: int, stop: int) -> None:
        """Set the times of the newest top among these rows.

        A keyframe repeats the top with its own time, which is used only if no other is known.
        """
        kinds, last = self._kinds, stop
        while (last := kinds.rfind(TapeKind.TOP, start, last)) >= 0:
            before = last - 1
            repeated = (
                before >= 0
                and kinds[before] == TapeKind.KEYFRAME
                and self.received[before] == self.received[last]
            )
            if not repeated or not book.top_received_at:
                book.top_received_at = self.received[last] / 1_000_000
                book.top_at = UNTIMED if repeated else self._times[last]
            if not repeated:
                return

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
        if updated is not None:  # of a keyframe
            book.updated_at = updated.timestamp()
            book.at = self._times[row]
        if not live:
            book.core.clear()
        self.twins = twins or ""
