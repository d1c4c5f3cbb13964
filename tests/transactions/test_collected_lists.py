"""The lists of an account are read side by side, within limits, and end with the collection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from databases import migrated
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.store import Store
from onebook.store.tables import collected_records, leases
from onebook.transactions.bybit import BYBIT
from onebook.transactions.bybit.endpoints import DEPOSITS, TRANSFERS, UNIVERSAL_TRANSFERS
from onebook.transactions.collector import (
    LISTS_AT_ONCE,
    CollectedAccount,
    CollectionFull,
    Collector,
    Step,
)
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from steady import PATIENCE_S
from transactions.bybit_support import KEY, MASTER_KEY, NOW_MS
from transactions.collecting import SETTINGS, FennecHome, Passing, answered, collecting

ACCOUNT = CollectedAccount.of("bybit")
# The account opened 20 days ago: no empty windows before.
SOURCES = {
    name: replace(each, begins_ms=NOW_MS - 20 * DAY_MS) for name, each in BYBIT.sources.items()
}


class OneHeld(httpx.AsyncBaseTransport):
    """Answers a list only after a later one was requested."""

    def __init__(self, inner: httpx.AsyncBaseTransport, *, path: str, until: str) -> None:
        self._inner = inner
        self._path = path
        self._until = until
        self._open = asyncio.Event()
        self.running_max = 0
        self.running = lambda: 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.running_max = max(self.running_max, self.running())
        if request.url.path == self._until:
            self._open.set()
        if request.url.path == self._path:
            await self._open.wait()
        return await self._inner.handle_async_request(request)


class Home:
    """A Bybit account and its collector."""

    def __init__(self, store: Store, **settings: Any) -> None:
        self.store, self.time = store, Passing()
        account = Account(History(NOW_MS - 20 * DAY_MS, NOW_MS - DAY_MS, executions=300))
        self.exchange = SimulatedBybit(
            account, [KEY], now_ms=self.time.now_ms, sleep=self.time.sleep, limited=False
        )
        self.vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
        self.transport = OneHeld(
            SimulatedTransport(self.exchange), path=TRANSFERS, until=UNIVERSAL_TRANSFERS
        )
        adapter = ExchangeAdapter(
            replace(BYBIT, sources=SOURCES),
            clock=self.time.clock, transport=self.transport, random=Random(7),
        )  # fmt: skip
        chosen = SETTINGS.model_copy(update=settings)
        self.service = collecting(adapter, self.vault, store, self.time.clock, settings=chosen)
        self.transport.running = lambda: self.service.running
        self.collector = Collector(
            self.service, store.facts, settings=chosen, clock=self.time.collector
        )


@asynccontextmanager
async def home(folder: Path, **settings: Any) -> AsyncIterator[Home]:
    async with Store(await migrated(folder)) as store:
        made = Home(store, **settings)
        key = Credentials(KEY.api_key, KEY.secret)
        await made.vault.put("bybit", "mainnet", key, now_ms=NOW_MS)
        async with asyncio.timeout(PATIENCE_S):
            yield made
        await made.service.close()


async def test_a_slow_or_failing_list_delays_and_ends_no_other(tmp_path: Path) -> None:
    async with home(tmp_path) as here:
        steps: list[float] = []

        def show(step: Step) -> None:
            steps.append(step.share)

        here.exchange.faults.queue(DEPOSITS, *["404"] * 99)
        done = await here.collector.collect(ACCOUNT, show)
        assert {each.transaction_type for each in done.errors} == {"deposits"}
        assert done.gaps == ("chain_deposits",)
        assert 1 < here.transport.running_max <= LISTS_AT_ONCE
        assert 0 <= min(steps) < max(steps) <= 1

        here.exchange.faults = AccountFaults()
        again = await here.collector.collect(ACCOUNT)
        assert again.complete
        assert 0 < again.new < done.new  # the others were kept
        asked = {"start_time": NOW_MS - 19 * DAY_MS, "end_time": NOW_MS - 2 * DAY_MS}
        stored, _ = await answered(here.service, "bybit", source="collected", **asked)
        fetched, _ = await answered(here.service, "bybit", source="exchange", **asked)
        assert stored == fetched
        assert len(stored) > 100


async def test_a_failure_of_the_collection_ends_every_list(tmp_path: Path) -> None:
    async with home(tmp_path, collected_records_max=100) as here:
        with pytest.raises(CollectionFull):
            await here.collector.collect(ACCOUNT)
        assert here.service.running == 0
        assert await here.store.database.rows(leases.select()) == []
        assert len(await here.store.database.rows(collected_records.select())) <= 100


@pytest.mark.parametrize(("most", "at_once"), [(1, 1), (8, 2), (99, LISTS_AT_ONCE)])
async def test_clients_keep_half_of_the_queries_of_a_node(
    tmp_path: Path, most: int, at_once: int
) -> None:
    async with home(tmp_path, runs_max=most, runs_per_key_max=most) as here:
        here.transport._open.set()
        await here.collector.collect(ACCOUNT)
        assert 1 <= here.transport.running_max <= at_once


async def test_lists_behind_rising_nonces_are_read_one_after_the_other(tmp_path: Path) -> None:
    """Its requests go one after the other, so that a second list would only wait."""
    async with Store(await migrated(tmp_path)) as store, FennecHome(store) as here:
        running = 0
        read = here.service.run

        def counted(*args: Any, **named: Any) -> Any:
            nonlocal running
            running = max(running, here.service.running)
            return read(*args, **named)

        here.service.run = counted
        assert (await here.collect()).complete
        assert (running, here.exchange.at_once_max) == (0, 1)
