"""Many walkers become one sequence."""

import asyncio
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from onebook.transactions.merge import BATCH_MAX, UNPLACED_MAX, Once, merged
from onebook.transactions.record import RecordKey, key_of
from onebook.transactions.walk import Range, Walker
from transactions.bybit_support import run
from transactions.test_record import record
from transactions.walking import simple, source


@given(
    st.lists(st.lists(st.integers(0, 500), unique=True, max_size=25), min_size=1, max_size=4),
    st.integers(1, 30),
)
def test_many_sources_become_one_sequence_cut_at_the_limit(
    lists: list[list[int]], limit: int
) -> None:
    """The first `limit` of the whole, whatever the pace of each source; equal ids once."""

    async def story() -> list[RecordKey]:
        progress, random = asyncio.Event(), Random(limit)
        walkers = []
        for index, times in enumerate(lists):
            book = simple(*times)
            book.latency_s = random.random()
            walkers.append(
                Walker(
                    source(name=f"s{index}"),
                    book,
                    Range(0, 500),
                    now_ms=lambda: 500,
                    progress=progress,
                    long=bool(index % 2),
                )
            )
        found = [key async for batch in merged(walkers, progress, limit=limit) for key, _ in batch]
        for walker in walkers:
            await walker.close()
        return found

    everything = sorted({at for times in lists for at in times}, reverse=True)
    assert [-key.negative_ms for key in run(story())] == everything[:limit]


def test_a_sparse_source_does_not_hold_back_a_full_one() -> None:
    """Its watermark says that nothing newer can come: the limit is reached before its end."""

    async def story() -> tuple[int, int]:
        progress = asyncio.Event()
        full, sparse = simple(*range(400, 500)), simple(3)
        sparse.latency_s = 1.0
        walkers = [
            Walker(
                source(name=name), b, Range(0, 500), now_ms=lambda: 500, progress=progress,
                long=False,
            )
            for name, b in (("full", full), ("sparse", sparse))
        ]  # fmt: skip
        found = [key async for batch in merged(walkers, progress, limit=50) for key, _ in batch]
        for walker in walkers:
            await walker.close()
        return len(found), len(sparse.asked)

    found, asked = run(story())
    assert found == 50
    assert asked <= 3  # of five windows


def test_a_record_without_a_time_of_its_own_passes_once_wherever_it_stands() -> None:
    """In two lists, and in the answer after this one."""
    row = record(incomplete=("timestamp",), transactionId="0x" + "b" * 40)
    here, there = (key_of(row), row), (RecordKey(-5, row.transactionId), row)
    other = (key_of(record()), record())
    once = Once()
    assert [once.passes(keyed) for keyed in (here, other, there)] == [True, True, False]
    following = Once(once.unplaced)
    assert [following.passes(keyed) for keyed in (there, other)] == [False, True]


def test_a_cursor_carries_the_newest_of_them() -> None:
    once = Once()
    for number in range(UNPLACED_MAX + 5):
        row = record(incomplete=("timestamp",), transactionId=f"0x{number:016x}" + "b" * 24)
        assert once.passes((key_of(row), row))
    assert len(once.unplaced) == UNPLACED_MAX
    assert once.unplaced[-1] == f"0x{UNPLACED_MAX + 4:016x}"


def test_a_long_sequence_comes_in_small_batches_and_others_have_turns_between() -> None:
    """What is ready at once may be thousands of records, which the caller encodes."""

    async def story() -> tuple[list[int], list[int]]:
        progress, turns = asyncio.Event(), 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        walkers = [
            Walker(
                source(name=f"s{index}"),
                simple(*range(index, 3_000, 4)),
                Range(0, 3_000),
                now_ms=lambda: 3_000,
                progress=progress,
            )
            for index in range(4)
        ]
        await asyncio.sleep(60)  # until each has as many ready as it may
        task = asyncio.create_task(other())
        sizes, seen = [], []
        async for batch in merged(walkers, progress, limit=None):
            sizes.append(len(batch))
            seen.append(turns)
        task.cancel()
        for walker in walkers:
            await walker.close()
        return sizes, seen

    sizes, seen = run(story())
    assert sum(sizes) == 3_000
    assert max(sizes) == BATCH_MAX
    assert all(later > earlier for earlier, later in pairwise(seen))
