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


class SteppedClock(Clock):
    """The real clock, but its wall time is what the test sets."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_us(self) -> int:
        return self.now_ms * 1_000


def sleeping(sleep: Callable[[float], Awaitable[None]], clock: Clock | None = None) -> Clock:
    """A clock, by default the real one, that sleeps in the test's way."""
    clock = clock or Clock()
    clock.sleep = sleep  # type: ignore[method-assign]
    return clock


def made_of(
    *,
    wall_ms: Callable[[], int] | None = None,
    monotonic: Callable[[], float] | None = None,
    sleep: Callable[[float], Awaitable[None]] | None = None,
) -> Clock:
    """A clock that uses the given functions, and the real clock's for the others."""
    clock, given = Clock(), {"wall_ms": wall_ms, "monotonic": monotonic, "sleep": sleep}
    for name, function in given.items():
        if function is not None:
            setattr(clock, name, function)
    return clock
