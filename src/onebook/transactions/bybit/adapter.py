"""Bybit behind the adapter protocol: sources to queries, answers to pages of records."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from random import Random
from typing import Any, Final
from urllib.parse import quote

import httpx
from msgspec import json
from msgspec.structs import replace

from onebook.config import TransactionSettings
from onebook.core import NumberError, canonical, iso
from onebook.transactions.adapter import (
    NOT_ASKED,
    AccountInfo,
    Environment,
    ExchangeEntry,
    Page,
    Source,
    Verdict,
    Window,
)
from onebook.transactions.budget import Retries
from onebook.transactions.bybit.client import Client, Envelope, Host
from onebook.transactions.bybit.endpoints import ENDPOINTS, ENTRY, SOURCES
from onebook.transactions.bybit.former import CLASSIC
from onebook.transactions.bybit.instruments import Markets
from onebook.transactions.bybit.key import expires_at, granted_of, warnings_of
from onebook.transactions.bybit.paths import (
    ACCOUNT,
    API_KEY,
    INSTRUMENTS,
    LOADED_CATEGORIES,
    MARKETS_MAX_AGE_MS,
    WEEK_MS,
    Endpoint,
)
from onebook.transactions.bybit.rows import EXCHANGE, Context, Row, make_id, text
from onebook.transactions.clock import REAL, Clock
from onebook.transactions.credentials import Credentials
from onebook.transactions.failures import Reason, SourceFailed
from onebook.transactions.record import Description, Holder, Ids, Record, Status
from onebook.transactions.windows import floor_ms

MARKET_PAGES_MAX: Final = 20
SYMBOL_PAGES_MAX: Final = 500  # of one window

log = logging.getLogger("onebook.transactions.bybit")


class Bybit:
    """The adapter of Bybit v5 (unified trading accounts)."""

    def __init__(
        self,
        settings: TransactionSettings | None = None,
        *,
        clock: Clock = REAL,
        transport: httpx.AsyncBaseTransport | None = None,
        random: Random | None = None,
    ) -> None:
        settings = settings or TransactionSettings()
        reserve = settings.reserve_share
        self._client = Client(clock, transport=transport, random=random, spare=reserve > 0)
        self._places = {
            Environment.MAINNET: Place(self._client, settings.bybit_mainnet_url, reserve=reserve),
            Environment.TESTNET: Place(self._client, settings.bybit_testnet_url, reserve=reserve),
        }

    @property
    def entry(self) -> ExchangeEntry:
        """What the public lists say of Bybit."""
        return ENTRY

    @property
    def sources(self) -> Mapping[str, Source]:
        """Every source by its name."""
        return SOURCES

    @property
    def waiting_s(self) -> float:
        """How long nothing is asked because limits are used up; see `adapter.Adapter`."""
        return self._client.waits.left_s

    def reader(
        self,
        environment: Environment,
        credentials: Credentials,
        *,
        include_raw: bool,
        key_id: str = "",
    ) -> "BybitReader":
        """Bind an account of an environment."""
        return BybitReader(
            self._client,
            self._places[environment],
            environment,
            credentials,
            include_raw=include_raw,
            key_id=key_id,
        )

    def verdict(self, environment: Environment) -> Verdict | None:
        """What became of the last signed request; None before the first."""
        return self._places[environment].host.verdict

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()


class Place:
    """An environment: its host, and the markets that are traded there."""

    def __init__(self, client: Client, base_url: str, *, reserve: float = 0.0) -> None:
        self.host = Host(base_url, clock=client.clock, reserve=reserve)
        self.markets = Markets()
        self._client = client
        self._loaded_ms: dict[str, int] = {}
        self._loading = asyncio.Lock()

    async def load(self, category: str, retries: Retries) -> None:
        """See that the markets of a category (all for "*") are known and not an hour old."""
        for name in LOADED_CATEGORIES if category == "*" else (category,):
            async with self._loading:
                if self._stale(name):
                    await self._load(name, retries)

    def _stale(self, category: str) -> bool:
        at_ms = self._loaded_ms.get(category)
        return at_ms is None or self._client.clock.now_ms() - at_ms > MARKETS_MAX_AGE_MS

    async def _load(self, category: str, retries: Retries) -> None:
        cursor = ""
        try:
            for _ in range(MARKET_PAGES_MAX):
                query = f"category={category}&limit=1000" + _cursor_parameter(cursor)
                envelope = await self._client.get(
                    self.host, INSTRUMENTS, query, credentials=None, retries=retries
                )
                self.markets.load(category, envelope.result["list"])
                cursor = envelope.result.get("nextPageCursor") or ""
                if not cursor:
                    break
        except (SourceFailed, LookupError, TypeError, ValueError) as error:
            # Names tell nearly everything: a missing list costs the odd delisted symbol.
            log.warning("Bybit's %s markets could not be loaded: %s", category, _why(error))
        # Not before the end: a load that is cancelled has to be done again.
        self._loaded_ms[category] = self._client.clock.now_ms()


class BybitReader:
    """Reads one Bybit account."""

    def __init__(
        self,
        client: Client,
        place: Place,
        environment: Environment,
        credentials: Credentials,
        *,
        include_raw: bool,
        key_id: str,
    ) -> None:
        self._client = client
        self._place = place
        self._environment = environment
        self._credentials = credentials
        self._include_raw = include_raw
        self._retries = Retries(client.random, key=key_id)
        self._absent: set[str] = set()
        self._mode: int | None = None
        self._key: Row | None = None
        self._snapshot_ms: int | None = None
        self._traded: dict[tuple[str, Window], set[str]] = {}
        self._empty: set[tuple[str, str]] = set()  # paths and queries without rows
        self._locks: defaultdict[object, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def trouble(self) -> SourceFailed | None:
        """The failure that is being tried again now."""
        return self._retries.trouble

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Ask for one page of a source; see `adapter.Reader`."""
        endpoint = ENDPOINTS[source.name]
        if source.name in self._absent:
            return NOT_ASKED
        if endpoint.not_in and await self._account_mode() in endpoint.not_in:
            return NOT_ASKED
        if endpoint.category:
            await self._place.load(endpoint.category, self._retries)
        await self._learn_uid()
        try:
            if endpoint.by_symbol:
                return await self._by_symbol(endpoint, window)
            return await self._asked(endpoint, window, cursor, rows=source.page_rows)
        except SourceFailed as failure:
            # A path of a mode that the account was never in is refused, not empty.
            of_another_mode = endpoint.not_in and failure.reason is Reason.NOT_OFFERED
            if not (endpoint.optional or of_another_mode) or failure.fatal or failure.retryable:
                raise
            self._absent.add(source.name)
            return NOT_ASKED

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
            return self._page(endpoint, window, await self._get(endpoint.path, query))
        # Several sources ask for the same rows of a former mode, and most accounts have none.
        key = (endpoint.path, query)
        async with self._locks[key]:
            if key in self._empty:
                return Page([], 0, "")
            envelope = await self._get(endpoint.path, query)
            page = self._page(endpoint, window, envelope)
            if not page.rows:
                self._empty.add(key)
        if endpoint.witness:
            return witnessed(page)
        if endpoint.sure_ms is not None and page.rows:
            return replace(page, kept_from_ms=envelope.time - endpoint.sure_ms)
        return page

    async def _by_symbol(self, endpoint: Endpoint, window: Window) -> Page:
        """A whole window: every symbol that was traded around it, page by page."""
        records: list[Record] = []
        unreadable = 0
        for symbol in sorted(await self._symbols(endpoint.category, window)):
            async for page in self._pages(endpoint, window, symbol=symbol):
                records += page.records
                unreadable += page.unreadable
        return Page(records, len(records), "", unreadable)

    async def _pages(
        self, endpoint: Endpoint, window: Window, *, symbol: str = ""
    ) -> AsyncIterator[Page]:
        cursor, seen = "", {""}
        for _ in range(SYMBOL_PAGES_MAX):
            page = await self._asked(endpoint, window, cursor, symbol=symbol)
            yield page
            cursor = page.cursor
            if cursor in seen or not page.rows:
                return
            seen.add(cursor)
        raise SourceFailed(Reason.EXCHANGE_ERROR, "A window has more pages than believable.")

    async def _symbols(self, category: str, window: Window) -> set[str]:
        """The symbols with fills before the upgrade, from a week before a window to one after."""
        before = Window(window.from_ms - WEEK_MS, window.from_ms, window.from_ms)
        after = Window(window.to_ms, window.to_ms + WEEK_MS, window.to_ms)
        found: set[str] = set()
        for part in (after, window, before):
            async with self._locks[category, part]:
                if (category, part) not in self._traded:
                    self._traded[category, part] = await self._symbols_in(category, part)
            found |= self._traded[category, part]
        return found

    async def _symbols_in(self, category: str, window: Window) -> set[str]:
        endpoint = ENDPOINTS[f"former_{category}_fills"]
        now_ms = self._client.clock.now_ms()
        from_ms = max(window.from_ms, floor_ms(endpoint.source, now_ms))
        to_ms = min(window.to_ms, now_ms)
        if from_ms >= to_ms:
            return set()
        pages = self._pages(endpoint, Window(from_ms, to_ms, to_ms))
        return {r.instrument.symbol async for p in pages for r in p.records if r.instrument}

    async def _learn_uid(self) -> None:
        """See that the account's user id is known: it tells our side of a transfer."""
        try:
            await self._key_info()
        except SourceFailed as failure:
            if failure.fatal:
                raise
            self._key = {}

    async def _key_info(self) -> Row:
        """What `query-api` says of the key, asked for once."""
        async with self._locks[API_KEY]:
            if self._key is None:
                result = (await self._get(API_KEY, "")).result
                if not isinstance(result, dict):
                    raise _unreadable()
                self._key = result
            return self._key

    @property
    def _uid(self) -> str | None:
        return text(self._key or {}, "userID")

    async def _account_mode(self) -> int:
        """The account's `unifiedMarginStatus`, asked for once."""
        async with self._locks[ACCOUNT]:
            if self._mode is None:
                result = (await self._get(ACCOUNT, "")).result
                if not isinstance(result, dict) or not isinstance(
                    mode := result.get("unifiedMarginStatus"), int
                ):
                    raise _unreadable()
                self._mode = mode
            return self._mode

    def _page(self, endpoint: Endpoint, window: Window, envelope: Envelope) -> Page:
        rows, cursor = rows_of(endpoint, envelope.result)
        context = Context(
            environment=self._environment.value,
            markets=self._place.markets,
            category="" if endpoint.category == "*" else endpoint.category,
            asked_at_ms=window.seen_ms or self._snapshot_at(envelope.time),
            uid=self._uid,
        )
        records, unreadable = [], 0
        for row in rows:
            record, read = read_row(row, endpoint, context)
            unreadable += not read
            record = owned(record, context.uid)
            records.append(replace(record, raw=row) if self._include_raw else record)
        return Page(records, len(rows), cursor, unreadable)

    def _snapshot_at(self, at_ms: int) -> int:
        """One time for every wallet of a request: their order then goes by id, as all ties do."""
        if self._snapshot_ms is None:
            self._snapshot_ms = at_ms
        return self._snapshot_ms

    async def account(self) -> AccountInfo:
        """Ask who the key belongs to, and what it may read."""
        key = await self._key_info()
        mode = await self._account_mode()
        try:
            return AccountInfo(
                account_type="CLASSIC" if mode in CLASSIC else "UNIFIED",
                read_only=key["readOnly"] == 1,
                unavailable_types=unavailable_types(granted_of(key)),
                warnings=tuple(warnings_of(key)),
                expires_at=expires_at(key, self._client.clock.now_ms()),
            )
        except (LookupError, TypeError, AttributeError):
            raise _unreadable() from None

    async def _get(self, path: str, query: str) -> Envelope:
        return await self._client.get(
            self._place.host, path, query, credentials=self._credentials, retries=self._retries
        )


