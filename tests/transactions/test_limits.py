"""Rate limits, the circuit, retries, and slots that API keys share."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.transactions.adapter import FailureReason, SourceFailed
from onebook.transactions.limits import (
    BACKOFF_S_MAX,
    RETRIES_MAX,
    RETRIES_START,
    Circuit,
    Retries,
    Slots,
    Waits,
)
from onebook.transactions.pools import BLOCK_S_MAX, CostLimit, Pool, PoolState
from transactions.budgets import times_of
from transactions.bybit_support import CLOCK, loop_s, run


@given(st.integers(1, 20), st.lists(st.floats(0, 2), min_size=1, max_size=9))
def test_never_more_than_the_limit_in_any_window(count: int, gaps: list[float]) -> None:
    times = times_of(CostLimit(count, 1.0), 60, gaps=gaps)
    for index, at in enumerate(times):
        assert sum(1 for other in times[index:] if other < at + 1.0) <= count


def test_the_limit_is_used_up_to_the_margin() -> None:
    times = times_of(CostLimit(25, 1.0), 250)
    assert times[-1] < 1.04 * 9


def test_the_exchange_raises_a_cautious_start_and_never_the_table() -> None:
    async def story() -> tuple[float, float]:
        limit = Pool(CostLimit(50, 1.0, start=10), CLOCK)
        for _ in range(21):
            await limit.acquire()
        slow = loop_s()
        limit.observe(PoolState(units=500))
        for _ in range(51):
            await limit.acquire()
        return slow, loop_s() - slow

    slow, fast = run(story())
    assert 2.0 < slow < 2.2
    assert 1.0 < fast < 1.2


def test_a_block_voids_the_turns_of_those_who_wait() -> None:
    async def story() -> list[float]:
        limit, times = Pool(CostLimit(2, 1.0), CLOCK), []

        async def ask() -> None:
            await limit.acquire()
            times.append(loop_s())

        tasks = [asyncio.create_task(ask()) for _ in range(4)]
        await asyncio.sleep(0.5)
        limit.block(10.0)
        await asyncio.gather(*tasks)
        return times

    first, second, *rest = run(story())
    assert (first, second) == (0.0, 0.0)
    assert all(at >= 10.5 for at in rest)


def test_a_block_is_data_and_has_a_limit() -> None:
    async def story() -> float:
        limit = Pool(CostLimit(5, 1.0), CLOCK)
        limit.block(10**9)
        limit.block(-5)
        await limit.acquire()
        return loop_s()

    assert run(story()) == BLOCK_S_MAX


TROUBLE = SourceFailed(FailureReason.CIRCUIT_OPEN, "No.")


def test_the_circuit_stays_open_for_its_time() -> None:
    async def story() -> list[float]:
        circuit = Circuit(CLOCK)
        found = [circuit.left_s()]
        circuit.trip(600.0, TROUBLE)
        circuit.trip(10.0, TROUBLE)  # a later answer never shortens it
        await asyncio.sleep(100)
        found.append(circuit.left_s())
        await asyncio.sleep(500)
        found.append(circuit.left_s())
        return found

    assert run(story()) == [0.0, 500.0, 0.0]


def test_successes_earn_retries_up_to_a_limit() -> None:
    retries = Retries(Random(1))
    assert sum(retries.spend() for _ in range(100)) == RETRIES_START
    assert not retries.spend()
    for _ in range(5):
        retries.succeeded()
    assert retries.spend()
    for _ in range(10_000):
        retries.succeeded()
    assert sum(retries.spend() for _ in range(100)) == RETRIES_MAX


@given(st.integers(0, 30), st.integers())
def test_backoff_grows_with_jitter_and_has_a_limit(attempt: int, seed: int) -> None:
    wait_s = Retries(Random(seed)).backoff_s(attempt)
    assert 0.1 < wait_s <= min(BACKOFF_S_MAX, 0.25 * 2**attempt)


def test_it_is_known_how_long_everything_only_waits() -> None:
    async def story() -> list[float]:
        waits, found = Waits(CLOCK), []
        slow, slower = Pool(CostLimit(1, 10.0), CLOCK), Pool(CostLimit(1, 60.0), CLOCK)
        for limit in (slow, slower):
            await limit.acquire(waits)
        found.append(waits.left_s)  # both had their turn at once
        tasks = [asyncio.create_task(limit.acquire(waits)) for limit in (slower, slow)]
        await asyncio.sleep(4)
        found.append(waits.left_s)
        with waits.in_flight():
            found.append(waits.left_s)
        await tasks[1]
        found.append(waits.left_s)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [*found, waits.left_s]

    assert [round(left_s) for left_s in run(story())] == [0, 6, 0, 50, 0]


def test_a_key_waits_for_one_turn_of_each_other_key() -> None:
    async def story() -> tuple[float, float]:
        limit = Pool(CostLimit(10, 1.0), CLOCK)
        greedy = [asyncio.create_task(limit.acquire(key="greedy")) for _ in range(500)]
        await asyncio.sleep(0.5)
        began_s = loop_s()
        for _ in range(10):
            await limit.acquire(key="modest")
        modest_s = loop_s() - began_s
        await asyncio.gather(*greedy)
        return modest_s, loop_s()

    modest_s, whole_s = run(story())
    assert modest_s < 2.7  # half of the rate, after what is left of the first window
    assert whole_s < 54  # and the rate is used up to the margin


def test_a_part_of_a_minute_is_left_to_other_keys() -> None:
    async def story() -> tuple[int, list[float]]:
        limit, times = Pool(CostLimit(60, 60.0), CLOCK, reserve=0.2), []
        greedy = [asyncio.create_task(limit.acquire(key="greedy")) for _ in range(500)]
        await asyncio.sleep(1.0)
        taken = sum(task.done() for task in greedy)
        for _ in range(20):
            await limit.acquire(key="modest")
            times.append(loop_s())
        for task in greedy:
            task.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)
        return taken, times

    taken, times = run(story())
    assert taken == 48
    assert times[11] == 1.0  # a dozen at once
    assert times[19] < 61.0  # its even share, as soon as the window moves on


def test_waits_that_are_cancelled_use_nothing_up() -> None:
    async def story() -> float:
        limit = Pool(CostLimit(10, 10.0), CLOCK)
        for _ in range(10):
            await limit.acquire(key="stays")
        for turn in range(50):
            tasks = [asyncio.create_task(limit.acquire(key=f"leaves {n % 3}")) for n in range(20)]
            await asyncio.sleep(0.0 if turn % 2 else 0.01)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await limit.acquire(key="stays")
        return loop_s()

    assert run(story()) == pytest.approx(10.5, abs=0.01)


def test_a_key_holds_its_share_of_slots_and_leaves_one_free() -> None:
    async def story() -> list[int]:
        slots, found = Slots(20), []
        held: dict[str, int] = {}
        leave = asyncio.Event()

        async def hold(key: str) -> None:
            async with slots.slot(key):
                held[key] = held.get(key, 0) + 1
                await leave.wait()

        async with asyncio.TaskGroup() as tasks:
            for key in ("first", "second", "third"):
                for _ in range(30):
                    tasks.create_task(hold(key))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                found.append(held[key])
            leave.set()
        assert slots.held == 0
        return [*found, *held.values()]

    assert run(story()) == [10, 6, 4, 30, 30, 30]


def test_a_slot_given_to_a_caller_that_left_goes_to_the_next() -> None:
    async def story() -> tuple[int, int]:
        slots = Slots(1, spare=False)
        served = 0

        async def hold() -> None:
            nonlocal served
            async with slots.slot("key"):
                served += 1
                await asyncio.sleep(0)

        for turns in range(30):
            tasks = [asyncio.create_task(hold()) for _ in range(6)]
            for _ in range(turns % 10):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        return slots.held, served

    held, served = run(story())
    assert held == 0
    assert served >= 90
