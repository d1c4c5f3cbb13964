"""Events against the lines that book them."""

import pytest

from onebook.transactions.bybit import ENTRY
from onebook.transactions.pairs import Closings, Moves
from onebook.transactions.verify import Verifier
from transactions.proving import fill


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
