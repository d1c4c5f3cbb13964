"""The exchanges of a view: the books that are shown, and their state as JSON.

Only books that are live and not quarantined are shown.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import msgspec

from onebook.books import Books, LiveBook
from onebook.core import Book
from onebook.fill import BookEnds
from onebook.model import Health, Instrument, Reason
from onebook.orderbook import BookTimes, ExchangeTimes
from onebook.streams.identity import CONFLICT

_json: Final = msgspec.json.encode
# State of a member whose book is missing in the history.
NOT_RECORDED: Final = (Health.OFFLINE, Reason.NOT_RECORDED, "")


class StreamMembers:
    """The instruments of a view, and their books that may be shown now."""

    __slots__ = (
        "awaited",
        "books",
        "cores",
        "instruments",
        "live",
        "names",
        "shown",
        "stale",
        "stale_json",
    )

    def __init__(self, names: Sequence[str], instruments: list[Instrument | None]) -> None:
        self.names = names
        self.instruments = instruments
        self.books: list[LiveBook] = []
        self.shown: list[str] = []  # the names of `books`
        self.cores: list[Book | None] = []
        self.live = False
        self.awaited = False  # the first snapshot of one of them is pending
        self.stale: list[int] = []  # positions of the exchanges that are left out
        self.stale_json = b"[]"

    def refresh(self, books: Books) -> None:
        """Refresh which books are live; needed whenever a health changed."""
        found = [books.get(each) if each is not None else None for each in self.instruments]
        shown = [
            book if book is not None and self.shows_as(name, book) else None
            for name, book in zip(self.names, found, strict=True)
        ]
        self.books = [book for book in shown if book is not None]
        self.shown = [
            name for name, book in zip(self.names, shown, strict=True) if book is not None
        ]
        self.cores = [book.core if book is not None else None for book in shown]
        self.live = bool(self.books)
        self.awaited = any(book is not None and book.health is Health.SYNCING for book in found)
        self.stale = [at for at, book in enumerate(shown) if book is None]
        self.stale_json = _json([self.names[at] for at in self.stale])

    def needed(self) -> list[Instrument]:
        """Return the instruments whose books the view needs, each once."""
        return [each for each in self.instruments if each is not None]

    def merged(self) -> list[object]:
        """Return all that a merge depends on besides levels; a difference is worth an update."""
        return [*self.books]

    def prepare(self) -> None:
        """Bring `cores` up to date before a merge."""

    def shows_as(self, name: str, book: LiveBook) -> bool:
        """Return whether the book of a member is shown."""
        return self.shows(book)

    def shows(self, book: LiveBook) -> bool:
        """Return whether a book is shown: it is live, and of the same coin as the others.

        A view of a single exchange always shows its book. Of equal books only the first is merged.
        """
        if book.health is not Health.LIVE or book.mark is None or len(self.names) == 1:
            return book.health is Health.LIVE
        return book.mark.reason is not CONFLICT and not any(
            twin.instrument in self.instruments and self.shows(twin) for twin in book.twins
        )

    def ages_json(self, now: float) -> bytes:
        """Return the milliseconds since the last data of each live member."""
        return _json({name: self.age_ms(name, now) for name in self.shown})

    def ages_ms(self, now: float) -> list[int]:
        """Return the milliseconds since the last data of each member; -1 if it is not live."""
        return [self.age_ms(name, now) if name in self.shown else -1 for name in self.names]

    def coverage_json(self) -> bytes:
        """The horizon of each live member: its outermost known bid and ask, null for a complete
        side."""
        return b"{%b}" % b",".join(
            _coverage_json(name, self.horizon_of(name, book))
            for name, book in zip(self.shown, self.books, strict=True)
        )

    def state_of(self, name: str, book: LiveBook) -> tuple[Health, Reason | None, str]:
        """Return state, reason and detail of a member."""
        return condition(book, shown=self.shows(book))

    def states_json(self, books: Books, now: float) -> bytes:
        """Return state, reason, detail and age of each member."""
        found: dict[str, dict[str, object]] = {}
        for name, instrument in zip(self.names, self.instruments, strict=True):
            book = None if instrument is None else books.get(instrument)
            state, reason, detail = NOT_RECORDED if book is None else self.state_of(name, book)
            found[name] = {
                "state": state,
                "reason": reason or "",
                "detail": detail,
                "age_ms": None if book is None or not book.updated_at else age_of(book, now),
            }
        return _json(found)

    def age_ms(self, name: str, now: float) -> int:
        """Milliseconds since the last data of a live member."""
        return age_of(self.books[self.shown.index(name)], now)

    def horizon_of(self, name: str, book: LiveBook) -> tuple[str | None, str | None]:
        """The horizon of a live member."""
        return book.horizon()

    def ends(self) -> list[BookEnds]:
        """The horizon of each live member, as values."""
        return [
            BookEnds(name, *map(_price, self.horizon_of(name, book)))
            for name, book in zip(self.shown, self.books, strict=True)
        ]

    def times(self, wall_us: int, now: float) -> BookTimes:
        """The times of each live member, and of the merge; not those of sending."""
        members = {
            name: book.times(wall_us, now)
            for name, book in zip(self.shown, self.books, strict=True)
        }
        return BookTimes(wall_us, None, members)


def age_of(book: LiveBook, now: float) -> int:
    """Milliseconds since the last data of a book."""
    return max(0, round((now - book.updated_at) * 1_000))


def times_json(times: BookTimes, sent_us: int) -> bytes:
    """Encode the times of an update that is sent now."""
    members = {name: _times(each) for name, each in times.exchanges.items()}
    return b'{"merged":%d,"exchanges":%b,"sent":%d}' % (times.merged_us, _json(members), sent_us)


def _times(times: ExchangeTimes) -> dict[str, object]:
    top, depth = (
        {"exchange": layer.exchange_us, "received": layer.received_us}
        for layer in (times.top, times.depth)
    )
    return {"top": top, "depth": depth, "offset": times.offset_us, "error": times.error_us}


def condition(book: LiveBook, *, shown: bool) -> tuple[Health, Reason | None, str]:
    """State, reason and detail of a book as reported by a view, given `StreamMembers.shows`.

    A live book with the identity guard's mark has the mark's reason, and is stale unless shown.
    """
    if book.health is not Health.LIVE or book.mark is None:
        return book.health, book.reason, book.detail
    return Health.LIVE if shown else Health.STALE, *book.mark


def _coverage_json(name: str, horizon: tuple[str | None, str | None]) -> bytes:
    """The horizon of one member; the core prints its exact prices."""
    bid, ask = (each or "null" for each in horizon)
    return b'%b:{"bids":%b,"asks":%b}' % (_json(name), bid.encode(), ask.encode())


def _price(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
