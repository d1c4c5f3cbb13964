"""Background tasks of a node: logs their exceptions and cancels them at the end."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("onebook.nodes")


class BackgroundTasks:
    """Tasks that are not awaited; an exception ends only its own task and is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine; `name` is for the log."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def cancel(self) -> None:
        """Cancel all tasks and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("Failed: %s.", task.get_name(), exc_info=error)
