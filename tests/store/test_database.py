"""Transactions of a database: finished however they are cancelled, and facts."""

import asyncio
import gc
from pathlib import Path

import pytest

from onebook.store import Store
from store.samples import JANUARY


async def test_a_fact_stays_what_it_was_first(store: Store) -> None:
    assert await store.facts.setdefault("pepper", "a") == "a"
    assert await store.facts.setdefault("pepper", "b") == "a"


async def test_what_has_begun_is_finished_and_leaves_no_lock_however_it_is_cancelled(
    keyed: Store,
) -> None:
    for turns in range(40):
        task = asyncio.create_task(keyed.usage.apply(("node", turns), {JANUARY: 1}, 0))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await keyed.usage.apply(("node", turns), {JANUARY: 1}, 0)
    assert await keyed.usage.total(JANUARY) == 40


async def test_a_store_that_closes_finishes_what_has_begun(migrated: str, keyed: Store) -> None:
    async with Store(migrated) as closing:
        task = asyncio.create_task(closing.usage.apply(("node", 1), {JANUARY: 1}, 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    assert await keyed.usage.total(JANUARY) == 1


async def test_work_that_fails_after_its_caller_was_cancelled_is_no_defect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop while the database was away ended with a trace of an exception never retrieved."""
    path = tmp_path / "onebook.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.database.upgrade()
        task = asyncio.create_task(store.facts.probe(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        path.rename(tmp_path / "elsewhere")
        await asyncio.gather(task, return_exceptions=True)
    del task
    gc.collect()
    assert [record.name for record in caplog.records] == ["onebook.store"]
