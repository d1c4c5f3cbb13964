"""The cache over reads: what is fresh and shared, and what a change makes of reads under way."""

import asyncio
from collections.abc import Callable, Collection

import pytest

from onebook.accounts.cache import CACHE_TTL_MS, READS_MAX, ReadCache, fresh_since
from onebook.errors import ServiceUnavailable

from .conftest import START_MS, Clock


class Rows:
    """A table that counts its reads, and lets something happen during one or at its end."""

    def __init__(self, **rows: int) -> None:
        self.rows = rows
        self.reads: list[list[str]] = []
        self.during: Callable[[], None] = lambda: None
        self.after: Callable[[], None] | None = None

    async def read(self, names: Collection[str]) -> dict[str, int]:
        self.reads.append(list(names))
        found = {name: self.rows[name] for name in names if name in self.rows}
        await asyncio.sleep(0)
        self.during()
        if self.after is not None:  # queued before the read's end wakes those who wait for it
            asyncio.get_running_loop().call_soon(self.after)
        return found


@pytest.fixture
def rows() -> Rows:
    return Rows(a=1, b=2)


@pytest.fixture
def cache(rows: Rows, clock: Clock) -> ReadCache[str, int]:
    return ReadCache(rows.read, clock_ms=clock, kept_max=2)


async def test_a_value_is_read_once_for_all_who_ask_and_then_kept(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    asked = [cache.get(name, START_MS) for name in ("a", "b", "a", "c")]
    assert await asyncio.gather(*asked) == [1, 2, 1, None]
    assert rows.reads == [["a", "b", "c"]]
    assert await cache.get("a", START_MS) == 1
    assert len(rows.reads) == 1


async def test_what_does_not_exist_is_asked_for_each_time(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    assert [await cache.get("c", START_MS) for _ in range(2)] == [None, None]
    assert len(rows.reads) == 2
    assert len(cache) == 0


async def test_a_value_that_is_no_longer_fresh_is_read_again(
    cache: ReadCache[str, int], rows: Rows, clock: Clock
) -> None:
    await cache.get("a", START_MS)
    rows.rows["a"] = 5
    assert await cache.get("a", START_MS + CACHE_TTL_MS - 1) == 1
    clock.now_ms += CACHE_TTL_MS
    assert await cache.get("a", clock.now_ms) == 5
    del rows.rows["a"]
    clock.now_ms += CACHE_TTL_MS
    assert await cache.get("a", clock.now_ms) is None
    assert len(cache) == 0


async def test_a_change_during_a_read_makes_it_happen_again(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    def changed() -> None:
        rows.during = lambda: None
        rows.rows["a"] = 7
        cache.drop(lambda value: value == 1)

    rows.during = changed
    assert await cache.get("a", START_MS) == 7
    assert await cache.get("a", START_MS) == 7
    assert len(rows.reads) == 2


async def test_what_changes_during_every_read_is_not_read_for_ever(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    rows.during = lambda: cache.discard(["a"])
    with pytest.raises(ServiceUnavailable):
        await cache.get("a", START_MS)
    assert len(rows.reads) == READS_MAX


async def test_a_change_between_a_read_and_its_waiters_is_not_missed(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    def changed() -> None:
        rows.after = None
        rows.rows["a"] = 7
        cache.drop(lambda value: value == 1)

    rows.after = changed
    found = await asyncio.gather(*(cache.get("a", START_MS) for _ in range(3)))
    assert found == [7, 7, 7]
    assert len(rows.reads) == 2


async def test_who_asks_while_a_read_ends_does_not_join_it(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    ended = asyncio.Event()

    def change_and_end() -> None:
        rows.during = lambda: None
        cache.discard(["b"])
        ended.set()  # wakes the late one before all who wait for the read

    async def ask_late() -> int | None:
        await ended.wait()
        return await cache.get("a", START_MS)

    rows.during = change_and_end
    assert await asyncio.gather(cache.get("a", START_MS), ask_late()) == [1, 1]


async def test_a_change_of_others_costs_those_who_wait_a_look_and_no_read(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    def changed() -> None:
        rows.after = None
        cache.drop(lambda value: value == 2)

    rows.after = changed
    assert await asyncio.gather(cache.get("a", START_MS), cache.get("b", START_MS)) == [1, 2]
    assert rows.reads == [["a", "b"], ["b"]]


async def test_a_changed_value_replaces_one_that_is_kept_and_no_other(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    await cache.get("a", START_MS)
    cache.change({"a": 8, "b": 9}, START_MS)
    assert list(cache.values()) == [8]
    assert await cache.get("a", START_MS) == 8
    assert await cache.get("b", START_MS) == 2


async def test_what_another_read_found_is_kept_unless_something_changed_since(
    cache: ReadCache[str, int],
) -> None:
    before = cache.start()
    cache.discard(["a"])
    cache.keep({"a": 1}, before)
    assert len(cache) == 0
    cache.keep({"a": 1}, cache.start())
    assert list(cache.values()) == [1]


async def test_discarded_names_are_read_again(cache: ReadCache[str, int], rows: Rows) -> None:
    await asyncio.gather(cache.get("a", START_MS), cache.get("b", START_MS))
    cache.discard(["a", "c"])
    assert list(cache.values()) == [2]
    assert await cache.get("a", START_MS) == 1


async def test_the_value_kept_longest_goes_when_there_are_too_many(
    cache: ReadCache[str, int], rows: Rows
) -> None:
    rows.rows["c"] = 3
    for name in ("a", "b", "c"):
        await cache.get(name, START_MS)
    assert list(cache.values()) == [2, 3]


async def test_a_read_under_way_ends_with_the_cache(clock: Clock) -> None:
    async def never(names: Collection[str]) -> dict[str, int]:
        await asyncio.Event().wait()
        return {}

    cache: ReadCache[str, int] = ReadCache(never, clock_ms=clock)
    waiting = asyncio.create_task(cache.get("a", START_MS))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize(("apart_ms", "fresh"), [(0, True), (4_999, True), (5_000, False)])
def test_freshness_counts_in_both_directions(apart_ms: int, fresh: bool) -> None:
    assert fresh_since(START_MS, START_MS + apart_ms) is fresh
    assert fresh_since(START_MS + apart_ms, START_MS) is fresh
