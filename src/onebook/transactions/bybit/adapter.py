"""Reads one Bybit account: queries of its sources, pages of records, and the key's permissions.

A key as described by `query-api`: https://bybit-exchange.github.io/docs/v5/user/apikey-info. A key
without bound addresses expires after 90 days; `deadlineDay` is the number of days left, negative if
the key does not expire.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from functools import partial
from typing import Final

from msgspec.structs import replace

from onebook.model import DAY_MS
from onebook.transactions.adapter import (
    SKIPPED_PAGE,
    AccountInfo,
    FailureReason,
    Page,
    Source,
    SourceFailed,
    Window,
)
from onebook.transactions.bybit.api import API
from onebook.transactions.bybit.endpoints import (
    ACCOUNT,
    API_KEY,
    CLASSIC,
    ENDPOINTS,
    ENTRY,
    INSTRUMENTS,
    LOADED_CATEGORIES,
    SOURCES,
    WEEK_MS,
    Endpoint,
)
from onebook.transactions.bybit.instruments import guess, listed
from onebook.transactions.bybit.pages import (
    as_evidence,
    begins_unnamed,
    cursor_parameter,
    holds_instant,
    query_of,
    read_rows,
    rows_of,
    uncountable,
    undocumented,
    with_holder,
    with_instant,
)
from onebook.transactions.bybit.rows import Context
from onebook.transactions.bybit.stream import STREAM
from onebook.transactions.client import Call, Reply
from onebook.transactions.exchange import AccountSession, Ask, ExchangeDefinition
from onebook.transactions.mapping import Row, text
from onebook.transactions.markets import InstrumentRow, SymbolFanOut, pages_along
from onebook.transactions.windows import floor_ms

EXPIRY_WARNING_DAYS: Final = 14
TRADING: Final = frozenset(
    {"Order", "Position", "SpotTrade", "OptionsTrade", "DerivativesTrade", "CopyTrading",
     "BlockTrade"}
)  # fmt: skip
MOVING: Final = frozenset({"AccountTransfer", "SubMemberTransfer"})
WITHDRAWING: Final = "Withdraw"
MARKET_PAGES_MAX: Final = 20


def granted_of(key: Row) -> set[str]:
    """Every permission of a key."""
    return {name for group in key["permissions"].values() for name in group}


def days_left(key: Row) -> int | None:
    """Days until a key expires; None if it does not."""
    days = key.get("deadlineDay")
    return days if isinstance(days, int) and days >= 0 else None


def expires_at(key: Row, now_ms: int) -> int | None:
    """The day on which a key expires."""
    days = days_left(key)
    return None if days is None else now_ms + days * DAY_MS


def warnings_of(key: Row) -> Iterator[str]:
    """Warnings about permissions that reading does not need, and about imminent expiry."""
    granted = granted_of(key)
    if key["readOnly"] != 1:
        for able, names in (
            ("trade", granted & TRADING),
            ("withdraw", granted & {WITHDRAWING}),
            ("move funds between accounts", granted & MOVING),
        ):
            if names:
                yield (
                    f"The key can {able} ({', '.join(sorted(names))}); "
                    "reading does not need this: use a read-only key."
                )
    days = days_left(key)
    if days is not None and days <= EXPIRY_WARNING_DAYS:
        yield f"The key expires in {days} day{'' if days == 1 else 's'}; renew it at Bybit."


class BybitReader:
    """Reads one Bybit account."""

    def __init__(self, account: AccountSession) -> None:
        self._account = account
        self._absent: set[str] = set()
        self._mode: int | None = None
        self._key: Row | None = None
        self._snapshot_ms: int | None = None
        self._symbols = SymbolFanOut(self._traded, margin_ms=WEEK_MS)
        self._empty: set[tuple[str, str]] = set()  # paths and queries without rows
        self._locks: defaultdict[object, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Fetch one page of a source; see `PageReader`."""
        endpoint = ENDPOINTS[source.name]
        if source.name in self._absent:
            return SKIPPED_PAGE
        if endpoint.not_in and await self._account_mode() in endpoint.not_in:
            return SKIPPED_PAGE
        if endpoint.category:
            await self._load_markets(endpoint.category)
        await self._learn_uid()
        try:
            if endpoint.by_symbol:
                ask = partial(self._page_of_symbol, endpoint, window)
                return await self._symbols.page(endpoint.category, window, ask)
            return await self._asked(endpoint, window, cursor, rows=source.page_rows)
        except SourceFailed as failure:
            # The path of a mode that the account never had is refused, not empty.
            of_another_mode = endpoint.not_in and failure.reason is FailureReason.NOT_OFFERED
            if not (endpoint.optional or of_another_mode) or failure.fatal or failure.retryable:
                raise
            self._absent.add(source.name)
            return SKIPPED_PAGE

    async def _asked(
        self,
        endpoint: Endpoint,
        window: Window,
        cursor: str,
        *,
        symbol: str = "",
        rows: int | None = None,
    ) -> Page:
        query = query_of(endpoint, window, cursor, symbol=symbol, rows=rows)
        if not endpoint.not_in:
            page = self._page(endpoint, window, await self._get(endpoint.path, query))
            if cursor and endpoint.id_field and begins_unnamed(page):
                return await self._with_first_instant(endpoint, window, page)
            return page
        # Several sources request the same rows of a former mode, and most accounts have none.
        key = (endpoint.path, query)
        async with self._locks[key]:
            if key in self._empty:
                return Page([], 0, "")
            reply = await self._get(endpoint.path, query)
            page = self._page(endpoint, window, reply)
            if not page.rows:
                self._empty.add(key)
        if endpoint.witness:
            return as_evidence(page)
        if endpoint.complete_for_ms is not None and page.rows:
            return replace(page, kept_from_ms=reply.server_ms - endpoint.complete_for_ms)
        return page

    async def _with_first_instant(self, endpoint: Endpoint, window: Window, page: Page) -> Page:
        """Complete the first instant of a page that continues another one.

        Equal rows without an id are distinguished by their ordinal on the page, so all rows of one
        instant must be on one page.
        """
        at_ms = page.records[0].timestamp
        below = Window(window.from_ms, at_ms + endpoint.source.grain_ms, window.seen_ms)
        found = self._page(
            endpoint, below, (await self._get(endpoint.path, query_of(endpoint, below, "")))
        )
        if not holds_instant(found, at_ms, endpoint.source):
            query = query_of(endpoint, below, found.cursor)
            rest = self._page(endpoint, below, await self._get(endpoint.path, query))
            if any(record.timestamp >= at_ms for record in rest.records):
                raise uncountable()
        return with_instant(page, found, at_ms)

    async def _page_of_symbol(
        self, endpoint: Endpoint, window: Window, symbol: str, cursor: str
    ) -> Page:
        return await self._asked(endpoint, window, cursor, symbol=symbol)

    async def _traded(self, category: str, window: Window) -> set[str]:
        """The symbols with fills in a window before the account's upgrade."""
        endpoint = ENDPOINTS[f"former_{category}_fills"]
        now_ms = self._account.now_ms()
        from_ms = max(window.from_ms, floor_ms(endpoint.source, now_ms))
        to_ms = min(window.to_ms, now_ms)
        if from_ms >= to_ms:
            return set()
        asked = partial(self._asked, endpoint, Window(from_ms, to_ms, to_ms))
        async with aclosing(pages_along(asked)) as pages:
            return {r.instrument.symbol async for p in pages for r in p.records if r.instrument}

    async def _load_markets(self, category: str) -> None:
        """Load the markets of a category (all for "*") unless they are known."""
        for name in LOADED_CATEGORIES if category == "*" else (category,):
            await self._account.load_markets(name)

    async def _learn_uid(self) -> None:
        """Request the account's user id once: it identifies our side of a transfer."""
        try:
            await self._key_info()
        except SourceFailed as failure:
            if failure.fatal:
                raise
            self._key = {}

    async def _key_info(self, *, fresh: bool = False) -> Row:
        """Return the key as described by `query-api`, for the whole request."""
        async with self._locks[API_KEY]:
            if self._key is None:
                self._key = await self._account.key_described(self._described, fresh=fresh)
            return self._key

    async def _described(self) -> Row:
        result = (await self._get(API_KEY, "")).value
        if not isinstance(result, dict):
            raise undocumented()
        return result

    @property
    def _uid(self) -> str | None:
        return text(self._key or {}, "userID")

    async def _account_mode(self) -> int:
        """Return the account's `unifiedMarginStatus`, requested once."""
        async with self._locks[ACCOUNT]:
            if self._mode is None:
                result = (await self._get(ACCOUNT, "")).value
                if not isinstance(result, dict) or not isinstance(
                    mode := result.get("unifiedMarginStatus"), int
                ):
                    raise undocumented()
                self._mode = mode
            return self._mode

    def _page(self, endpoint: Endpoint, window: Window, reply: Reply) -> Page:
        rows, cursor = rows_of(endpoint, reply.value)
        context = Context(
            environment=self._account.environment.value,
            markets=self._account.markets,
            category="" if endpoint.category == "*" else endpoint.category,
            fallback_time_ms=window.seen_ms or self._snapshot_at(reply.server_ms),
            uid=self._uid,
        )
        read, unreadable = read_rows(rows, endpoint, context, window)
        records = [with_holder(record, context.uid) for record in read]
        if self._account.include_raw:
            records = [replace(r, raw=row) for r, row in zip(records, rows, strict=True)]
        return Page(records, len(rows), cursor, unreadable)

    def _snapshot_at(self, at_ms: int) -> int:
        """One time for every wallet of a request, so that they are sorted by id, as all ties
        are."""
        if self._snapshot_ms is None:
            self._snapshot_ms = at_ms
        return self._snapshot_ms

    async def check(self) -> AccountInfo:
        """Fetch the account of the key, and what the key can read."""
        key = await self._key_info(fresh=True)
        mode = await self._account_mode()
        try:
            granted, read_only = granted_of(key), key["readOnly"] == 1
            return AccountInfo(
                account_type="CLASSIC" if mode in CLASSIC else "UNIFIED",
                read_only=read_only,
                unavailable_types=unavailable_types(granted),
                warnings=tuple(warnings_of(key)),
                expires_at=expires_at(key, self._account.now_ms()),
                may_withdraw=not read_only and WITHDRAWING in granted,
                may_trade=not read_only and not granted.isdisjoint(TRADING),
                owner=str(key.get("userID") or ""),
            )
        except (LookupError, TypeError, AttributeError):
            raise undocumented() from None

    async def _get(self, path: str, query: str) -> Reply:
        return await self._account.ask(Call(path, query))


def unavailable_types(granted: set[str]) -> tuple[str, ...]:
    """The types for which a source needs a permission that is not granted."""
    missing = {
        endpoint.source.type
        for endpoint in ENDPOINTS.values()
        if endpoint.permission and not granted.intersection(endpoint.permission)
    }
    return tuple(kind for kind in ENTRY.types if kind in missing)


async def instrument_pages(ask: Ask, category: str) -> AsyncGenerator[list[InstrumentRow]]:
    """Yield the instrument list of a category, page by page."""
    cursor = ""
    for _ in range(MARKET_PAGES_MAX):
        query = f"category={category}&limit=1000" + cursor_parameter(cursor)
        reply = await ask(Call(INSTRUMENTS, query))
        yield reply.value["list"]
        cursor = reply.value.get("nextPageCursor") or ""
        if not cursor:
            return


BYBIT: Final = ExchangeDefinition(
    entry=ENTRY,
    sources=SOURCES,
    api=API,
    reader=BybitReader,
    instruments=instrument_pages,
    listed=listed,
    guess=guess,
    streams=(STREAM,),
)
