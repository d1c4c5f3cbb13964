"""The clock of the transaction service."""

import asyncio

from onebook.transactions.clock import REAL


async def test_waiting_passes_monotonic_time() -> None:
    before_s, before_ms = REAL.now_s(), REAL.now_ms()
    await REAL.sleep(0.01)
    assert REAL.now_s() - before_s >= 0.009
    assert REAL.now_ms() >= before_ms
    assert REAL.sleep is asyncio.sleep


def test_the_wall_clock_counts_milliseconds() -> None:
    assert 1_700_000_000_000 < REAL.now_ms() < 4_102_444_800_000  # 2023 to 2100
