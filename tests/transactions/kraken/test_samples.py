"""Every recorded or documented Kraken body goes through the mapping, its records beside it.

`expected_records.json` holds what each body must become, reviewed by hand against the facts of
each endpoint; what is null or empty is left out there, and lines of the ledger are given by their
amounts alone. Some bodies were made by hand with wrong signs or balances: their fields are
evidence, their figures are not. The bodies stay where they are (`ONEBOOK_SAMPLES`).
"""

import json as stdlib_json
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from onebook.transactions.kraken.events import GroupDetails
from onebook.transactions.kraken.funding import listed_fund
from onebook.transactions.kraken.holdings import futures_holdings, spot_holding
from onebook.transactions.kraken.rows import entry_of
from onebook.transactions.record import Record, encode
from transactions.kraken.native import (
    CONTEXT,
    SAMPLES,
    changed,
    entry,
    events_of,
    ledger_records,
    log_records,
    moved,
)

EXPECTED = Path(__file__).with_name("expected_records.json")
ASKED_AT_MS = 1_763_000_000_000
pytestmark = SAMPLES.needed
Mapper = Callable[[Any], list[Record]]


def ledger(result: Any) -> list[Record]:
    rows = result.get("ledger", result)
    return ledger_records(entry_of(id_, row) for id_, row in rows.items())


def trades(result: Any) -> list[Record]:
    """Each trade of the list with the rows that the ledger would have of it, without a fee."""
    found: list[Record] = []
    for refid, row in result.get("trades", result).items():
        buy = row["type"] == "buy"
        legs = [
            entry(f"{refid}-base", refid=refid, asset="BASE", time=row["time"],
                  amount=row["vol"] if buy else "-" + row["vol"]),
            entry(f"{refid}-quote", refid=refid, asset="QUOTE", time=row["time"],
                  amount="-" + row["cost"] if buy else row["cost"]),
        ]  # fmt: skip
        found += events_of(ledger_records(legs, GroupDetails(trade=row)))
    return found


def funds(kind: str) -> Mapper:
    """Fields that only the list has, and those it adds to a row of the ledger."""

    def mapper(result: Any) -> list[Record]:
        rows = result if isinstance(result, list) else result["withdrawals"]
        found: list[Record] = []
        for row in rows:
            alone = listed_fund(row, kind, CONTEXT)
            if alone is not None:
                found.append(alone)
                continue
            amount = row["amount"] if kind == "deposit" else "-" + row["amount"]
            booked = entry(
                refid=row["refid"], type=kind, asset=row["asset"], amount=amount,
                fee=row.get("fee"), time=row["time"],
            )  # fmt: skip
            found += events_of(ledger_records([booked], GroupDetails(listed=row)))
        return found

    return mapper


def balances(result: Any) -> list[Record]:
    return [spot_holding(*held, CONTEXT, ASKED_AT_MS) for held in result.items()]


