"""Pools: rolling windows and decaying counters in units, scopes, and what answers correct."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.config import AccountUrls, TransactionSettings
from onebook.transactions.adapter import FailureReason, SourceFailed
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.kraken.api import COUNTER
from onebook.transactions.limits import Waits
from onebook.transactions.pools import (
    CLIENT_TURNS,
    LATENCY_S,
    PACE_MIN,
    CostLimit,
    Pool,
    Pools,
    PoolScope,
    PoolState,
)
from transactions.bybit_support import CLOCK, loop_s, run

STARTER = CostLimit(15, sinks=0.33)


class DecayingCounter:
    """The exchange's side of a counter, written apart: refuses what lifts it above its maximum."""

    def __init__(self, units: float, sinks: float) -> None:
        self.units, self.sinks = units, sinks
        self.level, self.at_s = 0.0, 0.0

    def admits(self, cost: float, now_s: float) -> bool:
        self.level = max(0.0, self.level - (now_s - self.at_s) * self.sinks)
        self.at_s = now_s
        if self.level + cost > self.units:
            return False
        self.level += cost
        return True


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.floats(0, 20)), min_size=1, max_size=60))
def test_a_decaying_counter_is_never_exceeded(calls: list[tuple[int, float]]) -> None:
    async def story() -> None:
        pool, exchange = Pool(STARTER, CLOCK), DecayingCounter(15, 0.33)
        for cost, pause_s in calls:
            await pool.acquire(units=cost)
            assert exchange.admits(cost, loop_s())
            await asyncio.sleep(pause_s)

    run(story())


def test_a_full_counter_gives_at_the_pace_of_its_decay() -> None:
    async def story() -> list[float]:
        pool, times = Pool(STARTER, CLOCK), []
        for _ in range(27):
            await pool.acquire(units=2)
            times.append(loop_s())
        return times

    times = run(story())
    assert times[6] == 0.0  # 14 of 15 units at once
    assert (times[-1] - times[7]) / 19 == pytest.approx(2 / 0.33)


def test_a_cost_above_the_pool_waits_for_all_of_it() -> None:
    async def story() -> float:
        pool = Pool(CostLimit(10, 60.0), CLOCK)
        await pool.acquire(units=1)
        await pool.acquire(units=25)
        return loop_s()

    assert run(story()) == pytest.approx(60.5)


def test_units_that_others_used_count_from_the_answer_on() -> None:
    async def story() -> tuple[float, float]:
        pool = Pool(CostLimit(100, 60.0), CLOCK)
        grant = await pool.acquire(units=10)
        pool.observe(PoolState(used=95), grant)
        await pool.acquire(units=5)
        soon = loop_s()
        await pool.acquire(units=1)
        return soon, loop_s()

    assert run(story()) == (0.0, pytest.approx(60.5))


def test_what_a_call_really_cost_replaces_the_plan() -> None:
    async def story() -> float:
        pool = Pool(CostLimit(10, 60.0), CLOCK)
        for _ in range(100):
            grant = await pool.acquire(units=10)
            pool.observe(PoolState(cost=0), grant)  # an answer that the exchange does not count
        grant = await pool.acquire(units=1)
        pool.observe(PoolState(cost=10), grant)
        await pool.acquire(units=1)
        return loop_s()

    assert run(story()) == pytest.approx(60.5)


def test_two_that_share_a_counter_unknown_to_each_other_slow_down_to_it() -> None:
    """Each believes the key is its own; refusals teach them, and none is repeated for long."""

    async def story() -> tuple[list[float], int]:
        exchange, served, refusals = DecayingCounter(15, 0.33), [], 0

        async def client() -> None:
            nonlocal refusals
            pool = Pool(STARTER, CLOCK)
            while loop_s() < 3_600:
                grant = await pool.acquire(units=2)
                if exchange.admits(2, loop_s()):
                    served.append(loop_s())
                    pool.observe(PoolState(), grant)
                else:
                    refusals += 1
                    pool.observe(PoolState(refused=True), grant)

        await asyncio.gather(client(), client())
        return served, refusals

    served, refusals = run(story())
    assert len(served) > 0.85 * 3_600 * 0.33 / 2  # the key's own pace, nearly
    assert refusals < len(served) / 6


