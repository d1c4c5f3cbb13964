"""A snapshot of a book that makes an equal one: levels, horizon and all."""

from typing import Final

from onebook.books import LiveBook
from onebook.core.types import LEVELS_MAX
from onebook.exchanges.kit import Snapshot

NO_AMOUNT: Final = "0"  # such a row holds no level, but its price counts for the horizon


def snapshot_of_book(book: LiveBook) -> Snapshot:
    """Write every level of a live book as decimal text, exactly.

    A side with a horizon looks like a bounded answer of an exchange (`core.Book.replace`): it has
    at least as many rows as were asked for, and the outermost names the horizon. One limit is for
    both sides, so rows without an amount fill up the side with a horizon to more rows than the
    other has. They come first: the same price with an amount may follow.
    """
    sides = book.core.top(LEVELS_MAX)
    bounds = book.core.horizon()
    if bounds == (None, None):
        asked = 0
    else:
        unbounded = (levels for levels, bound in zip(sides, bounds, strict=True) if bound is None)
        asked = 1 + max((len(levels) for levels in unbounded), default=0)
    bids, asks = (
        _text(levels if bound is None else _bounded(levels, bound, asked))
        for levels, bound in zip(sides, bounds, strict=True)
    )
    return Snapshot(book.instrument, bids, asks, levels_asked=asked)


def _bounded(levels: list[tuple[str, str]], bound: str, rows_min: int) -> list[tuple[str, str]]:
    missing = max(1, rows_min - len(levels))
    return [(bound, NO_AMOUNT)] * missing + levels


def _text(rows: list[tuple[str, str]]) -> bytes:
    joined = ",".join([f'["{price}","{amount}"]' for price, amount in rows])
    return f"[{joined}]".encode()
