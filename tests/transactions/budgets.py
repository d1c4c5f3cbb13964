"""Times of the requests that a limit granted."""

import asyncio

from onebook.transactions.pools import CostLimit, Pool
from transactions.bybit_support import CLOCK, loop_s, run


def times_of(limit: CostLimit, count: int, *, gaps: list[float] | None = None) -> list[float]:
    async def story() -> list[float]:
        pool, times = Pool(limit, CLOCK), []
        for index in range(count):
            await pool.acquire()
            times.append(loop_s())
            await asyncio.sleep((gaps or [0.0])[index % len(gaps or [0.0])])
        return times

    return run(story())
