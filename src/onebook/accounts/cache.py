"""Values of the store by name: concurrent look-ups share one read, values are kept while fresh.

A row may change while it is being read. The read then returns the old value, which nothing would
correct later, so it must be neither cached nor used. Each change starts a new generation, and a
read is valid only in the generation in which it began.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from onebook.accounts.coalescing import CoalescedReads
from onebook.errors import ServiceUnavailable
from onebook.model import SECOND_MS

CACHE_TTL_MS: Final = 5 * SECOND_MS
CACHED_MAX: Final = 100_000
READS_MAX: Final = 10  # of one value for one caller; the watch reports changes once a second

N = TypeVar("N")
V = TypeVar("V")


class ReadStart(NamedTuple):
    """When a read began: the generation of its cache, and Unix ms."""

    generation: int
    at_ms: int


class _Read(NamedTuple, Generic[V]):
    """The value read for one name (None where there is none), and when the read began."""

    value: V | None
    start: ReadStart


class _Kept(NamedTuple, Generic[V]):
    value: V
    read_at_ms: int


def fresh_since(at_ms: int, now_ms: int) -> bool:
    """Whether a value read at one time is still fresh at another.

    Absolute times, because a waiter asks with the time of its question, which may be before the
    read.
    """
    return abs(now_ms - at_ms) < CACHE_TTL_MS


class ReadCache(Generic[N, V]):
    """A bounded cache over reads by name; the value kept longest goes first.

    Args:
        read_all: Reads several names at once; what does not exist is left out.
        clock_ms: Wall clock, Unix ms.
        fresh: Whether a value that was read at one time still counts at another, both Unix ms.
        kept_max: Values kept at most.
    """

    def __init__(
        self,
        read_all: Callable[[Collection[N]], Coroutine[Any, Any, Mapping[N, V]]],
        *,
        clock_ms: Callable[[], int],
        fresh: Callable[[int, int], bool] = fresh_since,
        kept_max: int = CACHED_MAX,
    ) -> None:
        self._read_all = read_all
        self._clock_ms = clock_ms
        self._fresh = fresh
        self._kept_max = kept_max
        self._generation = 0
        self._kept: dict[N, _Kept[V]] = {}
        self._reads: CoalescedReads[N, _Read[V]] = CoalescedReads(self._read)

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, name: N, now_ms: int) -> V | None:
        """Return a value, from memory while it is fresh; None if there is none of this name.

        Raises:
            ServiceUnavailable: Something was changed during each of `READS_MAX` reads.
        """
        for _ in range(READS_MAX):
            kept = self._kept.get(name)
            if kept is not None and self._fresh(kept.read_at_ms, now_ms):
                return kept.value
            read = await self._reads.read(name)
            assert read is not None, "a read answers every name that it was asked for"
            if self.current(read.start):
                return read.value
        raise ServiceUnavailable("Keys change faster than they can be read; try again shortly.")

    def values(self) -> Iterable[V]:
        """What is kept."""
        return (kept.value for kept in self._kept.values())

    def start(self) -> ReadStart:
        """Start a read whose values will be passed to `keep`."""
        return ReadStart(self._generation, self._clock_ms())

    def current(self, start: ReadStart) -> bool:
        """Whether nothing was changed since a read began."""
        return start.generation == self._generation

    def keep(self, values: Mapping[N, V], start: ReadStart) -> None:
        """Keep what was read, unless something was changed since the read began."""
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
        """Cancel reads under way."""
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
