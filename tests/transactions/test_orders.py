"""Orders against their fills."""

import pytest

from transactions.proving import fill, order, report


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
    monkeypatch.setattr("onebook.transactions.orders.OPEN_ORDERS_MAX", 1)
    found = report(fill(60, "a", "1", "1"), fill(50, "b", "1", "1"), order(40, "b", "1", "1"))
    assert found.holds is None
    assert found.orders.checked == 0
