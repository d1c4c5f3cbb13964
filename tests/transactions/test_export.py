"""Records as files."""

import sys
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from onebook.clock import iso_ms
from onebook.errors import InvalidRequest
from onebook.transactions import export
from onebook.transactions.export import AMOUNTS, COLUMNS, FORMS, flat, writer
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
    assert {name: str(table.schema.field(name).type) for name in ("datetime", "price", "kind")} == {
        "datetime": "timestamp[ms, tz=UTC]", "price": "decimal128(38, 18)", "kind": "string",
    }  # fmt: skip
    for row, record in zip(table.to_pylist(), ALL, strict=True):
        for (name, cell), text in zip(row.items(), flat(record), strict=True):
            if name == "datetime":
                assert iso_ms(round(cell.timestamp() * 1_000)) == text
            elif name in AMOUNTS and text is not None:
                assert isinstance(cell, Decimal)
                assert cell == Decimal(text)
            else:
                assert cell == text


@pytest.mark.parametrize("amount", ["0.0000000000000000012", "123456789012345678901"])
def test_parquet_refuses_an_amount_that_it_would_round(amount: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    file = writer("parquet", tmp_path / "out", exchange="Bybit")
    file.write([replace(BUY, price=amount)])
    with pytest.raises(InvalidRequest, match="column price has more than 18 decimal places"):
        file.close()


def test_a_workbook_has_dates_numbers_and_texts_as_such(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    long = "12345678901234.123456789012345678"
    evil = replace(BUY, side="=1+1", price="0.00001234", quantity="-12.50", value=long)
    file = writer("xlsx", tmp_path / "out", exchange="Bybit")
    file.write([evil])
    file.close()
    (sheet,) = openpyxl.load_workbook(BytesIO((tmp_path / "out").read_bytes())).worksheets
    head, cells = sheet.rows
    row = {name.value: cell for name, cell in zip(head, cells, strict=True)}
    assert tuple(row) == tuple("datetime (UTC)" if n == "datetime" else n for n in COLUMNS)
    assert row["datetime (UTC)"].value.isoformat(timespec="milliseconds") + "Z" == evil.datetime
    assert (row["side"].value, row["side"].data_type) == ("=1+1", "s")
    assert (row["price"].value, row["price"].number_format) == (0.00001234, "0.00000000")
    assert (row["quantity"].value, row["quantity"].number_format) == (-12.5, "0.00")
    assert (row["value"].value, row["value"].data_type) == (long, "s")
    assert row["timestamp"].value == evil.timestamp
    assert row["balance_after"].value is None


def test_a_full_sheet_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    monkeypatch.setattr(export, "SHEET_ROWS", 5)
    file = writer("xlsx", tmp_path / "out", exchange="Bybit")
    file.write(ALL)
    file.close()
    sheets = openpyxl.load_workbook(BytesIO((tmp_path / "out").read_bytes())).worksheets
    assert [sheet.title for sheet in sheets] == ["Records", "Records 2", "Records 3"]
    ids = [row[0] for sheet in sheets for row in list(sheet.values)[1:]]
    assert ids == [record.transactionId for record in ALL]


def test_an_empty_parquet_file_is_whole(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    writer("parquet", tmp_path / "out", exchange="Bybit").close()
    assert parquet.read_table(tmp_path / "out").num_rows == 0


@pytest.mark.parametrize(("form", "package"), [("parquet", "pyarrow"), ("xlsx", "xlsxwriter")])
def test_a_form_whose_package_is_missing_says_what_to_install(
    form: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidRequest, match=rf"onebook\[{form}\]"):
        writer(form, tmp_path / "out", exchange="Bybit")


def test_an_unknown_form_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="koinly"):
        writer("ods", tmp_path / "out", exchange="Bybit")
    assert set(FORMS) == {
        "jsonl", "csv", "koinly", "cointracking", "bittytax", "rotki", "xlsx", "parquet"
    }  # fmt: skip


def test_records_are_json(tmp_path: Path) -> None:
    decoded: Any = json.decode(encode(BUY))
    assert decoded["receivedCurrency"] == {"currency": "BTC", "amount": 2, "amount_str": "2"}
