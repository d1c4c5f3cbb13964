"""Export of records to files: JSON lines, CSV, Excel and Parquet.

The formats of tax tools are in `taxes`.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, Final, NamedTuple, Protocol
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from msgspec import UNSET, UnsetType

from onebook.errors import InvalidRequest
from onebook.transactions.record import Fee, Money, Record, encode
from onebook.transactions.taxes import (
    BITTYTAX,
    COINTRACKING,
    KOINLY,
    NOTHING,
    ROTKI_EVENTS,
    ROTKI_TRADES,
    Amount,
    Row,
    bittytax,
    cointracking,
    koinly,
    rotki,
)

NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
XLSX: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PARQUET: Final = "application/vnd.apache.parquet"
ZIP: Final = "application/zip"
PARQUET_ROWS: Final = 10_000
ROTKI_FILES: Final = ("rotki-trades.csv", "rotki-events.csv")
EQUAL_TRADES_MS: Final = 1_000  # within which equal trades in rotki's file get different times
SNAPSHOTS: Final = frozenset({"holdings", "balances"})  # types of the current holdings
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
_AMOUNT = r"-?[0-9]+(\.[0-9]+)?"
_AMOUNTS = re.compile(rf"{_AMOUNT}( [A-Za-z0-9?]+(; {_AMOUNT} [A-Za-z0-9?]+)*)?")

COLUMNS: Final = (
    "transaction_id", "timestamp", "datetime", "exchange", "environment", "type", "kind", "label",
    "status", "view", "side", "asset", "amount", "sent_currency", "sent_amount",
    "received_currency", "received_amount", "fee_currency", "fee_amount", "fees", "symbol", "price",
    "quantity", "quantity_unit", "value", "realised_pnl", "funding", "balance_change",
    "balance_after", "order_id", "trade_id", "tx_hash", "description",
)  # fmt: skip
AMOUNTS: Final = frozenset((
    "amount", "sent_amount", "received_amount", "fee_amount", "price", "quantity", "value",
    "realised_pnl", "funding", "balance_change", "balance_after",
))  # fmt: skip
DECIMAL_DIGITS: Final = 38
DECIMAL_PLACES: Final = 18
EXCEL_DIGITS: Final = 15
SHEET_ROWS: Final = 1_048_576  # per sheet, including its header
EXCEL_WIDTHS: Final = {"transaction_id": 44, "datetime": 23, "description": 60}


class Writer(Protocol):
    """Writes records to a file.

    Args:
        rows: Rows written; a record may have several.
        skipped: Records that produce no row.
    """

    rows: int
    skipped: int

    def write(self, records: Iterable[Record]) -> None:
        """Add records."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...


def writer(form: str, path: Path, *, exchange: str) -> Writer:
    """Create the writer of one of `FORMS`.

    Args:
        exchange: Display name of the records' exchange; "" for several accounts: each record then
            uses the name of its account.

    Raises:
        InvalidRequest: The format is unknown, its packages are not installed, or the file cannot be
            created.
    """
    found = FORMS.get(form)
    if found is None:
        raise InvalidRequest(f"Unknown format {form!r}; known: {', '.join(FORMS)}.")
    try:
        return found.make(path, exchange)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from None


def wallet_of(record: Record) -> str:
    """The name of a record's account, or of its exchange if it has none."""
    holder = record.account
    return str(holder.name) if holder is not None and holder.name else record.exchange


def form_of(path: Path, given: str = "") -> str:
    """The format of a file: the given one, or that of the file extension.

    Raises:
        InvalidRequest: The format is unknown, or differs from the extension.
    """
    ending = path.suffix.lower()
    usual = ENDINGS.get(ending)
    if not given and usual is None:
        found = f"unknown extension {ending!r}" if ending else "no extension"
        raise InvalidRequest(
            f"{path.name}: {found}; use {', '.join(ENDINGS)}, or --format with one of "
            f"{', '.join(FORMS)}."
        )
    if given in FORMS and usual is not None and FORMS[given].ending != FORMS[usual].ending:
        raise InvalidRequest(
            f"{path.name}: a file of format {given} ends in {FORMS[given].ending}, not {ending}."
        )
    return given or str(usual)


