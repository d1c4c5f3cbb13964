"""The report of a verifier about all records of an answer."""

import pytest

from onebook.transactions.bybit import ENTRY
from onebook.transactions.record import Balance, RecordView
from onebook.transactions.verify import Verifier
from transactions.proving import CHAIN, WALLET, line, order, report
from transactions.test_record import record


def test_an_answer_cut_in_an_instant_proves_nothing_of_it() -> None:
    half = (line(50, "1", "12"), line(40, "-5", "7"))
    assert not report(*half).holds
    assert report(*half, cut=True).holds is not False
    assert report(*half, below_ms=50).holds is not False


def test_instants_that_all_return_to_their_balance_have_one_balance_in_common() -> None:
    """A wallet that is filled and emptied at once, each time, and empty in between."""
    first = (line(10, "7", "7"), line(10, "-7", "0"))
    second = (line(20, "5", "5"), line(20, "-5", "0"))
    assert report(*second, *first).holds
    assert report(*reversed(second), *reversed(first)).ledger[0].closing == "0"
    other = (line(20, "5", "6"), line(20, "-5", "1"))
    assert not report(*other, *first).holds


def test_breaks_named_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.reconciliation.BREAKS_MAX", 3)
    lines = [line(at, "1", str(at * at)) for at in range(20, 0, -1)]
    assert len(report(*lines).ledger[0].breaks) == 3
    orders = [order(at, str(at), "1", "1") for at in range(20, 0, -1)]
    assert len(report(*orders).orders.breaks) == 3


def test_what_was_borrowed_may_be_in_a_holding() -> None:
    """Bybit's balance of a wallet includes borrowed coins, its ledger does not."""
    for total, borrowed, state in (("11.5", "0", "holds"), ("14.5", "3", "holds"),
                                   ("14.5", "2", "broken")):  # fmt: skip
        verifier = Verifier(ENTRY, below_ms=100, asked=("ledger", "holdings"))
        verifier.add(
            record(
                type="holdings", timestamp=100, account=WALLET, asset="BTC",
                balance=Balance(total=total, borrowed=borrowed), view=RecordView.SNAPSHOT,
            )
        )  # fmt: skip
        for one in (CHAIN[0], CHAIN[1], CHAIN[3]):
            verifier.add(one)
        checks = {check.name: check.state for check in verifier.report(cut=False).checks}
        assert checks["holdings"] == state
