"""A collecting service over a simulated account and a real database, in virtual time."""

import asyncio
import os
import signal
from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec import json
from msgspec.structs import replace

from clocks import made_of
from onebook.clock import Clock
from onebook.config import TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.store import Store
from onebook.transactions.adapter import AdapterEntry, Source
from onebook.transactions.collected import Collection
from onebook.transactions.collector import Collected, CollectedAccount, Collector
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from steady import PATIENCE_S
from together import forking
from transactions.bybit_support import CALLER, MASTER_KEY, NOW_MS
from transactions.fennec.account import (
    API_KEY,
    PASSPHRASE,
    SECRET,
    FennecAccount,
    SimulatedFennec,
)
from transactions.fennec.adapter import FENNEC

SETTINGS = TransactionSettings(deadline_s=3_600.0, stream_deadline_s=36_000.0)
Row = dict[str, Any]
# Fennec opened 30 days ago: no empty windows before.
SOURCES = {
    name: replace(each, begins_ms=NOW_MS - 30 * DAY_MS) for name, each in FENNEC.sources.items()
}


class Passing:
    """Time that only waits or the test advance."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.clock = made_of(wall_ms=self.now_ms, monotonic=lambda: self.passed_s, sleep=self.sleep)
        # The collector renews its lease in the background: its waits move nothing.
        self.collector = made_of(wall_ms=self.now_ms, monotonic=lambda: self.passed_s)

    def now_ms(self) -> int:
        return NOW_MS + round(self.passed_s * 1_000)

    async def sleep(self, seconds: float) -> None:
        self.passed_s += seconds
        await asyncio.sleep(0)


def collecting(
    adapter: ExchangeAdapter,
    vault: Vault,
    store: Store,
    clock: Clock,
    *,
    sealed: bool = False,
    settings: TransactionSettings = SETTINGS,
) -> Transactions:
    return Transactions(
        [adapter],
        vault,
        cursor_secret=b"a secret of the tests",
        settings=settings,
        clock=clock,
        collection=Collection(store.collected, vault, sealed=sealed),
    )


class FennecHome:
    """An operator's database, and the simulated Fennec."""

    def __init__(
        self,
        store: Store,
        *,
        sealed: bool = False,
        master_key: str = MASTER_KEY,
        sources: Mapping[str, Source] | None = None,
        entry: AdapterEntry = FENNEC.entry,
        exchange: SimulatedFennec | None = None,
        time: Passing | None = None,
        settings: TransactionSettings = SETTINGS,
    ) -> None:
        self.store = store
        self.time = time or Passing()
        self.exchange = exchange or SimulatedFennec(
            FennecAccount(NOW_MS - DAY_MS, days=20, orders_a_day=4), now_ms=self.time.now_ms
        )
        self.vault = Vault(store.credentials, MasterKeys(None, value=master_key))
        self.adapter = ExchangeAdapter(
            replace(FENNEC, sources=sources or SOURCES, entry=entry),
            clock=self.time.clock,
            transport=SimulatedTransport(self.exchange),
            random=Random(7),
        )
        self.service = collecting(
            self.adapter, self.vault, store, self.time.clock, sealed=sealed, settings=settings
        )
        self.collector = Collector(
            self.service, store.facts, settings=settings, clock=self.time.collector
        )

    async def __aenter__(self) -> "FennecHome":
        key = Credentials(API_KEY, SECRET, passphrase=PASSPHRASE)
        if not await self.vault.has("fennec", "mainnet"):
            await self.vault.put("fennec", "mainnet", key, now_ms=NOW_MS)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.service.close()

    @property
    def account(self) -> CollectedAccount:
        return CollectedAccount.of("fennec")

    async def collect(self) -> Collected:
        return await self.collector.collect(self.account)

    async def ask(self, *types: str, **fields: Any) -> tuple[list[Row], Row]:
        return await answered(self.service, "fennec", *types, **fields)


async def answered(
    service: Transactions, exchange: str, *types: str, **fields: Any
) -> tuple[list[Row], Row]:
    """Every record of a stream, and its summary."""
    fields = {"start_time": 0} | fields
    ask = TransactionsRequest(exchange=exchange, transaction_types=list(types), **fields)
    query = await service.prepare(ask, key_id=CALLER, streamed=True)
    chunks = [chunk async for chunk in service.stream(query, key_id=CALLER)]
    *records, summary = (json.decode(line) for line in b"".join(chunks).splitlines())
    return records, summary


def coverage_of(summary: Row) -> dict[str, Row]:
    return {each["transaction_type"]: each for each in summary["coverage"]}


async def collected_until_killed(url: str, writes: int) -> None:
    """Collect until a write, at which the process is killed between two statements."""
    async with Store(url) as store, FennecHome(store) as home:
        cover, left = store.collected.cover, writes

        async def covering(*args: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            await cover(*args)

        store.collected.cover = covering
        await home.collect()


def killed(url: str, writes: int) -> int | None:
    """The exit code of a process that is killed at a write."""
    process = forking().Process(target=_collect, args=(url, writes))
    process.start()
    process.join(PATIENCE_S)
    return process.exitcode


def _collect(url: str, writes: int) -> None:
    asyncio.run(collected_until_killed(url, writes))