def refuse_rowless(form: str, types: Iterable[str]) -> None:
    """Refuse a file that could not have a row.

    Raises:
        InvalidRequest: Only holdings are requested, in the format of a tax tool.
    """
    words = {word.lower() for word in types}
    if form in FORMS and FORMS[form].taxes and words and words <= SNAPSHOTS:
        others = ", ".join(name for name, each in FORMS.items() if not each.taxes)
        raise InvalidRequest(
            f"A file of format {form} lists changes of balances, so holdings have no rows in it; "
            f"use {others}."
        )


class JsonLines:
    """JSON lines: one record per line, as sent by the API."""

    def __init__(self, path: Path) -> None:
        self.rows = self.skipped = 0
        self._file = path.open("wb")

    def write(self, records: Iterable[Record]) -> None:
        """Add records."""
        lines = [encode(record) + b"\n" for record in records]
        self.rows += len(lines)
        self._file.write(b"".join(lines))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class CsvTable:
    """A CSV file (RFC 4180); a function converts each record to its rows, or to none."""

    def __init__(
        self, path: Path, columns: tuple[str, ...], rows: Callable[[Record], list[Row]]
    ) -> None:
        self._file: io.TextIOWrapper = path.open("w", encoding="utf-8", newline="")
        self._csv = csv.writer(self._file)
        self._csv.writerow(columns)
        self._rows_of = rows
        self.rows = self.skipped = 0

    def write(self, records: Iterable[Record]) -> None:
        """Add records."""
        for record in records:
            rows = self._rows_of(record)
            self._csv.writerows([_harmless(cell) for cell in row] for row in rows)
            self.rows += len(rows)
            self.skipped += not rows

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class RotkiArchive:
    """A ZIP archive of the two CSV files that rotki imports: trades and events."""

    def __init__(self, path: Path) -> None:
        self._zip = ZipFile(path, "w", ZIP_DEFLATED)
        self._parts = [TemporaryFile(dir=path.parent) for _ in ROTKI_FILES]  # noqa: SIM115
        self._texts = [io.TextIOWrapper(each, encoding="utf-8", newline="") for each in self._parts]
        self._trades, self._events = map(csv.writer, self._texts)
        self._trades.writerow(ROTKI_TRADES)
        self._events.writerow(ROTKI_EVENTS)
        self._recent: set[tuple[Row, int]] = set()  # trades with the times written for them
        self._newest_ms = 0
        self.rows = self.skipped = 0

    def write(self, records: Iterable[Record]) -> None:
        """Add records, newest first."""
        for record in records:
            rows = rotki(record)
            for row in rows:
                if len(row) == len(ROTKI_TRADES):
                    self._trades.writerow(map(_harmless, self._apart(row, record.timestamp)))
                else:
                    self._events.writerow(map(_harmless, row))
            self.rows += len(rows)
            self.skipped += not rows

    def _apart(self, row: Row, at_ms: int) -> Row:
        """Move a trade to the next free millisecond: rotki drops equal trades at the same time."""
        if abs(self._newest_ms - at_ms) > EQUAL_TRADES_MS:
            self._newest_ms = at_ms
            self._recent = {one for one in self._recent if one[1] <= at_ms + EQUAL_TRADES_MS}
        traded = row[:5]  # the columns that rotki compares
        while (traded, at_ms) in self._recent:
            at_ms += 1
        self._recent.add((traded, at_ms))
        return (*row[:-1], at_ms)

    def close(self) -> None:
        """Finish the file."""
        with self._zip:
            for name, text, part in zip(ROTKI_FILES, self._texts, self._parts, strict=True):
                with text:
                    text.flush()
                    part.seek(0)
                    entry = ZipInfo(name)  # no time: equal records produce equal files
                    entry.compress_type = ZIP_DEFLATED
                    with self._zip.open(entry, "w", force_zip64=True) as file:
                        copyfileobj(part, file)


