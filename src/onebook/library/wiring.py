"""Routes changes of books to sources, through the identity guard."""

from collections.abc import Callable

from onebook.books import Books, LiveBook
from onebook.config import StreamSettings
from onebook.library.source import BookSource
from onebook.model import Instrument
from onebook.streams.guard import IdentityGuard
from onebook.streams.ports import Clock


class Wiring:
    """Sets the callbacks of `Books` and notifies each source of the changes of its books.

    Args:
        books: Where changes come from.
        clock: For the guard, which checks each symbol once a second.
        streams: The guard's limits.
        on_status: Called after a book's health or mark changed.
    """

    def __init__(
        self,
        books: Books,
        *,
        clock: Clock,
        streams: StreamSettings,
        on_status: Callable[[], object] = lambda: None,
    ) -> None:
        self._books = books
        self._on_status = on_status
        self._sources: dict[Instrument, tuple[BookSource, ...]] = {}
        self._guard = IdentityGuard(
            books, clock=clock, settings=streams, on_status=self._status_changed
        )
        books.subscribe(on_changed=self._changed)

    def attach(self, source: BookSource, instrument: Instrument) -> None:
        """Take an instrument, whose book is open, into a source."""
        self._sources[instrument] = (*self._sources.get(instrument, ()), source)
        source.join(instrument)

    def stop(self) -> None:
        """Remove the callbacks."""
        self._guard.stop()
        self._sources.clear()

    def _changed(self, book: LiveBook) -> None:
        """A live book has new levels (the hot path)."""
        try:  # a subscript is cheaper than a call of `get`
            sources = self._sources[book.instrument]
        except KeyError:
            return
        for source in sources:
            clean = source.clean  # the readers that have read everything so far
            while clean:
                reader = clean.pop()
                reader.consumer.book_changed(reader)

    def _status_changed(self, book: LiveBook) -> None:
        """A book's health or its mark changed."""
        for source in self._sources.get(book.instrument, ()):
            source.refresh()
        self._on_status()
