"""Identities that hold in Bybit's own rows."""

from decimal import Decimal
from itertools import pairwise

from onebook.transactions.bybit import ledger
from transactions.bybit.native import LINEAR
from transactions.test_samples import SAMPLES
from transactions.test_samples import rows_of as sample_rows


class TestIdentities:
    """Identities of every recorded row."""

    pytestmark = SAMPLES.needed

    def test_change_is_cash_flow_plus_funding_less_fee(self) -> None:
        checked = 0
        for name in SAMPLES.names():
            if not name.startswith(("account_transaction-log", "account_contract")):
                continue
            sign = -1 if "contract" in name else 1
            for row in sample_rows(name, "list"):
                cash, funding, fee, change = (
                    Decimal(row[key] or 0) for key in ("cashFlow", "funding", "fee", "change")
                )
                assert change == cash + sign * funding - fee
                checked += 1
        assert checked >= 10

    def test_the_documented_rows_chain(self) -> None:
        rows = sample_rows("account_transaction-log.docs.json", "list")
        records = [ledger.ledger(row, LINEAR) for row in rows]
        for newer, older in pairwise(records):
            assert newer.balance is not None
            assert older.balance is not None
            assert newer.balance.before == older.balance.after

    def test_the_value_of_a_fill_is_price_times_quantity(self) -> None:
        checked = 0
        for name in SAMPLES.names():
            if not name.startswith(("execution_list", "pre-upgrade_execution")):
                continue
            for row in sample_rows(name, "list"):
                if row["execValue"]:
                    product = Decimal(row["execPrice"]) * Decimal(row["execQty"])
                    assert product == Decimal(row["execValue"])
                    checked += 1
        assert checked >= 8

    def test_closed_pnl_of_a_real_position(self) -> None:
        (row,) = sample_rows("position_closed-pnl.hirokisan.json", "list")
        rate = Decimal("0.0006")
        entry, leave = Decimal(row["cumEntryValue"]), Decimal(row["cumExitValue"])
        assert Decimal(row["closedPnl"]) == leave - entry - rate * entry - rate * leave
        (line,) = sample_rows("account_transaction-log.hirokisan.json", "list")
        assert Decimal(line["cashFlow"]) == leave - entry
