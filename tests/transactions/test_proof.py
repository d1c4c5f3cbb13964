"""What checks come to."""

import pytest

from onebook.transactions.chains import BREAKS_MAX, Break
from onebook.transactions.pairs import Left
from onebook.transactions.proof import CHECKS, CheckState, check_of_breaks, check_of_left, verdict
from transactions.test_record import record


def left(*, sure: bool) -> Left:
    return Left(record(), "it is missing", "2", "0.5", sure)


def test_what_is_left_for_sure_breaks_and_shows_the_difference() -> None:
    check = check_of_left("deposits", 3, [left(sure=True)])
    assert (check.state, check.checked, check.broken) == (CheckState.BROKEN, 4, 1)
    assert check.breaks[0].difference == "1.5"


def test_what_may_be_no_loss_stays_open_with_its_reason() -> None:
    check = check_of_left("deposits", 3, [left(sure=False)], "Why.")
    assert (check.state, check.broken, check.open, check.reason) == (CheckState.OPEN, 0, 1, "Why.")


def test_too_much_left_over_decides_nothing() -> None:
    assert check_of_left("deposits", 3, [], overflowed=True).state is CheckState.OPEN


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
