"""Request coalescing: concurrent look-ups share one read of the store.

When thousands of clients reconnect at once, one read per client would exceed their timeouts. Names
requested while a read is under way are collected and read by the next one: a single name is read at
once, and many names cost few reads.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final, Generic, TypeVar

N = TypeVar("N")
V = TypeVar("V")

# Each is a variable of a statement, of which SQLite takes 999 wherever it runs. 500 names were no
# faster, and held the loop for 10 ms at a time instead of 3.
NAMES_MAX: Final = 100


class CoalescedReads(Generic[N, V]):
    """Reads by name, one at a time and each of at most `NAMES_MAX`; `close` ends them."""

    def __init__(
        self, read_all: Callable[[Collection[N]], Coroutine[Any, Any, Mapping[N, V]]]
    ) -> None:
        self._read_all = read_all
        self._turn = asyncio.Lock()
        self._tasks: dict[N, asyncio.Task[Mapping[N, V]]] = {}
        self._gathering: list[N] = []

    async def read(self, name: N) -> V | None:
        """Read, or join the read under way; a cancelled waiter does not stop it."""
        task = self._tasks.get(name) or self._join(name)
        return (await asyncio.shield(task)).get(name)

    async def close(self) -> None:
        """Cancel running and queued reads."""
        tasks = set(self._tasks.values())
        self._gathering = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that was cancelled before it began has removed nothing.
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
