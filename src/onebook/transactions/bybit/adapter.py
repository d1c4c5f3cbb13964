"""Bybit behind the adapter protocol: sources to queries, answers to pages of records."""

import asyncio
import logging
from collections.abc import Mapping
from random import Random
from typing import Any, Final
from urllib.parse import quote

import httpx
from msgspec import json
from msgspec.structs import replace

from onebook.config import TransactionSettings
from onebook.core import NumberError, canonical, iso
from onebook.transactions.adapter import (
    AccountInfo,
    Environment,
    ExchangeEntry,
    Page,
    Source,
    Window,
)
from onebook.transactions.budget import Retries
from onebook.transactions.bybit.client import Client, Envelope, Host
from onebook.transactions.bybit.endpoints import ENDPOINTS, ENTRY, SOURCES
from onebook.transactions.bybit.instruments import Markets
from onebook.transactions.bybit.paths import (
    ACCOUNT,
    API_KEY,
    INSTRUMENTS,
    LOADED_CATEGORIES,
    MARKETS_MAX_AGE_MS,
    Endpoint,
)
from onebook.transactions.bybit.rows import EXCHANGE, Context, Row, make_id
from onebook.transactions.clock import REAL, Clock
from onebook.transactions.credentials import Credentials
from onebook.transactions.failures import Reason, SourceFailed
from onebook.transactions.record import Description, Ids, Record, Status

MARKET_PAGES_MAX: Final = 20
CLASSIC: Final = 1  # unifiedMarginStatus

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
        self._client = Client(clock, transport=transport, random=random)
        self._places = {
            Environment.MAINNET: Place(self._client, settings.bybit_mainnet_url),
            Environment.TESTNET: Place(self._client, settings.bybit_testnet_url),
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
    ) -> "BybitReader":
        """Bind an account of an environment."""
        return BybitReader(
            self._client,
            self._places[environment],
            environment,
            credentials,
            include_raw=include_raw,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()


class Place:
    """An environment: its host, and the markets that are traded there."""

    def __init__(self, client: Client, base_url: str) -> None:
        self.host = Host(base_url, clock=client.clock)
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
        self._loaded_ms[category] = self._client.clock.now_ms()
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
    ) -> None:
        self._client = client
        self._place = place
        self._environment = environment
        self._credentials = credentials
        self._include_raw = include_raw
        self._retries = Retries(client.random)
        self._absent: set[str] = set()

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Ask for one page of a source; see `adapter.Reader`."""
        endpoint = ENDPOINTS[source.name]
        if source.name in self._absent:
            return Page([], 0, "")
        if endpoint.category:
            await self._place.load(endpoint.category, self._retries)
        try:
            envelope = await self._get(endpoint.path, query_of(endpoint, window, cursor))
        except SourceFailed as failure:
            if not endpoint.optional or failure.fatal or failure.retryable:
                raise
            self._absent.add(source.name)
            return Page([], 0, "")
        return self._page(endpoint, window, envelope)

    def _page(self, endpoint: Endpoint, window: Window, envelope: Envelope) -> Page:
        rows, cursor = rows_of(endpoint, envelope.result)
        context = Context(
            environment=self._environment.value,
            markets=self._place.markets,
            category="" if endpoint.category == "*" else endpoint.category,
            asked_at_ms=window.seen_ms or envelope.time,
        )
        records, unreadable = [], 0
        for row in rows:
            record, read = read_row(row, endpoint, context)
            unreadable += not read
            records.append(replace(record, raw=row) if self._include_raw else record)
        return Page(records, len(rows), cursor, unreadable)

    async def account(self) -> AccountInfo:
        """Ask who the key belongs to, and what it may read."""
        key = (await self._get(API_KEY, "")).result
        mode = (await self._get(ACCOUNT, "")).result
        try:
            granted = {name for group in key["permissions"].values() for name in group}
            classic = mode["unifiedMarginStatus"] == CLASSIC
            return AccountInfo(
                account_type="CLASSIC" if classic else "UNIFIED",
                read_only=key["readOnly"] == 1,
                unavailable_types=unavailable_types(granted),
            )
        except (LookupError, TypeError, AttributeError):
            raise _unreadable() from None

    async def _get(self, path: str, query: str) -> Envelope:
        return await self._client.get(
            self._place.host, path, query, credentials=self._credentials, retries=self._retries
        )


def query_of(endpoint: Endpoint, window: Window, cursor: str) -> str:
    """The query string of a page: both bounds always, the page size always."""
    parameters = [f"{name}={value}" for name, value in endpoint.fixed]
    source, times = endpoint.source, endpoint.times
    if source.window_ms:
        # Inclusive at both ends, at the precision that the endpoint compares.
        last_ms = window.to_ms - source.grain_ms
        parameters += [
            f"{times.start}={window.from_ms // times.unit_ms}",
            f"{times.end}={last_ms // times.unit_ms}",
            f"limit={source.page_rows}",
        ]
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
