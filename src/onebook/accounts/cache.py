"""Caches of values in the database; concurrent look-ups share one query.

When thousands of clients reconnect together, one query per client would exceed their timeouts.
Names requested during a query are collected for the next one: a single name is read immediately,
and many names cost few queries.

A row may change while it is being read. The query then returns the old value, which nothing would
correct later, so it must be neither cached nor used. Each change starts a new generation, and a
query is valid only in the generation in which it began.

`KeyCache` holds the keys of a node by their id and by the digests of their texts. `Accounts.watch`
queries each second what an operator or another node changed, and reports it to the cache. If that
query fails, an entry expires after `CACHE_TTL_MS`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Final, Generic, NamedTuple, TypeVar

from onebook.accounts.keys import Key, key_of, status_at
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.errors import ServiceUnavailable
from onebook.model import SECOND_MS, KeyStatus
from onebook.store import Store

N = TypeVar("N")
V = TypeVar("V")

# Each is a variable of a statement; SQLite supports at least 999 everywhere. 500 names were no
# faster, and blocked the event loop for 10 ms at a time instead of 3.
NAMES_MAX: Final = 100


class CoalescedReads(Generic[N, V]):
    """Batches reads by name: one query at a time, each of at most `NAMES_MAX` names."""

    def __init__(
        self, read_all: Callable[[Collection[N]], Coroutine[Any, Any, Mapping[N, V]]]
    ) -> None:
        self._read_all = read_all
        self._turn = asyncio.Lock()
        self._tasks: dict[N, asyncio.Task[Mapping[N, V]]] = {}
        self._gathering: list[N] = []

    async def read(self, name: N) -> V | None:
        """Read, or join the running read, which a cancelled waiter does not stop."""
        task = self._tasks.get(name) or self._join(name)
        return (await asyncio.shield(task)).get(name)

    async def close(self) -> None:
        """Cancel running and queued reads."""
        tasks = set(self._tasks.values())
        self._gathering = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that was cancelled before it started has not removed its names.
        for name in [name for name, task in self._tasks.items() if task in tasks]:
            del self._tasks[name]

    def _join(self, name: N) -> asyncio.Task[Mapping[N, V]]:
        names = self._gathering
        if 0 < len(names) < NAMES_MAX:
            task = self._tasks[names[0]]
        else:
            names = self._gathering = []
            task = asyncio.create_task(self._read(names), name="accounts-read")
            task.add_done_callback(self._done)
        names.append(name)
        self._tasks[name] = task
        return task

    async def _read(self, names: list[N]) -> Mapping[N, V]:
        try:
            async with self._turn:
                if names is self._gathering:
                    self._gathering = []
                return await self._read_all(names)
        finally:
            # Here and not in a done callback, which runs one loop iteration later: a look-up in
            # between would join a read that has ended.
            for name in names:
                del self._tasks[name]

    def _done(self, task: asyncio.Task[Mapping[N, V]]) -> None:
        if not task.cancelled():
            task.exception()  # mark the exception retrieved: all waiters may have been cancelled


CACHE_TTL_MS: Final = 5 * SECOND_MS
CACHED_MAX: Final = 100_000
READS_MAX: Final = 10  # of one value for one caller; the watch reports changes once a second


class ReadStart(NamedTuple):
    """The start of a read: the generation of its cache, and Unix ms."""

    generation: int
    at_ms: int


class _Read(NamedTuple, Generic[V]):
    """The value read for one name (None if it does not exist), and when the read began."""

    value: V | None
    start: ReadStart


class _Kept(NamedTuple, Generic[V]):
    value: V
    read_at_ms: int


def fresh_since(at_ms: int, now_ms: int) -> bool:
    """Return whether a value read at one time is still fresh at another.

    The times are absolute, because a waiter passes the time of its request, which may precede the
    read.
    """
    return abs(now_ms - at_ms) < CACHE_TTL_MS


class ReadCache(Generic[N, V]):
    """A bounded cache over reads by name; the oldest value is evicted first.

    Args:
        read_all: Reads several names at once; unknown names are omitted.
        fresh: Returns whether a value read at one time is still valid at another, both Unix ms.
        kept_max: Maximum number of values.
        clock: Wall time.
    """

    def __init__(
        self,
        read_all: Callable[[Collection[N]], Coroutine[Any, Any, Mapping[N, V]]],
        *,
        fresh: Callable[[int, int], bool] = fresh_since,
        kept_max: int = CACHED_MAX,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._read_all = read_all
        self._clock = clock
        self._fresh = fresh
        self._kept_max = kept_max
        self._generation = 0
        self._kept: dict[N, _Kept[V]] = {}
        self._reads: CoalescedReads[N, _Read[V]] = CoalescedReads(self._read)

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, name: N, now_ms: int) -> V | None:
        """Return a value, from memory while it is fresh; None if the name does not exist.

        Raises:
            ServiceUnavailable: A change occurred during each of `READS_MAX` reads.
        """
        for _ in range(READS_MAX):
            kept = self._kept.get(name)
            if kept is not None and self._fresh(kept.read_at_ms, now_ms):
                return kept.value
            read = await self._reads.read(name)
            assert read is not None, "a read returns every requested name"
            if self.current(read.start):
                return read.value
        raise ServiceUnavailable("Keys change faster than they can be read; try again shortly.")

    def values(self) -> Iterable[V]:
        """The cached values."""
        return (kept.value for kept in self._kept.values())

    def start(self) -> ReadStart:
        """Start a read whose values will be passed to `keep`."""
        return ReadStart(self._generation, self._clock.wall_ms())

    def current(self, start: ReadStart) -> bool:
        """Return whether nothing has changed since a read began."""
        return start.generation == self._generation

    def keep(self, values: Mapping[N, V], start: ReadStart) -> None:
        """Cache values that were read, unless something has changed since the read began."""
        if not self.current(start):
            return
        for name, value in values.items():
            self._put(name, value, start.at_ms)

    def change(self, values: Mapping[N, V], now_ms: int) -> None:
        """Replace the cached values among these; the others are not cached."""
        self._generation += 1
        for name in values.keys() & self._kept.keys():
            self._put(name, values[name], now_ms)

    def drop(self, changed: Callable[[V], bool]) -> None:
        """Forget the values that a change concerns."""
        self._generation += 1
        for name in [name for name, kept in self._kept.items() if changed(kept.value)]:
            del self._kept[name]

    def discard(self, names: Collection[N]) -> None:
        """Forget these names."""
        self._generation += 1
        for name in names:
            self._kept.pop(name, None)

    async def close(self) -> None:
        """Cancel running reads."""
        await self._reads.close()

    async def _read(self, names: Collection[N]) -> Mapping[N, _Read[V]]:
        start = self.start()
        values = await self._read_all(names)
        if self.current(start):
            for name in names:
                self._kept.pop(name, None)
        self.keep(values, start)
        return {name: _Read(values.get(name), start) for name in names}

    def _put(self, name: N, value: V, read_at_ms: int) -> None:
        self._kept[name] = _Kept(value, read_at_ms)
        if len(self._kept) > self._kept_max:
            del self._kept[next(iter(self._kept))]


class _Secret(NamedTuple):
    """One text of a key, and the end of its validity."""

    key_id: str
    retires_at_ms: int | None

    def retired(self, now_ms: int) -> bool:
        return self.retires_at_ms is not None and now_ms >= self.retires_at_ms


class KeyCache:
    """The keys of a node.

    Args:
        store: The store of the keys.
        clock: Wall time.
        on_read: Awaited with the keys of each read, before they are used.
        kept_max: Maximum number of keys, and of key texts.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock = SYSTEM_CLOCK,
        *,
        on_read: Callable[..., Awaitable[None]],
        kept_max: int = CACHED_MAX,
    ) -> None:
        self._store = store
        self._on_read = on_read
        self._polled_at_ms = 0
        self._expiring_at_ms: dict[str, int] = {}
        self._expiries: list[tuple[int, str]] = []  # a heap; those not in the dictionary are void
        self._secrets: ReadCache[bytes, _Secret] = ReadCache(
            self._read_secrets, fresh=self._fresh, kept_max=kept_max, clock=clock
        )
        self._keys: ReadCache[str, Key] = ReadCache(
            self._read_keys, fresh=self._fresh, kept_max=kept_max, clock=clock
        )

    @property
    def polled_at_ms(self) -> int:
        """When the store last answered the watch, Unix ms."""
        return self._polled_at_ms

    async def opened_by(self, text_digest: bytes, now_ms: int) -> Key | None:
        """Look up the key of a text that is valid now, whatever the key's status."""
        secret = await self._secrets.get(text_digest, now_ms)
        if secret is None or secret.retired(now_ms):
            return None
        return await self.by_id(secret.key_id, now_ms)

    async def by_id(self, key_id: str, now_ms: int) -> Key:
        """Find a key that a secret or a session refers to."""
        key = await self._keys.get(key_id, now_ms)
        assert key is not None, "secrets and sessions refer to a key, and keys are never deleted"
        return key

    def change(self, changed: Mapping[str, Key], now_ms: int) -> None:
        """Apply changed keys; their texts are read again."""
        self._secrets.drop(lambda secret: secret.key_id in changed)
        self._keys.change(changed, now_ms)
        for key in changed.values():
            self._await_expiry(key, now_ms)

    def polled(self, now_ms: int) -> None:
        """Record that the store was polled for changed keys and that all changes were applied."""
        if now_ms < self._polled_at_ms:  # the wall clock was set back
            for key in self._keys.values():
                self._await_expiry(key, now_ms)
        self._polled_at_ms = now_ms

    def expired(self, now_ms: int) -> list[str]:
        """Return the ids of newly expired keys; each is returned once."""
        due = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            at_ms, key_id = heappop(self._expiries)
            if self._expiring_at_ms.get(key_id) == at_ms:
                del self._expiring_at_ms[key_id]
                due.append(key_id)
        return due

    async def close(self) -> None:
        """Cancel running reads."""
        await self._secrets.close()
        await self._keys.close()

    async def _read_secrets(self, digests: Collection[bytes]) -> dict[bytes, _Secret]:
        start = self._keys.start()
        rows = await self._store.accounts.secrets(digests)
        keys = {row.key.key_id: key_of(row.key) for row in rows.values()}
        await self._learn(keys.values(), start)
        self._keys.keep(keys, start)
        return {
            text_digest: _Secret(row.key.key_id, row.retires_at_ms)
            for text_digest, row in rows.items()
        }

    async def _read_keys(self, key_ids: Collection[str]) -> dict[str, Key]:
        start = self._keys.start()
        rows = await self._store.accounts.keys_by_id(key_ids)
        keys = {key_id: key_of(row) for key_id, row in rows.items()}
        await self._learn(keys.values(), start)
        return keys

    async def _learn(self, keys: Collection[Key], start: ReadStart) -> None:
        await self._on_read(*keys)
        if self._keys.current(start):
            for key in keys:
                self._await_expiry(key, start.at_ms)

    def _await_expiry(self, key: Key, now_ms: int) -> None:
        at_ms = key.expires_at_ms
        if at_ms is None or status_at(key, now_ms) is not KeyStatus.ACTIVE:
            self._expiring_at_ms.pop(key.key_id, None)
        elif self._expiring_at_ms.get(key.key_id) != at_ms:
            self._expiring_at_ms[key.key_id] = at_ms
            heappush(self._expiries, (at_ms, key.key_id))

    def _fresh(self, read_at_ms: int, now_ms: int) -> bool:
        return fresh_since(max(read_at_ms, self._polled_at_ms), now_ms)
