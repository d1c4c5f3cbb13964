"""The adapter of Kraken: reads an account from its two ledgers, with details from other lists.

One walk of the spot ledger serves every type; the list of trades is walked in parallel, and the
rows of both are joined by trade id. If only one type is requested, the ledger's own filter is used
where there is one. The lists of deposits and withdrawals add details, found by `refid`. Futures
have their own ledger, host and key, and are read if the operator has set that key.

Offsets of the ledger count from the newest row of the query, whose end is fixed, so that new rows
do not shift them.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from msgspec.structs import replace

from onebook.model import MINUTE_MS, SECOND_MS
from onebook.transactions.adapter import (
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
from onebook.transactions.kraken import events, futures
from onebook.transactions.kraken.api import (
    API,
    BALANCES,
    FUTURES_HOST,
    FUTURES_KEY,
    NO_RESULT,
    SPOT_HOST,
)
from onebook.transactions.kraken.endpoints import (
    ACCOUNT_LOG,
    BEGAN_MS,
    DEPOSIT_LIST,
    DEPOSIT_STATUS,
    ENTRY,
    FILTERS,
    FUTURES_ACCOUNTS,
    FUTURES_LOG,
    KEY_INFO,
    LEDGERS,
    SOURCES,
    SPOT_HOLDINGS,
    SPOT_LEDGER,
    TRADE_LIST,
    TRADES_HISTORY,
    WITHDRAW_STATUS,
    WITHDRAWAL_LIST,
)
from onebook.transactions.kraken.events import NO_DETAILS, GroupDetails
from onebook.transactions.kraken.funding import (
    DEPOSIT,
    FUNDS,
    RETURN_MS,
    WITHDRAWAL,
    is_return,
    listed_fund,
)
from onebook.transactions.kraken.holdings import futures_holdings, spot_holding
from onebook.transactions.kraken.instruments import listed, pairs
from onebook.transactions.kraken.key import UNKNOWN_KEY, KeyInfo, key_info
from onebook.transactions.kraken.lists import UNREADABLE_LISTS, FundLedger, FundList, FundPage
from onebook.transactions.kraken.rows import (
    LedgerRow,
    RowContext,
    entry_of,
    time_ms,
    unreadable_row,
)
from onebook.transactions.kraken.stream import STREAM, token_of
from onebook.transactions.kraken.trades import (
    ListedTrade,
    differences,
    listed_trade,
    unbooked,
)
from onebook.transactions.kraken.words import DEPOSITS, LEDGER, TRADES, WITHDRAWALS
from onebook.transactions.mapping import Row, digits
from onebook.transactions.reconciliation import Comparisons, Unmatched
from onebook.transactions.record import Record

HOUR_MS: Final = 60 * MINUTE_MS
PAGE_ROWS: Final = 50
MISCOUNTED: Final = frozenset({"type", "start"})  # fields of queries with a wrong `count`
LIST_ROWS: Final = 500
LIST_PAGES_MAX: Final = 16  # kept for the other walk that needs them, which may be behind
DEFAULT_ROWS: Final = {DEPOSIT: 25, WITHDRAWAL: 500}  # of a list without cursors
FRESH_MS: Final = MINUTE_MS  # at the end of a range, where two lists may differ
ACROSS_MS: Final = 5 * MINUTE_MS  # between the booking times of a transfer's two sides
ACROSS_ROWS: Final = 25  # the cheapest page of the futures log
PATHS: Final = {DEPOSIT: DEPOSIT_STATUS, WITHDRAWAL: WITHDRAW_STATUS}
LISTS: Final = {DEPOSIT_LIST: DEPOSIT, WITHDRAWAL_LIST: WITHDRAWAL}
LISTED_TYPES: Final = {DEPOSIT: DEPOSITS, WITHDRAWAL: WITHDRAWALS}
BAD_ROW: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


class KrakenReader:
    """Reads one account of Kraken for one request."""

    def __init__(self, account: AccountSession) -> None:
        self.compared = Comparisons()
        self._account = account
        self._trades_listed = True
        self._context = RowContext(account.environment.value, account.markets)
        self._key: KeyInfo | None = None
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._snapshot_ms: int | None = None
        self._list_pages: OrderedDict[tuple[str, int, int, str], FundPage] = OrderedDict()
        self._lists: dict[str, FundList] = {}
        self._fund_ledgers: dict[str, FundLedger] = {}
        self._range: Window | None = None  # of the ledger walk
        self._rows: dict[str, Row] = {}  # unchanged, for answers that include them

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Fetch one page of a source; see `PageReader`."""
        if source.query == SPOT_LEDGER:
            return await self._ledger_page(source, window, cursor)
        if source.query == TRADE_LIST:
            return await self._trades_page(window, cursor)
        if source.query == FUTURES_LOG:
            return await self._log_page(source, window, cursor)
        if source.query in LISTS:
            return await self._list_page(LISTS[source.query], window, cursor)
        return await self._holdings(spot=source.query == SPOT_HOLDINGS)

    async def join(self, source: Source, groups: list[list[EventRow]]) -> Page:
        """Build records from the rows of events; see `JoiningReader`."""
        records: list[Record] = []
        for group in groups:
            rows = [part.row for part in group]
            if source.query == FUTURES_LOG:
                found = futures.records_of(rows, self._context)
            else:
                found = await self._event(source, rows)
            records += self._with_raw(found, group) if self._account.include_raw else found
        return Page(records, len(records), "")

    def _with_raw(self, records: list[Record], group: list[EventRow]) -> list[Record]:
        """Add the raw rows: to a line its own, to an event all of its rows by id."""
        rows = {part.row_id: self._rows.pop(part.row_id, {}) for part in group}
        return [
            replace(record, raw=rows.get(record.ids.native or "", rows))
            if record.type == LEDGER
            else replace(record, raw=rows)
            for record in records
        ]

    # The spot ledger ------------------------------------------------------------------------

    async def _ledger_page(self, source: Source, window: Window, cursor: str) -> Page:
        if self._range is None:
            self._range = window
        asked = span_of(window) | {"ofs": cursor or "0"}
        if len(source.views) == 1 and source.views[0] in FILTERS:
            asked["type"] = FILTERS[source.views[0]]
        result = await self._post(LEDGERS, asked)
        page = self._rows_page(result, "ledger", asked, ledger_part, source, window)
        return await self._with_hidden(page)

    def _rows_page(
        self,
        result: Any,
        name: str,
        asked: Mapping[str, str],
        read: Callable[[str, Row], EventRow],
        source: Source,
        window: Window,
    ) -> Page:
        """Convert an object with rows by id to a page, newest first."""
        rows = rows_of(result, name)
        parts: list[EventRow] = []
        bad: list[tuple[str, Any]] = []
        for row_id, row in rows.items():
            try:
                parts.append(read(row_id, row))
            except BAD_ROW:
                bad.append((row_id, row))
        if self._account.include_raw:
            self._rows.update((part.row_id, rows[part.row_id]) for part in parts)
        parts.sort(key=lambda part: -part.at_ms)
        at_ms = parts[-1].at_ms if parts else window.seen_ms
        records = [
            unreadable_row(row_id, row, self._context, source.type, at_ms) for row_id, row in bad
        ]
        following = next_offset(result, asked, len(rows))
        return Page(records, len(rows), following, len(bad), parts=parts)

    async def _with_hidden(self, page: Page) -> Page:
        """Limit a page to the times that the key can see."""
        key = await self._key_info()
        return replace(page, hidden_before_ms=key.from_ms, hidden_after_ms=key.to_ms)

    async def _event(self, source: Source, rows: list[Any]) -> list[Record]:
        """The records of one group of rows from the ledger and the list of trades."""
        entries = [row for row in rows if isinstance(row, LedgerRow)]
        trade = next((row for row in rows if isinstance(row, ListedTrade)), None)
        if not entries:
            assert trade is not None
            # A trade made between the two requests is missing from the earlier ledger page.
            recent = self._range is not None and trade.at_ms > self._range.to_ms - FRESH_MS
            if recent:
                return []
            alone = unbooked(trade, self._context)
            what = "it is not in the ledger"
            self.compared.add(
                CheckId.SPOT_FILLS, Unmatched(alone, what, "2 rows", "none", certain=False)
            )
            return [alone]
        first = entries[0]
        details = NO_DETAILS
        if first.type == "trade" and TRADES in source.views and (trade is None or len(entries) < 2):
            await self._account.load_markets("spot")  # the pair shows which coin is the base
        if first.type in FUNDS:
            details = await self._fund_details(source, entries)
        elif trade is not None:
            details = GroupDetails(trade=trade.row)
        elif first.subtype == "spotfromfutures" and first.incoming:
            details = GroupDetails(futures=await self._came_from_futures(first))
        records = events.records_of(entries, self._context, details)
        if first.type == "trade" and TRADES in source.views and self._trades_listed:
            self._compare_trade(records[0])
        elif isinstance(details.listed, dict):
            self._compare_fund(records[0], details.listed)
        return records

    def _compare_trade(self, record: Record) -> None:
        """Compare a trade of the ledger with the list of trades."""
        if "price" in record.incomplete:
            what = "it is not in the list of trades"
            absent = Unmatched(record, what, "a trade", "none", certain=False)
            return self.compared.add(CheckId.SPOT_FILLS, absent)
        difference = next(differences(record), None)
        left = None if difference is None else Unmatched(record, *difference)
        return self.compared.add(CheckId.SPOT_FILLS, left)

    def _compare_fund(self, record: Record, row: Row) -> None:
        """Compare a deposit or withdrawal of the ledger with its list."""
        check = CheckId.DEPOSITS if record.kind == DEPOSIT else CheckId.WITHDRAWALS
        said = digits(row, "amount")
        left = None
        if said is not None and said != record.amount:
            what = "its amount differs in the list"
            left = Unmatched(record, what, record.amount or "0", said, certain=False)
        self.compared.add(check, left)

    async def _fund_details(self, source: Source, entries: list[LedgerRow]) -> GroupDetails:
        """Details of a deposit or withdrawal: its list entry, and its reversal."""
        ledger = self._fund_ledger(entries[0].type)
        original = next((entry for entry in entries if not is_return(entry)), None)
        for entry in entries:
            if is_return(entry):
                ledger.see(entry)
        if original is None:
            return GroupDetails(returns=await ledger.taken_back(entries[0]))
        listed_row = None
        if LISTED_TYPES[original.type] in source.views:
            listed_row = await self._fund_list(original.type).find(original.refid, original.at_ms)
        return GroupDetails(listed=listed_row, returned=await ledger.returned(original))

    def _fund_ledger(self, kind: str) -> FundLedger:
        if kind not in self._fund_ledgers:
            top_ms = self._account.now_ms() if self._range is None else self._range.to_ms
            end_ms = min(top_ms + RETURN_MS, self._account.now_ms())
            fetch = partial(self._rows_of_type, kind, end_ms)
            self._fund_ledgers[kind] = FundLedger(fetch, top_ms=top_ms)
        return self._fund_ledgers[kind]

    async def _rows_of_type(self, kind: str, end_ms: int, offset: int) -> list[LedgerRow]:
        """Ledger rows of one type, by the exchange's own filter, newest first."""
        asked = {"type": kind, "end": str(-(-end_ms // SECOND_MS)), "ofs": str(offset)}
        rows = rows_of(await self._post(LEDGERS, asked), "ledger")
        found: list[LedgerRow] = []
        for row_id, row in rows.items():
            try:
                found.append(entry_of(row_id, row))
            except BAD_ROW:  # reported by the walk of the ledger
                continue
        return sorted(found, key=lambda entry: -entry.at_ms)

    async def _came_from_futures(self, entry: LedgerRow) -> bool | None:
        """Whether the futures log has the other side of a transfer; None without a futures key."""
        if not self._account.has(FUTURES_KEY):
            return None
        window = Window(entry.at_ms - ACROSS_MS, entry.at_ms + ACROSS_MS, entry.at_ms)
        try:
            rows = await self._log_rows(window, ACROSS_ROWS, "", (("info", futures.ACROSS),))
        except SourceFailed as failure:
            if failure.retryable:
                raise
            return None
        for row in rows:
            try:
                read = futures.log_row(row)
            except BAD_ROW:
                continue
            if read.asset == entry.currency and read.change == f"-{entry.amount}":
                return True
        return False

    # The list of trades ---------------------------------------------------------------------

    async def _trades_page(self, window: Window, cursor: str) -> Page:
        # Each fill separately, because the ledger books them separately.
        asked = span_of(window) | {"ofs": cursor or "0", "consolidate_taker": "false"}
        try:
            result = await self._post(TRADES_HISTORY, asked)
        except SourceFailed as failure:
            if failure.reason not in UNREADABLE_LISTS:
                raise
            self._trades_listed = False  # trades then lack their price, and report it
            return Page([], 0, "")
        return self._rows_page(
            result, "trades", asked, trade_part, SOURCES[f"{TRADE_LIST}_{TRADES}"], window
        )

    # The lists of deposits and withdrawals --------------------------------------------------

    async def _list_page(self, kind: str, window: Window, cursor: str) -> Page:
        """Deposits or withdrawals that are in the list but not in the ledger."""
        page = await self._fetch_list(kind, window, cursor)
        records: list[Record] = []
        unreadable = 0
        for row in page.rows:
            try:
                record = listed_fund(row, kind, self._context)
            except BAD_ROW:
                unreadable += 1
                records.append(
                    unreadable_row("", row, self._context, LISTED_TYPES[kind], window.seen_ms)
                )
                continue
            if record is not None and not await self._fund_ledger(kind).holds(
                record.ids.native or "", record.timestamp
            ):
                records.append(self._raw(record, row))
        kept_from_ms = None if page.whole else oldest_ms(page.rows)
        return Page(records, len(page.rows), page.cursor, unreadable, kept_from_ms)

    def _fund_list(self, kind: str) -> FundList:
        if kind not in self._lists:
            assert self._range is not None
            self._lists[kind] = FundList(partial(self._fetch_list, kind, self._range))
        return self._lists[kind]

    async def _fetch_list(self, kind: str, window: Window, cursor: str) -> FundPage:
        """Fetch a page of a list, starting a month before a window; all callers share the
        request."""
        start = max(0, window.from_ms - RETURN_MS) // HOUR_MS * HOUR_MS // SECOND_MS
        end = -(-window.to_ms // HOUR_MS) * HOUR_MS // SECOND_MS
        key = (kind, start, end, cursor)
        async with self._locks[kind]:
            if key not in self._list_pages:
                asked = {
                    "start": str(start), "end": str(end), "limit": str(LIST_ROWS),
                    "cursor": cursor or "true",
                }  # fmt: skip
                self._list_pages[key] = list_page(await self._post(PATHS[kind], asked), kind)
            page = self._list_pages[key]
            while len(self._list_pages) > LIST_PAGES_MAX:
                self._list_pages.popitem(last=False)
            return page

    # Futures --------------------------------------------------------------------------------

    async def _log_page(self, source: Source, window: Window, cursor: str) -> Page:
        rows = await self._log_rows(window, source.page_rows, cursor)
        parts: list[EventRow] = []
        bad: list[Any] = []
        for row in rows:
            try:
                read = futures.log_row(row)
            except BAD_ROW:
                bad.append(row)
            else:
                parts.append(EventRow(futures.group_key(read), read.uid, read.at_ms, read))
                if self._account.include_raw:
                    self._rows[read.uid] = row
        parts.sort(key=lambda part: (-part.at_ms, -part.row.id))
        at_ms = parts[-1].at_ms if parts else window.seen_ms
        records = [unreadable_row("", row, self._context, source.type, at_ms) for row in bad]
        following = ""
        if len(rows) >= source.page_rows and parts:
            following = str(min(part.row.id for part in parts) - 1)
        return Page(records, len(rows), following, len(bad), parts=parts)

    async def _log_rows(
        self, window: Window, count: int, cursor: str, more: Iterable[tuple[str, str]] = ()
    ) -> list[Any]:
        """Rows of the account log, newest first; a cursor is the highest id of a page."""
        asked = [
            ("since", str(window.from_ms)), ("before", str(window.to_ms)), ("sort", "desc"),
            ("count", str(count)), *more,
        ]  # fmt: skip
        if cursor:
            asked.append(("to", cursor))
        answer = await self._futures(ACCOUNT_LOG, urlencode(asked))
        logs = answer.get("logs")
        if not isinstance(logs, list):
            raise undocumented()
        return logs

    # Holdings and the key -------------------------------------------------------------------

    async def _holdings(self, *, spot: bool) -> Page:
        if spot:
            held = await self._post(BALANCES, {})
            if held is None:
                if await self._has_ledger():
                    raise NO_RESULT.failure()
                held = {}
        else:
            held = (await self._futures(FUTURES_ACCOUNTS, "")).get("accounts")
        if not isinstance(held, dict):
            raise undocumented()
        at_ms = self._snapshot_at()
        try:
            if spot:
                records = [spot_holding(*each, self._context, at_ms) for each in held.items()]
            else:
                records = futures_holdings(held, self._context, at_ms)
        except BAD_ROW:
            raise undocumented() from None
        kept = [record for record in records if record.balance and record.balance.total != "0"]
        return Page(kept, len(kept), "")

    async def _has_ledger(self) -> bool:
        """Whether the ledger has any row; if not, the balance is returned without a result."""
        return bool(rows_of(await self._post(LEDGERS, {}), "ledger"))

    def _snapshot_at(self) -> int:
        """One time for every wallet of a request, so that they are sorted by id, as all ties
        are."""
        if self._snapshot_ms is None:
            self._snapshot_ms = self._account.now_ms()
        return self._snapshot_ms

    async def _key_info(self, *, fresh: bool = False) -> KeyInfo:
        """Kraken's description of the key, for the whole request; `UNKNOWN_KEY` if unavailable."""
        async with self._locks[KEY_INFO]:
            if self._key is None:
                try:
                    self._key = await self._account.key_described(self._described, fresh=fresh)
                except SourceFailed as failure:
                    if failure.fatal or failure.retryable:
                        raise
                    self._key = UNKNOWN_KEY
                except BAD_ROW:
                    self._key = UNKNOWN_KEY
            return self._key

    async def _described(self) -> KeyInfo:
        return key_info(await self._post(KEY_INFO, {}))

    async def check(self) -> AccountInfo:
        """Check the permissions of the key, and whether the futures key is accepted."""
        key = await self._key_info(fresh=True)
        if key is UNKNOWN_KEY:
            await self._post(BALANCES, {})
        warnings, account_type = list(key.warnings(self._account.now_ms())), "SPOT"
        if self._account.has(FUTURES_KEY):
            try:
                await self._futures(FUTURES_ACCOUNTS, "")
                account_type = "SPOT, FUTURES"
            except SourceFailed as failure:
                if failure.retryable:
                    raise
                warnings.append(f"Futures are not read: {failure.message}")
        return AccountInfo(
            account_type=account_type,
            read_only=not key.harmful,
            unavailable_types=key.unavailable,
            warnings=tuple(warnings),
            expires_at=key.valid_until_ms,
            may_withdraw=key.may_withdraw,
            may_trade=key.may_trade,
            owner=key.account,
        )

    # Requests -------------------------------------------------------------------------------

    async def _post(self, path: str, asked: dict[str, str]) -> Any:
        body = urlencode(asked).encode()
        return (await self._account.ask(Call(path, method="POST", body=body, host=SPOT_HOST))).value

    async def _futures(self, path: str, query: str) -> Row:
        call = Call(path, query, host=FUTURES_HOST, key=FUTURES_KEY)
        answer = (await self._account.ask(call)).value
        if not isinstance(answer, dict):
            raise undocumented()
        return answer

    def _raw(self, record: Record, row: Row) -> Record:
        return replace(record, raw=row) if self._account.include_raw else record


def span_of(window: Window) -> dict[str, str]:
    """The bounds of a query in whole seconds: the first is exclusive, the last inclusive.

    The whole history is queried without a start, because with one Kraken's `count` is wrong.
    """
    end = {"end": str(-(-window.to_ms // SECOND_MS))}
    if window.from_ms <= BEGAN_MS:
        return end
    return end | {"start": str(window.from_ms // SECOND_MS - 1)}


def ledger_part(row_id: str, row: Row) -> EventRow:
    """Prepare a ledger row for joining."""
    entry = entry_of(row_id, row)
    return EventRow(events.group_key(entry), entry.id, entry.at_ms, entry)


def trade_part(row_id: str, row: Row) -> EventRow:
    """Prepare a row of the list of trades for joining."""
    trade = listed_trade(row_id, row)
    return EventRow(trade.key, trade.id, trade.at_ms, trade)


def rows_of(result: Any, name: str) -> Row:
    """The object with the rows of an answer.

    Raises:
        SourceFailed: The answer does not have the documented form.
    """
    rows = result.get(name) if isinstance(result, dict) else None
    if not isinstance(rows, dict):
        raise undocumented()
    return rows


def next_offset(result: Row, asked: Mapping[str, str], rows: int) -> str:
    """The offset of the next page; "" at the end.

    `count` is wrong if the query has a type or a start (https://github.com/rotki/rotki/issues/116);
    then a page that is not full is the last one.

    Raises:
        SourceFailed: Kraken counts more rows than it returns.
    """
    offset, count = int(asked["ofs"]), result.get("count")
    if not isinstance(count, int) or not asked.keys().isdisjoint(MISCOUNTED):
        return str(offset + rows) if rows >= PAGE_ROWS else ""
    if rows == 0 and offset < count:
        raise SourceFailed(
            FailureReason.EXCHANGE_ERROR,
            f"Kraken counts {count} rows but returns only {offset}.",
            retryable=True,
        )
    return str(offset + rows) if offset + rows < count else ""


def list_page(result: Any, kind: str) -> FundPage:
    """Read a page of deposits or withdrawals: an object with a cursor, or only the newest rows.

    Raises:
        SourceFailed: The answer does not have the documented form.
    """
    if isinstance(result, list):
        return FundPage(result, "", whole=len(result) < DEFAULT_ROWS[kind])
    if not isinstance(result, dict):
        raise undocumented()
    rows = result.get(kind, result.get(f"{kind}s"))
    cursor = result.get("next_cursor") or ""
    if not isinstance(rows, list) or not isinstance(cursor, str):
        raise undocumented()
    return FundPage(rows, cursor)


def oldest_ms(rows: list[Row]) -> int | None:
    """The time of the oldest of these rows."""
    times = []
    for row in rows:
        try:
            times.append(time_ms(row["time"]))
        except BAD_ROW:
            continue
    return min(times, default=None)


def undocumented() -> SourceFailed:
    """The failure for an answer without the documented form."""
    return SourceFailed(
        FailureReason.UNREADABLE, "Kraken's answer does not have the documented form."
    )


KRAKEN: Final = ExchangeDefinition(
    entry=ENTRY,
    sources=SOURCES,
    api=API,
    reader=KrakenReader,
    instruments=pairs,
    listed=listed,
    streams=(STREAM,),
    poll_factor=2.0,  # a read of every list costs 7 of the 20 units that a starter has in a minute
    stream_token=token_of,
)
