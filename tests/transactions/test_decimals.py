"""Exact decimals: one canonical form, compared with what `decimal` itself says."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.transactions import decimals
from onebook.transactions.decimals import CANONICAL, NumberError, canonical, canonicals


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("1", "1"),
        ("0", "0"),
        ("-0", "0"),
        ("0.000000000000000000", "0"),
        ("-0.0", "0"),
        ("1.50", "1.5"),
        ("100", "100"),
        ("007", "7"),
        ("1E-7", "0.0000001"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+1", "1"),
        ("-12.3400", "-12.34"),
        (7, "7"),
        (-7, "-7"),
        (Decimal("0.10"), "0.1"),
        ("", None),
        (None, None),
    ],
)
def test_canonical_form(given_text: object, expected: str | None) -> None:
    assert canonical(given_text) == expected


@pytest.mark.parametrize(
    "text",
    ["x", "1_000", "NaN", "Infinity", "--1", "1,5", " 1", "٣", "1e9999", "9" * 300, True, 1.5],
)
def test_what_is_no_number_is_refused(text: object) -> None:
    with pytest.raises(NumberError):
        canonical(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20))
def test_canonical_keeps_the_value_and_is_a_fixed_point(value: Decimal) -> None:
    if value and abs(value.adjusted()) > decimals.EXPONENT_MAX:
        return
    text = canonical(str(value))
    assert text is not None
    assert CANONICAL.fullmatch(text)
    assert Decimal(text) == value
    assert canonical(text) == text


@given(st.lists(st.sampled_from(["", "0", "1.5", "1.50", "-2", "-0", "1E3", "0.10", "12"])))
def test_many_at_once_are_the_same_as_one_by_one(texts: list[str]) -> None:
    assert canonicals(*texts) == [canonical(text) for text in texts]


def test_many_at_once_take_json_numbers_and_absent_values() -> None:
    assert canonicals("1.0", None, 5, "") == ["1", None, "5", None]


def test_a_line_break_in_a_number_is_no_number() -> None:
    with pytest.raises(NumberError):
        canonicals("1\n2", "3")


def test_many_long_ones_are_still_read() -> None:
    assert canonicals(*["1." + "5" * 30] * 10) == ["1." + "5" * 30] * 10


def test_arithmetic_is_exact_or_refused() -> None:
    tiny, huge = Decimal("1e-60"), Decimal("1e60")
    assert huge + tiny - huge == 0  # what plain arithmetic loses ...
    assert decimals.subtract(decimals.add(huge, tiny), huge) == tiny  # ... is kept
    assert decimals.multiply(tiny, huge) == 1
    assert decimals.show(Decimal("10.500")) == "10.5"
    assert decimals.number("") is None
    assert decimals.number("2.50") == Decimal("2.5")
    assert decimals.unsigned("-3") == "3"
    assert [decimals.negated(text) for text in ("0", "1", "-1")] == ["0", "-1", "1"]
