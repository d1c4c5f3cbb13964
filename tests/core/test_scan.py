"""Numbers of level text, in both implementations: read exactly in every spelling, or refused."""

from typing import Any

import pytest

from core.both import EACH, assert_refused, book_of
from onebook.core.types import NUMBER_BYTES_MAX, PAIRS

pytestmark = pytest.mark.parametrize("core", EACH)

NUMBERS_REFUSED = {
    "negative": "-1",
    "negative zero": "-0",
    "plus": "+1",
    "not a number": "NaN",
    "infinite": "Infinity",
    "word": "abc",
    "hexadecimal": "0x10",
    "nothing before the point": ".5",
    "nothing behind the point": "5.",
    "two points": "1.2.3",
    "leading zeros": "007",
    "no exponent": "1e",
    "no digits in the exponent": "1e+",
    "fractional exponent": "1e1.5",
    "space": "1 2",
    "thousands": "1,000",
    "19 digits": "1234567890123456789",
    "19 digits with a point": "1234567890.123456789",
    "19 decimals": "0.0000000000000000001",
    "too large an exponent": "1e18",
    "far too large an exponent": "1e999999999999999999999",
    "far too small an exponent": "1e-999999999999999999999",
    "absurd length": "0." + "0" * NUMBER_BYTES_MAX + "1",
    "absurd length that is zero": "0." + "0" * NUMBER_BYTES_MAX,
}


@pytest.mark.parametrize("number", NUMBERS_REFUSED.values(), ids=NUMBERS_REFUSED)
@pytest.mark.parametrize("quote", ['"', ""], ids=["string", "bare"])
@pytest.mark.parametrize("row", ["[[{},1]]", "[[1,{}]]"], ids=["price", "amount"])
def test_bad_number_is_refused_and_changes_nothing(
    core: Any, number: str, quote: str, row: str
) -> None:
    book = book_of(core, [("99.5", "1")], [("100", "2.25")])
    assert_refused(book, row.format(quote + number + quote).encode(), PAIRS)


def test_numbers_are_exact_in_every_spelling(core: Any) -> None:
    book = core.Book()
    book.replace(
        b'[["6195.00000000","9.121E-7"],[0.5e1,"1e3"],["1.20","12.50e-1"],[7,1E+2],["1000e-3",5]]',
        b'[[" 1","2"]]'.replace(b" ", b""),
    )
    assert book.top(9) == (
        [("6195", "0.0000009121"), ("7", "100"), ("5", "1000"), ("1.2", "1.25"), ("1", "5")],
        [("1", "2")],
    )
    assert (book.price_scale, book.amount_scale) == (1, 10)


def test_zeros_at_the_end_do_not_count_for_the_scale(core: Any) -> None:
    book = book_of(core, [("6195.00000000", "672.00000000")])
    assert (book.price_scale, book.amount_scale) == (0, 0)


def test_the_largest_and_smallest_numbers_are_held(core: Any) -> None:
    book = book_of(core, [("999999999999999999", "0.000000000000000001")])
    assert book.top(1)[0] == [("999999999999999999", "0.000000000000000001")]
    assert (book.price_scale, book.amount_scale) == (0, 18)


@pytest.mark.parametrize("zero", ["0", "0.00000", "0.0", "0e5", "0E-30", "0.0e+0"])
@pytest.mark.parametrize("quote", ['"', ""], ids=["string", "bare"])
def test_zero_in_any_spelling_removes(core: Any, zero: str, quote: str) -> None:
    book = book_of(core, [("1", "1"), ("2", "1")], [("3", "1")])
    book.apply(f"[[2,{quote}{zero}{quote}],[9,0]]".encode(), f"[[3.0,{zero}]]".encode())
    assert book.top(5) == ([("1", "1")], [])
    assert (book.bid_count, book.ask_count) == (1, 0)
