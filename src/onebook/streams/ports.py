"""Ports of streams: instruments, subscriptions to books, and the publisher of updates."""

from collections.abc import Callable
from typing import Protocol

from onebook.model import Instrument
from onebook.streams.stream import Stream


class BookSupervisor(Protocol):
    """Subscriptions to books of exchanges, reference counted."""

    def acquire(self, instrument: Instrument) -> None:
        """Subscribe to a book."""

    def release(self, instrument: Instrument) -> None:
        """Drop one subscription to a book."""


class InstrumentLookup(Protocol):
    """Looks up instruments."""

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        """Return the instrument of a symbol on an exchange."""


class Publisher(Protocol):
    """Fan-out of updates to clients; every call is synchronous and never waits for a reader."""

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        """Send an update of a stream; `full` builds the whole book of the same update number."""

    def status(self, stream: Stream, payload: bytes) -> None:
        """Send a changed health of an exchange of the stream."""

    def flush(self) -> None:
        """Write the updates of this tick, which are complete."""
