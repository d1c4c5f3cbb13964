"""Exponential backoff with full jitter, and a loop that retries failed attempts.

No clock and no I/O: callers pass random numbers and a sleep function. The SDK
(`onebook.client`) imports nothing of the server, so it computes its own pauses.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

DOUBLINGS_MAX: Final = 30  # more would exceed any maximum wait

T = TypeVar("T")


def exponential_s(attempt: int, base_s: float, max_s: float) -> float:
    """Return base x 2^attempt, at most `max_s`."""
    return min(max_s, base_s * 2.0 ** min(attempt, DOUBLINGS_MAX))


def full_jitter_s(
    attempt: int, base_s: float, max_s: float, *, random: float, least_s: float = 0.0
) -> float:
    """Return a wait from `least_s` to min(max, base x 2^attempt); `random` is in [0, 1).

    Full jitter spreads the reconnects of many clients that failed together over the whole wait.
    """
    return least_s + random * (exponential_s(attempt, base_s, max_s) - least_s)


class Backoff:
    """Waits between consecutive attempts; `random` is called for each, 1.0 means no jitter."""

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
        """Start again with the shortest wait, after a success."""
        self.attempt = 0


class TryAgain(Exception):
    """A failed attempt that may be repeated.

    Args:
        failure: Raised if no further attempt is made.
        wait_s: Seconds until the next attempt; None: the caller's backoff decides.
        once: Whether it may be repeated only if it was the first attempt.
    """

    def __init__(
        self, failure: Exception, *, wait_s: float | None = None, once: bool = False
    ) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.wait_s = wait_s
        self.once = once


async def retried(
    attempt: Callable[[int], Awaitable[T]],
    *,
    attempts_max: int,
    failed: Callable[[int, TryAgain], float],
    sleep: Callable[[float], Awaitable[None]],
) -> T:
    """Call `attempt` until it returns instead of raising `TryAgain`; return its result.

    Args:
        attempt: Called with the number of the attempt, from 1 on.
        attempts_max: After this many attempts the last failure is raised.
        failed: Called after each failed attempt, the last one too; returns the seconds until the
            next one. An exception it raises ends the attempts.
        sleep: Waits.
    """
    for number in range(1, attempts_max + 1):
        try:
            return await attempt(number)
        except TryAgain as error:
            again = error
        wait_s = failed(number, again)
        if again.once and number > 1:
            break
        if number < attempts_max:
            await sleep(wait_s)
    raise again.failure
