"""Numbers as text, in both implementations: exact, shortest, without an exponent."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.both import EACH, pairs
from onebook.core.types import DIGITS_MAX, SCALE_MAX

pytestmark = pytest.mark.parametrize("core", EACH)


def shortest(mantissa: int, scale: int) -> str:
    text = format(Decimal(mantissa).scaleb(-scale), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def printed(core: Any, mantissa: int, scale: int) -> str:
    """Format through a book whose scale is set by another level."""
    book = core.Book()
    unit = shortest(1, scale)
    book.replace(pairs([("1", shortest(mantissa, scale)), ("2", unit)]), b"")
    assert book.amount_scale == scale
    return str(book.top(2)[0][1][1])


@given(st.integers(1, 10**DIGITS_MAX - 1), st.integers(0, SCALE_MAX))
@example(10**8 - 1, 7)
@example(10**8, 8)
@example(10**16 - 1, 15)
@example(10**16, 16)
@example(10**17, 17)
@example(10**18 - 1, 18)
def test_every_number_at_every_scale_is_its_shortest_text(
    core: Any, mantissa: int, scale: int
) -> None:
    assert printed(core, mantissa, scale) == shortest(mantissa, scale)


def test_one_digit_at_every_place(core: Any) -> None:
    for scale in range(SCALE_MAX + 1):
        for power in range(DIGITS_MAX):
            assert printed(core, 7 * 10**power, scale) == shortest(7 * 10**power, scale)


def test_sums_of_more_than_64_bits(core: Any) -> None:
    book = core.Book()
    book.replace(pairs([(str(n), "4" * 18) for n in range(1, 60)]), b"")
    view = core.View(["a"], depth=60, arrays=True)
    view.merge([book])
    assert b'"total_bid_volume":%d,' % (59 * int("4" * 18)) in view.full(b"{", b"}")
