"""When the requests of a limit went."""

import asyncio

from onebook.transactions.limits import (
    Rate,
    SharedLimit,
)
from transactions.bybit_support import CLOCK, loop_s, run


def times_of(rate: Rate, count: int, *, gaps: list[float] | None = None) -> list[float]:
    async def story() -> list[float]:
        limit, times = SharedLimit(rate, CLOCK), []
        for index in range(count):
            await limit.acquire()
            times.append(loop_s())
            await asyncio.sleep((gaps or [0.0])[index % len(gaps or [0.0])])
        return times

    return run(story())
