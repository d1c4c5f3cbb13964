"""Rate limits, circuit breaker, retries and fair sharing of requests to an exchange.

- `SharedLimit`: a limit by rolling window, as exchanges count; follows what they say; API keys of
  this service take turns.
- `Slots`: a number of concurrent requests, shared between API keys.
- `Circuit`: after an answer that means "stop everything", no requests for a while.
- `Retries`: successes earn retries, so that a broken exchange is not hammered.
- `Waits`: how long all requests wait for limits, for a message to the user.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from random import Random
from typing import Final

from msgspec import Struct

from onebook.backoff import full_jitter_s
from onebook.clock import Clock
from onebook.transactions.adapter import SourceFailed

BACKOFF_S: Final = 0.25
BACKOFF_S_MAX: Final = 8.0
BLOCK_S_MAX: Final = 90.0  # upper bound of a reset time that an exchange sends
ATTEMPTS_MAX: Final = 6  # of one page
RETRIES_START: Final = 30.0
RETRIES_MAX: Final = 60.0
RETRIES_EARNED: Final = 0.2  # by each success
TIMER_S: Final = 1e-4  # how early a timer may fire
RESERVED_FROM_S: Final = 30.0  # shorter windows free up before a user notices


class Rate(Struct, frozen=True):
    """A number of requests per rolling window.

    Args:
        count: From the exchange's table.
        period_s: The window.
        start: Limit until the exchange's own headers state it; 0: `count`.
    """

    count: int
    period_s: float
    start: int = 0

    @property
    def margin_s(self) -> float:
        """Exchanges count requests on arrival, and latency varies."""
        return 0.03 if self.period_s <= 5 else 0.5


class SharedLimit:
    """A rolling-window rate limit shared fairly between keys.


    Keys take turns. In a long window a key that was first could still use up all of it, so the
    last part (`reserve`) is only given to keys that had less than an even share of the window.

    Args:
        rate: The exchange's limit.
        reserve: Share of a long window (`RESERVED_FROM_S`) that one key leaves to others, 0 to 1.
    """

    def __init__(self, rate: Rate, clock: Clock, *, reserve: float = 0.0) -> None:
        self._rate = rate
        self._clock = clock
        self._count = rate.start or rate.count
        self._reserve = reserve if rate.period_s >= RESERVED_FROM_S else 0.0
        self._given: deque[tuple[float, str]] = deque()  # when it expires, and its key
        self._waiting: Counter[str] = Counter()
        self._lines: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._turn = asyncio.Lock()
        self._blocked_until_s = 0.0

    async def acquire(self, waits: "Waits | None" = None, *, key: str = "") -> None:
        """Wait for a request slot; a cancelled wait uses none.

        Args:
            key: Whose request it is.
            waits: Notes the wait, for messages to users.
        """
        self._waiting[key] += 1
        try:
            # Locks are FIFO: in order within a key, round-robin between keys.
            async with self._lines[key]:
                while not await self._acquired(key, waits):
                    await self._wait(self._over_share_s(key), waits)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._lines[key]

    async def _acquired(self, key: str, waits: "Waits | None") -> bool:
        """Take a slot as soon as the window has one that is not reserved for other keys."""
        if self._over_share_s(key) > 0:
            return False
        async with self._turn:
            while (wait_s := self._full_s()) > 0:
                await self._wait(wait_s, waits)
            if self._over_share_s(key) > 0:
                return False
            counts_s = self._rate.period_s + self._rate.margin_s
            self._given.append((self._clock.monotonic() + counts_s, key))
            return True

    async def _wait(self, wait_s: float, waits: "Waits | None") -> None:
        with waits.waiting(wait_s) if waits else nullcontext():
            await self._clock.sleep(wait_s)

    def _full_s(self) -> float:
        """Seconds until the window has a slot for any key."""
        now_s = self._clock.monotonic()
        self._forget(now_s)
        blocked_s = self._blocked_until_s - now_s
        return max(blocked_s, self._freed_s(len(self._given) - self._count, now_s))

    def _over_share_s(self, key: str) -> float:
        """Seconds for which the rest of the window is reserved for other keys; 0 if it is not."""
        now_s = self._clock.monotonic()
        self._forget(now_s)
        used = Counter(owner for _, owner in self._given)
        share = self._count // (len({*used, *self._waiting, key}) + 1)
        open_to_all = self._count - round(self._count * self._reserve)
        if used[key] < max(1, share):
            return 0.0
        return self._freed_s(len(self._given) - open_to_all, now_s)

    def _freed_s(self, index: int, now_s: float) -> float:
        """Seconds until this entry of the window expires."""
        return max(0.0, self._given[index][0] - now_s) if index >= 0 else 0.0

    def _forget(self, now_s: float) -> None:
        # Timers may fire a little early; the margin is longer than that.
        while self._given and self._given[0][0] <= now_s + TIMER_S:
            self._given.popleft()

    def lower(self, count: int) -> None:
        """Lower the limit to the exchange's own; only a limit by the second is in our unit."""
        if self._rate.period_s <= 1 and count > 0:
            self._count = min(count, self._rate.count)

    def block(self, wait_s: float) -> None:
        """Send nothing for a while."""
        until_s = self._clock.monotonic() + min(max(wait_s, 0.0), BLOCK_S_MAX)
        self._blocked_until_s = max(self._blocked_until_s, until_s)