def query_of(
    endpoint: Endpoint, window: Window, cursor: str, *, symbol: str = "", rows: int | None = None
) -> str:
    """The query string of a page: both bounds always, the page size (full for None) always."""
    parameters = [f"{name}={value}" for name, value in endpoint.fixed]
    source, times = endpoint.source, endpoint.times
    if symbol:
        parameters.append(f"symbol={quote(symbol, safe='')}")
    if source.window_ms and endpoint.ranged:
        # Inclusive at both ends, at the precision that the endpoint compares.
        last_ms = window.to_ms - source.grain_ms
        parameters += [
            f"{times.start}={window.from_ms // times.unit_ms}",
            f"{times.end}={last_ms // times.unit_ms}",
        ]
    if source.window_ms:
        parameters.append(f"limit={rows or source.page_rows}")
    return "&".join(parameters) + _cursor_parameter(cursor)


def _cursor_parameter(cursor: str) -> str:
    """A cursor goes back as it came; Bybit's arrive percent-encoded or as base64."""
    if not cursor:
        return ""
    return f"&cursor={cursor if '%' in cursor else quote(cursor, safe='')}"


def rows_of(endpoint: Endpoint, result: Any) -> tuple[list[Row], str]:
    """The rows of an answer and where it goes on.

    Raises:
        SourceFailed: It is not shaped as the endpoint's page says.
    """
    try:
        holder = result
        if endpoint.rows == "coin":  # a list of one account with its coins
            holder = result["list"][0] if result["list"] else {"coin": []}
        rows = holder[endpoint.rows] or []
        cursor = result.get("nextPageCursor") or ""
        if not isinstance(rows, list) or not isinstance(cursor, str):
            raise TypeError
        if endpoint.rows == "balance":  # the funding wallet lists every coin there is
            rows = [row for row in rows if canonical(row.get("walletBalance")) not in (None, "0")]
        return rows, cursor
    except (LookupError, TypeError, AttributeError, NumberError):
        raise _unreadable() from None


