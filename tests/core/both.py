"""Both implementations of the core, and level text as input."""

import struct
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import pytest

from onebook.core import reference
from onebook.core.types import (
    PAIRS,
    ChecksumLayout,
    ChecksumNumber,
    ChecksumOrder,
    LevelError,
    LevelShape,
)

OBJECTS = LevelShape.objects()
SIDED = LevelShape.rows(side=0, price=1, amount=2)
SIDED_OBJECTS = LevelShape.objects("price_level", "new_quantity", "side")
LED = LevelShape.rows(price=1, amount=2)
COUNTED = LevelShape.rows(price=0, count=1, amount=2, signed=True, single=True)
FILLED = LevelShape.rows(price=3, amount=0, skip_zero_price=True)
SHORT_NAMES = LevelShape.objects("p", "s", skip_zero_price=True)
TWO_SIDED = LevelShape.objects(
    "bid_price", "bid_size", asks=LevelShape.objects("ask_price", "ask_size")
)
MESSAGE = LevelShape.protobuf()
GROUP = LevelShape.group(price_scale=8, amount_scale=6)
CUT = LevelShape.rows(amount_decimals=4)
SHAPES = {
    "pairs": PAIRS,
    "objects": OBJECTS,
    "sided": SIDED,
    "led": LED,
    "sided objects": SIDED_OBJECTS,
    "counted": COUNTED,
    "filled": FILLED,
    "short names": SHORT_NAMES,
    "two-sided": TWO_SIDED,
    "message": MESSAGE,
    "group": GROUP,
    "cut": CUT,
}
CUT_SHAPES = {
    "cut sided": LevelShape.rows(side=0, price=1, amount=2, amount_decimals=0),
    "cut signed": LevelShape.rows(count=1, amount=2, signed=True, amount_decimals=2),
    "cut message": LevelShape.protobuf(amount_decimals=1),
    "cut asks": LevelShape.objects(asks=LevelShape.objects(amount_decimals=3)),
}
SCALED = LevelShape.rows(price_scale=8, amount_scale=6)
SCALED_SHAPES = {
    "scaled": SCALED,
    "scaled sided": LevelShape.rows(side=0, price=1, amount=2, price_scale=2, amount_scale=18),
    "scaled counted": LevelShape.rows(count=1, amount=2, signed=True, single=True, price_scale=1),
    "scaled group": LevelShape.group(price=9, amount=1, price_scale=18, amount_scale=1),
    "integer group": LevelShape.group(price=8, amount=0),
    "scaled cut": LevelShape.rows(price_scale=4, amount_decimals=2),
}
DIGITS = ChecksumLayout(10, ChecksumOrder.ASKS_BIDS, ChecksumNumber.DIGITS)
TEXT = ChecksumLayout(25, ChecksumOrder.IN_TURN, ChecksumNumber.TEXT, ":")
JAVASCRIPT = ChecksumLayout(
    25, ChecksumOrder.IN_TURN, ChecksumNumber.JAVASCRIPT, ":", negative_asks=True
)
EIGHT = ChecksumLayout(10, ChecksumOrder.BIDS_ASKS, ChecksumNumber.DIGITS, decimals=8)
LAYOUTS = (DIGITS, TEXT, JAVASCRIPT, EIGHT)

try:
    from onebook.core import _core as _compiled
except ImportError:
    _compiled = None

COMPILED: Any = _compiled

needs_compiled = pytest.mark.skipif(COMPILED is None, reason="the compiled core is not built here")
EACH = [
    pytest.param(reference, id="reference"),
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


def field(number: int, text: bytes) -> bytes:
    """Return a short length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(text)) + text


def varint(value: int) -> bytes:
    """Return a protobuf number."""
    low = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([part | 128 for part in low[:-1]] + low[-1:])


def group(levels: Sequence[tuple[int, int]], shape: LevelShape = GROUP, *, rest: int = 0) -> bytes:
    """Return a group of mantissas in Simple Binary Encoding, with `rest` more bytes an entry."""
    places = int(shape.price), int(shape.amount)
    width = max(places) + 8 + rest
    entries = [bytearray(b"\x39" * width) for _ in levels]
    for entry, level in zip(entries, levels, strict=True):
        for at, mantissa in zip(places, level, strict=True):
            struct.pack_into("<q", entry, at, mantissa)
    return struct.pack("<HH", width, len(entries)) + b"".join(entries)


def apply(book: Any, bids: Levels, asks: Levels = (), *, shape: LevelShape = PAIRS) -> None:
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
        book.best_pairs(),
        book.top(30_000),
        [*book.ladder(0)],
        [*book.ladder(1)],
        *map(book.crc, LAYOUTS),
        book.horizon(),
        book.horizon(5),
        book.reach(0),
        book.reach(1),
    )


def assert_refused(book: Any, text: bytes, shape: LevelShape) -> None:
    """Check that `apply` and `replace` both refuse this text and leave the book unchanged."""
    before = state_of(book)
    for change in (book.apply, book.replace):
        with pytest.raises(LevelError, match=r"^[A-Z].*\.$"):
            change(text, b"[]", shape)
        assert state_of(book) == before
