"""Parses levels by a `LevelShape` in pure Python, independently of books.

JSON text, protobuf (https://protobuf.dev/programming-guides/encoding/), and groups in Simple Binary
Encoding (https://www.fixtrading.org/standards/sbe/).
"""

from collections.abc import Iterator, Sequence
from json import JSONDecoder
from struct import Struct
from typing import Any, Final, NoReturn

from onebook.core.reference.text import ZERO, Number, parse_number
from onebook.core.types import (
    FIELD_NUMBER_MAX,
    FRAME_LEVELS_MAX,
    MANTISSA_BYTES,
    NESTING_MAX,
    Bytes,
    LevelError,
    LevelForm,
    LevelShape,
)

SIDES: Final = {"buy": 0, "bid": 0, "sell": 1, "ask": 1, "offer": 1}
VARINT: Final = 0  # wire types of protobuf
DELIMITED: Final = 2
FIXED: Final = {1: 8, 5: 4}  # bytes of the value by wire type
VARINT_BYTES_MAX: Final = 10
GROUP_HEADER: Final = Struct("<HH")  # bytes of an entry, number of entries

Row = tuple[Number, Number]
Sides = tuple[list[Row], list[Row]]


def read_levels(bids: Bytes, asks: Bytes, shape: LevelShape) -> Sides:
    """Parse the level text of both sides; rows keep their order.

    Raises:
        LevelError: A text or one of its numbers is invalid.
    """
    if not isinstance(shape, LevelShape):
        raise TypeError(f"Not a level shape: {shape!r}.")
    sides: Sides = [], []
    if shape.form is LevelForm.MESSAGE:
        _read_message(bids, shape, sides)
        return sides
    _read_side(bids, shape, 0, sides)
    if not shape.one_text:
        _read_side(asks, shape.asks or shape, 1, sides)
    return sides


def _read_side(source: Bytes, shape: LevelShape, side: int, sides: Sides) -> None:
    if shape.form is LevelForm.GROUP:
        _read_group(bytes(memoryview(source)), shape, sides[side])
    else:
        _read_rows(source, shape, side, sides)


def _read_rows(source: Bytes, shape: LevelShape, side: int, sides: Sides) -> None:
    rows = _rows(source)
    if shape.single and rows and type(rows[0]) is not list:
        rows = [rows]
    if len(rows) > FRAME_LEVELS_MAX:
        raise LevelError(f"Level text has more than {FRAME_LEVELS_MAX} rows.")
    cells_of = _columns if shape.form is LevelForm.ROW else _members
    for row in rows:
        named, level = _level(shape, cells_of(row, shape))
        if level is not None:
            sides[side if named is None else named].append(level)


def _read_message(source: Bytes, shape: LevelShape, sides: Sides) -> None:
    side_fields = (shape.bids_field, shape.asks_field)
    left = FRAME_LEVELS_MAX
    for number, text in fields(bytes(memoryview(source))):
        if number not in side_fields:
            continue
        if text is None or not left:
            raise LevelError("A level is not a nested message, or there are too many levels.")
        left -= 1
        found: dict[int | str, Any] = {}
        for cell, value in fields(text):
            if cell in (shape.price, shape.amount):
                if value is None or cell in found:
                    raise LevelError("A price or amount is not a string, or occurs twice.")
                found[cell] = value.decode("ascii", "replace")
        _, level = _level(shape, [found.get(cell) for cell in (shape.price, shape.amount)])
        if level is not None:
            sides[side_fields.index(number)].append(level)


def _read_group(group: bytes, shape: LevelShape, levels: list[Row]) -> None:
    if not group:
        return
    if len(group) < GROUP_HEADER.size:
        raise LevelError("A group of levels is truncated.")
    width, count = GROUP_HEADER.unpack_from(group)
    if len(group) != GROUP_HEADER.size + width * count:
        raise LevelError(f"A group of {count} x {width} bytes has {len(group)} bytes.")
    for index in range(count):
        start = GROUP_HEADER.size + index * width
        entry = group[start : start + width]
        numbers = [entry[int(at) : int(at) + MANTISSA_BYTES] for at in (shape.price, shape.amount)]
        if any(len(number) < MANTISSA_BYTES for number in numbers):
            raise LevelError(f"An entry of {width} bytes is too short for a level.")
        cells = [str(int.from_bytes(number, "little", signed=True)) for number in numbers]
        _, level = _level(shape, cells)
        if level is not None:
            levels.append(level)


