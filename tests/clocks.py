"""Clocks of tests: `ManualClock` of the source, and others that differ in how they sleep."""

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


def sleeping(sleep: Callable[[float], Awaitable[None]], clock: Clock | None = None) -> Clock:
    """A clock, by default the real one, that sleeps in the test's way."""
    clock = clock or Clock()
    clock.sleep = sleep  # type: ignore[method-assign]
    return clock
