"""How updates reach the caller: an iterator, or a callback. Neither queues.

Both run on the event loop of the caller. A reader is woken by the first change after it was read
and merges when it is read: a slow consumer gets the newest book and holds nothing up.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Self

from onebook.library.source import BookOptions, BookReader, BookSource
from onebook.library.update import BookUpdate
from onebook.streams.ports import Clock, Handle


class Reading:
    """The readers of some sources, and which of them are due.

    Args:
        sources: What is read; each is due at once.
        options: How it is shown.
        clock: The time.
    """

    def __init__(self, sources: Iterable[BookSource], options: BookOptions, clock: Clock) -> None:
        self._clock = clock
        self._interval_s = options.interval_s
        self._closed = False
        self._timers: dict[BookReader, Handle] = {}
        self._options = options
        self._ready: dict[BookReader, None] = {}  # in the order in which they became due
        for source in sources:
            self.add(source)

    def add(self, source: BookSource) -> None:
        """Read one more source; it is due at once."""
        self._ready[BookReader(source, self._options, self)] = None

    def woken(self, reader: BookReader, *, urgent: bool) -> None:
        """Note that a reader has something new, and when it may be read."""
        if reader in self._ready or self._closed:
            return
        if not self._interval_s:
            self._ready[reader] = None
            self._notify()
            return
        if not urgent:
            due = reader.read_at + self._interval_s
            if due > self._clock.monotonic():
                reader.source.pacing.add(reader)
                self._timers[reader] = self._clock.call_at(due, lambda: self._due(reader))
                return
        self._due(reader)

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        for reader in (*self._timers, *self._ready):
            reader.leave()
        self._timers.clear()
        self._ready.clear()

    def _due(self, reader: BookReader) -> None:
        timer = self._timers.pop(reader, None)
        if timer is not None:
            timer.cancel()
            reader.source.pacing.discard(reader)
        self._ready[reader] = None
        self._notify()

    def take(self) -> BookUpdate | None:
        """Read what is due, the longest due first; None where nothing that is shown changed."""
        while self._ready:
            reader = next(iter(self._ready))
            del self._ready[reader]
            update = reader.read(self._clock.wall_us(), self._clock.monotonic())
            if update is not None:
                return update
        return None

    def _notify(self) -> None:
        raise NotImplementedError


class BookUpdates(Reading, AsyncIterator[BookUpdate]):
    """Updates as an asynchronous iterator: the first at once, then whenever something changed."""

    def __init__(self, sources: Iterable[BookSource], options: BookOptions, clock: Clock) -> None:
        super().__init__(sources, options, clock)
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BookUpdate:
        """Wait for the next update; ends when the book is closed."""
        while True:
            update = self.take()
            if update is not None:
                return update
            if self._closed:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("Two tasks wait for one iterator: iterate over the book twice.")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def close(self) -> None:
        """End the iteration."""
        super().close()
        self._notify()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class BookCallbacks(Reading):
    """Updates as calls of a function, from the event loop and outside of any exchange's frame.

    A call comes when all frames that were read together have been carried out, so that no book is
    seen between a change and the checksum that refuses it.
    """

    def __init__(
        self,
        sources: Iterable[BookSource],
        options: BookOptions,
        clock: Clock,
        callback: Callable[[BookUpdate], object],
    ) -> None:
        super().__init__(sources, options, clock)
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._scheduled: asyncio.Handle | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._notify()

    def close(self) -> None:
        """Call no more."""
        super().close()
        if self._scheduled is not None:
            self._scheduled.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def _notify(self) -> None:
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = None
        try:
            while (update := self.take()) is not None:
                self._callback(update)
        except Exception as error:
            if not self.ended.done():
                self.ended.set_exception(error)
            self.close()
