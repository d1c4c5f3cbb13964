"""Reasons for people and programs, and instruments that are compared by identity."""

import pytest

from onebook.model import Instrument, Reason


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_its_code_and_has_one_sentence(reason):
    assert reason == reason.value == str(reason)
    assert reason.meaning.endswith(".")
    assert reason.meaning.count(". ") == 0


def test_a_reason_is_found_by_its_code():
    assert Reason("gap") is Reason.GAP
    with pytest.raises(ValueError, match="no_such_reason"):
        Reason("no_such_reason")


def test_equal_facts_are_two_instruments():
    one, other = (Instrument("okx", "BTC/USDT", "BTC-USDT") for _ in range(2))
    assert one != other
    assert len({one, other, one}) == 2
