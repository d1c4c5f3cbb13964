"""The clock of this machine agrees with the event loop and with Unix time; when ticks are due."""

import asyncio
import time

import pytest

from onebook.clock import SystemClock, next_tick
from steady import PATIENCE_S


async def test_a_callback_comes_at_its_time_of_the_same_clock():
    clock, called = SystemClock(), asyncio.get_running_loop().create_future()
    due = clock.monotonic() + 0.02
    clock.call_at(due, lambda: called.set_result(clock.monotonic()))
    async with asyncio.timeout(PATIENCE_S):
        # uvloop cuts times to milliseconds, so a callback may be as much early.
        assert await called >= due - 0.001


async def test_a_callback_that_is_cancelled_does_not_come():
    clock, called = SystemClock(), []
    due = clock.monotonic()
    clock.call_at(due, lambda: called.append("cancelled")).cancel()
    last = asyncio.get_running_loop().create_future()
    clock.call_at(due + 0.01, lambda: last.set_result(None))
    async with asyncio.timeout(PATIENCE_S):
        await last
    assert called == []


async def test_wall_time_is_unix_time_in_both_units():
    clock = SystemClock()
    before = time.time_ns()
    us, ms = clock.wall_us(), clock.wall_ms()
    after = time.time_ns()
    assert before // 1_000 <= us <= after // 1_000
    assert before // 1_000_000 <= ms <= after // 1_000_000


@pytest.mark.parametrize("early_s", [-0.001, 0.0, 0.001, 0.02])
@pytest.mark.parametrize("interval_s", [0.05, 0.25, 1.0])
def test_timers_of_one_interval_are_due_together_and_one_that_was_early_skips_no_tick(
    early_s, interval_s
):
    ticks = [1_000 * interval_s - early_s]
    for _ in range(5):
        ticks.append(next_tick(ticks[-1], interval_s) - early_s)
    assert ticks == pytest.approx([(1_000 + n) * interval_s - early_s for n in range(6)])
