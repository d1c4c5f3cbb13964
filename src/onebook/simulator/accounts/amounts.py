"""Amounts as integers of 10^-12, which hold every product of the simulation exactly."""

from typing import Final

SCALE: Final = 12
UNIT: Final = 10**SCALE


def shown(units: int) -> str:
    """Units as exchanges write them: plain decimal text."""
    sign = "-" if units < 0 else ""
    whole, part = divmod(abs(units), UNIT)
    if not part:
        return f"{sign}{whole}"
    return f"{sign}{whole}." + f"{part:0{SCALE}}".rstrip("0")


def product(left: int, right: int) -> int:
    """The product of two amounts; what is below a unit is cut off (the simulation avoids it)."""
    return left * right // UNIT


def quotient(left: int, right: int) -> int:
    """The quotient, cut to 8 decimals, as contracts that are settled in coins are."""
    return left * UNIT // right // 10_000 * 10_000
