"""Numbers and times in canonical text, in pure Python: the fallback of the compiled core.

Canonical text has no exponent, plus sign, trailing zeros or "-0". It is also a JSON number, so a
number and its text are the same, and no binary float occurs between an exchange's text and ours.
The compiled core handles only input that is already canonical; all other input is parsed here.
"""

import re
from decimal import Context, Decimal, Inexact
from hashlib import blake2b
from typing import Any, Final

from onebook.clock import iso_ms
from onebook.core.types import CHARS_MAX, EXPONENT_MAX, NumberError

ID_BYTES: Final = 20
# Numbers of 200 characters, aligned at their points, have at most 400 digits.
_subtract: Final = Context(prec=2 * CHARS_MAX, traps=[Inexact]).subtract
_unnamed: Final = blake2b(digest_size=ID_BYTES)
iso: Final = iso_ms  # the compiled core prints the same, and calls this for times without text

_is_canonical = re.compile(r"0|-?(?:[1-9][0-9]*(?:\.[0-9]*[1-9])?|0\.[0-9]*[1-9])").fullmatch
# Decimal would also accept "NaN", "1_000" and digits of other scripts.
_is_number = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?").fullmatch


def canonical(value: Any) -> str | None:
    """Return the canonical text of an exchange's number; None for an absent one.

    Raises:
        NumberError: The value is not a finite number, or is too long.
    """
    if value is None or value == "":
        return None
    # A JSON number is an int, or a Decimal from the decoder's float hook; a bool is neither.
    text = value if type(value) is str else _text(value)
    if len(text) > CHARS_MAX:
        raise NumberError(f"A number has {len(text)} characters, more than {CHARS_MAX}.")
    return text if _is_canonical(text) else show(_parse(text))


def canonicals(*values: Any) -> list[str | None]:
    """Return the canonical texts of several numbers.

    Raises:
        NumberError: One of them is not a finite number, or is too long.
    """
    return [canonical(value) for value in values]


def difference(left: str, right: str) -> str:
    """Return the exact difference of two canonical numbers, in canonical text."""
    return show(_subtract(Decimal(left), Decimal(right)))


def texts(row: dict[str, Any], *names: str) -> list[str | None]:
    """Return the texts of a row by name; None for each absent or empty one."""
    found = [row.get(name) for name in names]
    return [None if value is None or value == "" else str(value) for value in found]


def record_id(*parts: str) -> str:
    """Return the id of an event: a hash of its parts, so equal parts have equal ids."""
    name = _unnamed.copy()  # faster than the constructor, which takes as long as the rest
    name.update("|".join(parts).encode())
    return "0x" + name.hexdigest()


def show(value: Decimal) -> str:
    """Print a Decimal in canonical text."""
    if not value:
        return "0"
    text = str(value)  # twice as fast as format(), and equal except for exponents
    if "E" in text or "e" in text:
        text = format(value, "f")
    return text if text[-1] != "0" or "." not in text else text.rstrip("0").rstrip(".")


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise NumberError(f"A {type(value).__name__} where a number is required.")
    return str(value)


def _parse(text: str) -> Decimal:
    if not _is_number(text):
        raise NumberError(f"{text!r} is not a number.")
    value = Decimal(text)
    if value and abs(value.adjusted()) > EXPONENT_MAX:
        raise NumberError(f"{text!r} is outside the accepted range.")
    return value
