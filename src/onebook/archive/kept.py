"""Rows of books that were read for a past moment, kept for the next one."""

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

KEPT_BYTES: Final = 64 << 20  # of rows, about three times those of a moment of a liquid pair


class KeptRows:
    """The rows of books that were read last, because the next moment is often near.

    Threads may share it. Rows of a recorded time never change; whether the time is still recorded
    is read for each moment.
    """

    def __init__(self, bytes_max: int = KEPT_BYTES) -> None:
        self._rows: OrderedDict[tuple[str, str], pa.Table] = OrderedDict()
        self._bytes_left = bytes_max
        self._lock = Lock()

    def get(self, symbol: str, exchange: str) -> "pa.Table | None":
        """Return the rows of a book."""
        with self._lock:
            rows = self._rows.get((symbol, exchange))
            if rows is not None:
                self._rows.move_to_end((symbol, exchange))
            return rows

    def put(self, symbol: str, exchange: str, rows: "pa.Table") -> None:
        """Keep the rows of a book in place of its former ones."""
        with self._lock:
            former = self._rows.pop((symbol, exchange), None)
            self._rows[symbol, exchange] = rows
            self._bytes_left += (0 if former is None else former.nbytes) - rows.nbytes
            while self._bytes_left < 0:
                self._bytes_left += self._rows.popitem(last=False)[1].nbytes
