"""The adapter of an exchange: common code, parametrised by an `ExchangeDefinition`.

To add an exchange, write an `ExchangeDefinition` (facts, and functions that sign requests,
interpret answers, list instruments and read pages) and add it to `registry`. `ExchangeAdapter`
provides connections, limits, retries, markets and environments; the service (`walk`, `service`)
provides windows, paging, order, deduplication and cursors.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
from msgspec import Struct

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.config import AccountUrls, TransactionSettings
from onebook.errors import InvalidRequest
from onebook.transactions.accounts import AccountName
from onebook.transactions.adapter import (
    HOST_FIELD,
    KEY_FIELD,
    AccountReader,
    AdapterEntry,
    Environment,
    PendingExport,
    RequestVerdict,
    Source,
    SourceFailed,
)
from onebook.transactions.client import Call, ExchangeApi, ExchangeClient, ExchangeSite, Reply
from onebook.transactions.credentials import Credentials
from onebook.transactions.described_keys import REFUSALS, DescribedKeys, owner_of
from onebook.transactions.export_jobs import (
    AccountExports,
    ExportJobs,
    ExportRule,
)
from onebook.transactions.limits import Retries
from onebook.transactions.markets import InstrumentRow, MarketCache, Markets, unknown_market
from onebook.transactions.private import PrivateStream, StreamOpening
from onebook.transactions.record import TradedMarket

STREAM: Final = "stream"  # the name of its host in the settings
FILES: Final = "files"  # the name of the host of its exports

Ask = Callable[[Call], Awaitable[Reply]]


class ExchangeDefinition(Struct, frozen=True, kw_only=True):
    """Everything that the author of an adapter writes.

    Args:
        entry: Names, types, addresses and bookkeeping.
        sources: Every source by its name, in the order of answers.
        api: Limits, and the functions that sign a request and interpret an answer.
        reader: Creates the reader of an account, one per client request.
        instruments: Fetches the instrument list of a category, page by page.
        listed: Converts a row of that list to a market.
        guess: Derives a market that is no longer listed from its category and symbol.
        streams: Its private WebSockets; without any, new records are found only by polling.
        poll_factor: Its polling interval relative to other exchanges: for tight limits.
        stream_token: Requests what `PrivateStream.opening` needs in addition to the credentials.
        exports: Its exports on request, on mainnet; see `AccountSession.exports`.
    """

    entry: AdapterEntry
    sources: Mapping[str, Source]
    api: ExchangeApi
    reader: Callable[["AccountSession"], AccountReader]
    instruments: Callable[[Ask, str], AsyncGenerator[list[InstrumentRow]]]
    listed: Callable[[str, InstrumentRow], TradedMarket]
    guess: Callable[[str, str], TradedMarket] = unknown_market
    streams: tuple[PrivateStream, ...] = ()
    poll_factor: float = 1.0
    stream_token: Callable[["AccountSession"], Awaitable[str]] | None = None
    exports: ExportRule | None = None


class ExchangeAdapter:
    """An exchange as used by the transaction service.

    Args:
        settings: Addresses that replace the exchange's own, the reserved share of limits, and the
            factor of an account's limits.
        clock: Time and sleeping.
        transport: Replaces the connection pool.
        random: For jitter.
        shared_folder: Folder of the state shared by the processes of this machine: nonces of keys
            (`Nonces`) and limits of the address (`AddressWindow`); None: nothing is shared.
        exports: Jobs and files of exports; None: nothing is exported.
    """

    def __init__(
        self,
        definition: ExchangeDefinition,
        settings: TransactionSettings | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        transport: httpx.AsyncBaseTransport | None = None,
        random: Random | None = None,
        shared_folder: Path | None = None,
        exports: ExportJobs | None = None,
    ) -> None:
        settings = settings or TransactionSettings()
        self._exports = exports
        override = settings.overrides.get(definition.entry.name) or AccountUrls()
        self._link_host = override.hosts.get(FILES, "")
        self._definition = definition
        if exports is not None and definition.exports is not None:
            exports.offer(definition.entry.name)
        self._client = ExchangeClient(
            definition.entry,
            definition.api,
            clock,
            transport=transport,
            random=random,
            reserve=settings.reserve_share,
            limit_factor=override.limit_factor,
            shared_folder=shared_folder,
        )
        self._sites = {
            each: self._client.site(each, hosts)
            for each, hosts in _hosts(definition.entry, settings).items()
        }
        self._markets = {each: self._market_cache(site) for each, site in self._sites.items()}
        self._keys = DescribedKeys(clock)
        self._stream_urls = _stream_urls(definition, settings)

    def _market_cache(self, site: ExchangeSite) -> MarketCache:
        definition, client = self._definition, self._client

        def pages(category: str, retries: Retries) -> AsyncGenerator[list[InstrumentRow]]:
            async def ask(call: Call) -> Reply:
                return await client.ask(site, call, credentials=None, retries=retries)

            return definition.instruments(ask, category)

        markets = Markets(definition.listed, definition.guess)
        return MarketCache(markets, pages, clock=client.clock, display=self.entry.display)

    @property
    def sequential(self) -> bool:
        """Whether the requests of a key are sent one after the other."""
        return self._definition.api.rising

    @property
    def entry(self) -> AdapterEntry:
        """The exchange's names, types, addresses and bookkeeping."""
        return self._definition.entry

    @property
    def sources(self) -> Mapping[str, Source]:
        """Every source by its name."""
        return self._definition.sources

    @property
    def environments(self) -> Collection[Environment]:
        """The environments that the exchange has."""
        return self._sites.keys()

    @property
    def waiting_s(self) -> float:
        """Seconds until the next request is allowed; 0 while a request is in flight."""
        return self._client.waits.left_s

    def account(
        self,
        environment: Environment,
        credentials: Credentials,
        *,
        name: AccountName | None = None,
        include_raw: bool = False,
        key_id: str = "",
        range_ms: tuple[int, int] = (0, 0),
        patient: bool = False,
        background: bool = False,
    ) -> "AccountSession":
        """Open an account (default: the first) for one request of an API key of this service.

        Args:
            range_ms: The oldest and the newest time of the request.
            patient: Whether to wait until the exchange has made its exports.
            background: Whether no client waits for the request: those of clients go first.

        Raises:
            InvalidRequest: The exchange has no such environment.
        """
        site = self._sites.get(environment)
        if site is None:
            raise InvalidRequest(f"{self.entry.display} has no {environment.value}.")
        session = AccountSession(
            self._definition,
            self._client,
            site,
            self._markets[environment],
            self._keys,
            environment=environment,
            credentials=credentials,
            first=name is None or not name.label,
            include_raw=include_raw,
            retries=Retries(
                self._client.random, clock=self._client.clock, key=key_id, background=background
            ),
        )
        rule = self._definition.exports
        if rule is not None and self._exports is not None and environment is Environment.MAINNET:
            session.exports = AccountExports(
                self._exports,
                rule,
                session,
                exchange=self.entry.name,
                display=self.entry.display,
                environment=environment.value,
                from_ms=range_ms[0],
                to_ms=range_ms[1],
                patient=patient,
                link_host=self._link_host,
            )
        return session

    @property
    def poll_factor(self) -> float:
        """Its polling interval relative to other exchanges."""
        return self._definition.poll_factor

    def streams(self, environment: Environment) -> tuple[PrivateStream, ...]:
        """The private streams of an environment."""
        return tuple(each for each in self._definition.streams if environment in each.urls)

    async def opening(
        self,
        facts: PrivateStream,
        environment: Environment,
        credentials: Credentials,
        *,
        account_id: str,
        name: AccountName,
        key_id: str,
    ) -> StreamOpening:
        """Prepare a connection to a private stream in an environment.

        Raises:
            SourceFailed: The exchange issues no token.
        """
        token, region = "", credentials.fields.get(HOST_FIELD.name, "")
        if self._definition.stream_token is not None:
            account = self.account(
                environment, credentials, name=name, key_id=key_id, background=True
            )
            token = await self._definition.stream_token(account)
        messages = facts.opening(credentials, self._client.clock.wall_ms(), token)
        urls = facts.regions.get(region, facts.urls)
        url = self._stream_urls.get(environment) or urls[environment]
        return StreamOpening(url + facts.path, account_id, messages)

    def verdict(self, environment: Environment) -> RequestVerdict | None:
        """Result of the last signed request for the first account; None before it."""
        site = self._sites.get(environment)
        return None if site is None else site.verdict

    async def close(self) -> None:
        """Cancel running requests and close the connections."""
        await self._client.close()


