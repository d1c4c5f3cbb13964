"""Every recorded or documented OKX body goes through the mapping, its records beside it.

`expected_records.json` holds what each body must become, reviewed by hand against the facts of
each endpoint; what is null or empty is left out there, and lines of the ledger are given by their
amounts alone. Many bodies are examples of the reference, whose figures need not fit each other:
their fields are evidence. The bodies stay where they are (`ONEBOOK_SAMPLES`).
"""

import json as stdlib_json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from onebook.transactions.okx.events import conversion_of, records_of
from onebook.transactions.okx.fills import fill_of, unbooked
from onebook.transactions.okx.funds import deposit, withdrawal
from onebook.transactions.okx.holdings import earn_holdings, funding_holdings, trading_holdings
from onebook.transactions.okx.instruments import listed
from onebook.transactions.okx.rows import funding_bill, trading_bill
from onebook.transactions.record import Record, encode
from transactions.okx.native import CONTEXT, SAMPLES

EXPECTED = Path(__file__).with_name("expected_records.json")
ASKED_AT_MS = 1_763_000_000_000
pytestmark = SAMPLES.needed
Rows = list[dict[str, Any]]
Mapper = Callable[[Rows], list[Record]]


def bills(read: Callable[[Any], Any]) -> Mapper:
    return lambda rows: records_of([read(row) for row in rows], CONTEXT)


def each(read: Callable[[Any, Any], Record]) -> Mapper:
    return lambda rows: [read(row, CONTEXT) for row in rows]


def fills(rows: Rows) -> list[Record]:
    return [unbooked(fill_of(row), CONTEXT) for row in rows]


def conversions(rows: Rows) -> list[Record]:
    """Each conversion of the list with the bills that the ledger would have for it."""
    found: list[Record] = []
    for row in rows:
        listed_row = conversion_of(row)
        legs = [(*listed_row.sent, "-", "272"), (*listed_row.received, "", "272")]
        rows_of = [
            funding_bill(
                {"billId": str(number), "ccy": ccy, "balChg": sign + amount, "bal": "1",
                 "type": code, "ts": row["ts"]}
            )
            for number, (ccy, amount, sign, code) in enumerate(legs, 1)
        ]  # fmt: skip
        found += [
            record for record in records_of([*rows_of, listed_row], CONTEXT)
            if record.type != "ledger"
        ]  # fmt: skip
    return found


MAPPERS: dict[str, Mapper] = {
    "account_bills": bills(trading_bill),
    "account_bills-archive": bills(trading_bill),
    "asset_bills": bills(funding_bill),
    "asset_bills-history": bills(funding_bill),
    "asset_deposit-history": each(deposit),
    "asset_withdrawal-history": each(withdrawal),
    "trade_fills": fills,
    "trade_fills-history": fills,
    "asset_convert_history": conversions,
    "account_balance": lambda rows: trading_holdings(rows, CONTEXT, ASKED_AT_MS),
    "asset_balances": lambda rows: funding_holdings(rows, CONTEXT, ASKED_AT_MS),
    "finance_savings_balance": lambda rows: earn_holdings(rows, [], CONTEXT, ASKED_AT_MS),
    "finance_staking-defi_orders-active": lambda rows: earn_holdings(
        [], rows, CONTEXT, ASKED_AT_MS
    ),
}
# Lists that give no records: what they say is in the bills, or is no event of the account.
UNUSED = {
    "account_config": "of the key: test_key",
    "account_bills-history-archive": "export by quarter",
    "account_bills-history-archive_POST": "export by quarter",
    "account_subtypes": "names of codes",
    "account_interest-accrued": "accruals; what is deducted is a bill of type 7",
    "account_positions": "positions, not balances",
    "account_positions-history": "sums of fills",
    "account_quick-margin-borrow-repay-history": "bills of type 15",
    "account_spot-borrow-repay-history": "bills of types 16 and 22",
    "account_subaccount_balances": "another account",
    "asset_asset-valuation": "estimates",
    "asset_deposit-lightning": "an invoice",
    "asset_deposit-withdraw-status": "one deposit or withdrawal by its id",
    "asset_monthly-statement": "export",
    "asset_non-tradable-assets": "bills of types 195 to 199",
    "asset_subaccount_balances": "another account",
    "asset_subaccount_bills": "bills of types 20 and 21",
    "asset_subaccount_managed-subaccount-bills": "another account",
    "asset_transfer-state": "one transfer by its id",
    "asset_withdrawal-lightning": "an invoice",
    "copytrading_profit-sharing-details": "bills of type 18",
    "copytrading_subpositions-history": "sums of fills",
    "finance_flexible-loan_interest-accrued": "accruals",
    "finance_flexible-loan_loan-history": "bills of types 212 to 219",
    "finance_flexible-loan_loan-info": "loans, not balances",
    "finance_savings_lending-history": "accruals; what is paid is a bill of the funding account",
    "finance_staking-defi_eth_balance": "in the orders of On-chain Earn",
    "finance_staking-defi_eth_purchase-redeem-history": "bills of types 137 and 138",
    "finance_staking-defi_orders-history": "bills of types 80 and 82",
    "finance_staking-defi_sol_balance": "in the orders of On-chain Earn",
    "finance_staking-defi_sol_purchase-redeem-history": "bills of types 329 to 332",
    "public_delivery-exercise-history": "public",
    "public_settlement-history": "public",
    "public_time": "public",
    "rfq_trades": "bills of type 14",
    "sprd_trades": "bills of type 24",
    "trade_easy-convert-history": "bills of type 28",
    "trade_one-click-repay-history": "bills of type 29",
    "trade_one-click-repay-history-v2": "bills of type 29",
    "trade_orders-history": "states of orders",
    "trade_orders-history-archive": "states of orders",
    "tradingBot_grid_orders-algo-history": "states of orders",
    "tradingBot_grid_sub-orders": "states of orders",
    "users_subaccount_list": "names of other accounts",
}


