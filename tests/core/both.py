"""Both implementations of the core, and level text to feed them."""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest

from onebook.core import twin
from onebook.core.types import OBJECTS, PAIRS, SIDED

try:
    from onebook.core import _core as _compiled
except ImportError:
    _compiled = None

COMPILED: Any = _compiled

needs_compiled = pytest.mark.skipif(COMPILED is None, reason="the compiled core is not built here")
EACH = [
    pytest.param(twin, id="twin"),
    pytest.param(COMPILED, id="compiled", marks=needs_compiled),
]

Levels = Iterable[tuple[str, str]]


def pairs(levels: Levels) -> bytes:
    """Return PAIRS text: `("1.5", "2")` and so on."""
    return ("[" + ",".join(f'["{price}","{amount}"]' for price, amount in levels) + "]").encode()


def bare(levels: Levels) -> bytes:
    """Return OBJECTS text with bare numbers."""
    rows = (f'{{"price":{price},"qty":{amount}}}' for price, amount in levels)
    return ("[" + ",".join(rows) + "]").encode()


def sided(bids: Levels, asks: Levels) -> bytes:
    """Return SIDED text, bids first."""
    rows = [f'["buy","{price}","{amount}"]' for price, amount in bids]
    rows += [f'["sell","{price}","{amount}"]' for price, amount in asks]
    return ("[" + ",".join(rows) + "]").encode()


def apply(book: Any, bids: Levels, asks: Levels = (), *, shape: int = PAIRS) -> None:
    """Apply levels in any shape."""
    bids, asks = list(bids), list(asks)
    if shape == SIDED:
        book.apply(sided(bids, asks), b"", SIDED)
    elif shape == OBJECTS:
        book.apply(bare(bids), bare(asks), OBJECTS)
    else:
        book.apply(pairs(bids), pairs(asks))


def book_of(core: ModuleType, bids: Levels, asks: Levels = ()) -> Any:
    """Return a book of this implementation with these levels."""
    book = core.Book()
    book.replace(pairs(bids), pairs(asks))
    return book


def state_of(book: Any) -> tuple[Any, ...]:
    """Return all that can be seen of a book."""
    return (
        book.price_scale,
        book.amount_scale,
        book.bid_count,
        book.ask_count,
        book.crossed,
        book.best(),
        book.top(30_000),
        [*book.ladder(0)],
        [*book.ladder(1)],
        book.crc_digits(10),
        book.crc_text(25),
    )
