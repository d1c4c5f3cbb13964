"""What a key may do, and when it ends."""

from typing import Any

import pytest

from onebook.model import DAY_MS
from onebook.transactions.bybit.key import days_left, expires_at, granted_of, warnings_of


def key(**fields: Any) -> dict[str, Any]:
    base = {
        "readOnly": 1,
        "deadlineDay": 80,
        "permissions": {"Spot": ["SpotTrade"], "Wallet": ["AccountTransfer", "Withdraw"]},
    }
    return base | fields


def test_permissions_of_every_group_count() -> None:
    assert granted_of(key()) == {"SpotTrade", "AccountTransfer", "Withdraw"}


@pytest.mark.parametrize(("days", "left"), [(80, 80), (0, 0), (-1, None), ("soon", None)])
def test_a_key_ends_or_does_not(days: Any, left: int | None) -> None:
    assert days_left(key(deadlineDay=days)) == left
    expected = None if left is None else 5 + left * DAY_MS
    assert expires_at(key(deadlineDay=days), 5) == expected


def test_a_read_only_key_of_some_age_warns_of_nothing() -> None:
    assert list(warnings_of(key())) == []


def test_what_reading_does_not_need_is_warned_of() -> None:
    said = list(warnings_of(key(readOnly=0, deadlineDay=1)))
    assert [text.split(" (")[0] for text in said[:3]] == [
        "The key can trade",
        "The key can withdraw",
        "The key can move funds between accounts",
    ]
    assert said[3] == "The key ends in 1 day; renew it at Bybit."
