"""Decimal text in pure Python: parses numbers exactly and formats them.

The rules are those of `types`, and the compiled core follows them to the byte.
"""

import re
from typing import Any, Final, NamedTuple

from onebook.core.types import DIGITS_MAX, NUMBER_BYTES_MAX, SCALE_MAX, LevelError

MANTISSA_END: Final = 10**DIGITS_MAX

_NUMBER = re.compile(r"(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?").fullmatch


class Number(NamedTuple):
    """`mantissa` x 10^-`scale` at the smallest scale; `decimals` is their number in the text."""

    mantissa: int
    scale: int
    decimals: int

    def at(self, scale: int) -> int:
        """Return the mantissa at an equal or larger scale."""
        mantissa: int = self.mantissa * 10 ** (scale - self.scale)
        return mantissa


ZERO: Final = Number(0, 0, 0)


def parse_number(text: Any, decimals_max: int | None = None, moved: int = 0) -> Number:
    """Parse one price or amount exactly, or cut toward zero to `decimals_max` decimals.

    The point is moved to the left by `moved` decimals. A number above zero never becomes zero: at
    least one unit of the last decimal remains.

    Raises:
        LevelError: The text is not a number, is negative, or has more digits than a book can hold.
    """
    if type(text) is not str or len(text) > NUMBER_BYTES_MAX or not (match := _NUMBER(text)):
        raise LevelError("A price or amount is not a JSON number of at least zero.")
    whole, fraction, power = match.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return ZERO
    spelled = int(power or 0) - len(fraction)
    shift = spelled - moved
    kept = digits.rstrip("0")
    scale = -(shift + len(digits) - len(kept))
    if decimals_max is not None and scale > decimals_max:
        digits = kept[: max(0, len(kept) - scale + decimals_max)] or "1"
        kept, shift = digits.rstrip("0"), -decimals_max
        spelled = shift
        scale = decimals_max - len(digits) + len(kept)
    if scale > SCALE_MAX or len(kept) - min(scale, 0) > DIGITS_MAX:
        raise LevelError(f"A price or amount needs more than {DIGITS_MAX} digits or decimals.")
    if scale < 0:
        return Number(int(kept) * 10**-scale, 0, max(0, -spelled))
    return Number(int(kept), scale, max(0, -spelled))


def decimal_text(mantissa: int, scale: int) -> str:
    """Print `mantissa` x 10^-`scale` without exponent and without trailing zeros."""
    if mantissa < 0:
        return "-" + decimal_text(-mantissa, scale)
    if not scale:
        return str(mantissa)
    digits = str(mantissa).rjust(scale + 1, "0")
    fraction = digits[-scale:].rstrip("0")
    return f"{digits[:-scale]}.{fraction}" if fraction else digits[:-scale]
