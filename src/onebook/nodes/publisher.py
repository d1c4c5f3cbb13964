"""Books of a feeds node, which publish their changes when applied."""

from collections.abc import Callable
from typing import Final

from onebook.books import LIVE, Books, LiveBook
from onebook.core.types import LEVELS_MAX
from onebook.exchanges.kit import Delta, Snapshot, TopOfBook
from onebook.fusing import TopCounts
from onebook.model import Health, Instrument
from onebook.nodes import wire
from onebook.nodes.subjects import BookKey
from onebook.nodes.wire import snapshot_of_book

# If the exchange's text is longer, the levels stored in the book are published instead.
SNAPSHOT_TEXT_BYTES_MAX: Final = wire.FRAME_BYTES_MAX - 2 * wire.SHAPE_BYTES_MAX

NO_BOOK: Final = b""  # the reply for a book that is not open here

Publish = Callable[[str, bytes], None]


class Publication:
    """The numbered messages of one open book."""

    __slots__ = ("active", "epoch", "moved", "seq", "subject")

    def __init__(self, subject: str, epoch: int) -> None:
        self.subject = subject
        self.epoch = epoch
        self.seq = 0
        self.moved = False  # whether a message was published since the last check
        self.active = False  # whether the last message number still has to be published


class PublishedBooks(Books):
    """Books that publish each change after it passed all checks and was applied.

    Args:
        node: This node.
        publish: Sends a payload to a subject.
        subject_of: Returns the subject of a book.
    """

    def __init__(
        self, node: int, *, publish: Publish, subject_of: Callable[[BookKey], str]
    ) -> None:
        super().__init__()
        self.published = 0
        self._node = node
        self._publish = publish
        self._subject_of = subject_of
        self._epochs = 0
        self._publications: dict[Instrument, Publication] = {}
        self._active: set[Publication] = set()
        self._by_key: dict[BookKey, Instrument] = {}
        self.subscribe(on_health=self._moved_health, on_applied=self._applied)

    def open(
        self,
        instrument: Instrument,
        *,
        levels_max: int = LEVELS_MAX,
        window: int = 0,
        tops: TopCounts | None = None,
    ) -> LiveBook:
        """Return the book of `instrument`; a syncing one is created if needed."""
        if instrument not in self._publications:
            self._epochs += 1
            key = BookKey(instrument.exchange, instrument.symbol)
            self._by_key[key] = instrument
            self._publications[instrument] = Publication(self._subject_of(key), self._epochs)
        return super().open(instrument, levels_max=levels_max, window=window, tops=tops)

    def close(self, instrument: Instrument) -> None:
        """Remove a book; its last message is the change to offline by `Books.close`."""
        publication = self._publications.get(instrument)
        super().close(instrument)
        if publication is not None:
            del self._publications[instrument]
            self._active.discard(publication)
            key = BookKey(instrument.exchange, instrument.symbol)
            if self._by_key.get(key) is instrument:
                del self._by_key[key]

    def _applied(self, book: LiveBook, output: Snapshot | Delta | TopOfBook, now: float) -> None:
        """Publish what was applied to a live book (the hot path)."""
        publication = self._next(book.instrument)
        node, epoch, seq = self._node, publication.epoch, publication.seq
        if isinstance(output, Snapshot):
            if len(output.bids) + len(output.asks) > SNAPSHOT_TEXT_BYTES_MAX:
                output = snapshot_of_book(book)
            self._publish(publication.subject, wire.snapshot_frame(node, epoch, seq, output))
        else:
            self._publish(publication.subject, wire.delta_frame(node, epoch, seq, output))

    def snapshot(self, key: BookKey, now: float) -> bytes:
        """Reply to a request for a book with its levels, or why it is not live."""
        instrument = self._by_key.get(key)
        book = self._books.get(instrument) if instrument is not None else None
        if instrument is None or book is None:
            return NO_BOOK
        publication = self._publications[instrument]
        if book.health is not LIVE:
            return wire.health_frame(
                self._node,
                publication.epoch,
                publication.seq,
                book.health,
                book.reason,
                book.detail,
            )
        return wire.snapshot_frame(
            self._node,
            publication.epoch,
            publication.seq,
            snapshot_of_book(book),
            max(0, round((now - book.updated_at) * 1_000)),
        )

    def is_live(self, key: BookKey) -> bool:
        """Return whether a book is open here and live."""
        instrument = self._by_key.get(key)
        book = self._books.get(instrument) if instrument is not None else None
        return book is not None and book.health is LIVE

    def mark(self) -> None:
        """Publish the last message number of each book that changed and is now idle.

        Called a few times a second, so that the loss of a last message is detected. Busy books cost
        nothing, because their next message reveals a loss anyway.
        """
        for publication in list(self._active):
            if publication.moved:
                publication.moved = False
                continue
            publication.active = False
            self._active.discard(publication)
            self._publish(
                publication.subject,
                wire.mark_frame(self._node, publication.epoch, publication.seq),
            )

    def _next(self, instrument: Instrument) -> Publication:
        publication = self._publications[instrument]
        publication.seq += 1
        publication.moved = True
        if not publication.active:
            publication.active = True
            self._active.add(publication)
        self.published += 1
        return publication

    def _moved_health(self, book: LiveBook, previous: Health) -> None:
        """Publish that a book is not live; its next snapshot makes it live again."""
        if book.health is LIVE:
            return
        publication = self._next(book.instrument)
        self._publish(
            publication.subject,
            wire.health_frame(
                self._node,
                publication.epoch,
                publication.seq,
                book.health,
                book.reason,
                book.detail,
            ),
        )