def _level(shape: LevelShape, cells: Sequence[Any]) -> tuple[int | None, Row | None]:
    """Make a level from its cells, and its side if named; None for an ignored level."""
    price_text, amount_text, *others = cells
    side: int | None = None
    if shape.signed and type(amount_text) is str:
        side = int(amount_text.startswith("-"))
        amount_text = amount_text.removeprefix("-")
    price = parse_number(price_text, moved=shape.price_scale)
    amount = parse_number(amount_text, shape.amount_decimals, shape.amount_scale)
    if shape.signed and not amount.mantissa:
        raise LevelError("A signed amount of zero does not say whether it is a bid or an ask.")
    if shape.side is not None:
        side = _side(others.pop(0))
    if others and not parse_number(others[0]).mantissa:
        amount = ZERO
    if not price.mantissa:
        if shape.skip_zero_price:
            return side, None
        raise LevelError("A price is zero.")
    return side, (price, amount)


def _side(name: Any) -> int:
    if type(name) is not str or name not in SIDES:
        raise LevelError("A row of the level text has no side.")
    return SIDES[name]


def _named(shape: LevelShape) -> list[Any]:
    """List the columns or members that a row must have, in the order of `_level`."""
    wanted = (shape.price, shape.amount, shape.side, shape.count)
    return [cell for cell in wanted if cell is not None]


def _columns(row: Any, shape: LevelShape) -> list[Any]:
    """Select the cells of an array."""
    columns = _named(shape)
    if type(row) is not list or len(row) <= max(columns):
        raise LevelError("A row of the level text is not an array, or is too short.")
    if len(row) > len(columns):
        _ignore([value for column, value in enumerate(row) if column not in columns])
    return [row[column] for column in columns]


def _members(row: Any, shape: LevelShape) -> list[Any]:
    """Select the cells of an object; each must occur exactly once."""
    names = _named(shape)
    if type(row) is not tuple:
        raise LevelError("A row of the level text is not an object.")
    found = [member for member in row if member[0] in names]
    if len(found) != len(names) or len(members := dict(found)) != len(names):
        raise LevelError(
            f"A row of the level text must have exactly one each of {', '.join(names)}."
        )
    if len(row) > len(names):
        _ignore([value for name, value in row if name not in names])
    return [members[name] for name in names]


def _refuse(_: str) -> NoReturn:
    raise ValueError


# Objects become tuples of (name, value), to tell them from arrays and to see repeated names.
_JSON = JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=_refuse, object_pairs_hook=tuple
).decode


def _rows(source: Bytes) -> list[Any]:
    text = bytes(memoryview(source)).strip(b" \t\n\r")
    if text in (b"", b"null"):
        return []
    try:
        if b"\\" in text:
            raise ValueError
        rows = _JSON(text.decode("ascii"))
    except (ValueError, RecursionError):
        raise LevelError("Level text is not plain JSON.") from None
    if type(rows) is not list:
        raise LevelError("Level text is not an array of rows.")
    return rows


def _too_deep(value: Any, left: int) -> bool:
    if type(value) is list:
        return not left or any(_too_deep(item, left - 1) for item in value)
    if type(value) is tuple:
        return not left or any(_too_deep(item, left - 1) for _, item in value)
    return False


def _ignore(values: Sequence[Any]) -> None:
    """Reject values nested deeper than a parser with a bounded stack can skip."""
    if any(_too_deep(value, NESTING_MAX) for value in values):
        raise LevelError("A row of the level text is nested too deep.")


def fields(message: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Yield the number of each field of a message, with the bytes of length-delimited ones.

    Raises:
        LevelError: The message is truncated, or has a number too long or an unknown wire type.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise LevelError(f"A protobuf field has the number {number}.")
        if wire == VARINT:
            _, at = _varint(message, at)
            yield number, None
            continue
        if wire == DELIMITED:
            length, at = _varint(message, at)
        elif wire in FIXED:
            length = FIXED[wire]
        else:
            raise LevelError(f"A protobuf field has the wire type {wire}.")
        end = at + length
        if end > len(message):
            raise LevelError("A protobuf field extends beyond its message.")
        yield number, message[at:end] if wire == DELIMITED else None
        at = end


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    value = 0
    for index, byte in enumerate(message[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, at + index + 1
    raise LevelError("A protobuf number is truncated or too long.")
