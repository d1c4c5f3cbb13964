"""What books apply, as columns of integers: recorded by a tape, and played into books again.

A tape is passed to the books that it records (`Book.record`). A book copies the levels of each
message that it applies to the tape, and `Book.commit` makes them a message. A `TapeMerger` copies
messages of several tapes in another order, and a `TapePlayer` applies such columns to a book
without text, exactly as they were applied.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, Protocol

from onebook.core.reference.text import MANTISSA_END
from onebook.core.types import SCALE_MAX, LevelError, TapeColumns, TapeKind

STATES: Final = (TapeKind.KEYFRAME, TapeKind.HEALTH)

COLUMN_CODES: Final[tuple[Literal["b", "i", "q"], ...]] = (
    "q", "i", "b", "b", "b", "q", "q", "q", "q", "q", "q", "q", "i", "i", "q", "q", "q", "q",
)  # fmt: skip

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
    best: Ends
    rows: Sequence[TapeRow]


class BookTape:
    """Collects what recorded books apply, in order, as columns of integers.

    Args:
        read_time: Converts an exchange's time to Unix microseconds, or 0.
        rows_max: Most levels, and messages without one, until the next `swap`; then the tape is
            `full` and takes nothing more.
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

    def swap(self, read: "BookTape | None" = None) -> "BookTape":
        """Return a tape with everything that was collected, and start again.

        Args:
            read: A tape that was read, whose memory is used again; it is then empty.
        """
        if read is not None and read is not self:
            read._messages = []
        taken = BookTape(self._read_time, self.rows_max)
        taken.full, taken._messages, taken._rows = self.full, self._messages, self._rows
        self.full, self._messages, self._rows, self._staged = False, [], 0, None
        return taken

    def columns(self, first: int, offset_us: int, last_us: int, end_us: int) -> TapeColumns:
        """Return the messages and their rows; the tape takes nothing more.

        Args:
            first: The number of the first message.
            offset_us: Unix microseconds less monotonic ones.
            last_us: The time before which no message is.
            end_us: The time after which no message is.
        """
        self.full = True
        columns = [array(code) for code in COLUMN_CODES[:14]]
        starts = columns[12:]
        levels = [(array("q"), array("q")) for _ in starts]
        for start in starts:
            start.append(0)
        for number, each in enumerate(self._messages, first):
            last_us = min(max(last_us, offset_us + round(each.now * 1_000_000)), end_us)
            ends = (end or 0 for end in (*each.ends, *each.best))
            found = (number, each.book, each.kind, each.price_scale, each.amount_scale, last_us,
                     self._read_time(each.at), each.sequence, *ends)  # fmt: skip
            for column, value in zip(columns, found, strict=False):
                column.append(value)
            for side, price, amount in each.rows:
                levels[side][0].append(price)
                levels[side][1].append(amount)
            for start, (prices, _) in zip(starts, levels, strict=True):
                start.append(len(prices))
        return TapeColumns(*(column.tobytes() for column in (*columns, *levels[0], *levels[1])))

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


class TapeMerger:
    """Messages of several tapes, copied in any order.

    Args:
        parts: The messages of each tape; buffers of any kind.

    Raises:
        ValueError: The columns of a part do not fit each other.
    """

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self._messages: list[tuple[tuple[int, ...], tuple[TapeLevels, TapeLevels]]] = []
        for part in parts:
            if len(part) != len(COLUMN_CODES):
                raise ValueError("A part has too many columns, or too few.")
            columns = [_cast(each, code) for each, code in zip(part, COLUMN_CODES, strict=True)]
            counts = {len(each) for each in columns[:12]}
            counts |= {len(each) - 1 for each in columns[12:14]}
            if len(counts) > 1 or any(len(columns[at]) != len(columns[at + 1]) for at in (14, 16)):
                raise ValueError("The columns of a part have different lengths.")
            for at in range(counts.pop()):
                sides = []
                for starts, prices, amounts in zip(
                    columns[12:14], columns[14::2], columns[15::2], strict=True
                ):
                    start, stop = starts[at], starts[at + 1]
                    if not 0 <= start <= stop <= len(prices):
                        raise ValueError("The levels of a message are outside of its part.")
                    sides.append([*zip(prices[start:stop], amounts[start:stop], strict=True)])
                numbers = tuple(each[at] for each in columns[:12])
                self._messages.append((numbers, (sides[0], sides[1])))

    def columns(self, order: Any) -> TapeColumns:
        """Return the messages with these numbers, which are 64 bits each.

        Raises:
            IndexError: The parts have no such message.
            ValueError: The levels of a message are outside of its part.
        """
        found = [array(code) for code in COLUMN_CODES]
        for starts in found[12:14]:
            starts.append(0)
        for number in _cast(order, "q"):
            if not 0 <= number < len(self._messages):
                raise IndexError("The parts have no such message.")
            numbers, sides = self._messages[number]
            for column, value in zip(found[:12], numbers, strict=True):
                column.append(value)
            for side, levels in enumerate(sides):
                prices, amounts = found[14 + 2 * side : 16 + 2 * side]
                for price, amount in levels:
                    prices.append(price)
                    amounts.append(amount)
                found[12 + side].append(len(prices))
        return TapeColumns(*(column.tobytes() for column in found))


