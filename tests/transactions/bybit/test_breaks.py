"""Damage that no check finds in Bybit's answers, and open questions of upgraded accounts.

The breaks that are found: `transactions/test_breaks.py`.
"""

import pytest

from onebook.simulator.accounts.bybit import Account
from transactions.breaking import Break, proof_of, states
from transactions.bybit.breaks import ACCOUNT, BYBIT_BREAKS, LEDGER, by, nth
from transactions.bybit.test_former_accounts import UPGRADED, UTA_1


@pytest.mark.parametrize("account", [UPGRADED, UTA_1], ids=["UTA 2.0", "UTA 1.0"])
def test_an_upgraded_account_gives_no_alarm(account: Account) -> None:
    """The moves of the upgrade are in no list, which the report states."""
    proof = proof_of(BYBIT_BREAKS, account)
    found = states(proof)
    assert proof["holds"] is None
    assert {name for name, state in found.items() if state != "holds"} == {"transfers"}
    (transfers,) = (check for check in proof["checks"] if check["name"] == "transfers")
    assert (transfers["state"], transfers["broken"]) == ("open", 0)
    assert "upgrade" in transfers["reason"]


def test_oldest_lines_that_only_the_ledger_knows_are_named_as_unprovable() -> None:
    first = nth(ACCOUNT.ledger, lambda line: line.kind == "INTEREST", 0.0)
    lost = Break((LEDGER,), by("id", first.facts.line_id))
    proof = proof_of(BYBIT_BREAKS, ACCOUNT, lost, start_time=first.at_ms - 1)
    assert proof["holds"] is not False
    assert any("only in the ledger" in one["what"] for one in proof["unproven"])


def test_a_check_says_which_types_it_needs() -> None:
    proof = proof_of(BYBIT_BREAKS, ACCOUNT, None, "deposits", "ledger")
    assert proof["holds"] is True
    missing = [check for check in proof["checks"] if check["state"] == "not_checked"]
    assert {check["name"] for check in missing} >= {"holdings", "orders", "closed_pnl"}
    assert all("in one request" in check["reason"] for check in missing)
