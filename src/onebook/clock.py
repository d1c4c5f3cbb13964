"""System clock, for code that takes a clock as an argument, and when periodic work is due."""

import asyncio
import time
from collections.abc import Callable


def next_tick(now: float, interval_s: float) -> float:
    """The next whole multiple of an interval, half of one to one and a half from `now`.

    Timers on whole multiples wake a process together, and the processes of a machine at the same
    moments; half an interval, because a timer of uvloop may be a millisecond early.
    """
    return (round(now / interval_s) + 1) * interval_s


class SystemClock:
    """The time of this machine.

    `monotonic` is the clock behind the event loop's time, so that callbacks agree with it; the
    loop's own is cut to milliseconds on uvloop, and round trips are shorter than that.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    monotonic = staticmethod(time.monotonic)  # seconds that only grow; no call of ours in between

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back at a time of `monotonic`."""
        return self._loop.call_at(when, callback)

    def wall_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000
