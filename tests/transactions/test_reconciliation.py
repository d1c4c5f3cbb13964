"""Chains, orders, events and their ledger entries, and the results of checks."""

from decimal import Decimal
from random import Random

import pytest

from onebook.core import show
from onebook.transactions.bybit import ENTRY
from onebook.transactions.reconciliation import (
    BREAKS_MAX,
    CHECKS,
    Break,
    CheckState,
    Closings,
    Moves,
    Unmatched,
    check_of_breaks,
    check_of_unmatched,
    verdict,
)
from onebook.transactions.record import RecordView
from onebook.transactions.verify import Verifier
from transactions.proving import CHAIN, fill, line, order, report
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


@pytest.mark.parametrize("name", ["_spot", "_futures"])
def test_more_left_over_than_can_be_held_is_open(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.transactions.reconciliation.LEFT_MAX", 2)
    verifier = Verifier(ENTRY, below_ms=10**9, asked=("ledger", "spot_orders", "futures_linear"))
    for at_ms in range(5):
        getattr(verifier, name).event(fill(at_ms, "a", "1", "1"))
    checks = {check.name: check for check in verifier.report(cut=False).checks}
    check = checks[f"{name[1:]}_fills"]
    assert (check.state, check.breaks) == ("open", ())
    assert "shorter range" in (check.reason or "")


def test_moves_and_closings_have_their_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.reconciliation.LEFT_MAX", 2)
    moves, closings = Moves(0), Closings()
    for at_ms in range(5):
        one = fill(at_ms, str(at_ms), "1", "1")
        moves.event((str(at_ms),), one)
        closings.event(one)
    assert moves.overflowed
    assert closings.overflowed


def test_fills_that_add_up_to_their_order() -> None:
    found = report(
        fill(60, "a", "1", "10"), fill(50, "a", "2", "20.5"), order(40, "a", "3", "30.5")
    )
    assert found.holds is True
    assert found.orders.checked == 1
    assert found.orders.fills_without_order == 0


def test_a_fill_of_the_order_s_own_instant_may_come_after_it() -> None:
    assert report(order(40, "a", "1", "10"), fill(40, "a", "1", "10")).holds


def test_a_lost_fill_is_named_with_its_amount() -> None:
    found = report(fill(60, "a", "1", "10"), order(40, "a", "3", "30.5"))
    assert not found.holds
    quantity, value = found.orders.breaks
    assert (quantity.expected, quantity.found, quantity.difference) == ("3", "1", "2")
    assert value.difference == "20.5"


def test_orders_that_went_on_after_the_range_prove_nothing() -> None:
    found = report(order(40, "a", "3", "30", updated=200), below_ms=100)
    assert found.holds is None
    assert found.orders.checked == 0


def test_fills_of_older_orders_are_counted_not_checked() -> None:
    found = report(fill(60, "old", "1", "10"), fill(50, None, "1", "1"))
    assert found.holds is None  # older than the range, or lost
    assert found.orders.fills_without_order == 1


def test_more_open_orders_than_can_be_held_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.reconciliation.OPEN_ORDERS_MAX", 1)
    found = report(fill(60, "a", "1", "1"), fill(50, "b", "1", "1"), order(40, "b", "1", "1"))
    assert found.holds is None
    assert found.orders.checked == 0


def left(*, certain: bool) -> Unmatched:
    return Unmatched(record(), "it is missing", "2", "0.5", certain)


def test_a_certain_loss_breaks_and_shows_the_difference() -> None:
    check = check_of_unmatched("deposits", 3, [left(certain=True)])
    assert (check.state, check.checked, check.broken) == (CheckState.BROKEN, 4, 1)
    assert check.breaks[0].difference == "1.5"


def test_what_may_be_no_loss_stays_open_with_its_reason() -> None:
    check = check_of_unmatched("deposits", 3, [left(certain=False)], "Why.")
    assert (check.state, check.broken, check.open, check.reason) == (CheckState.OPEN, 0, 1, "Why.")


def test_too_much_left_over_decides_nothing() -> None:
    assert check_of_unmatched("deposits", 3, [], overflowed=True).state is CheckState.OPEN


def test_nothing_to_compare_is_not_checked() -> None:
    assert check_of_breaks("orders", 0, []).state is CheckState.NOT_CHECKED


def test_breaks_named_have_a_limit() -> None:
    breaks = [Break("0x", "1", "0", "1")] * (BREAKS_MAX + 1)
    check = check_of_breaks("orders", 500, breaks)
    assert (len(check.breaks), check.broken) == (BREAKS_MAX, BREAKS_MAX + 1)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("holds not_checked", True),
        ("holds open", None),
        ("holds open broken", False),
        ("not_checked", None),
        ("", None),
    ],
)
def test_the_verdict_of_all_checks(states: str, expected: bool | None) -> None:
    checks = []
    for state in states.split():
        whole = check_of_breaks("orders", 1, [])
        checks.append(type(whole)("orders", CheckState(state), 1, 0, 0, ()))
    assert verdict(checks) is expected


def test_every_check_says_what_it_needs() -> None:
    assert all(CHECKS.values())
