"""Ports of streams: clock, instruments, subscriptions to books, and the publisher of updates."""

from collections.abc import Callable
from typing import Protocol

from onebook.model import Instrument
from onebook.streams.stream import Stream


class Handle(Protocol):
    """A callback that can still be cancelled."""

    def cancel(self) -> None:
        """Do not call."""


class Clock(Protocol):
    """Clock and timers."""

    def monotonic(self) -> float:
        """Seconds that only grow, on the same scale as `call_at`."""

    def wall_us(self) -> int:
        """Microseconds since 1970, UTC."""

    def call_at(self, when: float, callback: Callable[[], None], /) -> Handle:
        """Call back at a monotonic time."""


class BookSupervisor(Protocol):
    """Subscriptions to books of exchanges, reference counted."""

    def acquire(self, instrument: Instrument) -> None:
        """Subscribe to this book."""

    def release(self, instrument: Instrument) -> None:
        """Drop one subscription to it."""


class InstrumentLookup(Protocol):
    """Looks up instruments."""

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        """The instrument of a symbol on an exchange."""


class Publisher(Protocol):
    """Fan-out of updates to clients; every call is synchronous and never waits for a reader."""

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        """An update of a stream; `full` builds the whole book of the same update number."""

    def status(self, stream: Stream, payload: bytes) -> None:
        """An exchange of the stream changed its health."""

    def flush(self) -> None:
        """All updates of this tick were passed: write them."""