class Parquet:
    """The columns of the CSV: amounts as decimals, `datetime` as a timestamp.

    decimal128(38, 18) is the widest type that DuckDB, Polars and Spark read exactly. A larger
    amount raises an error and is never rounded.
    """

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise InvalidRequest(
                "Parquet needs pyarrow; install it with `pip install onebook[parquet]`."
            ) from None
        self._arrow = pyarrow
        kinds = {
            "timestamp": pyarrow.int64(),
            "datetime": pyarrow.timestamp("ms", tz="UTC"),
            **dict.fromkeys(AMOUNTS, pyarrow.decimal128(DECIMAL_DIGITS, DECIMAL_PLACES)),
        }
        self._schema = pyarrow.schema([(n, kinds.get(n, pyarrow.string())) for n in COLUMNS])
        self._writer = parquet.ParquetWriter(path, self._schema)
        self._held: list[Row] = []
        self.rows = self.skipped = 0

    def write(self, records: Iterable[Record]) -> None:
        """Add records.

        Raises:
            InvalidRequest: An amount has more digits than its column can hold.
        """
        rows = [flat(record) for record in records]
        self.rows += len(rows)
        self._held += rows
        if len(self._held) >= PARQUET_ROWS:
            self._flush()

    def close(self) -> None:
        """Finish the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        columns = (
            dict(zip(COLUMNS, zip(*self._held, strict=True), strict=True)) if self._held else {}
        )
        self._held = []  # cleared first, because `close` must not write it again if it is refused
        if columns:
            columns["datetime"] = columns["timestamp"]
            for name in AMOUNTS:
                columns[name] = tuple(map(_decimal, columns[name]))
        arrays = [self._array(field, columns.get(field.name, ())) for field in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))

    def _array(self, field: Any, values: Row) -> Any:
        try:
            return self._arrow.array(values, type=field.type)
        except self._arrow.ArrowInvalid:
            raise InvalidRequest(
                f"An amount of column {field.name} has more than {DECIMAL_PLACES} decimal places "
                f"or {DECIMAL_DIGITS - DECIMAL_PLACES} integer digits, which Parquet cannot hold; "
                "use csv or jsonl."
            ) from None


class Workbook:
    """An Excel workbook with the columns of the CSV: typed dates and numbers, times in UTC.

    Excel's numbers have 15 digits; an amount with more is written as text to keep every digit.
    """

    def __init__(self, path: Path) -> None:
        try:
            from xlsxwriter import Workbook as Book
            from xlsxwriter.exceptions import FileCreateError
        except ImportError:
            raise InvalidRequest(
                "Excel files need XlsxWriter; install it with `pip install onebook[xlsx]`."
            ) from None
        path.open("wb").close()  # XlsxWriter would report an unwritable file only at the end
        self._path, self._failed = path, FileCreateError
        # Rows go straight to a temporary file: a year of a busy account does not fit into memory.
        self._book = Book(path, {"constant_memory": True})
        self._head = self._book.add_format({"bold": True})
        self._time = self._book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss.000"})
        self._places = [
            self._book.add_format({"num_format": "0." + "0" * places if places else "0"})
            for places in range(EXCEL_DIGITS + 1)
        ]
        self._sheet = self._next_sheet()
        self.rows = self.skipped = 0

    def write(self, records: Iterable[Record]) -> None:
        """Add records."""
        for record in records:
            if self._row == SHEET_ROWS:
                self._sheet = self._next_sheet()
            for column, (name, value) in enumerate(zip(COLUMNS, flat(record), strict=True)):
                self._cell(column, name, value, record.timestamp)
            self._row += 1
            self.rows += 1

    def close(self) -> None:
        """Finish the file."""
        try:
            self._book.close()
        except self._failed as error:
            raise InvalidRequest(f"{self._path} cannot be written: {error}.") from None

    def _next_sheet(self) -> Any:
        number = len(self._book.worksheets()) + 1
        sheet = self._book.add_worksheet("Records" if number == 1 else f"Records {number}")
        sheet.freeze_panes(1, 0)
        for column, name in enumerate(COLUMNS):
            sheet.set_column(column, column, EXCEL_WIDTHS.get(name, 16))
            title = f"{name} (UTC)" if name == "datetime" else name
            sheet.write_string(0, column, title, self._head)
        self._row = 1
        return sheet

    def _cell(self, column: int, name: str, value: str | int | None, at_ms: int) -> None:
        if value is None:
            return
        row, sheet = self._row, self._sheet
        if name == "datetime":
            at = datetime.fromtimestamp(at_ms // 1_000, UTC).replace(
                microsecond=at_ms % 1_000 * 1_000, tzinfo=None
            )
            sheet.write_datetime(row, column, at, self._time)
        elif name in AMOUNTS and _is_short(str(value)):
            places = len(str(value).partition(".")[2])
            sheet.write_number(row, column, float(value), self._places[places])
        elif isinstance(value, int):
            sheet.write_number(row, column, value, self._places[0])
        else:  # never a formula, whatever its first character
            sheet.write_string(row, column, str(value))


def _is_short(amount: str) -> bool:
    """Whether Excel's numbers can hold every digit of an amount."""
    return len(amount.lstrip("-").replace(".", "").lstrip("0")) <= EXCEL_DIGITS and (
        len(amount.partition(".")[2]) <= EXCEL_DIGITS
    )


