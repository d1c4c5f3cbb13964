"""Files that people and tax tools read, from records."""

import csv
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from onebook.errors import InvalidRequest
from onebook.transactions import export
from onebook.transactions.bybit import closings, funds, ledger, trades
from onebook.transactions.export import COINTRACKING, COLUMNS, FORMS, KOINLY, flat, writer
from onebook.transactions.record import Record, encode
from transactions.test_bybit_mapping import LINEAR, SPOT, fill, line, order

BUY = trades.execution(fill(feeCurrency="BTC"), SPOT)
CONTRACT = trades.execution(fill(), LINEAR)
PAID = trades.execution(fill(execType="Funding", execFee="0.5"), LINEAR)
EARNED = trades.execution(fill(execType="Funding", execFee="-0.5"), LINEAR)
ORDER = trades.order(order(), SPOT)
LINE = ledger.ledger(line(), SPOT)
DEPOSIT = funds.deposit(
    {"coin": "BTC", "amount": "1", "status": 3, "successAt": "1700000000000", "txID": "0xabc"}, SPOT
)
PENDING = funds.deposit({"coin": "BTC", "amount": "1", "status": 1}, SPOT)
WITHDRAWAL = funds.withdrawal(
    {"coin": "BTC", "amount": "1", "withdrawFee": "0.1", "createTime": "1700000000000",
     "withdrawId": "1", "status": "success", "withdrawType": 0}, SPOT
)  # fmt: skip
TRANSFER = funds.transfer(
    {"transferId": "t", "coin": "BTC", "amount": "1", "timestamp": "5", "status": "SUCCESS"}, SPOT
)


def closed(pnl: str) -> Record:
    return closings.closed_pnl(
        {"symbol": "BTCUSDT", "orderId": "o", "updatedTime": "1700000000000", "closedPnl": pnl,
         "openFee": "1", "closeFee": "2"}, LINEAR
    )  # fmt: skip


REWARD = ledger.funding_line(
    {"currency": "BTC", "ioDirection": "I", "txnAmt": "1", "afterAmt": "2", "createTime": "9",
     "showBusiTypeEn": "Earn", "descriptionEn": "interest"}, SPOT
)  # fmt: skip
ALL = [BUY, CONTRACT, PAID, EARNED, ORDER, LINE, DEPOSIT, PENDING, WITHDRAWAL, TRANSFER]


def written(form: str, records: list[Record], folder: Path) -> list[dict[str, str]]:
    path = folder / "out"
    file = writer(form, path)
    file.write(records)
    file.close()
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_json_lines_are_what_the_api_sends(tmp_path: Path) -> None:
    file = writer("jsonl", tmp_path / "out")
    file.write(ALL)
    file.close()
    assert (tmp_path / "out").read_bytes().splitlines() == [encode(record) for record in ALL]


def test_csv_has_every_record_with_exact_amounts(tmp_path: Path) -> None:
    rows = written("csv", ALL, tmp_path)
    assert len(rows) == len(ALL)
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["received_amount"] == "2"
    assert rows[0]["fee_currency"] == "BTC"
    assert rows[5]["balance_after"] == "9"
    assert [row["transaction_id"] for row in rows] == [record.transactionId for record in ALL]


def test_koinly_gets_what_may_be_summed_once(tmp_path: Path) -> None:
    rows = written("koinly", [*ALL, closed("7"), closed("-9"), closed("-3")], tmp_path)
    assert tuple(rows[0]) == KOINLY
    found = [
        (row["Sent Amount"], row["Sent Currency"], row["Received Amount"],
         row["Received Currency"], row["Fee Amount"], row["Label"])
        for row in rows
    ]  # fmt: skip
    assert found == [
        ("200", "USDT", "2", "BTC", "0.2", ""),
        ("", "", "", "", "0.2", ""),
        ("0.5", "USDT", "", "", "", "margin fee"),
        ("", "", "0.5", "USDT", "", "realized gain"),
        ("", "", "1", "BTC", "", ""),
        ("1", "BTC", "", "", "0.1", ""),
        ("", "", "10", "USDT", "", "realized gain"),  # net 7, fees 3 stand at the fills
        ("6", "USDT", "", "", "", "margin fee"),
    ]
    assert rows[0]["Date"] == "2023-11-14 22:13:20 UTC"
    assert rows[4]["TxHash"] == "0xabc"


def test_cointracking_types(tmp_path: Path) -> None:
    rows = written("cointracking", [*ALL, closed("7"), closed("-9")], tmp_path)
    assert tuple(rows[0]) == COINTRACKING
    assert [row["Type"] for row in rows] == [
        "Trade", "Margin Fee", "Margin Loss", "Margin Profit", "Deposit", "Withdrawal",
        "Margin Profit", "Margin Loss",
    ]  # fmt: skip
    assert (rows[1]["Sell Amount"], rows[1]["Sell Currency"], rows[1]["Fee"]) == ("0.2", "USDT", "")


def test_what_an_account_gained_is_the_same_in_both_tax_forms(tmp_path: Path) -> None:
    """Gross P&L less fees is the exchange's own net figure."""
    records = [closed("7"), CONTRACT]
    koinly = written("koinly", records, tmp_path)
    gained = sum(Decimal(row["Received Amount"] or 0) for row in koinly)
    assert gained == Decimal(7) + 1 + 2


def test_rewards_have_their_own_word() -> None:
    from msgspec.structs import replace

    from onebook.transactions.record import View

    primary = replace(REWARD, view=View.PRIMARY)
    assert export.koinly(primary)[0][9] == "reward"
    assert export.cointracking(primary)[0][0] == "Staking"
    airdrop = replace(primary, label="Airdrop")
    assert export.koinly(airdrop)[0][9] == "airdrop"
    assert export.cointracking(airdrop)[0][0] == "Airdrop"
    assert export.koinly(replace(closed("1"), position=None)) == []


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    from msgspec.structs import replace

    evil = replace(DEPOSIT, asset="=cmd()", side="+1")
    (row,) = written("csv", [evil], tmp_path)
    assert row["asset"] == "'=cmd()"
    assert row["side"] == "'+1"


def test_parquet_holds_the_same_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(export, "PARQUET_ROWS", 4)
    file = writer("parquet", tmp_path / "out")
    for record in ALL:
        file.write([record])
    file.close()
    table = parquet.read_table(tmp_path / "out")
    assert tuple(table.column_names) == COLUMNS
    assert [tuple(row.values()) for row in table.to_pylist()] == [flat(r) for r in ALL]


def test_an_empty_parquet_file_is_whole(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    writer("parquet", tmp_path / "out").close()
    assert parquet.read_table(tmp_path / "out").num_rows == 0


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InvalidRequest, match="onebook\\[parquet\\]"):
        writer("parquet", tmp_path / "out")


def test_an_unknown_form_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="koinly"):
        writer("xlsx", tmp_path / "out")
    assert set(FORMS) == {"jsonl", "csv", "koinly", "cointracking", "parquet"}


def test_records_are_json(tmp_path: Path) -> None:
    decoded: Any = json.decode(encode(BUY))
    assert decoded["receivedCurrency"] == {"currency": "BTC", "amount": 2, "amount_str": "2"}
