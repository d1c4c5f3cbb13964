"""Circuit breaker, retries, concurrent requests and waits of an exchange; rate limits: `pools`.

- `Slots`: a number of concurrent requests, shared between API keys.
- `Circuit`: stops all requests for some time after an answer that demands it.
- `Retries`: successes earn retries, so that a failing exchange is not hammered.
- `Waits`: how long all requests wait for limits, for a message to the user.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Final

from onebook.backoff import full_jitter_s
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.transactions.adapter import FailureReason, SourceFailed

BACKOFF_S: Final = 0.25
BACKOFF_S_MAX: Final = 8.0
ATTEMPTS_MAX: Final = 6  # per page
RETRIES_START: Final = 30.0
RETRIES_MAX: Final = 60.0
RETRIES_EARNED: Final = 0.2  # per success
DELAY_S: Final = 1.0  # from which a wait for a rate limit delays the request


class Waits:
    """Tracks how long requests wait for rate limits, to tell the user."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns_s: list[float] = []
        self._in_flight = 0

    @property
    def left_s(self) -> float:
        """Seconds until the next request is allowed; 0 while a request is in flight."""
        if self._in_flight or not self._turns_s:
            return 0.0
        return max(0.0, min(self._turns_s) - self._clock.monotonic())

    @contextmanager
    def waiting(self, wait_s: float) -> Iterator[None]:
        """Count a waiting request for the duration of the context."""
        turn_s = self._clock.monotonic() + wait_s
        self._turns_s.append(turn_s)
        try:
            yield
        finally:
            self._turns_s.remove(turn_s)

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """Count a request in flight for the duration of the context."""
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1


class Slots:
    """A number of concurrent slots, shared fairly between keys.

    Args:
        count: Number of slots.
        spare: Whether one share stays free for another key.
    """

    def __init__(self, count: int, *, spare: bool = True) -> None:
        self._count = count
        self._spare = spare
        self._held: Counter[str] = Counter()
        self._waiting = Waiting()

    @property
    def held(self) -> int:
        """Slots in use."""
        return self._held.total()

    @asynccontextmanager
    async def slot(self, key: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it for the duration of the context."""
        if key not in self._waiting.keys and self._free(key):
            self._held[key] += 1
        else:
            await self._wait(key)
        try:
            yield
        finally:
            self._release(key)

    def _free(self, key: str) -> bool:
        keys = {key, *self._held, *self._waiting.keys}
        share = max(1, self._count // (len(keys) + self._spare))
        return self.held < self._count and self._held[key] < share

    async def _wait(self, key: str) -> None:
        future = self._waiting.add(key)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._release(key)
            else:
                self._waiting.remove(key, future)
                self._wake()
            raise

    def _release(self, key: str) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        self._wake()

    def _wake(self) -> None:
        woken = True
        while woken:
            woken = False
            for key in self._waiting.keys:
                if self._free(key) and self._waiting.wake(key):
                    self._held[key] += 1
                    woken = True


class Waiting:
    """Waiting futures: round-robin between keys, first come first served within a key."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The waiting keys, the next one first."""
        return tuple(self._queues)

    def add(self, key: str) -> asyncio.Future[None]:
        """Add a future to the end of a key's queue."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append(future)
        return future

    def wake(self, key: str) -> bool:
        """Wake the first waiter of a key; the key then moves behind all others."""
        queue = self._queues.pop(key)
        woken = False
        while queue and not woken:
            future = queue.popleft()
            if woken := not future.done():  # a cancelled future is done before its task knows
                future.set_result(None)
        if queue:
            self._queues[key] = queue
        return woken

    def remove(self, key: str, future: asyncio.Future[None]) -> None:
        """Remove a future that is no longer needed."""
        queue = self._queues.get(key)
        if queue is None or future not in queue:
            return
        queue.remove(future)
        if not queue:
            del self._queues[key]


class Circuit:
    """Circuit breaker of an address or key: while it is open, no request is sent."""

    def __init__(self, clock: Clock) -> None:
        self.failure: SourceFailed | None = None
        self._clock = clock
        self._until_s = 0.0

    def trip(self, open_s: float, failure: SourceFailed) -> None:
        """Open the circuit after a failure; never shortens the time that it stays open."""
        self.failure = failure
        self._until_s = max(self._until_s, self._clock.monotonic() + open_s)

    def left_s(self) -> float:
        """Seconds until the circuit closes; 0 if it is closed."""
        return max(0.0, self._until_s - self._clock.monotonic())


class Retries:
    """Retry budget of one request, over all its pages.

    Args:
        key: The API key of the request; budgets are shared fairly between keys.
        background: Whether no client waits for the request; see `Pool`.
    """

    def __init__(
        self,
        random: Random,
        *,
        clock: Clock = SYSTEM_CLOCK,
        key: str = "",
        background: bool = False,
    ) -> None:
        self.key = key
        self.background = background
        self.trouble: SourceFailed | None = None
        self._clock = clock
        self._queued = 0  # calls that wait for the exchange's rate limits
        self._waited_s = 0.0  # of the call that waited last
        self._random = random
        self._left = RETRIES_START

    @property
    def limited(self) -> bool:
        """Whether the exchange's rate limits delay the request."""
        if self.trouble is not None:
            return self.trouble.reason is FailureReason.RATE_LIMITED
        return self._queued > 0 or self._waited_s >= DELAY_S

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Count a call that waits for a rate limit for the duration of the context."""
        began_s = self._clock.monotonic()
        self._queued += 1
        try:
            yield
        finally:
            self._queued -= 1
            self._waited_s = self._clock.monotonic() - began_s

    def failed(self, failure: SourceFailed) -> None:
        """Record a failed attempt; its error is reported if no other follows."""
        self.trouble = failure

    def succeeded(self) -> None:
        """Record a success, which earns a fraction of a retry."""
        self.trouble = None
        self._left = min(RETRIES_MAX, self._left + RETRIES_EARNED)

    def spend(self) -> bool:
        """Use one retry; False if none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def backoff_s(self, attempt: int) -> float:
        """Seconds before the next attempt."""
        return full_jitter_s(
            attempt, BACKOFF_S, BACKOFF_S_MAX, random=self._random.random(), least_s=BACKOFF_S / 2
        )
