"""How much may be asked of an exchange, and when: limits, a circuit, retries.

- `Limit`: so many requests in a rolling window, as exchanges count; follows what they say.
- `Circuit`: after an answer that means "stop everything", nothing is asked for a while.
- `Retries`: successes earn retries, so that a broken exchange is not hammered.
- `Waits`: whether all of this only waits at the moment, and how long, for people to be told.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Final

from msgspec import Struct

from onebook.transactions.clock import Clock

BACKOFF_S: Final = 0.25
BACKOFF_S_MAX: Final = 8.0
BLOCK_S_MAX: Final = 90.0  # an exchange's reset time is data, not an order
ATTEMPTS_MAX: Final = 6  # of one page
RETRIES_START: Final = 30.0
RETRIES_MAX: Final = 60.0
RETRIES_EARNED: Final = 0.2  # by each success


class Rate(Struct, frozen=True):
    """So many requests in a window.

    Args:
        count: What the exchange's table says.
        period_s: The window.
        start: What we begin with until the exchange's own headers speak; 0: `count`.
    """

    count: int
    period_s: float
    start: int = 0

    @property
    def margin_s(self) -> float:
        """Requests are counted where they arrive, and the way there is not always as long."""
        return 0.03 if self.period_s <= 5 else 0.5


class Limit:
    """A rolling-window limit: a caller reserves its turn and waits for it."""

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._count = rate.start or rate.count
        self._turns: deque[float] = deque(maxlen=rate.count)
        self._blocked_until_s = 0.0

    async def take(self, waits: "Waits | None" = None) -> None:
        """Wait for the next turn."""
        while (wait_s := self._reserve(self._clock.now_s())) > 0:
            with waits.waiting(wait_s) if waits else nullcontext():
                await self._clock.sleep(wait_s)
            if self._clock.now_s() >= self._blocked_until_s:
                return
            # While we slept, the exchange said "not before": the turn we had is void.

    def _reserve(self, now_s: float) -> float:
        turn_s = max(now_s, self._blocked_until_s)
        if self._turns:
            turn_s = max(turn_s, self._turns[-1])
        if len(self._turns) >= self._count:
            oldest_s = self._turns[-self._count]
            turn_s = max(turn_s, oldest_s + self._rate.period_s + self._rate.margin_s)
        self._turns.append(turn_s)
        return turn_s - now_s

    def told(self, count: int) -> None:
        """Hear the exchange's own limit; only where it counts by the second is it in our unit."""
        if self._rate.period_s <= 1 and count > 0:
            self._count = min(count, self._rate.count)

    def block(self, wait_s: float) -> None:
        """Ask nothing for a while."""
        until_s = self._clock.now_s() + min(max(wait_s, 0.0), BLOCK_S_MAX)
        self._blocked_until_s = max(self._blocked_until_s, until_s)


class Circuit:
    """Open after a breach: the exchange must not hear from this address at all."""

    def __init__(self, open_s: float, clock: Clock) -> None:
        self._open_s = open_s
        self._clock = clock
        self._until_s = 0.0

    def trip(self) -> None:
        """Stop everything from now on."""
        self._until_s = self._clock.now_s() + self._open_s

    def left_s(self) -> float:
        """How long it stays open; 0 when it is closed."""
        return max(0.0, self._until_s - self._clock.now_s())


class Retries:
    """The retries of one request of ours, over all its pages."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left = RETRIES_START

    def succeeded(self) -> None:
        """A page came."""
        self._left = min(RETRIES_MAX, self._left + RETRIES_EARNED)

    def spend(self) -> bool:
        """Take one retry; False when there is none left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def backoff_s(self, attempt: int) -> float:
        """How long to wait before an attempt: exponential, with full jitter."""
        ceiling_s = min(BACKOFF_S_MAX, BACKOFF_S * 2.0**attempt)
        return self._random.uniform(BACKOFF_S / 2, ceiling_s)


class Waits:
    """Which requests wait for their turn, and whether any is under way meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns_s: list[float] = []
        self._asking = 0

    @property
    def left_s(self) -> float:
        """How long until the first of those that wait may ask; 0 while anything is asked."""
        if self._asking or not self._turns_s:
            return 0.0
        return max(0.0, min(self._turns_s) - self._clock.now_s())

    @contextmanager
    def waiting(self, wait_s: float) -> Iterator[None]:
        """A request waits for its turn for as long as the context lasts."""
        turn_s = self._clock.now_s() + wait_s
        self._turns_s.append(turn_s)
        try:
            yield
        finally:
            self._turns_s.remove(turn_s)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A request is under way for as long as the context lasts."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
