"""How updates reach the caller: an iterator, or a callback. Neither queues.

Both run on the event loop of the caller. The first change after a reader was read notifies its
consumer, and the books are merged when it is read: a slow consumer gets the newest book and delays
nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Self

from onebook.clock import Clock, Handle
from onebook.library.source import BookOptions, BookReader, BookSource
from onebook.library.update import BookUpdate


class Reading:
    """The readers of some sources, and which of them are due.

    Args:
        sources: What is read; each is due at once.
        options: How it is shown.
        clock: The time.
    """

    def __init__(self, sources: Iterable[BookSource], options: BookOptions, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.monotonic
        self._interval_s = options.interval_s
        self._closed = False
        self._timers: dict[BookReader, Handle] = {}
        self._options = options
        self._ready: deque[BookReader] = deque()  # in the order in which they became due
        for source in sources:
            self.add(source)

    def add(self, source: BookSource) -> None:
        """Read one more source; it is due at once."""
        self._ready.append(BookReader(source, self._options, self))

    def book_changed(self, reader: BookReader) -> None:
        """Note that a reader has something new, and when it may be read.

        Called once until the reader is read: it is not among the ready ones yet.
        """
        if self._closed or (self._interval_s and self._waits(reader)):
            return
        self._ready.append(reader)
        self._notify()

    def status_changed(self, reader: BookReader) -> None:
        """Note that a reader has something new that waits for no interval."""
        if not self._closed:
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

    def _waits(self, reader: BookReader) -> bool:
        """Return whether a reader has to wait for the end of its interval, and set a timer then."""
        due = reader.read_at + self._interval_s
        if due <= self._now():
            return False
        reader.source.pacing.add(reader)
        self._timers[reader] = self._clock.call_at(due, lambda: self._due(reader))
        return True

    def _due(self, reader: BookReader) -> None:
        timer = self._timers.pop(reader, None)
        if timer is not None:
            timer.cancel()
            reader.source.pacing.discard(reader)
        self._ready.append(reader)
        self._notify()

    def take(self) -> BookUpdate | None:
        """Read what is due, the longest due first; None where nothing that is shown changed."""
        ready, clock, now = self._ready, self._clock, self._now
        while ready:
            update = ready.popleft().read(clock.wall_us(), now())
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

    A call comes when all frames that were read together have been executed, so that no book is
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

    def book_changed(self, reader: BookReader) -> None:
        """Do what the base class does, without a call of `_notify` (the hot path)."""
        if self._closed or (self._interval_s and self._waits(reader)):
            return
        self._ready.append(reader)
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._deliver)

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
        # `take` without a call for each update, and with locals: the hot path.
        ready, clock, now, callback = self._ready, self._clock, self._now, self._callback
        try:
            while ready:
                update = ready.popleft().read(clock.wall_us(), now())
                if update is not None:
                    callback(update)
        except StopIteration as error:  # no future takes one; as PEP 479 has it for generators
            failed = RuntimeError("The callback raised StopIteration.")
            failed.__cause__ = error
            self._fail(failed)
        except (Exception, asyncio.CancelledError) as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
        self.close()
