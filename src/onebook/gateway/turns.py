"""Budget for client input in one turn of the event loop.

In each turn a few frames of each connection are processed, for a few milliseconds in total. The
rest waits for later turns, in order, and its socket is not read meanwhile. So no client can starve
feeds, timers or other clients, and TCP flow control stops a client that sends too much.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol


class TurnReader(Protocol):
    """A connection with unprocessed input."""

    queued: bool

    def read(self, ends_at: float) -> bool:
        """Process input, at least some, until the turn ends; whether there is more."""

    def pace_reading(self) -> None:
        """Read from the socket, or pause, by the state of the connection."""


class Turns:
    """Shares turns of the event loop among the connections that have input.

    Args:
        turn_s: How long input is acted on in one turn; at least one connection is served.
        monotonic: Seconds that only grow.
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
        self._waiting: deque[TurnReader] = deque()
        self._armed = False  # the end of this turn is known
        self._ends_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def read(self, reader: TurnReader) -> None:
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
        """End this turn: work that costs as much was done."""
        self._ends_at = self._monotonic()

    def forget(self, reader: TurnReader) -> None:
        """A connection is closed."""
        if reader.queued:
            reader.queued = False
            self._waiting.remove(reader)

    def _begin(self) -> None:
        self._ends_at = self._monotonic() + self._turn_s
        self._armed = True
        self._call_soon(self._next)

    def _next(self) -> None:
        """A new turn: connections that waited, each at most once."""
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
