"""Batches of usage, on both databases."""

import asyncio

from msgspec.structs import replace

from onebook.store import Store, UsageCell
from onebook.store.usage import CELLS_AT_ONCE
from store.samples import JANUARY, KEY


async def test_usage_adds_up_and_its_totals_come_back(keyed: Store) -> None:
    assert await keyed.usage.total(JANUARY) == 0
    assert await keyed.usage.apply(("node", 1), {JANUARY: 5}, 1) == {JANUARY: 5}
    february = UsageCell("key_1", 9)
    totals = await keyed.usage.apply(("node", 2), {february: 1, JANUARY: 7}, 2)
    assert totals == {JANUARY: 12, february: 1}
    assert await keyed.usage.total(JANUARY) == 12


async def test_usage_of_many_is_found_at_once_each_in_its_own_period(keyed: Store) -> None:
    await keyed.accounts.create_key(replace(KEY, key_id="key_2"), b"second")
    cells = [UsageCell(key_id, start_ms) for key_id in ("key_1", "key_2") for start_ms in (0, 9)]
    deltas = {cell: number for number, cell in enumerate(cells, start=1)}
    await keyed.usage.apply(("node", 1), deltas, 1)
    unused = [UsageCell(f"key_{number}", number) for number in range(1_000)]
    assert await keyed.usage.totals([cells[0], cells[3], *unused]) == {cells[0]: 1, cells[3]: 4}
    assert await keyed.usage.totals([cells[1], cells[3]]) == {cells[1]: 2, cells[3]: 4}
    assert await keyed.usage.totals([]) == {}


async def test_a_batch_of_many_is_written_in_parts_and_counts_as_one(keyed: Store) -> None:
    cells = [UsageCell("key_1", 9 * number) for number in range(2 * CELLS_AT_ONCE + 1)]
    deltas = {cell: number for number, cell in enumerate(reversed(cells), start=1)}
    assert await keyed.usage.apply(("node", 1), deltas, 1) == deltas
    assert await keyed.usage.apply(("node", 1), deltas, 2) is None
    assert await keyed.usage.totals(cells) == deltas


async def test_a_batch_counts_once_however_often_it_comes(keyed: Store) -> None:
    assert await keyed.usage.apply(("node", 1), {JANUARY: 5}, 1) == {JANUARY: 5}
    assert await keyed.usage.apply(("node", 1), {JANUARY: 5}, 2) is None
    assert await keyed.usage.apply(("other node", 1), {JANUARY: 5}, 2) == {JANUARY: 10}
    assert await keyed.usage.total(JANUARY) == 10


async def test_a_late_batch_counts(keyed: Store) -> None:
    await keyed.usage.apply(("node", 2), {JANUARY: 5}, 1)
    assert await keyed.usage.apply(("node", 1), {JANUARY: 1}, 2) == {JANUARY: 6}
    assert await keyed.usage.apply(("node", 3), {}, 3) == {}


async def test_batches_at_once_lose_nothing(keyed: Store) -> None:
    batches = [keyed.usage.apply(("node", n), {JANUARY: 1}, n) for n in range(20)]
    await asyncio.gather(*batches)
    assert await keyed.usage.total(JANUARY) == 20