def test_refusals_do_not_stop_a_pool() -> None:
    async def story() -> float:
        pool = Pool(CostLimit(8, 1.0), CLOCK)
        for _ in range(50):
            pool.observe(PoolState(refused=True, blocked_s=0.001))
        for _ in range(8):
            await pool.acquire()
        return loop_s()

    assert run(story()) == pytest.approx(7 * 1.03, abs=0.1)
    assert PACE_MIN == 1 / 8


def test_a_wait_of_hours_fails_at_once_and_says_when() -> None:
    async def story() -> tuple[SourceFailed, float]:
        pool = Pool(CostLimit(12, 86_400.0), CLOCK)
        for _ in range(12):
            await pool.acquire()
        with pytest.raises(SourceFailed, match="next request in 1440 minutes") as caught:
            await pool.acquire()
        return caught.value, loop_s()

    failure, spent_s = run(story())
    assert (failure.reason, failure.retryable) == (FailureReason.RATE_LIMITED, True)
    assert failure.retry_after_s == pytest.approx(86_400 + LATENCY_S)
    assert spent_s == 0.0


def test_a_wait_for_a_counter_is_shown() -> None:
    async def story() -> float:
        pool, waits = Pool(STARTER, CLOCK), Waits(CLOCK)
        for _ in range(7):
            await pool.acquire(waits, units=2)
        task = asyncio.create_task(pool.acquire(waits, units=2))
        await asyncio.sleep(0)
        left_s = waits.left_s
        await task
        return left_s

    assert run(story()) == pytest.approx((1 + LATENCY_S * 0.33) / 0.33)


def test_higher_limits_of_an_account_leave_those_of_the_address() -> None:
    limits = {
        "counter": STARTER,
        "window": CostLimit(50, 1.0, start=10),
        "address": CostLimit(500, 5.0, scope=PoolScope.ADDRESS),
    }

    async def seconds(name: str, factor: float) -> float:
        pool = Pools(limits, CLOCK, factor=factor).pool(name, "mainnet", "key")
        began_s = loop_s()
        for _ in range(1_000):
            await pool.acquire()
        return loop_s() - began_s

    for name, share in (("counter", 1 / 3), ("window", 1 / 3), ("address", 1.0)):
        once_s, thrice_s = run(seconds(name, 1.0)), run(seconds(name, 3.0))
        assert thrice_s == pytest.approx(once_s * share, rel=0.05)


def test_the_limits_of_an_account_are_a_setting() -> None:
    settings = TransactionSettings(overrides={"kraken": AccountUrls(limit_factor=3.0)})
    default, pro = (ExchangeAdapter(KRAKEN, each) for each in (None, settings))
    once, thrice = (each._client._pools._limits[COUNTER] for each in (default, pro))
    assert (thrice.units, thrice.sinks) == (once.units, pytest.approx(3 * once.sinks))


def test_a_pool_belongs_to_a_key_a_user_or_this_address() -> None:
    pools = Pools(
        {
            "key": CostLimit(1, 1.0),
            "user": CostLimit(1, 1.0, scope=PoolScope.USER),
            "address": CostLimit(1, 1.0, scope=PoolScope.ADDRESS),
        },
        CLOCK,
    )

    def same(name: str, first: tuple[str, str], second: tuple[str, str]) -> bool:
        return pools.pool(name, *first) is pools.pool(name, *second)

    one, other = ("mainnet", "one"), ("mainnet", "other")
    assert [same(name, one, one) for name in ("key", "user", "address")] == [True] * 3
    assert [same(name, one, other) for name in ("key", "user", "address")] == [False, False, True]
    assert not same("key", one, ("testnet", "one"))
    for key in ("one", "other"):
        pools.learn_user(key, "1234")
    assert same("user", one, other)
    assert not same("user", one, ("testnet", "other"))


CLIENT, BACKGROUND = "client", "background"


class Calls:
    """Calls of clients and of the background to one pool: when each came, and when it went."""

    def __init__(self, limit: CostLimit, *, reserve: float = 0.1) -> None:
        self.pool = Pool(limit, CLOCK, reserve=reserve)
        self.log: list[tuple[str, float, float]] = []

    async def call(self, key: str, units: float = 1.0) -> None:
        came_s = loop_s()
        await self.pool.acquire(key=key, units=units, background=key.startswith(BACKGROUND))
        self.log.append((key, came_s, loop_s()))

    async def calls(self, key: str, count: int, units: float = 1.0) -> None:
        """One after the other, as pages are."""
        for _ in range(count):
            await self.call(key, units)
            await asyncio.sleep(0.05)

    def waits(self, key: str) -> list[float]:
        return [went_s - came_s for name, came_s, went_s in self.log if name == key]


