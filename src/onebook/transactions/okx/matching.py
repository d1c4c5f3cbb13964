"""Finds the deposit or withdrawal to which a bill belongs.

A bill does not name its deposit or withdrawal, so both are matched by coin, amount and time; each
row of the lists is used once. A withdrawal is booked when it is requested, with its fee in the same
bill or in a separate one, and booked back when it is cancelled; a deposit is booked when it is
credited, which can be long after it was first seen. A bill without a matching row (bank money is in
no list) is a separate event.

Some accounts receive deposits in the trading account: the row says so (`to` 18), and the only bill
is a transfer into the trading account. Unconfirmed: that this bill has type 1 and subtype 11, like
any such transfer.
"""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable
from decimal import Decimal
from typing import Final, NamedTuple

from onebook.core import show
from onebook.model import DAY_MS, MINUTE_MS
from onebook.transactions.decimals import add, unsigned
from onebook.transactions.mapping import holder_of
from onebook.transactions.okx.rows import FUNDING, Bill
from onebook.transactions.okx.words import CHARGED, DEPOSITED, RECHARGED, RETURNED, WITHDRAWN
from onebook.transactions.record import Record, Status

DEPOSIT_LIST, WITHDRAWAL_LIST = "deposits", "withdrawals"
LISTS: Final = {
    DEPOSITED: DEPOSIT_LIST,
    WITHDRAWN: WITHDRAWAL_LIST,
    RETURNED: WITHDRAWAL_LIST,
    CHARGED: WITHDRAWAL_LIST,
    RECHARGED: WITHDRAWAL_LIST,
}
# Separate lists of bank transfers, which only add details to bills.
BANK_LISTS: Final = {DEPOSITED: "bank_deposits", WITHDRAWN: "bank_withdrawals"}
WITHIN_MS: Final = {  # by which a row can be older than its bill
    DEPOSITED: 7 * DAY_MS,  # seen, then credited
    WITHDRAWN: DAY_MS,
    CHARGED: DAY_MS,
    RETURNED: 30 * DAY_MS,  # requested, then cancelled
    RECHARGED: 30 * DAY_MS,
}
DISORDER_MS: Final = DAY_MS  # by which a bill can come after an older one
INTO_TRADING: Final = "11"  # subtype of type 1 of the trading account
EARLY_MS: Final = MINUTE_MS  # by which a bill can be older than its row


class FundRow(NamedTuple):
    """A row of a list: its record, and its fee if that is in the same coin."""

    record: Record
    charged: str


class FundRows(NamedTuple):
    """A page of a list, newest first, and the cursor of the next one; "" at the end."""

    rows: list[FundRow]
    cursor: str


class FundMatcher:
    """Matches bills with the rows of one list, newest bill first.

    Args:
        fetch: Fetches a page of the list at a cursor.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[FundRows]]) -> None:
        self._fetch = fetch
        self._rows: defaultdict[tuple[str, str], dict[str, FundRow]] = defaultdict(dict)
        self._held: deque[tuple[FundRow, set[tuple[str, str]]]] = deque()  # newest first
        self._used: set[tuple[str, str]] = set()
        self._reached_ms: int | None = None  # None before the first page
        self._cursor = ""
        self._ended = False

    async def find(self, bill: Bill) -> Record | None:
        """The row that a bill belongs to; if several match, the nearest one before it."""
        within_ms = WITHIN_MS[bill.type]
        self._forget(bill.at_ms + DISORDER_MS)
        await self._read_to(bill.at_ms - within_ms)
        fitting = [
            row.record
            for row in self._rows.get((bill.currency, unsigned(bill.change)), {}).values()
            if bill.at_ms - within_ms <= row.record.timestamp <= bill.at_ms + EARLY_MS
            and (row.record.transactionId, bill.type) not in self._used
            and _fits(bill, row)
        ]
        found = max(fitting, key=lambda each: (each.timestamp, each.transactionId), default=None)
        if found is not None:
            self._used.add((found.transactionId, bill.type))
        return found

    async def _read_to(self, at_ms: int) -> None:
        """Read the list back to a time."""
        while not self._ended and (self._reached_ms is None or self._reached_ms >= at_ms):
            page = await self._fetch(self._cursor)
            for row in page.rows:
                self._add(row)
            oldest_ms = min((row.record.timestamp for row in page.rows), default=at_ms)
            self._reached_ms = min(oldest_ms, self._reached_ms or oldest_ms)
            self._cursor, self._ended = page.cursor, not page.cursor

    def _add(self, row: FundRow) -> None:
        """Add a row under every amount that a bill of it can have."""
        record = row.record
        amount, charged = Decimal(record.amount or 0), Decimal(row.charged)
        amounts = {amount, charged, add(amount, charged)}
        places = {(record.asset or "", show(each)) for each in amounts}
        for place in places:
            self._rows[place][record.transactionId] = row
        self._held.append((row, places))

    def _forget(self, after_ms: int) -> None:
        """Drop rows that are too new for any further bill."""
        while self._held and self._held[0][0].record.timestamp > after_ms:
            row, places = self._held.popleft()
            record_id = row.record.transactionId
            self._used -= {(record_id, kind) for kind in LISTS}
            for place in places:
                found = self._rows.get(place, {})
                found.pop(record_id, None)
                if not found:
                    self._rows.pop(place, None)


def _fits(bill: Bill, row: FundRow) -> bool:
    """Whether a row matches what a bill booked."""
    record, amount = row.record, unsigned(bill.change)
    completed = record.status is Status.COMPLETED
    if bill.type in (CHARGED, RECHARGED):
        return row.charged == amount
    if bill.type == DEPOSITED:
        return completed and record.amount == amount and record.account == holder_of(bill.wallet)
    # A completed withdrawal was not returned.
    return row.charged != amount and not (bill.type == RETURNED and completed)


def is_fund(bill: Bill, others: Iterable[Bill]) -> bool:
    """Whether a bill can belong to a row of the lists; `others` are the bills of its group."""
    if bill.wallet == FUNDING:
        return bill.type in LISTS
    into = bill.type == DEPOSITED and bill.subtype == INTO_TRADING and bill.incoming
    return into and not any(each.wallet == FUNDING for each in others)
