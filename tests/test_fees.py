"""Fee tables: valid fees, canonical forms, and fees of exchanges."""

import pytest

from onebook.fees import FEES_MAX, TakerFees, fee_factors, fee_table, fee_text, fees_of

PAIR = "BTC/USDT"


@pytest.mark.parametrize(
    ("given", "text"),
    [("0.10", "0.1"), ("0", "0"), ("-0", "0"), ("-0.0250", "-0.025"), ("10", "10"), ("5.0", "5")],
)
def test_equal_fees_have_one_text(given, text):
    assert fee_text(given) == text


@pytest.mark.parametrize("given", ["", "1e-3", "10.1", "-11", "0.0000001", ".1", "1.", " 1", 0.1])
def test_what_is_no_fee_is_named(given):
    with pytest.raises(ValueError, match="A fee is a decimal number of percent"):
        fee_text(given)


def test_tables_with_equal_fees_of_the_exchanges_are_equal_and_hash_alike():
    first = fees_of(fee_table({"okx": "0.10", "*": "0.2", "htx": "0.3"}), ("okx", "xt"), PAIR)
    second = fees_of(fee_table({"xt": "0.20", "okx": "0.1"}), ("xt", "okx"), PAIR)
    assert first == second
    assert first.known == {"okx": "0.1", "xt": "0.2"}
    assert len({first.known: 1, second.known: 2}) == 1
    assert hash(first.known) == hash(TakerFees(okx="0.1", xt="0.2"))


def test_an_exchange_without_a_fee_is_named_and_never_free():
    assert fees_of(fee_table({"okx": "0"}), ("xt", "okx", "htx"), PAIR) == (
        {"okx": "0"},
        ("htx", "xt"),
    )


def test_factors_are_exact_and_share_the_smallest_scale():
    assert fee_factors(["0.1", "-0.025", "0"]) == (
        5,
        ((99900, 100100), (100025, 99975), (10**5, 10**5)),
    )
    assert fee_factors(["1", "2"]) == (2, ((99, 101), (98, 102)))


def test_a_table_has_a_limit():
    with pytest.raises(ValueError, match=f"at most {FEES_MAX} fees"):
        fee_table({f"e{number}": "0" for number in range(FEES_MAX + 1)})
