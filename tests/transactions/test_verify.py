"""The three identities, and that each lost or changed record breaks one."""

from decimal import Decimal
from random import Random
from typing import Any

import pytest

from onebook.core import show
from onebook.transactions.bybit import ENTRY
from onebook.transactions.pairs import Closings, Moves
from onebook.transactions.record import Balance, Holder, Ids, Record, View
from onebook.transactions.verify import Verifier
from transactions.test_record import record

WALLET = Holder("UNIFIED", None)


def line(at_ms: int, change: str, after: str, coin: str = "BTC", name: str = "") -> Record:
    before = show(Decimal(after) - Decimal(change))
    return record(
        transactionId=name or f"0x{at_ms}{coin}{change}",
        timestamp=at_ms,
        type="ledger",
        kind="trade",
        view=View.LEDGER,
        account=WALLET,
        asset=coin,
        balance=Balance(before=before, after=after, change=change),
    )


def fill(at_ms: int, order_id: str | None, quantity: str, value: str) -> Record:
    return record(
        transactionId=f"0xfill{at_ms}{order_id}",
        timestamp=at_ms,
        type="spot_orders",
        kind="trade",
        quantity=quantity,
        value=value,
        ids=Ids(order_id=order_id),
    )


def order(at_ms: int, order_id: str, quantity: str, value: str, *, updated: int = 0) -> Record:
    return record(
        transactionId=f"0xorder{order_id}",
        timestamp=at_ms,
        type="spot_orders",
        kind="order",
        view=View.SUMMARY,
        quantity=quantity,
        value=value,
        updated_at=updated or at_ms,
        ids=Ids(order_id=order_id),
    )


def report(*records: Record, below_ms: int = 10**9, cut: bool = False) -> Any:
    verifier = Verifier(ENTRY, below_ms=below_ms)
    for one in records:
        verifier.heard(one)
    return verifier.report(cut=cut)


CHAIN = (
    line(50, "1", "11.5"),
    line(40, "-2.5", "10.5"),
    line(40, "7", "100", coin="ETH"),
    line(30, "3", "13"),
)


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


def test_fills_of_older_orders_are_counted_not_judged() -> None:
    found = report(fill(60, "old", "1", "10"), fill(50, None, "1", "1"))
    assert found.holds is None  # older than the range, or lost
    assert found.orders.fills_without_order == 1


def test_an_answer_cut_in_an_instant_proves_nothing_of_it() -> None:
    half = (line(50, "1", "12"), line(40, "-5", "7"))
    assert not report(*half).holds
    assert report(*half, cut=True).holds is not False
    assert report(*half, below_ms=50).holds is not False


def test_a_line_without_a_balance_is_left_out() -> None:
    assert report(record(type="ledger", view=View.LEDGER, balance=None)).ledger == ()


def test_breaks_named_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.chains.BREAKS_MAX", 3)
    monkeypatch.setattr("onebook.transactions.orders.BREAKS_MAX", 3)
    lines = [line(at, "1", str(at * at)) for at in range(20, 0, -1)]
    assert len(report(*lines).ledger[0].breaks) == 3
    orders = [order(at, str(at), "1", "1") for at in range(20, 0, -1)]
    assert len(report(*orders).orders.breaks) == 3


def test_more_open_orders_than_can_be_held_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.orders.OPEN_ORDERS_MAX", 1)
    found = report(fill(60, "a", "1", "1"), fill(50, "b", "1", "1"), order(40, "b", "1", "1"))
    assert found.holds is None
    assert found.orders.checked == 0


@pytest.mark.parametrize("name", ["_spot", "_futures"])
def test_more_left_over_than_can_be_held_is_open(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.transactions.pairs.LEFT_MAX", 2)
    verifier = Verifier(ENTRY, below_ms=10**9, asked=("ledger", "spot_orders", "futures_linear"))
    for at_ms in range(5):
        getattr(verifier, name).event(fill(at_ms, "a", "1", "1"))
    checks = {check.name: check for check in verifier.report(cut=False).checks}
    check = checks[f"{name[1:]}_fills"]
    assert (check.state, check.breaks) == ("open", ())
    assert "shorter range" in (check.reason or "")


def test_moves_and_closings_have_their_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.pairs.LEFT_MAX", 2)
    moves, closings = Moves(0), Closings()
    for at_ms in range(5):
        one = fill(at_ms, str(at_ms), "1", "1")
        moves.event((str(at_ms),), one)
        closings.event(one)
    assert moves.overflowed
    assert closings.overflowed


def test_what_was_borrowed_may_be_in_a_holding() -> None:
    """Bybit's figure of a wallet includes borrowed coins, its book does not."""
    for total, borrowed, state in (("11.5", "0", "holds"), ("14.5", "3", "holds"),
                                   ("14.5", "2", "broken")):  # fmt: skip
        verifier = Verifier(ENTRY, below_ms=100, asked=("ledger", "holdings"))
        verifier.heard(
            record(
                type="holdings", timestamp=100, account=WALLET, asset="BTC",
                balance=Balance(total=total, borrowed=borrowed), view=View.SNAPSHOT,
            )
        )  # fmt: skip
        for one in (CHAIN[0], CHAIN[1], CHAIN[3]):
            verifier.heard(one)
        checks = {check.name: check.state for check in verifier.report(cut=False).checks}
        assert checks["holdings"] == state