class TapePlayer:
    """Messages of one book as columns of integers, to be played into a `Book`.

    `changed` is the delta or snapshot that was played last, -1 before one.

    Args:
        kinds: The `TapeKind` of each message, 8 bits.
        price_scales: 8 bits.
        amount_scales: 8 bits.
        bid_ends: The horizon of a keyframe or snapshot, 0 without one, 64 bits.
        ask_ends: The same of asks.
        bid_starts: The first bid of each message, and the end of the last one's, 32 bits.
        ask_starts: The same of asks.
        bid_prices: 64 bits.
        bid_amounts: 64 bits.
        ask_prices: 64 bits.
        ask_amounts: 64 bits.
    """

    def __init__(
        self,
        kinds: Any,
        price_scales: Any,
        amount_scales: Any,
        bid_ends: Any,
        ask_ends: Any,
        bid_starts: Any,
        ask_starts: Any,
        bid_prices: Any,
        bid_amounts: Any,
        ask_prices: Any,
        ask_amounts: Any,
    ) -> None:
        self.changed = -1
        self._kinds = _cast(kinds, "b")
        self._scales = _cast(price_scales, "b"), _cast(amount_scales, "b")
        self._ends = _cast(bid_ends, "q"), _cast(ask_ends, "q")
        self._starts = _cast(bid_starts, "i"), _cast(ask_starts, "i")
        self._levels = (
            (_cast(bid_prices, "q"), _cast(bid_amounts, "q")),
            (_cast(ask_prices, "q"), _cast(ask_amounts, "q")),
        )
        self.count = len(self._kinds)
        equal = all(len(each) == self.count for each in (*self._scales, *self._ends))
        for starts, (prices, amounts) in zip(self._starts, self._levels, strict=True):
            places = [0, *starts, len(prices)]
            equal &= len(starts) == self.count + 1 and len(prices) == len(amounts)
            equal &= all(start <= end for start, end in pairwise(places))
        if not equal:
            raise ValueError("The columns of a playback have different lengths.")

    def play(self, book: PlayedBook, start: int, stop: int) -> int:
        """Play messages into a book, up to the first that has its state; return the one after it.

        A keyframe or a health message ends it: the caller sets the state.

        Raises:
            IndexError: There are no such messages.
            LevelError: A level is invalid or does not fit its book.
        """
        if not 0 <= start <= stop <= self.count:
            raise IndexError("A playback has no such messages.")
        kind: int = TapeKind.DELTA
        while start < stop and kind not in STATES:
            kind = self._kinds[start]
            if kind != TapeKind.HEALTH:
                scales = self._scales[0][start], self._scales[1][start]
                ends = self._ends[0][start] or None, self._ends[1][start] or None
                book.play(kind, scales, ends, self._sides(start))
            if kind in (TapeKind.DELTA, TapeKind.SNAPSHOT):
                self.changed = start
            start += 1
        return start

    def _sides(self, message: int) -> tuple[TapeLevels, TapeLevels]:
        if any(not 0 <= scale[message] <= SCALE_MAX for scale in self._scales):
            raise LevelError("A recorded message has an invalid scale.")
        found = []
        for starts, columns in zip(self._starts, self._levels, strict=True):
            place = slice(starts[message], starts[message + 1])
            levels = [*zip(columns[0][place], columns[1][place], strict=True)]
            for price, amount in levels:
                if not 0 < price < MANTISSA_END or not 0 <= amount < MANTISSA_END:
                    raise LevelError("A recorded level has an invalid price or amount.")
            found.append(levels)
        return found[0], found[1]


def _cast(buffer: Any, code: Literal["b", "i", "q"]) -> memoryview:
    return memoryview(buffer).cast("B").cast(code)