def path_of(name: str) -> str:
    return name.removeprefix("api_v5_").split(".", maxsplit=1)[0]


def names() -> list[str]:
    return SAMPLES.names("api_v5_*.json")


def changed(record: Record) -> dict[str, Any]:
    """A record without empty and derived fields."""
    said = stdlib_json.loads(encode(record))
    for name in ("transactionId", "datetime", "exchange", "environment", "description", "related"):
        said.pop(name)
    if record.type == "ledger":
        return {
            "type": "ledger", "kind": record.kind, "asset": record.asset,
            "change": record.balance.change, "after": record.balance.after,
            "native_type": record.native_type,
        }  # fmt: skip
    return _filled(said)


def _filled(said: Any) -> Any:
    if isinstance(said, dict):
        found = {key: _filled(value) for key, value in said.items()}
        return {key: value for key, value in found.items() if value not in (None, [], {})}
    return [_filled(value) for value in said] if isinstance(said, list) else said


def comments() -> list[tuple[str, Rows]]:
    """Rows of real accounts that ccxt prints in its comments, by kind."""
    printed = [each["body"] for each in SAMPLES.body("rows.ccxt-comments.json")]
    rows = [row for said in printed for row in said.get("data", [said])]
    return [(path, [row]) for row in rows if (path := _comment_path(row)) is not None]


def _comment_path(row: dict[str, Any]) -> str | None:
    if "billId" in row and "balChg" in row:
        return "account_bills" if "instType" in row else "asset_bills"
    if "depId" in row:
        return "asset_deposit-history"
    if "wdId" in row and "ts" in row:
        return "asset_withdrawal-history"
    if "billId" in row and "fillSz" in row:
        return "trade_fills"
    if "fillBaseSz" in row:
        return "asset_convert_history"
    if "cashBal" in str(row.get("details", "")):
        return "account_balance"
    return "asset_balances" if row.keys() == {"availBal", "bal", "ccy", "frozenBal"} else None


def all_records() -> dict[str, list[dict[str, Any]]]:
    found = {
        name: [changed(record) for record in MAPPERS[path_of(name)](SAMPLES.body(name)["data"])]
        for name in names()
        if path_of(name) in MAPPERS
    }
    for number, (path, rows) in enumerate(comments()):
        found[f"comment {number}: {path}"] = [changed(r) for r in MAPPERS[path](rows)]
    return found


def test_every_body_becomes_the_records_that_were_reviewed() -> None:
    expected = stdlib_json.loads(EXPECTED.read_text())
    found = all_records()
    assert found.keys() == expected.keys()
    for name, records in found.items():
        assert records == expected[name], name
    assert len(comments()) > 15


def test_every_body_is_mapped_or_is_known_to_be_unused() -> None:
    paths = {path_of(name) for name in names()}
    assert paths - MAPPERS.keys() - UNUSED.keys() == set()
    assert MAPPERS.keys() & UNUSED.keys() == set()


def test_the_change_of_a_recorded_fill_is_its_size_and_fee() -> None:
    (row,) = SAMPLES.body("api_v5_account_bills.docs.json")["data"]
    bill = trading_bill(row)
    assert Decimal(bill.gross) == Decimal(row["sz"])
    assert Decimal(bill.change) == Decimal(row["sz"]) + Decimal(row["fee"])


def test_a_tail_beyond_the_decimals_of_a_coin_is_kept() -> None:
    row = next(rows[0] for _, rows in comments() if rows[0].get("instId") == "LTC-USDT")
    bill = trading_bill(row)
    assert bill.change == "-664.2679586599999802"
    assert bill.size == "664.26795866"


def test_recorded_instruments_are_read() -> None:
    market = listed("swap", {"instId": "BTC-USD-SWAP", "ctType": "inverse", "settleCcy": "BTC"})
    assert (market.base, market.quote, market.settle) == ("BTC", "USD", "BTC")