def read_row(row: Row, endpoint: Endpoint, context: Context) -> tuple[Record, bool]:
    """A row as a record; one that the mapping cannot read is shown as it is, and said so."""
    try:
        return endpoint.mapper(row, context), True
    except (LookupError, TypeError, ValueError, AttributeError):
        return _unread(row, endpoint, context), False


def owned(record: Record, uid: str | None) -> Record:
    """A record whose holder is named."""
    holder = record.account
    if uid is None or (holder is not None and holder.uid is not None):
        return record
    return replace(record, account=_holder(holder.wallet if holder else None, uid))


@lru_cache(maxsize=64)
def _holder(wallet: str | None, uid: str) -> Holder:
    return Holder(wallet, uid)


def _unread(row: Row, endpoint: Endpoint, context: Context) -> Record:
    at_ms = context.asked_at_ms
    source = endpoint.source
    return Record(
        transactionId=make_id(context, source.name, json.encode(row, order="sorted").decode()),
        timestamp=at_ms,
        label="Other",
        description=Description("Bybit Record", "This record could not be read."),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=source.type,
        kind="other",
        status=Status.UNKNOWN,
        ids=Ids(),
        incomplete=("timestamp", "amount"),
    )


def witnessed(page: Page) -> Page:
    """What a witness's page proves: rows that Bybit shows only here, none of them ours to give."""
    shown = [record for record in page.records if record.status is Status.COMPLETED]
    if not shown:
        return Page([], page.rows, page.cursor)
    newest_ms = max(max(record.timestamp, record.updated_at or 0) for record in shown)
    return Page([], page.rows, "", kept_from_ms=newest_ms + 1)


def unavailable_types(granted: set[str]) -> tuple[str, ...]:
    """The types of which at least one source needs a permission that is not granted."""
    missing = {
        endpoint.source.type
        for endpoint in ENDPOINTS.values()
        if endpoint.permission and not granted.intersection(endpoint.permission)
    }
    return tuple(kind for kind in ENTRY.types if kind in missing)


def _why(error: Exception) -> str:
    """The reason of a failure for the log; a foreign exception's text could hold anything."""
    failure = error if isinstance(error, SourceFailed) else _unreadable()
    return f"{failure.reason.value}: {failure.message}"


def _unreadable() -> SourceFailed:
    return SourceFailed(Reason.UNREADABLE, "Bybit's answer does not have the documented form.")
