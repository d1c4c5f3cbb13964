"""The chain of a wallet's book."""

from decimal import Decimal
from random import Random

import pytest

from onebook.core import show
from onebook.transactions.record import RecordView
from transactions.proving import CHAIN, line, report
from transactions.test_record import record


def test_a_whole_chain_holds() -> None:
    found = report(*CHAIN)
    assert found.holds
    btc, eth = found.ledger
    assert (btc.asset, btc.records, btc.opening, btc.changes, btc.closing) == (
        "BTC", 3, "10", "1.5", "11.5",
    )  # fmt: skip
    assert (eth.opening, eth.changes, eth.closing, eth.difference) == ("93", "7", "100", "0")


@pytest.mark.parametrize("lost", [1])
def test_a_lost_line_breaks_the_chain_by_its_amount(lost: int) -> None:
    found = report(*(one for index, one in enumerate(CHAIN) if index != lost))
    btc = next(chain for chain in found.ledger if chain.asset == "BTC")
    assert not found.holds
    assert btc.breaks[0].transactionId == CHAIN[3].transactionId
    assert (btc.breaks[0].expected, btc.breaks[0].found) == ("10.5", "13")
    assert btc.difference == btc.breaks[0].difference == "-2.5"


def test_lines_of_one_instant_are_put_in_the_order_of_the_chain() -> None:
    random = Random(5)
    for _ in range(50):
        balance, instant = Decimal(100), []
        for index in range(6):
            change = Decimal(random.randrange(-5, 6))
            balance += change
            instant.append(line(50, show(change), show(balance), name=f"0x{index}"))
        older = line(40, "60", "100")
        random.shuffle(instant)
        found = report(*instant, older)
        assert found.holds, instant


def test_a_break_before_an_instant_is_one_break() -> None:
    instant = [line(40, "1", "8", name="0xa"), line(40, "2", "7", name="0xb")]
    for order_of in (instant, instant[::-1]):
        found = report(line(50, "1", "11.5"), *order_of)
        assert len(found.ledger[0].breaks) == 1
        assert found.ledger[0].opening == "5"


def test_an_answer_of_nothing_but_a_round() -> None:
    found = report(line(40, "1", "8"), line(40, "-1", "7", name="0xb"))
    assert found.holds
    assert found.ledger[0].changes == "0"


def test_a_line_without_a_balance_is_left_out() -> None:
    assert report(record(type="ledger", view=RecordView.LEDGER, balance=None)).ledger == ()
