"""Time limits that exclude the processor time of other programs.

A bound that is promised in seconds holds for a process that gets its share of the processor. What
it had to wait for the processor is known to Linux (the second figure of `/proc/PID/schedstat`, in
ns: https://docs.kernel.org/scheduler/sched-stats.html) and is subtracted here. Where the system
does not tell, nothing is.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

PATIENCE_S = 120.0  # for what must happen, on however slow a machine


def waited_s(pid: int | str = "self") -> float:
    """Seconds that the threads of a process were runnable but did not run."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total_ns += int(task.read_text().split()[1])
        except OSError:  # the thread has ended
            continue
    return total_ns / 1e9


def own_s() -> float:
    """Monotonic seconds, without those in which this thread waited for a processor."""
    try:
        waited_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except OSError:
        waited_ns = 0
    return time.monotonic() - waited_ns / 1e9


@asynccontextmanager
async def within(limit_s: float) -> AsyncIterator[None]:
    """`asyncio.timeout` by `own_s`: TimeoutError once this process has had `limit_s`."""
    loop = asyncio.get_running_loop()
    ends_s = own_s() + limit_s

    def look() -> None:
        nonlocal timer
        left_s = ends_s - own_s()
        if left_s > 0:
            timer = loop.call_later(left_s, look)
        else:
            bound.reschedule(loop.time())

    timer = loop.call_later(limit_s, look)
    try:
        async with asyncio.timeout(None) as bound:
            yield
    finally:
        timer.cancel()
