"""One endpoint's history: rows in the order of their time, paged newest first.

Cursors take the forms that Bybit's do, and are good only for the query they came from.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from msgspec import MsgspecError, json

from onebook.simulator.bybit_account.keys import Refused

CURSORS_MAX: Final = 100_000
BAD_CURSOR: Final = "params error: cursor"


class Entry(NamedTuple):
    """A row: the time Bybit filters by, a number that grows, and the facts."""

    at_ms: int
    seq: int
    facts: Any


class Table:
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


class Codec(NamedTuple):
    """A form of cursors: written from the first and last row of a page, read as the last's place.

    Places are (time, seq).
    """

    write: Callable[[Entry, Entry], str]
    read: Callable[[str], tuple[int, int]]


def _write_pairs(first: Entry, last: Entry) -> str:
    return quote(f"{first.at_ms}:{first.seq},{last.at_ms}:{last.seq}", safe="")


def _read_pairs(text: str) -> tuple[int, int]:
    at, _, seq = text.rpartition(",")[2].partition(":")
    return int(at), int(seq)


def _write_ids(first: Entry, last: Entry) -> str:
    return b64encode(json.encode({"minID": last.seq, "maxID": first.seq})).decode()


def _read_ids(text: str) -> tuple[int, int]:
    return -1, int(json.decode(b64decode(text, validate=True))["minID"])


def _write_number(first: Entry, last: Entry) -> str:
    return b64encode(str(last.seq).encode()).decode()


def _read_number(text: str) -> tuple[int, int]:
    return -1, int(b64decode(text, validate=True))


def _write_token(first: Entry, last: Entry) -> str:
    return quote(f"page_token={last.at_ms}-{last.seq}&", safe="")


def _write_cursor_id(first: Entry, last: Entry) -> str:
    return quote(f"cursor_id={last.at_ms}-{last.seq}&", safe="")


def _read_token(text: str) -> tuple[int, int]:
    at, _, seq = text.partition("=")[2].rstrip("&").partition("-")
    return int(at), int(seq)


TOKEN: Final = Codec(_write_token, _read_token)
CURSOR_ID: Final = Codec(_write_cursor_id, _read_token)
PAIRS: Final = Codec(_write_pairs, _read_pairs)
IDS: Final = Codec(_write_ids, _read_ids)
NUMBER: Final = Codec(_write_number, _read_number)


class Pager:
    """Serves pages of every table and remembers which query each cursor belongs to.

    Args:
        by_offset: Whether a cursor means "so many rows from the newest": then rows that come in
            between two pages shift the second, and rows repeat. Bybit's do not; other exchanges'
            do, and a reader must survive both.
    """

    def __init__(self, *, by_offset: bool = False) -> None:
        self._by_offset = by_offset
        self._issued: OrderedDict[tuple[str, str], int] = OrderedDict()

    def page(
        self,
        table: Table,
        bounds: tuple[int, int],
        *,
        query: str,
        cursor: str,
        limit: int,
        codec: Codec,
        wanted: Callable[[Entry], bool] | None = None,
    ) -> tuple[list[Entry], str]:
        """The rows of a page, newest first, and the cursor of the next.

        Raises:
            Refused: The cursor is of another query, or none at all.
        """
        low, high = bounds
        offset = self._offset(query, cursor) if cursor else 0
        if cursor and not self._by_offset:
            high = self._below(table, cursor, codec, high)
        skip = offset if self._by_offset else 0
        rows = self._collect(table, (low, high), wanted, limit=limit, skip=skip)
        if not rows:
            return [], ""
        following = codec.write(rows[0], rows[-1])
        self._remember(query, following, offset + len(rows))
        return rows, following

    def _collect(
        self,
        table: Table,
        bounds: tuple[int, int],
        wanted: Callable[[Entry], bool] | None,
        *,
        limit: int,
        skip: int,
    ) -> list[Entry]:
        rows: list[Entry] = []
        low, high = bounds
        for index in range(high - 1, low - 1, -1):
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

    def _below(self, table: Table, cursor: str, codec: Codec, high: int) -> int:
        try:
            at_ms, seq = codec.read(unquote(cursor))
        except (ValueError, Base64Error, MsgspecError, LookupError, TypeError):
            raise Refused(10001, BAD_CURSOR) from None
        if at_ms >= 0:
            return min(high, bisect_left(table.entries, (at_ms, seq), key=_place))
        return min(high, bisect_left(table.entries, seq, key=lambda entry: entry.seq))

    def _offset(self, query: str, cursor: str) -> int:
        offset = self._issued.get((query, unquote(cursor)))
        if offset is None:
            raise Refused(10001, BAD_CURSOR)
        return offset

    def _remember(self, query: str, cursor: str, offset: int) -> None:
        self._issued[query, unquote(cursor)] = offset
        if len(self._issued) > CURSORS_MAX:
            self._issued.popitem(last=False)
