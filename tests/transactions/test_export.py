"""Records as files."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from onebook.errors import InvalidRequest
from onebook.transactions import export
from onebook.transactions.export import COLUMNS, FORMS, flat, writer
from onebook.transactions.record import Fee, Position, encode
from transactions.exporting import ALL, BUY, DEPOSIT, written


def test_json_lines_are_what_the_api_sends(tmp_path: Path) -> None:
    file = writer("jsonl", tmp_path / "out", exchange="Bybit")
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


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    evil = replace(DEPOSIT, asset="=cmd()", side="+1")
    (row,) = written("csv", [evil], tmp_path)
    assert row["asset"] == "'=cmd()"
    assert row["side"] == "'+1"


@pytest.mark.parametrize(
    "cell", ["-1+cmd|' /C calc'!A0", "-BTC", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-"]
)
def test_a_text_that_would_be_computed_is_quoted(cell: str, tmp_path: Path) -> None:
    (row,) = written("csv", [replace(DEPOSIT, side=cell)], tmp_path)
    assert row["side"] == "'" + cell


def test_amounts_below_zero_stay_amounts(tmp_path: Path) -> None:
    fees = (Fee("USDT", "-0.2", None, "trading", "f"), Fee("BTC", "-3", None, "tax", "t"))
    position = Position(realised_pnl="-0.00000000000000000012", funding="-5")
    (row,) = written("csv", [replace(BUY, fees=fees, position=position)], tmp_path)
    assert row["fees"] == "-0.2 USDT; -3 BTC"
    assert (row["realised_pnl"], row["funding"]) == ("-0.00000000000000000012", "-5")


def test_parquet_holds_the_same_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(export, "PARQUET_ROWS", 4)
    file = writer("parquet", tmp_path / "out", exchange="Bybit")
    for record in ALL:
        file.write([record])
    file.close()
    table = parquet.read_table(tmp_path / "out")
    assert tuple(table.column_names) == COLUMNS
    assert [tuple(row.values()) for row in table.to_pylist()] == [flat(r) for r in ALL]


def test_an_empty_parquet_file_is_whole(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    writer("parquet", tmp_path / "out", exchange="Bybit").close()
    assert parquet.read_table(tmp_path / "out").num_rows == 0


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InvalidRequest, match="onebook\\[parquet\\]"):
        writer("parquet", tmp_path / "out", exchange="Bybit")


def test_an_unknown_form_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="koinly"):
        writer("xlsx", tmp_path / "out", exchange="Bybit")
    assert set(FORMS) == {"jsonl", "csv", "koinly", "cointracking", "parquet"}


def test_records_are_json(tmp_path: Path) -> None:
    decoded: Any = json.decode(encode(BUY))
    assert decoded["receivedCurrency"] == {"currency": "BTC", "amount": 2, "amount_str": "2"}
