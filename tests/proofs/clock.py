"""Time that moves only on command: the clock and the timers of a simulated world."""

import heapq
from collections.abc import Callable
from datetime import datetime
from itertools import count

EPOCH_US = 1_800_000_000_000_000


def seconds(timestamp: str) -> float:
    """The world's time of a timestamp with microseconds."""
    return datetime.fromisoformat(timestamp).timestamp() - EPOCH_US / 1_000_000


class Timer:
    """A callback that can be cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """The `Clock` of `onebook.streams`, moved by hand; callbacks run in order of time."""

    def __init__(self, now_s: float = 1_000.0) -> None:
        self.now_s = now_s
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()

    def monotonic(self) -> float:
        return self.now_s

    def wall_us(self) -> int:
        return EPOCH_US + round(self.now_s * 1_000_000)

    def wall_ms(self) -> int:
        return self.wall_us() // 1_000

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (max(when, self.now_s), next(self._order), timer))
        return timer

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(self.now_s + delay_s, callback)

    def run_until(self, end_s: float) -> None:
        """Run every callback that is due by then."""
        while self._timers and self._timers[0][0] <= end_s:
            when, _, timer = heapq.heappop(self._timers)
            self.now_s = max(self.now_s, when)
            if timer.callback is not None:
                timer.callback()
        self.now_s = end_s