class AccountSession:
    """Signed requests to one account of an exchange, and its markets, for one client request.

    `reader` is the part that the adapter implements. `exports` is None if the exchange has none.
    """

    def __init__(
        self,
        definition: ExchangeDefinition,
        client: ExchangeClient,
        site: ExchangeSite,
        cache: MarketCache,
        keys: DescribedKeys,
        *,
        environment: Environment,
        credentials: Credentials,
        first: bool,
        include_raw: bool,
        retries: Retries,
    ) -> None:
        self.environment = environment
        self.include_raw = include_raw
        self.markets = cache.markets
        self.exports: AccountExports | None = None
        self._client = client
        self._site = site
        self._cache = cache
        self._keys = keys
        self._credentials = credentials
        self._first = first
        self._retries = retries
        self.reader = definition.reader(self)

    @property
    def trouble(self) -> SourceFailed | None:
        """The failure of the request that is being retried; None while requests succeed."""
        return self._retries.trouble

    @property
    def limited(self) -> bool:
        """Whether a request waits because of the exchange's rate limits."""
        return self._retries.limited

    @property
    def pending_exports(self) -> list[PendingExport]:
        """Exports that are not available yet, the newest first."""
        return [] if self.exports is None else list(self.exports.waiting.values())

    async def close(self) -> None:
        """Stop waiting for exports; running downloads continue."""
        if self.exports is not None:
            await self.exports.close()

    @property
    def host_names(self) -> tuple[str, ...]:
        """The hosts of the environment, the default first."""
        return tuple(self._site.hosts)

    @property
    def api_key(self) -> str:
        """The API key of the credentials; "" if everything is read from the store."""
        return self._credentials.api_key

    def has(self, field: str) -> bool:
        """Whether the operator set an optional field of the credentials."""
        return bool(self._credentials.fields.get(field))

    def now_ms(self) -> int:
        """Unix ms."""
        return self._client.clock.wall_ms()

    async def ask(self, call: Call) -> Reply:
        """Send a signed request, and retry while that may help; the reply has no failure.

        Raises:
            SourceFailed: The exchange does not answer, or refuses the request.
            TooOld: The range reaches further back than the exchange keeps.
            CursorGone: The exchange no longer accepts the cursor of the call.
        """
        try:
            return await self._client.ask(
                self._site,
                call,
                credentials=self._credentials,
                retries=self._retries,
                noted=self._first,
            )
        except SourceFailed as failure:
            if failure.reason in REFUSALS and call.key == KEY_FIELD.name:
                self._keys.forget(self._owner)
            raise

    async def key_described(
        self, fetch: Callable[[], Awaitable[Any]], *, fresh: bool = False
    ) -> Any:
        """The exchange's description of the API key, fetched at most every `KEY_MAX_AGE_S`.

        The background always fetches it, because collections keep what they derive from it.

        Args:
            fetch: Requests it.
            fresh: Whether to fetch it in any case.
        """
        fresh = fresh or self._retries.background
        return await self._keys.get(self._owner, fetch, fresh=fresh)

    @property
    def _owner(self) -> str:
        return owner_of(self.environment, self._credentials)

    async def load_markets(self, category: str) -> None:
        """Load the markets of a category unless they are known and recent."""
        await self._cache.load(category, self._retries)


