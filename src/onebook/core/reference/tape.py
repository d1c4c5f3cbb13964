"""What books apply, as columns of integers: recorded by a tape, and played into books again.

A tape is passed to the books that it records (`Book.record`). A book copies the levels of each
message that it applies to the tape, and `Book.commit` makes them a message. A `TapePlayer` applies
such columns to a book without text, exactly as they were applied.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from onebook.core.reference.text import MANTISSA_END
from onebook.core.types import NO_SIDE, SCALE_MAX, LevelError, TapeColumns, TapeKind

STATES: Final = (TapeKind.KEYFRAME, TapeKind.HEALTH)

TapeRow = tuple[int, int, int]  # side, price, amount
TapeLevels = list[tuple[int, int]]  # price, amount
Ends = tuple[int | None, int | None]


class PlayedBook(Protocol):
    """A `Book`, as a player uses it."""

    def play(
        self,
        kind: int,
        scales: tuple[int, int],
        ends: Ends,
        sides: tuple[TapeLevels, TapeLevels],
    ) -> None:
        """Apply a recorded message as it was applied."""


class TapeMessage(NamedTuple):
    """One message on a tape."""

    book: int
    kind: int
    now: float
    sequence: int
    at: int | str
    price_scale: int
    amount_scale: int
    ends: Ends
    rows: Sequence[TapeRow]


class BookTape:
    """Collects what recorded books apply, in order, as columns of integers.

    Args:
        read_time: Converts an exchange's time to Unix microseconds, or 0.
        rows_max: Most rows until the next `swap`; then the tape is `full` and takes nothing more.
    """

    def __init__(self, read_time: Callable[[int | str], int], rows_max: int) -> None:
        self.rows_max = rows_max
        self.full = False
        self._read_time = read_time
        self._messages: list[TapeMessage] = []
        self._rows = 0
        self._staged: tuple[object, Sequence[TapeRow]] | None = None

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self._messages)

    def swap(self) -> "BookTape":
        """Return a tape with everything that was collected, and start again."""
        taken = BookTape(self._read_time, self.rows_max)
        taken.full, taken._messages, taken._rows = self.full, self._messages, self._rows
        self.full, self._messages, self._rows, self._staged = False, [], 0, None
        return taken

    def columns(self, offset_us: int, last_us: int, end_us: int) -> TapeColumns:
        """Return the messages and their rows.

        Args:
            offset_us: Unix microseconds less monotonic ones.
            last_us: The time before which no message is.
            end_us: The time after which no message is.
        """
        columns = [array(code) for code in "ibbbqqqqqibqq"]
        columns[9].append(0)
        for each in self._messages:
            last_us = min(max(last_us, offset_us + round(each.now * 1_000_000)), end_us)
            ends = (end or 0 for end in each.ends)
            numbers = (each.book, each.kind, each.price_scale, each.amount_scale, last_us,
                       self._read_time(each.at), each.sequence, *ends)  # fmt: skip
            for column, number in zip(columns, numbers, strict=False):
                column.append(number)
            rows = each.rows or [(NO_SIDE, 0, 0)]
            columns[9].append(columns[9][-1] + len(rows))
            for row in rows:
                for column, number in zip(columns[10:], row, strict=True):
                    column.append(number)
        return TapeColumns(*(column.tobytes() for column in columns))

    def stage(self, book: object, rows: Sequence[TapeRow]) -> None:
        """Keep the levels that a book has applied until its message is put."""
        self._staged = (book, rows) if self._has_room(len(rows)) else None

    def unstage(self) -> None:
        """Drop the staged rows."""
        self._staged = None

    def staged(self, book: object) -> Sequence[TapeRow] | None:
        """Return the rows that this book staged last, unless another message followed."""
        return self._staged[1] if self._staged and self._staged[0] is book else None

    def put(self, message: TapeMessage) -> bool:
        """Append a message; return False if the tape is full."""
        rows = max(1, len(message.rows))
        if not self._has_room(rows):
            return False
        self._messages.append(message)
        self._rows += rows
        if message.kind != TapeKind.HEALTH:
            self._staged = None
        return True

    def _has_room(self, rows: int) -> bool:
        self.full = self.full or self._rows + rows > self.rows_max
        return not self.full


class TapePlayer:
    """Messages of one book as columns of integers, to be played into a `Book`.

    Every column has a number for each row. `changed` is the first row of the delta or snapshot that
    was played last, -1 before one.

    Args:
        numbers: The number of the row's message, 64 bits.
        kinds: Its `TapeKind`, 8 bits.
        sides: 0 for a bid, 1 for an ask, another value for a row without a level, 8 bits.
        prices: 64 bits.
        amounts: 64 bits.
        price_scales: 8 bits.
        amount_scales: 8 bits.
        bid_ends: The horizon of a keyframe or snapshot, 0 without one, 64 bits.
        ask_ends: The same of asks.
    """

    def __init__(
        self,
        numbers: Any,
        kinds: Any,
        sides: Any,
        prices: Any,
        amounts: Any,
        price_scales: Any,
        amount_scales: Any,
        bid_ends: Any,
        ask_ends: Any,
    ) -> None:
        self.changed = -1
        self._numbers, self._kinds = _cast(numbers, "q"), _cast(kinds, "b")
        self._levels = _cast(sides, "B"), _cast(prices, "q"), _cast(amounts, "q")
        self._scales = _cast(price_scales, "b"), _cast(amount_scales, "b")
        self._ends = _cast(bid_ends, "q"), _cast(ask_ends, "q")
        self.count = len(self._kinds)
        columns = (self._numbers, *self._levels, *self._scales, *self._ends)
        if any(len(each) != self.count for each in columns):
            raise ValueError("The columns of a playback have different lengths.")

    def play(self, book: PlayedBook, start: int, stop: int) -> int:
        """Play messages into a book, up to the first that has its state; return the row after.

        A keyframe or a health message ends it: the caller sets the state.

        Raises:
            IndexError: There are no such rows.
            LevelError: A level is invalid or does not fit its book.
        """
        if not 0 <= start <= stop <= self.count:
            raise IndexError("A playback has no such rows.")
        kind: int = TapeKind.DELTA
        while start < stop and kind not in STATES:
            number, kind, end = self._numbers[start], self._kinds[start], start + 1
            while end < stop and self._numbers[end] == number:
                end += 1
            if kind != TapeKind.HEALTH:
                scales = self._scales[0][start], self._scales[1][start]
                ends = self._ends[0][start] or None, self._ends[1][start] or None
                book.play(kind, scales, ends, self._sides(start, end))
            if kind in (TapeKind.DELTA, TapeKind.SNAPSHOT):
                self.changed = start
            start = end
        return start

    def _sides(self, start: int, end: int) -> tuple[TapeLevels, TapeLevels]:
        found: tuple[TapeLevels, TapeLevels] = [], []
        if any(not 0 <= scale[start] <= SCALE_MAX for scale in self._scales):
            raise LevelError("A recorded message has an invalid scale.")
        for side, price, amount in zip(*(each[start:end] for each in self._levels), strict=True):
            if side > 1:
                continue
            if not 0 < price < MANTISSA_END or not 0 <= amount < MANTISSA_END:
                raise LevelError("A recorded level has an invalid price or amount.")
            found[side].append((price, amount))
        return found


def _cast(buffer: Any, code: Literal["b", "B", "q"]) -> memoryview:
    return memoryview(buffer).cast("B").cast(code)
