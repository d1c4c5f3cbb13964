"""Slots that API keys of this service share: so many at once, round-robin between keys.

Every key may hold its share, and one share stays free for a key that is not here yet. A caller
that is cancelled leaves nothing behind: its place goes to the next.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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


class Slots:
    """So many at once, shared by key.

    Args:
        count: How many there are.
        spare: Whether one share stays free for a key that is not here yet.
    """

    def __init__(self, count: int, *, spare: bool = True) -> None:
        self._count = count
        self._spare = spare
        self._held: Counter[str] = Counter()
        self._waiting = Waiting()

    @property
    def held(self) -> int:
        """How many are taken."""
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
