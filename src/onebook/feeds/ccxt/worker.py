"""An event loop in its own thread, for a library that starts background tasks.

Every task created in the loop has an owner, including the library's own tasks: `Tasks` tracks them
through the loop's task factory, ends the owner if there are too many, and cancels them at the end.
Coroutines run in new `contextvars` contexts, so that the library has its own decimal context.
"""

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

log = logging.getLogger("onebook.feeds")

START_S: Final = 10.0  # timeout of starting the thread's loop

T = TypeVar("T")


class Tasks:
    """The tasks created in one context: `own` makes the running task the first of them.

    Args:
        tasks_max: Maximum number of concurrent tasks.
        on_failed: Called with None if there are more, and with the exception of a failed callback,
        because its work, such as further reading, was not done.
    """

    def __init__(self, tasks_max: int, on_failed: Callable[[Exception | None], None]) -> None:
        self.failed = on_failed
        self._max = tasks_max
        self._tasks: set[asyncio.Task[Any]] = set()

    def own(self) -> None:
        """Track every task that starts from here on, in this task and in its children."""
        _owner.set(self)

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: "asyncio.Task[Any]") -> None:
        """Track a task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if len(self._tasks) > self._max:
            self.failed(None)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark as retrieved: the library awaits few of its own tasks

    async def cancel(self, timeout_s: float) -> int:
        """Cancel all tasks except the caller's; return the number that did not end in time."""
        left = self._tasks - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if not left:
            return 0
        _, running = await asyncio.wait(left, timeout=timeout_s)
        return len(running)


_owner: contextvars.ContextVar[Tasks | None] = contextvars.ContextVar("owner", default=None)


def _owned(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], **options: Any
) -> "asyncio.Task[T]":
    """Create a task with the owner of the task that starts it (the loop's task factory)."""
    task = asyncio.Task(coroutine, loop=loop, **options)
    context: contextvars.Context | None = options.get("context")
    owner = _owner.get() if context is None else context.get(_owner)
    if owner is not None:
        owner.add(task)
    return task


class Worker:
    """The thread and its loop; used from the loop that starts it.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()

    async def start(self) -> None:
        """Start the thread, and wait until its loop runs."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        if not await asyncio.to_thread(self._ready.wait, START_S):
            raise RuntimeError(f"The thread {self._name} did not start within {START_S:g} s.")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        factory: Any = _owned  # typeshed's type has no options
        loop.set_task_factory(factory)
        loop.set_exception_handler(self._unhandled)
        self._stopping = asyncio.Event()
        self._ready.set()
        await self._stopping.wait()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an uncaught exception; pass one of a callback to its owner's `on_failed`."""
        error = context.get("exception")
        log.info("%s: %s (%r)", self._name, context.get("message"), error)
        handle = context.get("handle")
        if handle is None or not isinstance(error, Exception):
            return
        began: contextvars.Context | None = getattr(handle, "_context", None)
        owner = _owner.get() if began is None else began.get(_owner)
        if owner is not None:
            owner.failed(error)

    async def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the thread; cancellation is passed on to it."""
        return await asyncio.wrap_future(self._begin(make))

    def _begin(self, make: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        assert self._loop is not None

        def begin() -> concurrent.futures.Future[T]:
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(make(), self._loop)

        return contextvars.Context().run(begin)

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Schedule a callback in the thread; ignored if its loop is already closed."""
        assert self._loop is not None
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments, context=contextvars.Context())

    async def stop(self, timeout_s: float) -> None:
        """Stop the loop and cancel its tasks; a thread that hangs is abandoned."""
        if self._thread is None or self._stopping is None:
            return
        self.post(self._stopping.set)
        await asyncio.to_thread(self._thread.join, timeout_s)
        if self._thread.is_alive():
            log.warning("%s did not stop in %g s; its thread is abandoned.", self._name, timeout_s)
