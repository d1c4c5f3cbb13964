"""Backoff with full jitter, and tallies of faults."""

from collections import deque
from collections.abc import Callable
from typing import Final

DOUBLINGS_MAX: Final = 30  # beyond this every wait is at its maximum


def full_jitter_s(attempt: int, base_s: float, max_s: float, *, random: float) -> float:
    """Return a wait in [0, min(max, base x 2^attempt)); `random` is in [0, 1).

    Full jitter spreads the reconnects of many clients that failed together over the whole wait.
    """
    return random * min(max_s, base_s * 2.0 ** min(attempt, DOUBLINGS_MAX))


class Backoff:
    """The waits between attempts at one thing."""

    __slots__ = ("_base_s", "_max_s", "_random", "attempt")

    def __init__(self, base_s: float, max_s: float, random: Callable[[], float]) -> None:
        self._base_s = base_s
        self._max_s = max_s
        self._random = random
        self.attempt = 0

    def next_s(self) -> float:
        """Return how long to wait before the next attempt."""
        wait_s = full_jitter_s(self.attempt, self._base_s, self._max_s, random=self._random())
        self.attempt += 1
        return wait_s

    def reset(self) -> None:
        """Start again: the last attempt held."""
        self.attempt = 0


class Tally:
    """Counts faults in a sliding window; whether there were too many."""

    __slots__ = ("_count_max", "_times", "_window_s")

    def __init__(self, count_max: int, window_s: float = 60.0) -> None:
        self._count_max = max(1, count_max)
        self._window_s = window_s
        self._times: deque[float] = deque(maxlen=self._count_max)

    def hit(self, now: float) -> bool:
        """Count one, and return whether that makes `count_max` within the window."""
        self._times.append(now)
        full = len(self._times) == self._count_max
        return full and now - self._times[0] <= self._window_s
