"""Exact decimal arithmetic on the numbers of `onebook.core`; never rounds.

Numbers never become binary floats between the exchange's text and ours.
"""

from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import Any, Final

from onebook.core import canonical

EXACT: Final = Context(
    prec=400, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow], Emin=-9999, Emax=9999
)
ZERO: Final = Decimal(0)
_add, _subtract = EXACT.add, EXACT.subtract  # looked up once, because every row calls them


def number(value: Any) -> Decimal | None:
    """An exchange's number as a Decimal; None if absent."""
    text = canonical(value)
    return None if text is None else Decimal(text)


def amount(value: Any) -> Decimal:
    """An exchange's number; 0 if absent."""
    return number(value) or ZERO


def add(*values: Decimal) -> Decimal:
    """The exact sum; raises `decimal.Inexact` if it needs more than 400 digits."""
    total = ZERO
    for value in values:
        total = _add(total, value)
    return total


def subtract(left: Decimal, right: Decimal) -> Decimal:
    """The exact difference."""
    return _subtract(left, right)


def negate(value: Decimal) -> Decimal:
    """The exact negative; the sign operator would round in the thread's context."""
    return EXACT.minus(value)


def multiply(left: Decimal, right: Decimal) -> Decimal:
    """The exact product."""
    return EXACT.multiply(left, right)


def unsigned(text: str) -> str:
    """Canonical text without the sign."""
    return text.removeprefix("-")


def negated(text: str) -> str:
    """Canonical text with the opposite sign."""
    if text == "0":
        return text
    return text[1:] if text[0] == "-" else "-" + text
