"""One endpoint's history: rows in the order of their time, paged newest or oldest first.

Cursors take the form that a codec gives them, and are good only for the query they came from.
"""

from binascii import Error as Base64Error
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from msgspec import MsgspecError

CURSORS_MAX: Final = 100_000


class BadCursor(Exception):
    """A cursor of another query, or none at all."""


class Entry(NamedTuple):
    """A row: the time Bybit filters by, a number that grows, and the facts."""

    at_ms: int
    seq: int
    facts: Any


class HistoryTable:
    """Rows of one endpoint, oldest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, at_ms: int, seq: int, facts: Any) -> None:
        """Add the newest row."""
        self.entries.append(Entry(at_ms, seq, facts))

    def insert(self, at_ms: int, seq: int, facts: Any) -> None:
        """Add a row somewhere in the past."""
        insort(self.entries, Entry(at_ms, seq, facts), key=_place)

    def between(self, start_ms: int, end_ms: int, grain_ms: int) -> tuple[int, int]:
        """The slice of rows within both bounds, inclusive, compared at a precision."""
        start, end = start_ms // grain_ms * grain_ms, end_ms // grain_ms * grain_ms + grain_ms - 1
        low = bisect_left(self.entries, start, key=_time)
        return low, bisect_right(self.entries, end, key=_time)


def _place(entry: Entry) -> tuple[int, int]:
    return entry.at_ms, entry.seq


def _time(entry: Entry) -> int:
    return entry.at_ms


class CursorCodec(NamedTuple):
    """A form of cursors: written from the first and last row of a page, read as the last's place.

    Places are (time, seq).
    """

    write: Callable[[Entry, Entry], str]
    read: Callable[[str], tuple[int, int]]


class Pager:
    """Serves pages of every table and remembers which query each cursor belongs to.

    Args:
        oldest_first: Whether the first page holds the oldest rows.
        by_offset: Whether a cursor means "so many rows from the newest": then rows that come in
            between two pages shift the second, and rows repeat. Bybit's do not; other exchanges'
            do, and a reader must survive both.
    """

    def __init__(self, *, by_offset: bool = False, oldest_first: bool = False) -> None:
        self._oldest_first = oldest_first
        self._by_offset = by_offset
        self._issued: OrderedDict[tuple[str, str], int] = OrderedDict()

    def page(
        self,
        table: HistoryTable,
        bounds: tuple[int, int],
        *,
        query: str,
        cursor: str,
        limit: int,
        codec: CursorCodec,
        wanted: Callable[[Entry], bool] | None = None,
    ) -> tuple[list[Entry], str]:
        """The rows of a page, in the order of paging, and the cursor of the next.

        Raises:
            BadCursor: It is of another query, or none at all.
        """
        low, high = bounds
        offset = self._offset(query, cursor) if cursor else 0
        if cursor and not self._by_offset:
            low, high = self._beyond(table, cursor, codec, bounds)
        skip = offset if self._by_offset else 0
        rows = self._collect(table, (low, high), wanted, limit=limit, skip=skip)
        if not rows:
            return [], ""
        following = codec.write(rows[0], rows[-1])
        self._remember(query, following, offset + len(rows))
        return rows, following

    def _collect(
        self,
        table: HistoryTable,
        bounds: tuple[int, int],
        wanted: Callable[[Entry], bool] | None,
        *,
        limit: int,
        skip: int,
    ) -> list[Entry]:
        rows: list[Entry] = []
        low, high = bounds
        indices = range(low, high)
        for index in indices if self._oldest_first else reversed(indices):
            entry = table.entries[index]
            if wanted is not None and not wanted(entry):
                continue
            if skip:
                skip -= 1
                continue
            rows.append(entry)
            if len(rows) == limit:
                break
        return rows

    def _beyond(
        self, table: HistoryTable, cursor: str, codec: CursorCodec, bounds: tuple[int, int]
    ) -> tuple[int, int]:
        """What is left of a slice after the page that a cursor came with."""
        low, high = bounds
        try:
            at_ms, seq = codec.read(unquote(cursor))
        except (ValueError, Base64Error, MsgspecError, LookupError, TypeError):
            raise BadCursor from None
        find = bisect_right if self._oldest_first else bisect_left
        if at_ms >= 0:
            index = find(table.entries, (at_ms, seq), key=_place)
        else:
            index = find(table.entries, seq, key=lambda entry: entry.seq)
        return (max(low, index), high) if self._oldest_first else (low, min(high, index))

    def _offset(self, query: str, cursor: str) -> int:
        offset = self._issued.get((query, unquote(cursor)))
        if offset is None:
            raise BadCursor
        return offset

    def _remember(self, query: str, cursor: str, offset: int) -> None:
        self._issued[query, unquote(cursor)] = offset
        if len(self._issued) > CURSORS_MAX:
            self._issued.popitem(last=False)