class Waits:
    """Requests that wait for a rate limit, and requests in flight."""

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
        """A request waits while the context lasts."""
        turn_s = self._clock.monotonic() + wait_s
        self._turns_s.append(turn_s)
        try:
            yield
        finally:
            self._turns_s.remove(turn_s)

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """A request is in flight while the context lasts."""
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1


class Slots:
    """A number of concurrent slots, shared fairly between keys.

    Args:
        count: Number of slots.
        spare: Whether one share stays free for a key that is not here yet.
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
        """Wait for a slot and keep it for as long as the context lasts."""
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
    """Futures in order: round-robin between keys, first come first served within one."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that wait, the next one first."""
        return tuple(self._queues)

    def add(self, key: str) -> asyncio.Future[None]:
        """A place at the end of a key's queue."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append(future)
        return future

    def wake(self, key: str) -> bool:
        """Wake the first of a key that is still there; the key goes behind all others."""
        queue = self._queues.pop(key)
        woken = False
        while queue and not woken:
            future = queue.popleft()
            if woken := not future.done():  # a cancelled one is done before its caller knows
                future.set_result(None)
        if queue:
            self._queues[key] = queue
        return woken

    def remove(self, key: str, future: asyncio.Future[None]) -> None:
        """Take out a place that is no longer needed."""
        queue = self._queues.get(key)
        if queue is None or future not in queue:
            return
        queue.remove(future)
        if not queue:
            del self._queues[key]


class Circuit:
    """Open after a breach: no request may leave this address."""

    def __init__(self, open_s: float, clock: Clock) -> None:
        self._open_s = open_s
        self._clock = clock
        self._until_s = 0.0

    def trip(self) -> None:
        """Open the circuit."""
        self._until_s = self._clock.monotonic() + self._open_s

    def left_s(self) -> float:
        """Seconds until the circuit closes; 0 if it is closed."""
        return max(0.0, self._until_s - self._clock.monotonic())


class Retries:
    """Retry budget of one request, over all its pages.

    Args:
        key: Whose request it is: budgets are shared fairly between keys.
    """

    def __init__(self, random: Random, *, key: str = "") -> None:
        self.key = key
        self.trouble: SourceFailed | None = None
        self._random = random
        self._left = RETRIES_START

    def failed(self, failure: SourceFailed) -> None:
        """Note a failed attempt: the error to report if there is no other."""
        self.trouble = failure

    def succeeded(self) -> None:
        """Note a success: it earns a part of a retry."""
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
