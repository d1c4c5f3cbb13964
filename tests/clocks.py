"""Clocks of tests: `ManualClock` of the source, and others that differ in how they sleep."""

import asyncio
from collections.abc import Awaitable, Callable

from onebook.clock import Clock, ManualClock


class SleepingClock(ManualClock):
    """A manual clock on which sleeping takes no time: it moves the clock."""

    def __init__(self, now_s: float = 0.0, *, epoch_us: int = 0) -> None:
        super().__init__(now_s, epoch_us=epoch_us)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.move_to(self.now_s + seconds)
        await asyncio.sleep(0)


def sleeping(sleep: Callable[[float], Awaitable[None]], clock: Clock | None = None) -> Clock:
    """A clock, by default the real one, that sleeps in the test's way."""
    clock = clock or Clock()
    clock.sleep = sleep  # type: ignore[method-assign]
    return clock


class UnixClock(SleepingClock):
    """A manual clock whose monotonic time is Unix time, set in milliseconds."""

    def __init__(self, ms: int) -> None:
        super().__init__(ms / 1_000)

    @property
    def ms(self) -> int:
        return round(self.now_s * 1_000)

    @ms.setter
    def ms(self, ms: int) -> None:
        self.now_s = ms / 1_000

    def pass_ms(self, ms: int) -> None:
        self.move_to((self.ms + ms) / 1_000)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_ms(round(seconds * 1_000))
        await asyncio.sleep(0)
