"""The adapter of OKX: reads an account from its two ledgers, with details from other lists.

- Bills of the trading account, by time windows and ids: the newest week from the faster list, older
  ones from the archive of three months, and still older ones from quarterly exports.
- Bills of the funding account since 2021-02-01, by id: those of the last month from the faster
  list, older ones from the history. Neither accepts a time range, so a range that ends in the past
  begins at a row that is searched by time.
- Fills and conversions are joined with their bills. Deposits and withdrawals have their own lists,
  the only ones with networks and transactions.

Lists that are paged by time (deposits, withdrawals, conversions) return all rows of a millisecond
or none: the next page therefore begins one millisecond later than necessary, and repeated rows
count once.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from msgspec.structs import replace

from onebook.transactions.adapter import (
    HOST_FIELD,
    SKIPPED_PAGE,
    AccountInfo,
    CheckId,
    EventRow,
    FailureReason,
    Page,
    Source,
    SourceFailed,
    Window,
)
from onebook.transactions.client import Call
from onebook.transactions.exchange import AccountSession, ExchangeDefinition
from onebook.transactions.mapping import Row
from onebook.transactions.okx import funds
from onebook.transactions.okx.api import (
    API,
    BILLS,
    BILLS_ARCHIVE,
    CONFIG,
    CONVERT_HISTORY,
    DEPOSIT_HISTORY,
    FIAT_DEPOSITS,
    FIAT_WITHDRAWALS,
    FILLS_HISTORY,
    FUNDING_BALANCES,
    FUNDING_BILLS,
    FUNDING_HISTORY,
    SAVINGS_BALANCE,
    STAKING_ORDERS,
    TRADING_BALANCE,
    UNKNOWN_KEY,
    WITHDRAWAL_HISTORY,
)
from onebook.transactions.okx.endpoints import (
    ARCHIVE_MS,
    BILLS_BEGIN_MS,
    BRANCHES,
    CONVERT_LIST,
    EARN_HOLDINGS,
    ENTRY,
    FUNDING_HOLDINGS,
    FUNDING_LEDGER,
    FUNDING_RECENT_MS,
    PAGE_ROWS,
    RECENT_MS,
    SOURCES,
    TRADING_BILLS,
    TRADING_HOLDINGS,
    TYPES,
)
from onebook.transactions.okx.events import CONVERT_KEY, conversion_of, group_key, records_of
from onebook.transactions.okx.exports import EXPORTS, typed
from onebook.transactions.okx.fills import ListedFill, fill_difference, fill_of
from onebook.transactions.okx.holdings import earn_holdings, funding_holdings, trading_holdings
from onebook.transactions.okx.instruments import CATEGORIES, guess, instruments, listed
from onebook.transactions.okx.key import READ, TRADE, WITHDRAW, key_info
from onebook.transactions.okx.matching import (
    BANK_LISTS,
    DEPOSIT_LIST,
    EARLY_MS,
    WITHDRAWAL_LIST,
    FundMatcher,
    FundRow,
    FundRows,
    is_fund,
)
from onebook.transactions.okx.matching import LISTS as LISTED
from onebook.transactions.okx.rows import (
    FUNDING,
    Bill,
    BillContext,
    funding_bill,
    time_ms,
    trading_bill,
    unreadable_row,
)
from onebook.transactions.okx.stream import STREAMS
from onebook.transactions.okx.words import (
    CONTRACT_KINDS,
    DEPOSITED,
    FUTURES,
    LEDGER,
    TRADES,
    WITHDRAWN,
)
from onebook.transactions.reconciliation import Comparisons, Unmatched
from onebook.transactions.record import Record, RecordView, Status
from onebook.transactions.windows import FLOOR_MARGIN_MS

FRESH_MS: Final = 60_000  # at the end of a range, where two lists may differ
EDGE_MS: Final = 10 * 60_000  # at the end of two lists' retention, where one may have dropped more
SEEK_FROM_MS: Final = (
    3_600_000  # a range that ends earlier begins at its end, not at the newest bill
)
SEEK_MS: Final = 60_000  # by which bills of the funding account may be out of order
BAD_ROW: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
# Reasons why a list of details is unavailable; bills then stand alone.
UNREADABLE_LISTS: Final = frozenset(
    {FailureReason.PERMISSION_DENIED, FailureReason.NOT_OFFERED, FailureReason.NOT_OPENED}
)
LISTS: Final = {
    DEPOSIT_LIST: (DEPOSIT_HISTORY, funds.deposit),
    WITHDRAWAL_LIST: (WITHDRAWAL_HISTORY, funds.withdrawal),
}
BANKS: Final = {
    BANK_LISTS[DEPOSITED]: (FIAT_DEPOSITS, funds.bank_deposit),
    BANK_LISTS[WITHDRAWN]: (FIAT_WITHDRAWALS, funds.bank_withdrawal),
}
EXPORTED: Final = "export:"  # prefix of cursors of trading bills in exports
RECENT, HISTORY = "r", "h"  # the first character of a cursor of funding bills
FILL_CHECKS: Final = {TRADES: CheckId.SPOT_FILLS, FUTURES: CheckId.FUTURES_FILLS}


class OkxReader:
    """Reads one account of OKX for one request."""

    def __init__(self, account: AccountSession) -> None:
        self.compared = Comparisons()
        self._account = account
        self._context = BillContext(account.environment.value, account.markets)
        self._fills_from_ms: dict[str, int] = {}  # by kind of instrument: the start of its list
        self._oldest: dict[str, Bill] = {}  # the oldest bill of the funding account, by currency
        self._snapshot_ms: int | None = None
        self._matchers: dict[str, FundMatcher] = {}
        self._to_ms = 0  # end of the range of bills
        self._rows: dict[str, Row] = {}  # unchanged, for answers that include them

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Fetch one page of a source; see `PageReader`."""
        if source.query == TRADING_BILLS:
            return await self._trading_page(source, window, cursor)
        if source.query == FUNDING_LEDGER:
            return await self._funding_page(source, window, cursor)
        if source.branch:
            return await self._fills_page(source, window, cursor)
        if source.query == CONVERT_LIST:
            return await self._converts_page(source, window, cursor)
        if source.query in LISTS:
            return await self._list_page(source, window, cursor)
        return await self._holdings(source)

    async def branches(self, source: Source) -> list[str]:
        """Return the kinds of instruments; see `BranchingReader`."""
        return list(BRANCHES[source.type])

    async def join(self, source: Source, groups: list[list[EventRow]]) -> Page:
        """Build records from the rows of events; see `JoiningReader`."""
        records: list[Record] = []
        for group in groups:
            rows = [part.row for part in group]
            bill = next((row for row in rows if isinstance(row, Bill)), None)
            if FUTURES in source.views and bill is not None and bill.inst_type in CONTRACT_KINDS:
                await self._account.load_markets(CATEGORIES[bill.inst_type])
            fill = next((row for row in rows if isinstance(row, ListedFill)), None)
            if bill is None and fill is not None and fill.at_ms > self._to_ms - FRESH_MS:
                continue  # it happened between two requests, and its bill after the first
            in_lists = await self._listed(rows)
            found = records_of(rows, self._context, in_lists)
            found = await self._with_banks(found, rows, in_lists)
            self._compare(found, rows)
            records += self._with_raw(found, group) if self._account.include_raw else found
        return Page(records, len(records), "")

    async def _listed(self, rows: list[Any]) -> dict[str, Record | None]:
        """By bill, the deposit or withdrawal that it belongs to; None if that moved nothing."""
        found: dict[str, Record | None] = {}
        bills = [row for row in rows if isinstance(row, Bill)]
        for bill in bills:
            if not is_fund(bill, bills):
                continue
            record = await self._matcher(LISTED[bill.type]).find(bill)
            if record is not None:
                found[bill.native] = record if record.status is Status.COMPLETED else None
        return found

    async def _with_banks(
        self, records: list[Record], rows: list[Any], in_lists: Mapping[str, Record | None]
    ) -> list[Record]:
        """Add the order of a bank to what a bill alone has."""
        for bill in rows:
            if (
                not isinstance(bill, Bill)
                or bill.wallet != FUNDING
                or bill.type not in BANK_LISTS
                or bill.native in in_lists
            ):
                continue
            order = await self._matcher(BANK_LISTS[bill.type]).find(bill)
            if order is not None:
                records = [
                    funds.decorated(each, order)
                    if each.view is RecordView.PRIMARY and each.ids.native == bill.native
                    else each
                    for each in records
                ]
        return records

    def _matcher(self, name: str) -> FundMatcher:
        if name not in self._matchers:
            fetch = self._bank_page if name in BANKS else self._fund_page
            self._matchers[name] = FundMatcher(partial(fetch, name, self._to_ms))
        return self._matchers[name]

    async def _bank_page(self, name: str, to_ms: int, cursor: str) -> FundRows:
        """Fetch a page of orders of banks; here `before` is the newest time, inclusive."""
        path, mapped = BANKS[name]
        asked = {"before": cursor or str(to_ms + EARLY_MS), "limit": str(PAGE_ROWS)}
        rows = await self._decoration(path, asked) or []
        found = []
        for row in rows:
            with suppress(*BAD_ROW):  # the bill stands for itself
                found.append(FundRow(mapped(row, self._context), row.get("fee") or "0"))
        oldest = min((str(each.record.timestamp) for each in found), default="")
        full = len(rows) >= PAGE_ROWS and oldest != cursor
        return FundRows(found, oldest if full else "")

    async def _fund_page(self, name: str, to_ms: int, cursor: str) -> FundRows:
        """Fetch a page of a list, for the bills that belong to its rows."""
        path, mapped = LISTS[name]
        asked = {"after": cursor or str(to_ms + EARLY_MS), "limit": str(PAGE_ROWS)}
        rows = await self._decoration(path, asked) or []
        found = []
        for row in rows:
            with suppress(*BAD_ROW):  # reported by the walk of the list
                found.append(FundRow(mapped(row, self._context), funds.charged(row)))
        page = _timed_page(SKIPPED_PAGE, rows, PAGE_ROWS, cursor)
        return FundRows(found, page.cursor)

    def _with_raw(self, records: list[Record], group: list[EventRow]) -> list[Record]:
        """Add the raw rows: to a line its own, to an event all of its rows by id."""
        rows = {part.row_id: self._rows.pop(part.row_id, {}) for part in group}
        return [
            replace(record, raw=rows.get(record.ids.native or "", rows))
            if record.type == LEDGER
            else replace(record, raw=rows)
            for record in records
        ]

    # Bills of the trading account -----------------------------------------------------------

    async def _trading_page(self, source: Source, window: Window, cursor: str) -> Page:
        """Bills of a window: of the lists, and then what is too old for them of exports."""
        self._to_ms = max(self._to_ms, window.to_ms)
        now_ms = self._account.now_ms()
        listed_ms = now_ms - ARCHIVE_MS + FLOOR_MARGIN_MS
        if cursor.startswith(EXPORTED) or window.to_ms <= listed_ms:
            return await self._exported_page(source, window, cursor, listed_ms)
        recent = window.from_ms > now_ms - RECENT_MS
        # Both ends work whether or not OKX includes them, because rows outside are dropped.
        asked = {
            "begin": str(max(window.from_ms, listed_ms) - 1), "end": str(window.to_ms),
            "limit": str(source.page_rows),
        }  # fmt: skip
        if cursor:
            asked["after"] = cursor
        rows = await self._get(BILLS if recent else BILLS_ARCHIVE, asked)
        if not rows and window.from_ms < listed_ms:
            return await self._exported_page(source, window, EXPORTED, listed_ms)
        page = self._parts(rows, bill_part(trading_bill), source, window)
        return replace(page, cursor=lowest_id(rows) if rows else "")

    async def _exported_page(
        self, source: Source, window: Window, cursor: str, listed_ms: int
    ) -> Page:
        exports, to_ms = self._account.exports, min(window.to_ms, listed_ms)
        if exports is None:
            return Page([], 0, "", kept_from_ms=to_ms)
        found = await exports.page(window.from_ms, to_ms, cursor.removeprefix(EXPORTED))
        page = self._parts(found.rows, exported_part, source, window)
        lack = found.lack
        if lack is not None and lack.reason in UNREADABLE_LISTS:
            lack = None  # an account of the former kind has no exports
        following = f"{EXPORTED}{found.cursor}" if found.cursor else ""
        return replace(page, cursor=following, kept_from_ms=found.lack_before_ms, lack=lack)

    # Bills of the funding account -----------------------------------------------------------

    async def _funding_page(self, source: Source, window: Window, cursor: str) -> Page:
        self._to_ms = max(self._to_ms, window.to_ms)
        cursor = cursor or await self._funding_begin(window)
        if not cursor:
            return Page([], 0, "", kept_from_ms=self._kept_from_ms(window))
        stage, _, after = cursor.partition(":")
        asked = {"pagingType": "2", "limit": str(source.page_rows)}
        if after:
            asked["after"] = after
        rows = await self._get(FUNDING_BILLS if stage == RECENT else FUNDING_HISTORY, asked)
        page = self._parts(rows, bill_part(funding_bill), source, window)
        if not rows and stage == HISTORY:
            return replace(page, kept_from_ms=self._kept_from_ms(window))
        if rows and (oldest := oldest_ms(rows)) is not None and oldest < window.from_ms - SEEK_MS:
            return page
        if not rows:
            # An empty page would end the walk, but the history continues where this list ends.
            return await self._funding_page(source, window, f"{HISTORY}:{after}")
        return replace(page, cursor=f"{stage}:{lowest_id(rows)}")

    async def _funding_begin(self, window: Window) -> str:
        """The cursor of a window's first bills; "" if there are none."""
        age_ms = self._account.now_ms() - window.to_ms
        stage, path = (RECENT, FUNDING_BILLS)
        if age_ms < SEEK_FROM_MS:
            return f"{stage}:"
        if age_ms > FUNDING_RECENT_MS:
            stage, path = HISTORY, FUNDING_HISTORY
        asked = {"pagingType": "1", "after": str(window.to_ms + SEEK_MS), "limit": "1"}
        rows = await self._get(path, asked)
        if rows:
            return f"{stage}:{int(lowest_id(rows)) + 1}"
        return f"{HISTORY}:" if stage == RECENT else ""

    def _kept_from_ms(self, window: Window) -> int | None:
        """The start of the history, if anything was held before its oldest bill."""
        began_before = any(bill.balance != bill.change for bill in self._oldest.values())
        return BILLS_BEGIN_MS if began_before and window.from_ms <= BILLS_BEGIN_MS else None

    def _parts(
        self,
        rows: list[Any],
        read: Callable[[Row], EventRow],
        source: Source,
        window: Window,
    ) -> Page:
        """Build a page of rows to be joined."""
        parts: list[EventRow] = []
        bad: list[Any] = []
        for row in rows:
            try:
                part = read(row)
            except BAD_ROW:
                bad.append(row)
                continue
            parts.append(part)
            if self._account.include_raw:
                self._rows[part.row_id] = row
            if source.query == FUNDING_LEDGER and part.row.balance is not None:
                self._oldest[part.row.currency] = part.row
        parts.sort(key=lambda part: -part.at_ms)
        at_ms = parts[-1].at_ms if parts else window.seen_ms
        records = [unreadable_row(row, self._context, source.type, at_ms) for row in bad]
        return Page(records, len(rows), "", len(bad), parts=parts)

    # Fills and conversions: details of bills ------------------------------------------------

    async def _fills_page(self, source: Source, window: Window, cursor: str) -> Page:
        kept_ms = self._account.now_ms() - ARCHIVE_MS + EDGE_MS
        if window.to_ms <= kept_ms:
            return SKIPPED_PAGE
        asked = {
            "instType": source.branch, "begin": str(max(window.from_ms, kept_ms) - 1),
            "end": str(window.to_ms), "limit": str(source.page_rows),
        }  # fmt: skip
        if cursor:
            asked["after"] = cursor
        rows = await self._decoration(FILLS_HISTORY, asked)
        if rows is None:
            return SKIPPED_PAGE
        self._fills_from_ms.setdefault(source.branch, kept_ms)
        page = self._parts(rows, fill_part, source, window)
        return replace(page, cursor=lowest_id(rows) if rows else "")

    async def _converts_page(self, source: Source, window: Window, cursor: str) -> Page:
        rows = await self._decoration(CONVERT_HISTORY, timed(source, window, cursor))
        if rows is None:
            return SKIPPED_PAGE
        page = self._parts(rows, conversion_part, source, window)
        return _timed_page(page, rows, source.page_rows, cursor)

    async def _decoration(self, path: str, asked: dict[str, str]) -> list[Any] | None:
        """Fetch rows of a list of details; None if this account does not have the list."""
        try:
            return await self._get(path, asked)
        except SourceFailed as failure:
            if failure.reason not in UNREADABLE_LISTS:
                raise
            return None

    def _compare(self, records: list[Record], rows: list[Any]) -> None:
        """Compare a fill from its bills with the list of fills."""
        record = next((each for each in records if each.type in FILL_CHECKS), None)
        if record is None or record.ids.trade_id is None or record.ids.order_id is None:
            return
        check = FILL_CHECKS[record.type]
        fill = next((row for row in rows if isinstance(row, ListedFill)), None)
        bill = next((row for row in rows if isinstance(row, Bill)), None)
        left = None
        if bill is None:
            left = Unmatched(record, "it has no bill", "a bill", "none", certain=False)
        elif fill is None:
            begins_ms = self._fills_from_ms.get(bill.inst_type)
            if begins_ms is None or record.timestamp < begins_ms:
                return
            left = Unmatched(
                record, "it is not in the list of fills", "a fill", "none", certain=False
            )
        elif (difference := fill_difference(record, bill, fill)) is not None:
            left = Unmatched(record, *difference)
        self.compared.add(check, left)

    # Lists by time --------------------------------------------------------------------------

    async def _list_page(self, source: Source, window: Window, cursor: str) -> Page:
        path, mapped = LISTS[source.query]
        rows = await self._get(path, timed(source, window, cursor))
        records: list[Record] = []
        unreadable = 0
        for row in rows:
            try:
                record = mapped(row, self._context)
            except BAD_ROW:
                unreadable += 1
                record = unreadable_row(row, self._context, source.type, window.seen_ms)
            records.append(self._raw(record, row))
        return _timed_page(Page(records, len(rows), "", unreadable), rows, source.page_rows, cursor)

    # Holdings and the key -------------------------------------------------------------------

    async def _holdings(self, source: Source) -> Page:
        at_ms, context = self._snapshot_at(), self._context
        try:
            if source.query == EARN_HOLDINGS:
                savings = await self._decoration(SAVINGS_BALANCE, {}) or []
                orders = await self._decoration(STAKING_ORDERS, {}) or []
                records = earn_holdings(savings, orders, context, at_ms)
            elif source.query == FUNDING_HOLDINGS:
                records = funding_holdings(await self._get(FUNDING_BALANCES, {}), context, at_ms)
            else:
                assert source.query == TRADING_HOLDINGS
                records = trading_holdings(await self._get(TRADING_BALANCE, {}), context, at_ms)
        except BAD_ROW:
            raise undocumented() from None
        kept = [record for record in records if record.balance and record.balance.total != "0"]
        return Page(kept, len(kept), "")

    def _snapshot_at(self) -> int:
        """One time for every wallet of a request, so that they are sorted by id, as all ties
        are."""
        if self._snapshot_ms is None:
            self._snapshot_ms = self._account.now_ms()
        return self._snapshot_ms

    async def check(self) -> AccountInfo:
        """Find the region of the key, and fetch its permissions."""
        found: dict[str, str] = {}
        try:
            data = await self._get(CONFIG, {})
        except SourceFailed as failure:
            if failure.exchange_code != UNKNOWN_KEY or self._account.has(HOST_FIELD.name):
                raise
            region, data = await self._elsewhere(failure)
            found["host"] = region
        try:
            key = key_info(data)
        except BAD_ROW:
            raise undocumented() from None
        return AccountInfo(
            account_type=key.mode,
            read_only=key.permissions.isdisjoint({TRADE, WITHDRAW}),
            unavailable_types=() if READ in key.permissions else TYPES,
            warnings=key.warnings(),
            found=found,
            may_withdraw=WITHDRAW in key.permissions,
            may_trade=TRADE in key.permissions,
            owner=key.user,
        )

    async def _elsewhere(self, unknown: SourceFailed) -> tuple[str, list[Any]]:
        """Return the site that knows the key, and its answer."""
        for host in self._account.host_names:
            try:
                return host, await self._get(CONFIG, {}, host=host)
            except SourceFailed as failure:
                if failure.exchange_code != UNKNOWN_KEY:
                    raise
        raise unknown

    # Requests -------------------------------------------------------------------------------

    async def _get(self, path: str, asked: dict[str, str], *, host: str = "") -> list[Any]:
        data: list[Any] = (await self._account.ask(Call(path, urlencode(asked), host=host))).value
        return data

    def _raw(self, record: Record, row: Row) -> Record:
        return replace(record, raw=row) if self._account.include_raw else record


