"""Exact differences of canonical numbers, in both implementations."""

from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.both import COMPILED, EACH, needs_compiled
from core.test_canonical import numbers
from onebook.core import reference
from onebook.core.reference.canonical import show

# Canonical numbers, as differences take them: with few digits, with more than 64 bits hold, and
# with more than 128 bits hold once they are aligned at their points.
amounts = st.one_of(
    st.from_regex(r"-?[0-9]{1,9}(\.[0-9]{0,8}[1-9])?", fullmatch=True),
    st.from_regex(r"-?[0-9]{1,18}(\.[0-9]{0,17}[1-9])?", fullmatch=True),
    st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{0,20}[1-9])?", fullmatch=True),
).map(reference.canonical)


@pytest.mark.parametrize("core", EACH)
@settings(max_examples=2 * settings.default.max_examples)
@given(left=amounts, right=amounts)
@example("9" * 38, "-" + "9" * 38)
@example("-" + "9" * 38, "9" * 38)
@example("9" * 39, "-" + "9" * 39)
@example("9" * 20 + "." + "9" * 19, "-1")
@example("9" * 20, "0." + "0" * 18 + "1")
@example("9" * 21, "0." + "0" * 18 + "1")
@example("9" * 10, "0." + "0" * 28 + "1")
@example("9" * 18 + "." + "9" * 18, "-0." + "0" * 17 + "1")
@example("1" + "0" * 36, "1" + "0" * 35)
@example("0." + "0" * 36 + "1", "0")
@example("0." + "0" * 36 + "1", "1")
@example("18446744073709551616", "1")
@example("18446744073709551615", "-1")
@example("999999999999999999", "-999999999999999999")
@example("0.000000000000000001", "999999999999999999")
@example("1234567890.123456789", "0.0000000001")
@example("100000000000000000000", "0.5")
@example("5", "5")
@example("٣", "1")
def test_a_difference_is_exact(core: Any, left: str, right: str) -> None:
    exact = Context(prec=1_000).subtract(Decimal(left), Decimal(right))
    assert core.difference(left, right) == show(exact)


@needs_compiled
@given(left=numbers, right=numbers)
@example("1.0", "2")
@example("x", "2")
@example("NaN", "0")
def test_both_take_the_difference_of_anything_alike(left: Any, right: Any) -> None:
    try:
        expected = reference.difference(left, right)
    except (ArithmeticError, TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            COMPILED.difference(left, right)
    else:
        assert COMPILED.difference(left, right) == expected
