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
from onebook.orderbook import ExchangeTimes
from onebook.streams.identity import CONFLICT

_json: Final = msgspec.json.encode


class StreamMembers:
    """The instruments of a view, and their books that may be shown now."""

    __slots__ = ("awaited", "books", "cores", "instruments", "live", "names", "stale", "stale_json")

    def __init__(self, names: Sequence[str], instruments: list[Instrument | None]) -> None:
        self.names = names
        self.instruments = instruments
        self.books: list[LiveBook] = []
        self.cores: list[Book | None] = []
        self.live = False
        self.awaited = False  # the first snapshot of one of them is pending
        self.stale: list[int] = []  # positions of the exchanges that are left out
        self.stale_json = b"[]"

    def refresh(self, books: Books) -> None:
        """Refresh which books are live; needed whenever a health changed."""
        found = [books.get(each) if each is not None else None for each in self.instruments]
        shown = [book if book is not None and self.shows(book) else None for book in found]
        self.books = [book for book in shown if book is not None]
        self.cores = [book.core if book is not None else None for book in shown]
        self.live = bool(self.books)
        self.awaited = any(book is not None and book.health is Health.SYNCING for book in found)
        self.stale = [at for at, book in enumerate(shown) if book is None]
        self.stale_json = _json([self.names[at] for at in self.stale])

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
        """Return the milliseconds since the last data of each live exchange."""
        ages = zip(self.names, self.ages_ms(now), strict=True)
        return _json({name: age for name, age in ages if age >= 0})

    def ages_ms(self, now: float) -> list[int]:
        """Return the milliseconds since the last data of each exchange; -1 if it is not live."""
        ages = {
            book.instrument.exchange: max(0, round((now - book.updated_at) * 1_000))
            for book in self.books
        }
        return [ages.get(name, -1) for name in self.names]

    def coverage_json(self) -> bytes:
        """The horizon of each live exchange: its outermost known bid and ask, null for a complete
        side."""
        return b"{%b}" % b",".join(map(_coverage_json, self.books))

    def age_ms(self, exchange: str, now: float) -> int:
        """Milliseconds since the last data of a live exchange."""
        (book,) = (each for each in self.books if each.instrument.exchange == exchange)
        return max(0, round((now - book.updated_at) * 1_000))

    def ends(self) -> list[BookEnds]:
        """The horizon of each live exchange, as values."""
        return [
            BookEnds(book.instrument.exchange, *map(_price, book.horizon())) for book in self.books
        ]

    def times_json(self, wall_us: int, now: float) -> bytes:
        """The times of each live exchange, and of the merge; the object is left open."""
        members = {
            book.instrument.exchange: _times(book.times(wall_us, now)) for book in self.books
        }
        return b'{"merged":%d,"exchanges":%b' % (wall_us, _json(members))


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


def _coverage_json(book: LiveBook) -> bytes:
    """The horizon of one book; the core prints its exact prices."""
    bid, ask = (each or "null" for each in book.horizon())
    return b'%b:{"bids":%b,"asks":%b}' % (
        _json(book.instrument.exchange),
        bid.encode(),
        ask.encode(),
    )


def _price(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
