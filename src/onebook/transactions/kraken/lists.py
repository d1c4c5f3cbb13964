"""Details for the ledger: the lists of deposits and withdrawals, and their reversals.

All are read newest first, and no further back than the walk of the ledger.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from onebook.model import DAY_MS, MINUTE_MS
from onebook.transactions.adapter import FailureReason, SourceFailed
from onebook.transactions.kraken.funding import RETURN_MS, is_return, takes_back
from onebook.transactions.kraken.rows import LedgerRow, time_ms
from onebook.transactions.mapping import Row, text

UNREADABLE_LISTS: Final = frozenset({FailureReason.PERMISSION_DENIED, FailureReason.NOT_OPENED})
CLOCKS_MS: Final = DAY_MS  # by which a list may date an event later than the ledger
BOOKED_MS: Final = 60 * MINUTE_MS  # by which a list may date an unfinished event earlier


class FundPage(Struct, frozen=True):
    """A page of the list of deposits or withdrawals.

    Args:
        rows: Its rows, newest first.
        cursor: Kraken's cursor of the next page; "" at the end.
        whole: Whether the list is complete if this is its last page.
    """

    rows: list[Row]
    cursor: str
    whole: bool = True


class FundList:
    """The list of deposits or withdrawals, with look-ups by ledger row.

    Args:
        fetch: Fetches the page at a cursor.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[FundPage]]) -> None:
        self._fetch = fetch
        self._by_refid: OrderedDict[str, tuple[int, Row]] = OrderedDict()
        self._cursor: str | None = ""  # of the next page; None at the end
        self._oldest_ms = 1 << 62
        self._turn = asyncio.Lock()

    async def find(self, refid: str, at_ms: int) -> Row | None:
        """Find the entry of a ledger row, which may be up to a month older than the row.

        Calls must come in order of falling time. None if the list lacks it or cannot be read.
        """
        async with self._turn:
            self._forget(at_ms + CLOCKS_MS)
            while refid not in self._by_refid and self._cursor is not None:
                if self._oldest_ms < at_ms - RETURN_MS:
                    break
                try:
                    self._take(await self._fetch(self._cursor))
                except SourceFailed as failure:
                    if failure.reason not in UNREADABLE_LISTS:
                        raise
                    self._cursor = None
        found = self._by_refid.get(refid)
        return None if found is None else found[1]

    def _take(self, page: FundPage) -> None:
        self._cursor = page.cursor or None
        for row in page.rows:
            try:
                at_ms, refid = time_ms(row["time"]), text(row, "refid")
            except (LookupError, TypeError, ValueError, ArithmeticError):
                continue  # reported by the walk of the list
            self._oldest_ms = min(self._oldest_ms, at_ms)
            if refid is not None:
                self._by_refid[refid] = (at_ms, row)

    def _forget(self, after_ms: int) -> None:
        while self._by_refid:
            refid, (at_ms, _) = next(iter(self._by_refid.items()))
            if at_ms <= after_ms:
                return
            del self._by_refid[refid]


class FundLedger:
    """The ledger of deposits or withdrawals only, for times outside the walk of the entire ledger.

    A withdrawal and the row that reverses it can be a month apart, with one of them outside the
    range of a request, but the records must not depend on the range. An entry that the list shows
    as pending or failed may be in the ledger, which then has its record.

    Args:
        fetch: Fetches the page at an offset, newest first; the last page is empty.
        top_ms: Where the walk of the entire ledger began.
    """

    def __init__(self, fetch: Callable[[int], Awaitable[list[LedgerRow]]], *, top_ms: int) -> None:
        self._fetch = fetch
        self._top_ms = top_ms
        self._rows: defaultdict[str, list[LedgerRow]] = defaultdict(list)  # by reference
        self._seen: list[LedgerRow] = []  # reversals found by the walk
        self._offset: int | None = 0  # None at the end
        self._oldest_ms = 1 << 62
        self._turn = asyncio.Lock()

    def see(self, row: LedgerRow) -> None:
        """Add a reversing row of the walk; calls must come in order of falling time."""
        self._seen = [each for each in self._seen if each.at_ms - row.at_ms <= RETURN_MS]
        self._seen.append(row)

    async def returned(self, row: LedgerRow) -> LedgerRow | None:
        """The row that reverses a deposit or withdrawal."""
        found = next((each for each in self._seen if takes_back(each, row)), None)
        if found is not None or row.at_ms + RETURN_MS < self._top_ms:
            return found
        ahead = await self._down_to(self._top_ms, row.refid)
        return next((each for each in ahead if takes_back(each, row)), None)

    async def taken_back(self, row: LedgerRow) -> LedgerRow | None:
        """The row that another row reverses."""
        rows = await self._down_to(row.at_ms - RETURN_MS, row.refid)
        return next((each for each in rows if takes_back(row, each)), None)

    async def holds(self, refid: str, at_ms: int) -> bool:
        """Whether the ledger has an entry of the list, by its reference and time."""
        rows = await self._down_to(at_ms - BOOKED_MS, refid)
        return not all(is_return(each) for each in rows)

    async def _down_to(self, at_ms: int, refid: str) -> list[LedgerRow]:
        """The rows of a reference that are newer than a time, and possibly some older ones."""
        async with self._turn:
            while self._offset is not None and self._oldest_ms >= at_ms:
                rows = await self._fetch(self._offset)
                self._offset = self._offset + len(rows) if rows else None
                for row in rows:
                    self._rows[row.refid].append(row)
                self._oldest_ms = min([self._oldest_ms, *(row.at_ms for row in rows)])
        return self._rows.get(refid, [])
