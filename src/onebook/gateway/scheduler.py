"""Timers of connections: one shared tick per second, and short delays.

This way ten thousand idle clients need no task or timer each. A connection returns the time of its
next deadline, ping or slow-reader check, and the scheduler calls it in the first tick after that
time. Shorter delays are callbacks of the event loop.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from onebook.clock import Clock
from onebook.gateway.registry import ClientPort

TICK_S: Final = 1.0
TURN_S: Final = 0.001  # per event loop turn, for frames and HTTP requests of all clients
STALE_ENTRIES_MAX: Final = 1_024  # heap entries in addition to one per target

log = logging.getLogger("onebook.gateway")


class Scheduler:
    """Calls due targets once a second while entered; an async context manager.

    Args:
        clock: Time and timers.
        on_tick: Called at the end of each tick.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        on_tick: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._on_tick = on_tick
        self._task: asyncio.Task[None] | None = None
        self._due_s: dict[ClientPort, float] = {}
        # An entry whose time differs from `_due_s` is obsolete.
        self._queue: list[tuple[float, int, ClientPort]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._due_s)

    async def __aenter__(self) -> "Scheduler":
        self._task = asyncio.create_task(self._run(), name="gateway-scheduler")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def call_by(self, target: ClientPort, at_s: float) -> None:
        """Call a target in the first tick after a time, or earlier if that is already scheduled."""
        known_s = self._due_s.get(target)
        if known_s is None or at_s < known_s:
            self._put(target, at_s)

    def forget(self, target: ClientPort) -> None:
        """Cancel the calls to a target."""
        self._due_s.pop(target, None)

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after a short time, between ticks."""
        self._clock.call_at(self._clock.monotonic() + seconds, callback)

    def tick(self) -> None:
        """Call every target that is due, each at most once."""
        now_s = self._clock.monotonic()
        due = []
        while self._queue and self._queue[0][0] <= now_s:
            due.append(heapq.heappop(self._queue))
        for at_s, _, target in due:
            if self._due_s.get(target) == at_s:
                del self._due_s[target]
                self._call(target, now_s)
        self._on_tick()

    def _call(self, target: ClientPort, now_s: float) -> None:
        try:
            next_s = target.on_time(now_s)
        except Exception:
            # An exception in one connection must not delay the deadlines of the others.
            log.exception("A timer of a connection failed.")
            next_s = now_s + TICK_S
        if next_s is not None:
            self.call_by(target, next_s)

    def _put(self, target: ClientPort, at_s: float) -> None:
        self._due_s[target] = at_s
        heapq.heappush(self._queue, (at_s, next(self._order), target))
        if len(self._queue) > 2 * len(self._due_s) + STALE_ENTRIES_MAX:
            self._queue = [each for each in self._queue if self._due_s.get(each[2]) == each[0]]
            heapq.heapify(self._queue)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            try:
                self.tick()
            except Exception:
                # Keep ticking after any exception: deadlines and metering depend on it.
                log.exception("A tick of the gateway failed.")


class Turns:
    """Shares turns of the event loop among the connections that have input.

    Args:
        turn_s: Seconds of input processing per turn, in which at least one connection is served.
        monotonic: Monotonic time in seconds.
        call_soon: Calls back in the next turn of the event loop.
    """

    def __init__(
        self,
        *,
        turn_s: float,
        monotonic: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], Any],
    ) -> None:
        self._turn_s = turn_s
        self._monotonic = monotonic
        self._call_soon = call_soon
        self._waiting: deque[ClientPort] = deque()
        self._armed = False  # whether a turn has begun and its end is scheduled
        self._ends_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def read(self, reader: ClientPort) -> None:
        """Process a connection's input now if this turn has time left, else in a later one."""
        if reader.queued:
            return
        if not self._armed:
            self._begin()
        if self._monotonic() >= self._ends_at or reader.read(self._ends_at):
            reader.queued = True
            self._waiting.append(reader)
            reader.pace_reading()

    def spend(self) -> None:
        """End this turn after expensive work."""
        self._ends_at = self._monotonic()

    def forget(self, reader: ClientPort) -> None:
        """Remove a closed connection."""
        if reader.queued:
            reader.queued = False
            self._waiting.remove(reader)

    def _begin(self) -> None:
        self._ends_at = self._monotonic() + self._turn_s
        self._armed = True
        self._call_soon(self._next)

    def _next(self) -> None:
        """Begin a turn: process the waiting connections, each at most once."""
        self._armed = False
        if not self._waiting:
            return
        self._begin()
        for _ in range(len(self._waiting)):
            reader = self._waiting.popleft()
            if reader.read(self._ends_at):
                self._waiting.append(reader)
            else:
                reader.queued = False
                reader.pace_reading()
            if self._monotonic() >= self._ends_at:
                break
