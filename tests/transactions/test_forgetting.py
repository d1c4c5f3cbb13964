"""Deleting collected records, and keys of other accounts under the same name."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace as with_other
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace
from sqlalchemy import func, select

from clocks import made_of
from databases import KINDS, database, migrated
from onebook.errors import ServiceUnavailable
from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.store import Store
from onebook.store.tables import (
    collected_lists,
    collected_ranges,
    collected_readings,
    collected_records,
    facts,
    metadata,
)
from onebook.transactions.collected import FORGOTTEN
from onebook.transactions.collector import AnotherAccount, CollectedAccount, Collector
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.okx import OKX
from together import upgraded
from transactions.bybit_support import MASTER_KEY, NOW_MS
from transactions.collecting import (
    FennecHome,
    Passing,
    answered,
    collecting,
    coverage_of,
)
from transactions.fennec.account import API_KEY, PASSPHRASE, SECRET
from transactions.okx_support import KEY

ALL = ("deposits", "withdrawals", "trades", "ledger")
BEFORE_MS = NOW_MS - 10 * DAY_MS
TABLES = (collected_records, collected_ranges, collected_lists, collected_readings)


@pytest.fixture(scope="module", params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database(request.param, tmp_path_factory.mktemp("forgotten")) as url:
        asyncio.run(upgraded(url))
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with Store(url) as opened:
        async with opened.database.writing() as connection:
            for table in reversed(metadata.sorted_tables):
                await connection.execute(table.delete())
        yield opened


async def counts(store: Store) -> list[int]:
    found = []
    for table in TABLES:
        row = await store.database.row(select(func.count().label("count")).select_from(table))
        assert row is not None
        found.append(row.count)
    return found


async def test_what_is_older_is_deleted_and_not_collected_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.transactions.collector.FORGET_ROWS", 100)  # several transactions
    async with FennecHome(store) as home:
        await home.collect()
        whole, _ = await home.ask(*ALL, source="collected")
        kept = [each for each in whole if each["timestamp"] >= BEFORE_MS]
        gone = await home.collector.forget(home.account, BEFORE_MS)
        assert gone.records == len(whole) - len(kept) > 100
        assert gone.readings == 0
        stored, summary = await home.ask(*ALL, source="collected")
        assert stored == kept
        for entry in coverage_of(summary).values():
            assert (entry["complete"], entry["reason"]) == (False, FORGOTTEN)
            assert entry["from"] == BEFORE_MS
        lists = await store.collected.lists("fennec", "mainnet")
        assert sum(each.records for each in lists) == len(kept)

        home.time.passed_s += 86_400
        done = await home.collect()
        assert (done.new, done.complete) == (0, True)
        assert (await home.ask(*ALL, source="collected"))[0] == kept
        # The exchange still has them, and answers go on to say so.
        assert (await home.ask(*ALL))[0] == whole


async def test_everything_is_deleted_and_the_next_collection_is_a_first_one(store: Store) -> None:
    async with FennecHome(store) as home:
        first = await home.collect()
        gone = await home.collector.forget(home.account, None)
        assert gone == (first.new, 1)
        assert await counts(store) == [0, 0, 0, 0]
        rows = await store.database.rows(select(facts.c.name))
        assert not [row.name for row in rows if "fennec" in row.name]
        assert (await home.collect()).new == first.new


async def test_another_account_is_untouched(store: Store) -> None:
    async with FennecHome(store) as home:
        await home.vault.put(
            "fennec:other", "mainnet", Credentials(API_KEY, SECRET, passphrase=PASSPHRASE),
            now_ms=NOW_MS,
        )  # fmt: skip
        other = CollectedAccount.of("fennec:other")
        await home.collect()
        await home.collector.collect(other)
        before, _ = await answered(home.service, "fennec:other", *ALL, source="collected")
        await home.collector.forget(home.account, None)
        after, _ = await answered(home.service, "fennec:other", *ALL, source="collected")
        assert after == before


async def test_a_new_key_of_an_exchange_that_names_no_account_is_a_finding(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with FennecHome(store) as home:
        await home.collect()
        identity = await home.service.collection.identity(
            home.account.name, home.account.environment
        )
        assert not identity.doubtful
        # The same account in truth, which nothing shows.
        await store.facts.put(
            "collected_identity/mainnet/fennec", '{"key":"another","owner":"","doubtful":false}'
        )
        with caplog.at_level(logging.WARNING):
            await home.collect()
        assert "The API key of fennec was replaced" in caplog.text
        identity = await home.service.collection.identity(
            home.account.name, home.account.environment
        )
        assert identity.doubtful


@asynccontextmanager
async def okx_home(folder: Path, *keys) -> AsyncIterator[tuple[Vault, Collector, object]]:
    time = Passing()
    okx = SimulatedOkx(
        OkxAccount(OkxHistory(NOW_MS - 20 * DAY_MS, NOW_MS, rows=100)), keys,
        now_ms=time.now_ms, limited=False,
    )  # fmt: skip
    sources = {
        name: replace(each, begins_ms=NOW_MS - 30 * DAY_MS) for name, each in OKX.sources.items()
    }
    async with Store(await migrated(folder)) as store:
        vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
        adapter = ExchangeAdapter(
            replace(OKX, sources=sources), clock=time.clock, transport=SimulatedTransport(okx),
            random=Random(7),
        )  # fmt: skip
        service = collecting(adapter, vault, store, time.clock)
        collector = Collector(service, store.facts, clock=made_of(wall_ms=time.now_ms))
        try:
            yield vault, collector, service
        finally:
            await service.close()


async def use(vault: Vault, key) -> None:
    credentials = Credentials(key.api_key, key.secret, passphrase=key.passphrase)
    await vault.put("okx", "mainnet", credentials, now_ms=NOW_MS)


async def test_a_key_of_another_account_is_refused_and_a_new_key_of_the_same_is_not(
    tmp_path: Path,
) -> None:
    renewed = with_other(KEY, api_key="11111111-0000-0000-0000-000000000000")
    foreign = with_other(KEY, api_key="22222222-0000-0000-0000-000000000000", user="4711")
    account = CollectedAccount.of("okx")
    async with okx_home(tmp_path, KEY, renewed, foreign) as (vault, collector, service):
        await use(vault, KEY)
        assert (await collector.collect(account)).new > 50
        collected, _ = await answered(service, "okx", source="collected")
        joined, _ = await answered(service, "okx")

        await use(vault, renewed)
        assert (await answered(service, "okx"))[0] == joined  # before it was collected with it
        await collector.collect(account)

        await use(vault, foreign)
        with pytest.raises(ServiceUnavailable, match="different account"):
            await answered(service, "okx")
        assert (await answered(service, "okx", source="collected"))[0] == collected
        assert await answered(service, "okx", source="exchange")
        with pytest.raises(AnotherAccount, match="onebook transactions forget okx"):
            await collector.collect(account)
        problem = await service.collection.facts.get(account.problem_fact)
        assert "another account" in problem
        assert (await answered(service, "okx", source="collected"))[0] == collected

        await collector.forget(account, None)
        await collector.collect(account)
        assert await service.collection.facts.get(account.problem_fact) == ""
        identity = await service.collection.identity(*account.place)
        assert (identity.owner, identity.doubtful) == ("4711", False)
        assert await answered(service, "okx")
