"""Compares live books with REST snapshots at the same number.

Some exchanges number their REST snapshots like the deltas of the stream. Such a snapshot and the
deltas received since it was requested give a live book a second time, at the same number, without
anything that was applied before. Both must be equal within the prices that both know.
"""

from collections.abc import Sequence
from decimal import Decimal
from itertools import takewhile
from typing import Final

from onebook.books import LiveBook
from onebook.core import Book
from onebook.core.types import SCALE_MAX, LevelError
from onebook.exchanges.kit.contract import Delta, Output, Snapshot

AUDIT_S: Final = 60.0  # between two requests for one exchange, and since a book's last snapshot
# Share of the checks in which a connection requests a due audit, so that all of an exchange's
# connections have their turn.
AUDIT_CHANCE: Final = 0.1
SIDES: Final = ("bid", "ask")


def difference(book: LiveBook, outputs: Sequence[Output]) -> str | None:
    """Return the first level in which a live book differs from a snapshot and its deltas."""
    fresh = Book(book.levels_max)
    try:
        for output in outputs:
            if isinstance(output, Snapshot):
                fresh.replace(output.bids, output.asks, output.shape, output.levels_asked)
            elif isinstance(output, Delta):
                fresh.apply(output.bids, output.asks, output.shape)
    except LevelError:
        return None  # reported when they are applied
    ends = zip(book.horizon(), fresh.horizon(book.window), strict=True)
    for side, bounds in enumerate(ends):
        known = [_number(each) for each in bounds if each is not None]
        nearer = (min if side else max)(known, default=None)
        ours, theirs = (_levels(each, side, nearer) for each in (book.core, fresh))
        if ours == theirs:
            continue
        prices = {*ours.items()} ^ {*theirs.items()}
        price = (min if side else max)(price for price, _ in prices)
        return (
            f"the {SIDES[side]} at {_text(price)} is {_text(ours.get(price, 0))}, the exchange's "
            f"is {_text(theirs.get(price, 0))}"
        )
    return None


def _levels(book: Book, side: int, bound: int | None) -> dict[int, int]:
    """Return the amounts of a side by price, at `SCALE_MAX`, up to a price."""
    prices, amounts = (10 ** (SCALE_MAX - each) for each in (book.price_scale, book.amount_scale))
    levels = ((price * prices, amount * amounts) for price, amount in book.ladder(side))
    if bound is None:
        return dict(levels)
    return dict(takewhile(lambda level: level[0] <= bound if side else level[0] >= bound, levels))


def _number(text: str) -> int:
    return int(Decimal(text).scaleb(SCALE_MAX))


def _text(number: int) -> str:
    return f"{Decimal(number).scaleb(-SCALE_MAX).normalize():f}"
