"""Collected random accounts: each record equals the exchange's, word by word."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from clocks import made_of
from databases import migrated
from onebook.config import AccountUrls
from onebook.simulator.accounts.okx import OkxHistory
from onebook.store import Store
from onebook.transactions.adapter import Environment
from onebook.transactions.bybit import BYBIT
from onebook.transactions.collector import CollectedAccount, Collector
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter, ExchangeDefinition
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.okx import OKX
from onebook.transactions.service import Transactions
from transactions.bybit_support import KEY, MASTER_KEY, NOW_MS
from transactions.collecting import SETTINGS, Passing, Row, answered, collecting, coverage_of
from transactions.okx_support import OkxWorld
from transactions.oracle.account import RandomAccount
from transactions.oracle.exchange import RandomExchange
from transactions.oracle.exchange import listening as bybit_listening
from transactions.oracle.kraken.account import RandomKraken
from transactions.oracle.kraken.exchange import RandomKrakenExchange, listening
from transactions.oracle.rows import DAY_MS
from transactions.test_random_accounts import TOKENS_TO_MS, passing

FROM_MS = NOW_MS - 20 * DAY_MS


@asynccontextmanager
async def service(
    definition: ExchangeDefinition, hosts: dict[str, str], key: Credentials, folder: Path
) -> AsyncIterator[tuple[Transactions, Collector]]:
    name = definition.entry.name
    settings = SETTINGS.model_copy(update={"overrides": {name: AccountUrls(hosts=hosts)}})
    clock = passing()
    async with Store(await migrated(folder)) as store:
        vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
        await vault.put(name, "mainnet", key, now_ms=NOW_MS)
        adapter = ExchangeAdapter(definition, settings, clock=clock, random=Random(7))
        made = collecting(adapter, vault, store, clock, settings=settings, sealed=True)
        try:
            here = made_of(wall_ms=lambda: NOW_MS)
            yield made, Collector(made, store.facts, settings=settings, clock=here)
        finally:
            await made.close()


async def check(
    made: Transactions, collector: Collector, definition: ExchangeDefinition, *chosen: str
) -> None:
    entry = definition.entry
    done = await collector.collect(CollectedAccount.of(entry.name))
    assert done.new == done.records > 100
    asked = {"start_time": FROM_MS, "end_time": NOW_MS - DAY_MS, "include_raw": True}
    for words in ((), *((word,) for word in entry.sources_by_type if word in chosen)):
        fetched, said = await answered(made, entry.name, *words, source="exchange", **asked)
        stored, told = await answered(made, entry.name, *words, source="collected", **asked)
        assert timed(stored) == timed(fetched), words
        whole = {each["transaction_type"]: each["complete"] for each in said["coverage"]}
        assert {e["transaction_type"]: e["complete"] for e in told["coverage"]} == whole
        joined, _ = await answered(made, entry.name, *words, **asked)
        assert timed(joined) == timed(fetched), words


def timed(records: list[Row]) -> list[Row]:
    """Drop records without their own time, whose position depends on the windows."""
    return [each for each in records if "timestamp" not in each["incomplete"]]


@pytest.mark.parametrize("seed", [1])
async def test_a_random_kraken_account(seed: int, tmp_path: Path) -> None:
    account = RandomKraken(seed, from_ms=FROM_MS, to_ms=NOW_MS - DAY_MS)
    account.fill(150)
    exchange = RandomKrakenExchange(account, seed, now_ms=lambda: NOW_MS)
    key = Credentials("key", "c2VjcmV0", futures_key="key", futures_secret="c2VjcmV0")
    async with (
        listening(exchange) as url,
        service(KRAKEN, {"spot": url, "futures": url}, key, tmp_path) as (made, collector),
    ):
        await check(
            made, collector, KRAKEN, "trades", "derivatives", "ledger", "transfers", "deposits"
        )


@pytest.mark.parametrize("seed", [1])
async def test_a_random_bybit_account(seed: int, tmp_path: Path) -> None:
    account = RandomAccount(seed, from_ms=FROM_MS, to_ms=NOW_MS - DAY_MS, tokens_to_ms=TOKENS_TO_MS)
    account.fill(150)
    exchange = RandomExchange(account, seed, now_ms=lambda: NOW_MS)
    key = Credentials(KEY.api_key, KEY.secret)
    begins_ms = FROM_MS - 8 * DAY_MS  # no empty windows before
    sources = {name: replace(one, begins_ms=begins_ms) for name, one in BYBIT.sources.items()}
    definition = replace(BYBIT, sources=sources)
    async with (
        bybit_listening(exchange) as url,
        service(
            definition, dict.fromkeys(BYBIT.entry.hosts[Environment.MAINNET], url), key, tmp_path
        ) as (made, collector),
    ):
        await check(made, collector, definition, "ledger")


async def test_what_okx_forgets_of_one_of_its_two_ledgers(tmp_path: Path) -> None:
    """The funding ledger is whole, the trading ledger kept three months: each has its coverage."""
    time = Passing()
    history = OkxHistory(NOW_MS - 150 * DAY_MS, NOW_MS - DAY_MS, rows=500)
    world = OkxWorld(history=history, clock=time.clock, site={"now_ms": time.now_ms}, latency_s=0.0)
    asked = {"start_time": NOW_MS - 60 * DAY_MS, "end_time": NOW_MS - DAY_MS}
    async with Store(await migrated(tmp_path)) as store:
        vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
        await vault.put("okx", "mainnet", world.credentials, now_ms=NOW_MS)
        made = collecting(world.adapter, vault, store, time.clock)
        collector = Collector(made, store.facts, settings=SETTINGS, clock=time.collector)
        try:
            assert (await collector.collect(CollectedAccount.of("okx"))).new > 300
            fetched, _ = await answered(
                made, "okx", *OKX.entry.types[1:], source="exchange", **asked
            )
            stored, told = await answered(
                made, "okx", *OKX.entry.types[1:], source="collected", **asked
            )
            assert stored == fetched
            assert all(each["complete"] for each in told["coverage"])
            _, told = await answered(made, "okx", "deposits", "trades", source="collected")
            assert coverage_of(told)["deposits"]["complete"]
            assert coverage_of(told)["trades"]["reason"] == "older_not_kept"
            time.passed_s += 70 * 86_400
            left, _ = await answered(made, "okx", "ledger", source="exchange", **asked)
            joined, told = await answered(made, "okx", *OKX.entry.types[1:], **asked)
            assert len(left) < sum(each["type"] == "ledger" for each in fetched)
            assert joined == fetched
            assert all(each["complete"] for each in told["coverage"])
        finally:
            await made.close()
