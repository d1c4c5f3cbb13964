"""Exact decimals as text: one canonical form, and arithmetic that refuses to round.

No binary float is made anywhere between an exchange's text and ours. Canonical: no exponent, no
plus, no trailing zeros, no "-0". It is also a JSON number, so a number and its text are one.
"""

import re
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import Any, Final

CHARS_MAX: Final = 200  # of one number; the longest seen are 40 (18 decimals of a quote volume)
EXPONENT_MAX: Final = 60  # "1E9999" would otherwise be ten thousand characters

CANONICAL: Final = re.compile(r"0|-?(?:[1-9][0-9]*(?:\.[0-9]*[1-9])?|0\.[0-9]*[1-9])")
EXACT: Final = Context(
    prec=400, traps=[Inexact, InvalidOperation, DivisionByZero, Overflow], Emin=-9999, Emax=9999
)
ZERO: Final = Decimal(0)

_NUMBERS = re.compile(rf"(?:{CANONICAL.pattern})?(?:\n(?:{CANONICAL.pattern})?)*")
_is_canonical = CANONICAL.fullmatch
_are_canonical = _NUMBERS.fullmatch


class NumberError(ValueError):
    """Text where a number must be; the message holds no more of it than `CHARS_MAX`."""


def canonical(value: Any) -> str | None:
    """The canonical text of an exchange's number; None where there is none.

    Raises:
        NumberError: It is no finite number, or too long to be believed.
    """
    if value is None or value == "":
        return None
    # A JSON number: int, or Decimal by the decoder's float hook; a bool is neither.
    text = value if type(value) is str else _text(value)
    if len(text) > CHARS_MAX:
        raise NumberError(f"A number of {len(text)} characters.")
    if _is_canonical(text):
        return text
    return show(_parse(text))


def canonicals(*values: Any) -> list[str | None]:
    """Several numbers in canonical text: one match for all, where all are canonical already.

    Raises:
        NumberError: One of them is no finite number, or too long to be believed.
    """
    try:
        lines = "\n".join(values)
    except TypeError:  # a JSON number, or an absent value
        return [canonical(value) for value in values]
    all_canonical = _are_canonical(lines) and lines.count("\n") == len(values) - 1
    if all_canonical and len(lines) < CHARS_MAX:
        return [value or None for value in values]
    return [canonical(value) for value in values]


def number(value: Any) -> Decimal | None:
    """An exchange's number as a Decimal; None where there is none."""
    text = canonical(value)
    return None if text is None else Decimal(text)


def amount(value: Any) -> Decimal:
    """An exchange's number where absence means nothing moved."""
    return number(value) or ZERO


def show(value: Decimal) -> str:
    """A Decimal in canonical text."""
    if not value:
        return "0"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def add(*values: Decimal) -> Decimal:
    """The exact sum; `decimal.Inexact` where 400 digits would not hold it."""
    total = ZERO
    for value in values:
        total = EXACT.add(total, value)
    return total


def subtract(left: Decimal, right: Decimal) -> Decimal:
    """The exact difference."""
    return EXACT.subtract(left, right)


def multiply(left: Decimal, right: Decimal) -> Decimal:
    """The exact product."""
    return EXACT.multiply(left, right)


def unsigned(text: str) -> str:
    """Canonical text without its sign."""
    return text[1:] if text[0] == "-" else text


def negated(text: str) -> str:
    """Canonical text with the other sign."""
    if text == "0":
        return text
    return text[1:] if text[0] == "-" else "-" + text


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise NumberError(f"A {type(value).__name__} where a number must be.")
    return str(value)


def _parse(text: str) -> Decimal:
    # Decimal would also take "NaN", "1_000" and digits of other scripts.
    if not _NUMBER.fullmatch(text):
        raise NumberError(f"{text!r} is not a number.")
    value = Decimal(text)
    if value and abs(value.adjusted()) > EXPONENT_MAX:
        raise NumberError(f"{text!r} is too large or too small to be believed.")
    return value


_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
