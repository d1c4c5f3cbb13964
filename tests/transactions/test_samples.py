"""Every recorded or documented Bybit body goes through the mapping, its expected records beside it.

`expected_records.json` holds what each body must become, reviewed by hand against the facts of
each endpoint; fields that are null or empty are left out there. The bodies themselves stay where
they are (`ONEBOOK_SAMPLES`).
"""

import json as stdlib_json
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from onebook.transactions.bybit import funds, ledger, trades
from onebook.transactions.bybit.api import Envelope
from onebook.transactions.bybit.instruments import guess, listed
from onebook.transactions.bybit.rows import Context, Mapper
from onebook.transactions.markets import Markets
from onebook.transactions.record import encode
from transactions.recorded import Samples

SAMPLES = Samples("bybit")
EXPECTED = Path(__file__).with_name("expected_records.json")
ASKED_AT_MS = 1_763_000_000_000
pytestmark = SAMPLES.needed

# How each file's rows become records, by how its name begins; the first that fits counts.
MAPPERS: tuple[tuple[str, Mapper, str], ...] = (
    ("account_contract-transaction-log", ledger.contract_ledger, "list"),
    ("account_transaction-log", ledger.ledger, "list"),
    ("account_wallet-balance", funds.unified_balance, "coin"),
    ("asset_delivery-record", trades.delivery, "list"),
    ("asset_deposit_query-internal-record", funds.internal_deposit, "rows"),
    ("asset_deposit_query-record", funds.deposit, "rows"),
    ("asset_deposit_query-sub-member-record", funds.deposit, "rows"),
    ("asset_fundinghistory", ledger.funding_line, "list"),
    ("asset_settlement-record", trades.settlement, "list"),
    ("asset_transfer_query-account-coins-balance", funds.funding_balance, "balance"),
    ("asset_transfer_query-inter-transfer-list", funds.transfer, "list"),
    ("asset_transfer_query-universal-transfer-list", funds.transfer, "list"),
    ("asset_withdraw_query-record", funds.withdrawal, "rows"),
    ("execution_list", trades.execution, "list"),
    ("order_", trades.order, "list"),
    ("position_closed-pnl", trades.closed_pnl, "list"),
    ("pre-upgrade_account_transaction-log", ledger.ledger, "list"),
    ("pre-upgrade_execution_list", trades.execution, "list"),
    ("pre-upgrade_order_history", trades.order, "list"),
    ("spot-lever-token_order-record", funds.leverage_token, "list"),
)
# Not a source of transactions, with the reason.
OTHERS = {
    "account_info.docs.json": "the account's mode",
    "asset_asset-overview.docs.json": "totals by product",
    "asset_coin_query-info.docs.json": "networks of a coin",
    "asset_covert_small-balance-history.docs.json": "conversions: the ledger has them",
    "asset_exchange_order-record.docs.json": "conversions: the ledger has them",
    "asset_exchange_query-convert-history.docs.json": "conversions: the ledger has them",
    "asset_transfer_query-account-coin-balance.docs.json": "one coin of the list we ask for",
    "errors.collected.json": "errors, see bybit/test_answers",
    "market_time.docs.json": "the exchange's clock",
    "position_list.docs.json": "open positions",
    "position_list_open-time.nautilus.json": "open positions",
    "spot-lever-token_info.docs.json": "tokens, not trades of them",
    "user_query-api.docs.json": "the key's permissions, see bybit/test_key",
}
# Bodies of the API before v5 (ret_code): they must be refused, not read by half.
BEFORE_V5 = {
    "asset_deposit_query-record.jkorf.json",
    "asset_transfer_query-inter-transfer-list.jkorf.json",
    "asset_transfer_query-universal-transfer-list.jkorf.json",
}
# The bodies do not say their category.
CATEGORIES = {"closed-pnl": "linear", "ccxt-comments": "linear"}


def mapped(name: str) -> list[dict[str, Any]]:
    """The records of a sample, without what is null or empty."""
    found = next((m, rows) for start, m, rows in MAPPERS if name.startswith(start))
    mapper, where = found
    records = [mapper(row, context_of(name, row)) for row in rows_of(name, where)]
    return [_said(stdlib_json.loads(encode(r), parse_float=str)) for r in records]


def rows_of(name: str, where: str) -> list[dict[str, Any]]:
    result = result_of(name)
    if where == "coin":
        result = result["list"][0]
    return result[where]


def result_of(name: str) -> Any:
    body = SAMPLES.body(name)
    return body.get("result", body)


def context_of(name: str, row: dict[str, Any]) -> Context:
    hinted = (category for part, category in CATEGORIES.items() if part in name)
    category = result_of(name).get("category") or next(hinted, "linear")
    if str(row.get("execId", "")).isdigit():  # only spot numbers its executions
        category = "spot"
    return Context("mainnet", Markets(listed, guess), category, ASKED_AT_MS)


def _said(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _said(part) for name, part in value.items()}
        return {name: part for name, part in kept.items() if part not in (None, [], {})}
    return [_said(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", SAMPLES.names())
def test_every_sample_has_its_place(name: str) -> None:
    is_source = any(name.startswith(start) for start, _, _ in MAPPERS)
    assert is_source != (name in OTHERS or name.startswith("market_instruments-info"))


@pytest.mark.parametrize(
    "name",
    [n for n in SAMPLES.names() if n not in BEFORE_V5 and any(n.startswith(m[0]) for m in MAPPERS)],
)
def test_a_sample_becomes_its_expected_records(name: str) -> None:
    assert mapped(name) == stdlib_json.loads(EXPECTED.read_text())[name]


@pytest.mark.parametrize("name", sorted(BEFORE_V5))
def test_a_body_from_before_v5_is_no_envelope(name: str) -> None:
    with pytest.raises(Exception, match="retCode"):
        json.decode((SAMPLES.folder / name).read_bytes(), type=Envelope)
