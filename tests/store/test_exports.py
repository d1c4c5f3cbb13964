"""Export jobs and budgets: one row each, whichever process writes it."""

import asyncio

from msgspec.structs import replace

from onebook.model import DAY_MS
from onebook.store import ExportJobRow, Store
from together import in_processes, spent

NOW_MS = 1_790_000_000_000
JOB = ExportJobRow("okx", "mainnet", "0f" * 8, "2024Q1", "requested", NOW_MS, NOW_MS)
UNITS, PROCESSES, TRIES = 5, 3, 4


async def test_a_job_is_written_and_changed(store: Store) -> None:
    assert await store.exports.job("okx", "mainnet", JOB.owner, "2024Q1") is None
    await store.exports.put(JOB)
    changes = {"state": "failed", "changed_at_ms": NOW_MS + 5, "reason": "It failed."}
    failed = replace(JOB, **changes, reference="7")
    other = replace(JOB, name="2023Q4")
    for job in (failed, other):
        await store.exports.put(job)
    assert await store.exports.job("okx", "mainnet", JOB.owner, "2024Q1") == failed
    assert await store.exports.jobs("okx", "mainnet", JOB.owner) == [other, failed]
    assert await store.exports.jobs("okx", "mainnet", "someone else") == []
    assert await store.exports.jobs("okx", "demo", JOB.owner) == []


async def test_a_budget_is_a_rolling_window(store: Store) -> None:
    async def spend(at_ms: int) -> int | None:
        return await store.exports.spend("okx", units=2, period_ms=DAY_MS, now_ms=at_ms)

    assert await spend(NOW_MS) is None
    assert await spend(NOW_MS + 1_000) is None
    assert await spend(NOW_MS + 2_000) == NOW_MS + DAY_MS
    assert await spend(NOW_MS + DAY_MS - 1) == NOW_MS + DAY_MS
    assert await spend(NOW_MS + DAY_MS) is None
    assert await spend(NOW_MS + DAY_MS + 1) == NOW_MS + 1_000 + DAY_MS
    assert await store.exports.uses("okx") == [NOW_MS + 1_000, NOW_MS + DAY_MS]
    assert await store.exports.uses("binance") == []
    # Of another budget, nothing was used.
    assert await store.exports.spend("b", units=1, period_ms=DAY_MS, now_ms=NOW_MS) is None


async def test_connections_at_once_spend_no_more(migrated: str, store: Store) -> None:
    async with Store(migrated) as other:
        found = await asyncio.gather(
            *(
                each.exports.spend("okx", units=UNITS, period_ms=DAY_MS, now_ms=NOW_MS)
                for each in (store, other) * UNITS
            )
        )
    assert found.count(None) == UNITS


async def test_processes_at_once_spend_no_more(migrated: str, store: Store) -> None:
    counts = await asyncio.to_thread(in_processes, PROCESSES, spent, migrated, UNITS, TRIES, NOW_MS)
    assert sum(counts) == UNITS
    assert await store.exports.uses("okx") == [NOW_MS] * UNITS