def _hosts(entry: AdapterEntry, settings: TransactionSettings) -> dict[Environment, dict[str, str]]:
    """The address of each host by environment: the operator's if set, else the exchange's."""
    override = settings.overrides.get(entry.name) or AccountUrls()
    given = _given(override)
    found = {each: dict(hosts) for each, hosts in entry.hosts.items()}
    for environment, url in given.items():
        if url and environment in found:
            found[environment] = dict.fromkeys(found[environment], url)
    found[Environment.MAINNET] |= {
        name: url for name, url in override.hosts.items() if name not in (STREAM, FILES)
    }
    return found


def _given(override: AccountUrls) -> dict[Environment, str]:
    """The operator's addresses; "" for the exchange's own."""
    return {
        Environment.MAINNET: override.mainnet_url,
        Environment.TESTNET: override.testnet_url,
        Environment.DEMO: override.demo_url,
    }


def _stream_urls(
    definition: ExchangeDefinition, settings: TransactionSettings
) -> dict[Environment, str]:
    """The operator's addresses of private streams; an address of the exchange has them too."""
    override = settings.overrides.get(definition.entry.name) or AccountUrls()
    given = _given(override) | {
        Environment.MAINNET: override.hosts.get(STREAM, override.mainnet_url)
    }
    return {each: url.replace("http", "ws", 1) for each, url in given.items() if url}
