"""Ports of streams: instruments, subscriptions to books, and the publisher of updates."""

from collections.abc import Callable
from typing import Protocol

from onebook.model import Instrument
from onebook.streams.stream import Stream


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
