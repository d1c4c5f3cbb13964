"""One read of the store for all who ask for the same thing at the same time.

When a thousand clients come back at once, those with the same key must not make as many reads:
the last of them would wait longer than they are given.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

V = TypeVar("V")


class SharedReads:
    """Reads under way, by name; `close` ends them."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    async def read(self, name: Hashable, read: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Read, or wait for who already does; who stops waiting does not stop the read."""
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = asyncio.create_task(read(), name="accounts-read")
            task.add_done_callback(lambda done: self._done(name, done))
        found: V = await asyncio.shield(task)
        return found

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, name: Hashable, task: asyncio.Task[Any]) -> None:
        del self._tasks[name]
        if not task.cancelled():
            task.exception()  # whoever waited hears of it, and perhaps nobody waits any more
