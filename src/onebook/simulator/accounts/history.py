"""History of a simulated exchange account: exact amounts, wallet balances, rows and their pages.

Amounts are integers of 10^-12, which hold every product of the simulation exactly. A `HistoryTable`
holds the rows of one endpoint by time; a `Pager` serves them newest or oldest first. Cursors have
the form of a codec and are valid only for the query that returned them.
"""

from binascii import Error as Base64Error
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from msgspec import MsgspecError

SCALE: Final = 12
UNIT: Final = 10**SCALE
CURSORS_MAX: Final = 100_000
TEXTS_CACHED_MAX: Final = 1 << 15


# Cached, because pages show the same rows again.
@lru_cache(TEXTS_CACHED_MAX)
def shown(units: int, decimals: int = SCALE) -> str:
    """Format an amount of 10^-decimals as exchanges do: plain decimal text."""
    sign = "-" if units < 0 else ""
    whole, part = divmod(abs(units), 10**decimals)
    if not part:
        return f"{sign}{whole}"
    return f"{sign}{whole}." + f"{part:0{decimals}}".rstrip("0")


def product(left: int, right: int) -> int:
    """Multiply two amounts; truncates below a unit (which the simulation avoids)."""
    return left * right // UNIT


def quotient(left: int, right: int) -> int:
    """Divide two amounts; truncates to 8 decimals, as for contracts that are settled in coins."""
    return left * UNIT // right // 10_000 * 10_000


class WalletBalances:
    """The balances of a wallet, changed only by `book`."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()

    def book(self, coin: str, change: int) -> int:
        """Book a change of a coin; returns the new balance."""
        self.held[coin] += change
        return self.held[coin]


class BadCursor(Exception):
    """The cursor is invalid, or belongs to another query."""


class Entry(NamedTuple):
    """A row: the time that filters compare, a growing number, and its content."""

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
        """Insert a row by its time."""
        insort(self.entries, Entry(at_ms, seq, facts), key=_place)

    def between(self, start_ms: int, end_ms: int, grain_ms: int) -> tuple[int, int]:
        """Return the slice of rows within both bounds, inclusive, at a precision."""
        start, end = start_ms // grain_ms * grain_ms, end_ms // grain_ms * grain_ms + grain_ms - 1
        low = bisect_left(self.entries, start, key=_time)
        return low, bisect_right(self.entries, end, key=_time)


def _place(entry: Entry) -> tuple[int, int]:
    return entry.at_ms, entry.seq


def _time(entry: Entry) -> int:
    return entry.at_ms


class CursorCodec(NamedTuple):
    """Encodes cursors from the first and last row of a page; decodes the place of the last row.

    Places are (time, seq).
    """

    write: Callable[[Entry, Entry], str]
    read: Callable[[str], tuple[int, int]]


class Pager:
    """Serves pages of every table, and remembers the query of each cursor.

    Args:
        oldest_first: Whether the first page has the oldest rows.
        by_offset: Whether a cursor is a number of rows from the newest: rows added between two
            pages then shift the second, and rows repeat. Bybit's cursors are different, but clients
            must handle both.
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
        """Return the rows of a page, in the order of paging, and the cursor of the next page.

        Raises:
            BadCursor: The cursor is invalid, or belongs to another query.
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
        """Return the rest of a slice after the page of a cursor."""
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
