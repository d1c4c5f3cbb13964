"""Decimal text and level text in pure Python: the twin's reader, and the number it prints.

The rules are those of `types`; the compiled core follows them to the byte. No book is known here.
"""

import re
from collections.abc import Sequence
from json import JSONDecoder
from typing import Any, Final, NamedTuple, NoReturn

from onebook.core.types import (
    DIGITS_MAX,
    FRAME_LEVELS_MAX,
    NESTING_MAX,
    NUMBER_BYTES_MAX,
    OBJECTS,
    PAIRS,
    SCALE_MAX,
    SIDED,
    Bytes,
    LevelError,
)

MANTISSA_END: Final = 10**DIGITS_MAX
SIDES: Final = {"buy": 0, "bid": 0, "sell": 1, "ask": 1, "offer": 1}

_NUMBER = re.compile(r"(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?").fullmatch


class Number(NamedTuple):
    """`mantissa` x 10^-`scale`, the smallest such scale, and the decimals the text spelled out."""

    mantissa: int
    scale: int
    decimals: int

    def at(self, scale: int) -> int:
        """Return the mantissa at a scale that is not smaller."""
        mantissa: int = self.mantissa * 10 ** (scale - self.scale)
        return mantissa


Row = tuple[Number, Number]


def parse_number(text: Any) -> Number:
    """Read one price or amount exactly.

    Raises:
        LevelError: It is no number, is negative, or needs more digits than a book can hold.
    """
    if type(text) is not str or len(text) > NUMBER_BYTES_MAX or not (match := _NUMBER(text)):
        raise LevelError("A price or amount is not a JSON number of at least zero.")
    whole, fraction, power = match.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return Number(0, 0, 0)
    shift = int(power or 0) - len(fraction)
    kept = digits.rstrip("0")
    scale = -(shift + len(digits) - len(kept))
    if scale > SCALE_MAX or len(kept) - min(scale, 0) > DIGITS_MAX:
        raise LevelError(f"A price or amount needs more than {DIGITS_MAX} digits or decimals.")
    if scale < 0:
        return Number(int(kept) * 10**-scale, 0, max(0, -shift))
    return Number(int(kept), scale, max(0, -shift))


def decimal_text(mantissa: int, scale: int) -> str:
    """Print `mantissa` x 10^-`scale` without exponent and without trailing zeros."""
    if mantissa < 0:
        return "-" + decimal_text(-mantissa, scale)
    if not scale:
        return str(mantissa)
    digits = str(mantissa).rjust(scale + 1, "0")
    fraction = digits[-scale:].rstrip("0")
    return f"{digits[:-scale]}.{fraction}" if fraction else digits[:-scale]


def read_levels(bids: Bytes, asks: Bytes, shape: int) -> tuple[list[Row], list[Row]]:
    """Read the level text of both sides; rows stay in their order.

    Raises:
        LevelError: One of the texts or one of its numbers cannot be trusted.
    """
    if shape == PAIRS:
        return [_pair(row) for row in _rows(bids)], [_pair(row) for row in _rows(asks)]
    if shape == OBJECTS:
        return [_object(row) for row in _rows(bids)], [_object(row) for row in _rows(asks)]
    if shape != SIDED:
        raise ValueError(f"There is no shape {shape}; it is PAIRS, OBJECTS or SIDED.")
    sides: tuple[list[Row], list[Row]] = [], []
    for row in _rows(bids):
        side, level = _sided(row)
        sides[side].append(level)
    return sides


def _refuse(_: str) -> NoReturn:
    raise ValueError


# Objects become tuples of (name, value), so that arrays and repeated names can be told.
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
    if len(rows) > FRAME_LEVELS_MAX:
        raise LevelError(f"Level text has more than {FRAME_LEVELS_MAX} rows.")
    return rows


def _too_deep(value: Any, left: int) -> bool:
    if type(value) is list:
        return not left or any(_too_deep(item, left - 1) for item in value)
    if type(value) is tuple:
        return not left or any(_too_deep(item, left - 1) for _, item in value)
    return False


def _ignore(values: Sequence[Any]) -> None:
    """Refuse what nests deeper than a reader with a bounded stack can skip."""
    if any(_too_deep(value, NESTING_MAX) for value in values):
        raise LevelError("A row of the level text is nested too deep.")


def _level(price_text: Any, amount_text: Any) -> Row:
    price, amount = parse_number(price_text), parse_number(amount_text)
    if not price.mantissa:
        raise LevelError("A price is zero.")
    return price, amount


def _pair(row: Any) -> Row:
    if type(row) is not list or len(row) < 2:
        raise LevelError("A row of the level text is not [price, amount].")
    if len(row) > 2:
        _ignore(row[2:])
    return _level(row[0], row[1])


def _members(row: Any, names: tuple[str, ...]) -> list[Any]:
    """Pick members by name; each must be there exactly once."""
    found = [member for member in row if member[0] in names]
    if len(found) != len(names) or len(members := dict(found)) != len(names):
        raise LevelError(f"A row of the level text has not one each of {', '.join(names)}.")
    if len(row) > len(names):
        _ignore([value for name, value in row if name not in names])
    return [members[name] for name in names]


def _object(row: Any) -> Row:
    if type(row) is not tuple:
        raise LevelError("A row of the level text is not an object.")
    price, amount = _members(row, ("price", "qty"))
    return _level(price, amount)


def _sided(row: Any) -> tuple[int, Row]:
    if type(row) is tuple:
        side, price, amount = _members(row, ("side", "price_level", "new_quantity"))
    elif type(row) is list and len(row) >= 3:
        side, price, amount = row[:3]
        _ignore(row[3:])
    else:
        raise LevelError("A row of the level text is not [side, price, amount].")
    if type(side) is not str or side not in SIDES:
        raise LevelError("A row of the level text names no side.")
    return SIDES[side], _level(price, amount)