def timed(source: Source, window: Window, cursor: str) -> dict[str, str]:
    """The query of a list that is paged by time: `after` is older than, `before` newer than."""
    return {
        "after": cursor or str(window.to_ms), "before": str(window.from_ms - 1),
        "limit": str(source.page_rows),
    }  # fmt: skip


def _timed_page(page: Page, rows: list[Any], full: int, cursor: str) -> Page:
    """Build a page with its cursor.

    The next page repeats the oldest millisecond of this one, which may continue there. A full page
    with a single millisecond cannot be passed: it is `cut`.
    """
    oldest = oldest_ms(rows)
    if oldest is None:
        return page
    if str(oldest + 1) != cursor:
        return replace(page, cursor=str(oldest + 1))
    return replace(page, cursor=str(oldest), cut=len(rows) >= full)


def bill_part(read: Callable[[Row], Bill]) -> Callable[[Row], EventRow]:
    """Prepare bills of an account for joining."""

    def part(row: Row) -> EventRow:
        bill = read(row)
        return EventRow(group_key(bill), bill.native, bill.at_ms, bill)

    return part


def exported_part(row: Row) -> EventRow:
    """A bill of an export, to be joined."""
    return bill_part(trading_bill)(typed(row))


def fill_part(row: Row) -> EventRow:
    """Prepare a row of the list of fills for joining."""
    fill = fill_of(row)
    return EventRow(fill.key, fill.row_id, fill.at_ms, fill)


def conversion_part(row: Row) -> EventRow:
    """Prepare a row of the list of conversions for joining."""
    conversion = conversion_of(row)
    return EventRow(CONVERT_KEY, f"convert:{conversion.trade_id}", conversion.at_ms, conversion)


def lowest_id(rows: Iterable[Any]) -> str:
    """The smallest bill id of a page, where the next page begins.

    Raises:
        SourceFailed: A row has no id.
    """
    try:
        return str(min(int(row["billId"]) for row in rows))
    except BAD_ROW:
        raise undocumented() from None


def oldest_ms(rows: Iterable[Any]) -> int | None:
    """The time of the oldest of these rows."""
    times = []
    for row in rows:
        try:
            times.append(time_ms(row["ts"]))
        except BAD_ROW:
            continue
    return min(times, default=None)


def undocumented() -> SourceFailed:
    """The failure for an answer without the documented form."""
    return SourceFailed(FailureReason.UNREADABLE, "OKX's answer does not have the documented form.")


OKX: Final = ExchangeDefinition(
    entry=ENTRY,
    sources=SOURCES,
    api=API,
    reader=OkxReader,
    instruments=instruments,
    listed=listed,
    guess=guess,
    streams=STREAMS,
    exports=EXPORTS,
)
