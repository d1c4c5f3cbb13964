"""Amounts of the simulation are exact, and shown as plain decimal text."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from onebook.simulator.accounts.amounts import SCALE, UNIT, product, quotient, shown

UNITS = st.integers(-(10**30), 10**30)


@given(UNITS)
def test_text_is_exact_and_plain(units):
    text = shown(units)
    assert Fraction(text) * 10**SCALE == units
    assert "E" not in text
    assert not ("." in text and text.endswith("0"))


def test_zero_has_no_sign():
    assert shown(0) == "0"


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_products_of_few_decimals_are_exact(left, right):
    assert product(left * 10**6, right * 10**6) == left * right


def test_a_quotient_is_cut_to_8_decimals():
    assert shown(quotient(UNIT, 3 * UNIT)) == "0.33333333"
    assert shown(quotient(2 * UNIT, 3 * UNIT)) == "0.66666666"