def test_a_client_waits_for_one_call_of_the_background_at_most() -> None:
    """Pages of two collections and a live read fill Kraken's counter, and a client comes."""

    async def story() -> Calls:
        calls = Calls(STARTER)
        tasks = [
            asyncio.create_task(calls.calls(f"{BACKGROUND} {number}", 100, 2.0))
            for number in range(3)
        ]
        await asyncio.sleep(100)
        for _ in range(20):
            await calls.calls(CLIENT, 3, 2.0)
            await asyncio.sleep(60)
        for task in tasks:
            task.cancel()
        return calls

    calls = run(story())
    assert max(calls.waits(CLIENT)) == 0.0  # half of the counter is left to clients
    assert max(calls.waits(f"{BACKGROUND} 0")) < 3 * 3 * 2 / 0.33


def test_the_background_gets_one_of_five_turns() -> None:
    async def story() -> Calls:
        calls = Calls(STARTER)
        tasks = [
            asyncio.create_task(calls.calls(key, 200, 2.0))
            for key in (f"{CLIENT} 1", f"{CLIENT} 2", f"{BACKGROUND} 1", f"{BACKGROUND} 2")
        ]
        await asyncio.sleep(600)
        for task in tasks:
            task.cancel()
        return calls

    keys = [key for key, _, went_s in run(story()).log if went_s > 60]
    background = [index for index, key in enumerate(keys) if key.startswith(BACKGROUND)]
    gaps = {later - before for before, later in pairwise(background)}
    assert gaps == {CLIENT_TURNS + 1}
    assert {keys[index] for index in background} == {f"{BACKGROUND} 1", f"{BACKGROUND} 2"}


def test_the_background_alone_has_the_whole_pace() -> None:
    async def story() -> float:
        calls = Calls(STARTER)
        await calls.calls(BACKGROUND, 200, 2.0)
        return loop_s()

    assert run(story()) == pytest.approx(200 * 2 / 0.33, rel=0.03)


KEYS = (f"{CLIENT} 1", f"{CLIENT} 2", f"{BACKGROUND} 1", f"{BACKGROUND} 2")
CALLS = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.sampled_from([1, 2, 20]), st.floats(0, 9), st.floats(0, 60)
    ),
    min_size=1,
    max_size=40,
)


@given(CALLS, st.sampled_from([STARTER, CostLimit(10, 60.0), CostLimit(5, 1.0)]))
def test_every_call_gets_its_turn_and_none_exceeds_the_limit(
    made: list[tuple[str, int, float, float]], limit: CostLimit
) -> None:
    """Calls come at any time and some are given up; the rest is served, in a fair order."""

    async def story() -> Calls:
        calls, exchange = Calls(limit), DecayingCounter(limit.units, limit.sinks or 1.0)
        tasks, given_up = [], []
        for key, units, pause_s, patience_s in made:

            async def one(key: str, units: int) -> None:
                await calls.call(key, units)
                if limit.sinks and units <= limit.units:
                    assert exchange.admits(units, loop_s())

            task = asyncio.create_task(one(key, units))
            if patience_s < 30:
                asyncio.get_running_loop().call_later(patience_s, task.cancel)
                given_up.append(task)
            else:
                tasks.append(task)
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(100_000):
            await asyncio.gather(*tasks)
            await asyncio.gather(*given_up, return_exceptions=True)
        assert calls.pool._queue == []
        return calls

    turns = 0  # of clients in a row, while a call of the background waits
    log = run(story()).log
    for key, came_s, went_s in log:
        others = [each for each in log if each[1] < went_s < each[2]]
        if key.startswith(CLIENT):
            waits = any(each[0].startswith(BACKGROUND) for each in others)
            turns = turns + 1 if waits else 0
        else:
            waits = any(each[0].startswith(CLIENT) for each in others)
            assert not waits or turns >= CLIENT_TURNS, (key, came_s, went_s)
            turns = 0