# How each file's rows become records, by how its name begins; the first that fits counts.
MAPPERS: tuple[tuple[str, Mapper], ...] = (
    ("0_private_Balance", balances),
    ("0_private_DepositStatus.settled_then_success", lambda steps: [
        record for step in steps for record in funds("deposit")(step["body"]["result"])
    ]),
    ("0_private_DepositStatus", funds("deposit")),
    ("0_private_Ledgers", ledger),
    ("0_private_QueryLedgers", ledger),
    ("0_private_QueryTrades", trades),
    ("0_private_TradesHistory", trades),
    ("0_private_WithdrawStatus", funds("withdrawal")),
    ("api_history_v3_account-log.ccxt", lambda whole: log_records(whole["logs"])),
    ("derivatives_api_v3_accounts", lambda whole: futures_holdings(
        whole["accounts"], CONTEXT, ASKED_AT_MS
    )),
)  # fmt: skip
# Not a source of transactions, with the reason.
OTHERS = {
    "0_private_ClosedOrders.jkorf.json": "orders: the ledger has what they moved",
    "0_private_ClosedOrders.rows.jkorf.json": "orders: the ledger has what they moved",
    "0_private_Earn_Allocations.jkorf.json": "earn holdings: the balances have them by suffix",
    "0_private_Earn_Allocations.rows.jkorf.json": "earn holdings: the balances have them",
    "0_private_Earn_Strategies.jkorf.json": "offers",
    "0_private_GetApiKeyInfo.jkorf.json": "the key, see test_key",
    "0_private_OpenPositions.jkorf.json": "open margin positions",
    "0_private_TradeBalance.jkorf.json": "a margin summary",
    "0_public_AssetPairs.jkorf.json": "pairs, see test_assets",
    "0_public_Assets.jkorf.json": "assets, see test_assets",
    "0_public_SystemStatus.jkorf.json": "the exchange's state",
    "api_history_v3_account-log.jkorf.json": "a schema with placeholders",
    "api_history_v3_account-log.rows.jkorf.json": "a schema with placeholders",
    "api_history_v3_executions.jkorf.json": "executions: the account log has what they moved",
    "api_history_v3_positions.ccxt-comments.json": "positions: the account log has what they moved",
    "derivatives_api_v3_fills.ccxt-comments.json": "fills: the account log has them with fees",
    "derivatives_api_v3_fills.jkorf.json": "fills: the account log has them with fees",
    "derivatives_api_v3_openpositions.jkorf.json": "open positions",
    "errors.collected.json": "errors, see test_api",
}


def names() -> list[str]:
    return SAMPLES.names()


def mapper_of(name: str) -> Mapper | None:
    return next((mapper for start, mapper in MAPPERS if name.startswith(start)), None)


def records_of(name: str) -> list[Record]:
    whole, mapper = SAMPLES.body(name), mapper_of(name)
    assert mapper is not None
    return mapper(whole["result"] if "error" in whole and isinstance(whole, dict) else whole)


def mapped(name: str) -> list[dict[str, Any]]:
    """The records of a sample, without null and empty fields."""
    return [_said(record) for record in records_of(name)]


def _said(record: Record) -> Any:
    if record.type == "ledger":
        balance = record.balance
        assert balance is not None
        wallet = record.account.wallet if record.account else None
        return {"line": f"{record.kind} {balance.change} {record.asset} {wallet}: {balance.after}"}
    whole = stdlib_json.loads(encode(record), parse_float=str)
    for name in ("datetime", "exchange", "environment", "transactionId", "related"):
        whole.pop(name)
    return _full(whole)


def _full(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _full(part) for name, part in value.items()}
        return {name: part for name, part in kept.items() if part not in (None, [], {})}
    return [_full(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", names())
def test_every_sample_has_its_place(name: str) -> None:
    assert (mapper_of(name) is not None) != (name in OTHERS)


@pytest.mark.parametrize("name", [name for name in names() if mapper_of(name)])
def test_a_sample_becomes_its_expected_records(name: str) -> None:
    assert mapped(name) == stdlib_json.loads(EXPECTED.read_text())[name]


@pytest.mark.parametrize("name", [name for name in names() if "Ledgers" in name])
def test_what_events_moved_is_what_the_lines_say(name: str) -> None:
    assert moved(records_of(name)) == changed(records_of(name))


@pytest.mark.parametrize("name", [name for name in names() if mapper_of(name)])
def test_every_event_has_an_id_of_its_own(name: str) -> None:
    found = records_of(name)
    if "settled_then_success" in name:  # one deposit, read twice
        assert len({record.transactionId for record in found}) == 1
        return
    assert len({record.transactionId for record in found}) == len(found)


def test_the_recorded_ledger_chains_to_the_last_digit() -> None:
    lines = records_of("0_private_Ledgers.chain.jkorf.json")
    lines = [record for record in lines if record.type == "ledger"]
    lines.sort(key=lambda line: -line.timestamp)
    for newer, older in pairwise(lines):
        assert newer.balance is not None
        assert older.balance is not None
        assert Decimal(newer.balance.before or 0) == Decimal(older.balance.after or 0)
    assert len(lines) == 15
