"""Timers of connections: a timer wheel with one shared tick per second, and short delays.

This way a hundred thousand idle clients need no task or timer each. A connection returns the time
of its next deadline, ping or slow-reader check, and the scheduler calls it in the first tick after
that time. A tick with much to do continues in later turns of the event loop, with a pause between
them: otherwise the pongs of a second's pings would arrive together and be read in one long turn.
Shorter delays are callbacks of the event loop.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from onebook.clock import Clock
from onebook.gateway.registry import ClientPort

TICK_S: Final = 1.0
TURN_S: Final = 0.001  # per event loop turn, for frames and HTTP requests of all clients
PAUSE_S: Final = 0.01  # between two turns of one tick
PAUSES_S: Final = 0.5  # of one tick at most

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
        # Targets and their times by `id`, and the ids by time in whole ticks. The garbage collector
        # does not visit a dictionary of numbers, but would visit all targets of one of targets.
        self._targets: dict[int, ClientPort] = {}
        self._due_s: dict[int, float] = {}
        self._wheel: dict[int, dict[int, None]] = {}
        self._round: Iterator[ClientPort | None] | None = None  # the rest of a tick

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
        at = id(target)
        known_s = self._due_s.get(at)
        if known_s is not None:
            if at_s >= known_s:
                return
            self.forget(target)
        self._targets[at], self._due_s[at] = target, at_s
        self._wheel.setdefault(int(at_s // TICK_S), {})[at] = None

    def forget(self, target: ClientPort) -> None:
        """Cancel the calls to a target."""
        at = id(target)
        at_s = self._due_s.pop(at, None)
        if at_s is None:
            return
        del self._targets[at]
        number = int(at_s // TICK_S)
        slot = self._wheel.get(number)
        if slot is not None:
            slot.pop(at, None)
            if not slot:
                del self._wheel[number]

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after a short time, between ticks."""
        self._clock.call_at(self._clock.monotonic() + seconds, callback)

    def tick(self) -> bool:
        """Call the targets that are due, each at most once; returns whether the turn was too short.

        If so, the next call continues this tick.
        """
        now_s = self._clock.monotonic()
        if self._round is None:
            self._round = self._due(now_s)
        for target in self._round:
            if target is not None:
                self.forget(target)
                self._call(target, now_s)
            if self._clock.monotonic() - now_s >= TURN_S:
                return True
        self._round = None
        self._on_tick()
        return False

    def _due(self, now_s: float) -> Iterator[ClientPort | None]:
        """Take the targets that are due off the wheel, one at a time, as others may be moved then.

        Yields None for a target that is not due after all, so that a tick may pause there too.
        """
        last = int(now_s // TICK_S)
        for number in sorted(each for each in self._wheel if each <= last):
            for at in self._wheel.pop(number, ()):
                at_s = self._due_s.get(at)
                if at_s is None or at_s // TICK_S != number:  # forgotten or moved
                    yield None
                elif at_s > now_s:
                    self._wheel.setdefault(number, {})[at] = None
                    yield None
                else:
                    yield self._targets[at]

    def _call(self, target: ClientPort, now_s: float) -> None:
        try:
            next_s = target.on_time(now_s)
        except Exception:
            # An exception in one connection must not delay the deadlines of the others.
            log.exception("A timer of a connection failed.")
            next_s = now_s + TICK_S
        if next_s is not None:
            self.call_by(target, next_s)

    async def _run(self) -> None:
        paused_s = 0.0  # during the last tick
        while True:
            await self._clock.sleep(TICK_S - paused_s)
            paused_s = 0.0
            try:
                while self.tick():
                    pause_s = PAUSE_S if paused_s < PAUSES_S else 0.0
                    paused_s += pause_s
                    await self._clock.sleep(pause_s)
            except Exception:
                # Keep ticking after any exception: deadlines and metering depend on it.
                log.exception("A tick of the gateway failed.")


class Slices:
    """Lets the event loop turn after every `TURN_S` of a long loop that awaits `next`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_s = clock.monotonic() + TURN_S

    async def next(self) -> None:
        """Wait for the next turn of the event loop if this one's time is over."""
        if self._clock.monotonic() >= self._ends_s:
            await self._clock.sleep(0)
            self._ends_s = self._clock.monotonic() + TURN_S


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
        self._waiting: OrderedDict[ClientPort, None] = OrderedDict()
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
            self._waiting[reader] = None
            reader.pace_reading()

    def spend(self, seconds: float = math.inf) -> None:
        """Shorten this turn, by default to its end, because of work that is done outside it."""
        self._ends_at -= seconds

    def forget(self, reader: ClientPort) -> None:
        """Remove a closed connection."""
        if reader.queued:
            reader.queued = False
            del self._waiting[reader]

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
            reader, _ = self._waiting.popitem(last=False)
            if reader.read(self._ends_at):
                self._waiting[reader] = None
            else:
                reader.queued = False
                reader.pace_reading()
            if self._monotonic() >= self._ends_at:
                break
