"""Bybit behind the adapter protocol: its environments, their markets, and a reader per request."""

from collections.abc import AsyncGenerator, Mapping
from random import Random
from typing import Final

import httpx

from onebook.config import TransactionSettings
from onebook.transactions.adapter import AdapterEntry, Environment, RequestVerdict, Source
from onebook.transactions.bybit.answers import DISPLAY, BybitApi
from onebook.transactions.bybit.endpoints import ENTRY, SOURCES
from onebook.transactions.bybit.instruments import new_markets
from onebook.transactions.bybit.pages import cursor_parameter
from onebook.transactions.bybit.paths import INSTRUMENTS
from onebook.transactions.bybit.reader import BybitReader, Environs
from onebook.transactions.client import Call, ExchangeClient, ExchangeHost
from onebook.transactions.clock import REAL, ServiceClock
from onebook.transactions.credentials import Credentials
from onebook.transactions.limits import Retries
from onebook.transactions.markets import InstrumentRow, MarketCache

MARKET_PAGES_MAX: Final = 20


class BybitAdapter:
    """The adapter of Bybit v5 (unified trading accounts)."""

    def __init__(
        self,
        settings: TransactionSettings | None = None,
        *,
        clock: ServiceClock = REAL,
        transport: httpx.AsyncBaseTransport | None = None,
        random: Random | None = None,
    ) -> None:
        settings = settings or TransactionSettings()
        reserve = settings.reserve_share
        self._client = ExchangeClient(
            BybitApi(), clock, transport=transport, random=random, spare=reserve > 0
        )
        urls = {
            Environment.MAINNET: settings.bybit_mainnet_url,
            Environment.TESTNET: settings.bybit_testnet_url,
        }
        self._environs = {
            environment: self._environ(environment, self._client.host(url, reserve=reserve))
            for environment, url in urls.items()
        }

    def _environ(self, environment: Environment, host: ExchangeHost) -> Environs:
        async def pages(category: str, retries: Retries) -> AsyncGenerator[list[InstrumentRow]]:
            cursor = ""
            for _ in range(MARKET_PAGES_MAX):
                query = f"category={category}&limit=1000" + cursor_parameter(cursor)
                call = Call(INSTRUMENTS, query)
                reply = await self._client.ask(host, call, credentials=None, retries=retries)
                yield reply.value["list"]
                cursor = reply.value.get("nextPageCursor") or ""
                if not cursor:
                    return

        clock = self._client.clock
        markets = MarketCache(new_markets(), pages, clock=clock, display=DISPLAY)
        return Environs(environment, host, markets)

    @property
    def entry(self) -> AdapterEntry:
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
    ) -> BybitReader:
        """Bind an account of an environment."""
        return BybitReader(
            self._client,
            self._environs[environment],
            credentials,
            include_raw=include_raw,
            key_id=key_id,
        )

    def verdict(self, environment: Environment) -> RequestVerdict | None:
        """What became of the last signed request; None before the first."""
        return self._environs[environment].host.verdict

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()