def _decimal(amount: str | int | None) -> Decimal | None:
    return None if amount is None else Decimal(amount)


def flat(record: Record) -> Row:
    """Flatten a record to one row of `COLUMNS`."""
    position, balance, market = record.position, record.balance, record.instrument
    sent, received = _money(record.sentCurrency), _money(record.receivedCurrency)
    return (
        record.transactionId,
        record.timestamp,
        record.datetime,
        record.exchange,
        record.environment,
        record.type,
        record.kind,
        record.label,
        record.status.value,
        record.view.value,
        record.side,
        record.asset,
        record.amount,
        *sent,
        *received,
        *_money(record.fee),
        fees_text(record.fees),
        market.symbol if market else None,
        record.price,
        record.quantity,
        record.quantity_unit,
        record.value,
        position.realised_pnl if position else None,
        position.funding if position else None,
        balance.change if balance else None,
        balance.after if balance else None,
        record.ids.order_id,
        record.ids.trade_id,
        record.ids.tx_hash,
        record.description.desc,
    )


def fees_text(fees: tuple[Fee, ...]) -> str | None:
    """All fees in one cell, such as `0.2 BTC; 0.036 BTC`; a rebate is negative."""
    return "; ".join(f"{fee.amount} {fee.currency or '?'}" for fee in fees) or None


def _money(money: Money | UnsetType | None) -> Amount:
    return NOTHING if money is None or money is UNSET else (money.currency, money.amount_str)


def _harmless(cell: str | int | None) -> str | int | None:
    """Escape text that a spreadsheet would run as a formula (OWASP, CSV injection).

    Text with a leading minus is a formula unless it is an amount, or amounts as in `fees_text`.
    """
    if isinstance(cell, str) and cell.startswith(FORMULA) and not _AMOUNTS.fullmatch(cell):
        return "'" + cell
    return cell


class Form(NamedTuple):
    """A file format: its extension, media type and writer.

    Args:
        taxes: Whether it is the import format of a tax tool.
    """

    ending: str
    media_type: str
    make: Callable[[Path, str], Writer]
    taxes: bool = False


FORMS: Final = {
    "jsonl": Form(".jsonl", NDJSON, lambda path, _: JsonLines(path)),
    "csv": Form(
        ".csv", CSV, lambda path, _: CsvTable(path, COLUMNS, lambda record: [flat(record)])
    ),
    "koinly": Form(".csv", CSV, lambda path, _: CsvTable(path, KOINLY, koinly), taxes=True),
    "cointracking": Form(
        ".csv",
        CSV,
        lambda path, exchange: CsvTable(
            path, COINTRACKING, lambda record: cointracking(record, exchange or wallet_of(record))
        ),
        taxes=True,
    ),
    "bittytax": Form(
        ".csv",
        CSV,
        lambda path, exchange: CsvTable(
            path, BITTYTAX, lambda record: bittytax(record, exchange or wallet_of(record))
        ),
        taxes=True,
    ),
    "rotki": Form(".zip", ZIP, lambda path, _: RotkiArchive(path), taxes=True),
    "xlsx": Form(".xlsx", XLSX, lambda path, _: Workbook(path)),
    "parquet": Form(".parquet", PARQUET, lambda path, _: Parquet(path)),
}
ENDINGS: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".xlsx": "xlsx",
    ".parquet": "parquet",
    ".zip": "rotki",
}
