"""Caches over queries: shared queries, freshness, changes during a query; the keys of a node."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple

import pytest

from clocks import SteppedClock
from onebook.accounts.cache import (
    CACHE_TTL_MS,
    READS_MAX,
    CoalescedReads,
    KeyCache,
    ReadCache,
    fresh_since,
)
from onebook.accounts.keys import Key, key_of
from onebook.errors import ServiceUnavailable
from onebook.model import KeyStatus, Tier
from steady import PATIENCE_S

from .conftest import PEPPER, START_MS, Rig


class Rows:
    """A table that counts its reads, and calls a hook during or at the end of one."""

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
def cache(rows: Rows, clock: SteppedClock) -> ReadCache[str, int]:
    return ReadCache(rows.read, clock=clock, kept_max=2)


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
    cache: ReadCache[str, int], rows: Rows, clock: SteppedClock
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


async def test_a_read_under_way_ends_with_the_cache(clock: SteppedClock) -> None:
    async def never(names: Collection[str]) -> dict[str, int]:
        await asyncio.Event().wait()
        return {}

    cache: ReadCache[str, int] = ReadCache(never, clock=clock)
    waiting = asyncio.create_task(cache.get("a", START_MS))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize(("apart_ms", "fresh"), [(0, True), (4_999, True), (5_000, False)])
def test_freshness_counts_in_both_directions(apart_ms: int, fresh: bool) -> None:
    assert fresh_since(START_MS, START_MS + apart_ms) is fresh
    assert fresh_since(START_MS + apart_ms, START_MS) is fresh


UNAVAILABLE = ServiceUnavailable("The database does not answer; retry shortly.")


class Question(NamedTuple):
    """One read of the store: the requested names, and the answer set by the test."""

    names: list[str]
    answer: asyncio.Future[Mapping[str, int]]


class Asked:
    """A store whose answers are set by the test."""

    def __init__(self) -> None:
        self.reads = CoalescedReads(self._read_all)
        self.questions: asyncio.Queue[Question] = asyncio.Queue()

    async def _read_all(self, names: Collection[str]) -> Mapping[str, int]:
        answer = asyncio.get_running_loop().create_future()
        self.questions.put_nowait(Question(list(names), answer))
        return await answer

    def ask(self, names: str) -> list[asyncio.Task[int | None]]:
        """One concurrent lookup for each letter."""
        return [asyncio.create_task(self.reads.read(name)) for name in names]

    async def question(self, names: str) -> asyncio.Future[Mapping[str, int]]:
        """Expect exactly one query, for these names, and return its answer."""
        async with asyncio.timeout(PATIENCE_S):
            question = await self.questions.get()
        assert ("".join(question.names), self.questions.empty()) == (names, True)
        return question.answer


@pytest.fixture
def asked() -> Asked:
    return Asked()


async def results(askers: list[asyncio.Task[int | None]]) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.gather(*askers, return_exceptions=True)


async def test_a_lone_name_is_read_at_once_and_each_time(asked: Asked) -> None:
    for value in (1, 2):
        askers = asked.ask("a")
        (await asked.question("a")).set_result({"a": value})
        assert await results(askers) == [value]


async def test_names_that_are_asked_for_at_once_are_read_together(asked: Asked) -> None:
    askers = asked.ask("abcab")
    (await asked.question("abc")).set_result({"a": 1, "b": 2, "c": 3})
    assert await results(askers) == [1, 2, 3, 1, 2]


async def test_what_is_asked_for_while_a_read_is_under_way_is_read_by_the_next(
    asked: Asked,
) -> None:
    first = asked.ask("a")
    answer = await asked.question("a")
    later = asked.ask("bcabc")
    answer.set_result({"a": 1})
    answer = await asked.question("bc")
    assert await results(first) == [1]
    last = asked.ask("da")
    answer.set_result({"b": 2, "c": 3})
    answer = await asked.question("da")
    assert await results(later) == [2, 3, 1, 2, 3]
    answer.set_result({"d": 4, "a": 5})
    assert await results(last) == [4, 5]


async def test_a_read_is_of_a_bounded_number_of_names(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.accounts.cache.NAMES_MAX", 3)
    askers = asked.ask("a")
    answer = await asked.question("a")
    askers += asked.ask("bcdefgh")
    for names in ("bcd", "efg", "h"):
        answer.set_result({})
        answer = await asked.question(names)
    answer.set_result({})
    assert await results(askers) == [None] * 8


async def test_a_name_that_nothing_is_found_for_leaves_the_others_theirs(asked: Asked) -> None:
    askers = asked.ask("axb")
    (await asked.question("axb")).set_result({"a": 1, "b": 2})
    assert await results(askers) == [1, None, 2]


async def test_an_error_is_for_those_who_waited_for_that_read_and_nobody_else(
    asked: Asked,
) -> None:
    first = asked.ask("aba")
    answer = await asked.question("ab")
    later = asked.ask("bc")
    answer.set_exception(UNAVAILABLE)
    answer = await asked.question("c")
    assert await results(first) == [UNAVAILABLE] * 3
    again = asked.ask("a")
    answer.set_result({"c": 3})
    assert await results(later) == [UNAVAILABLE, 3]
    (await asked.question("a")).set_result({"a": 1})
    assert await results(again) == [1]


async def test_who_stops_waiting_stops_no_read(asked: Asked) -> None:
    first = asked.ask("aa")
    answer = await asked.question("a")
    later = asked.ask("bcb")
    await asyncio.sleep(0)
    for asker in (first[0], later[0], later[1]):
        asker.cancel()
    answer.set_result({"a": 1})
    (await asked.question("bc")).set_result({"b": 2, "c": 3})
    assert (await results(first))[1:] == [1]
    assert (await results(later))[2:] == [2]
    assert [asker.cancelled() for asker in first + later] == [True, False, True, True, False]


async def test_an_error_that_nobody_waits_for_any_more_is_no_noise(asked: Asked) -> None:
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: noise.append(context))
    askers = asked.ask("a")
    answer = await asked.question("a")
    askers[0].cancel()
    await results(askers)
    answer.set_exception(UNAVAILABLE)
    again = asked.ask("b")
    (await asked.question("b")).set_result({"b": 2})
    assert await results(again) == [2]
    del answer, askers
    gc.collect()
    assert noise == []


async def test_closing_ends_the_read_under_way_and_those_that_wait(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.accounts.cache.NAMES_MAX", 2)
    askers = asked.ask("a")
    await asked.question("a")
    askers += asked.ask("bcd")
    await asyncio.sleep(0)
    closing = asyncio.create_task(asked.reads.close())
    assert [type(each) for each in await results(askers)] == [asyncio.CancelledError] * 4
    await closing
    assert asked.questions.empty()


async def test_who_asks_while_it_closes_or_later_does_not_wait_for_ever(asked: Asked) -> None:
    ended = asked.ask("a")
    await asked.question("a")
    ended += asked.ask("b")
    await asyncio.sleep(0)
    closing = asyncio.create_task(asked.reads.close())
    askers = asked.ask("c")
    (await asked.question("c")).set_result({"c": 3})
    assert await results(askers) == [3]
    await closing
    assert [type(each) for each in await results(ended)] == [asyncio.CancelledError] * 2
    askers = asked.ask("ab")
    (await asked.question("ab")).set_result({"a": 1, "b": 2})
    assert await results(askers) == [1, 2]


async def test_closing_what_is_at_rest_does_nothing(asked: Asked) -> None:
    await asked.reads.close()


@pytest.fixture
def read() -> list[str]:
    """The ids of the keys read from the store."""
    return []


@pytest.fixture
def keys(rig: Rig, read: list[str]) -> KeyCache:
    return KeyCache(rig.store, rig.clock, on_read=noting(read))


def noting(read: list[str]) -> Callable[..., Awaitable[None]]:
    async def note(*keys: Key) -> None:
        read.extend(key.key_id for key in keys)

    return note


async def changed(rig: Rig, keys: KeyCache) -> None:
    """Apply all changes as the watch does."""
    rows, _ = await rig.store.accounts.changed_keys(0)
    keys.change({row.key_id: key_of(row) for row in rows}, rig.clock.now_ms)


async def test_a_key_that_its_text_opened_is_known_by_its_id_too(
    rig: Rig, keys: KeyCache, read: list[str]
) -> None:
    key = await keys.opened_by(PEPPER.digest(rig.text), START_MS)
    assert key is not None
    assert key.key_id == rig.key_id
    assert await keys.by_id(rig.key_id, START_MS) is key
    assert read == [rig.key_id]
    assert await keys.opened_by(b"another digest", START_MS) is None


async def test_a_change_replaces_the_key_and_its_texts_are_read_again(
    rig: Rig, keys: KeyCache, read: list[str]
) -> None:
    text = PEPPER.digest(rig.text)
    assert await keys.opened_by(text, START_MS)
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    await changed(rig, keys)
    assert (await keys.by_id(rig.key_id, START_MS)).status is KeyStatus.SUSPENDED
    assert read == [rig.key_id], "the watch brought it"
    await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=0)
    await changed(rig, keys)
    assert await keys.opened_by(text, START_MS) is None


async def test_a_text_opens_until_it_retires(rig: Rig, keys: KeyCache) -> None:
    await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=1_000)
    text = PEPPER.digest(rig.text)
    assert await keys.opened_by(text, START_MS + 999)
    assert await keys.opened_by(text, START_MS + 1_000) is None


async def test_keys_stay_fresh_while_the_watch_works(
    rig: Rig, keys: KeyCache, read: list[str]
) -> None:
    await keys.by_id(rig.key_id, START_MS)
    for _ in range(5):
        rig.clock.now_ms += CACHE_TTL_MS - 1
        keys.polled(rig.clock.now_ms)
        await keys.by_id(rig.key_id, rig.clock.now_ms)
    assert keys.polled_at_ms == rig.clock.now_ms
    assert len(read) == 1
    rig.clock.now_ms += CACHE_TTL_MS
    await keys.by_id(rig.key_id, rig.clock.now_ms)
    assert len(read) == 2


async def test_a_key_expires_once_and_again_where_the_clock_was_set_back(
    rig: Rig, keys: KeyCache
) -> None:
    made = await rig.admin.create_key(
        "alice", Tier.BASIC, rig.change(), expires_at_ms=START_MS + 1_000
    )
    await keys.by_id(made.row.key_id, START_MS)
    keys.polled(START_MS)
    assert [keys.expired(START_MS + after) for after in (999, 1_000, 1_001)] == [
        [],
        [made.row.key_id],
        [],
    ]
    keys.polled(START_MS + 1_001)
    keys.polled(START_MS)
    assert keys.expired(START_MS + 1_000) == [made.row.key_id]


async def test_a_key_that_was_ended_otherwise_does_not_expire(rig: Rig, keys: KeyCache) -> None:
    made = await rig.admin.create_key(
        "alice", Tier.BASIC, rig.change(), expires_at_ms=START_MS + 1_000
    )
    await keys.by_id(made.row.key_id, START_MS)
    await rig.admin.move_key(made.row.key_id, "suspend", rig.change())
    await changed(rig, keys)
    assert keys.expired(START_MS + 1_000) == []
