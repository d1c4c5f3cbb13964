"""Records as files: JSON lines, and the columns of CSV and Parquet, every record in them.

The forms of tax tools are in `taxes`.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec import UNSET, UnsetType

from onebook.errors import InvalidRequest
from onebook.transactions.record import Fee, Money, Record, encode
from onebook.transactions.taxes import (
    COINTRACKING,
    KOINLY,
    NOTHING,
    Amount,
    Row,
    cointracking,
    koinly,
)

PARQUET_ROWS: Final = 10_000
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


class Writer(Protocol):
    """Writes records to a file.

    Args:
        rows: Rows written: a record may make several.
        skipped: Records that make no row.
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
    """A writer of one of `FORMS`; `exchange` is the name of the records' exchange for people.

    Raises:
        InvalidRequest: There is no such form, what it needs is not installed, or there can be no
            such file.
    """
    found = FORMS.get(form)
    if found is None:
        raise InvalidRequest(f"There is no format {form!r}; there are {', '.join(FORMS)}.")
    try:
        return found.make(path, exchange)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from None


def form_of(path: Path, given: str = "") -> str:
    """The form of a file: the given one, or that of the ending of its name.

    Raises:
        InvalidRequest: Neither says it, or they contradict each other.
    """
    ending = path.suffix.lower()
    usual = ENDINGS.get(ending)
    if not given and usual is None:
        found = f"unknown ending {ending!r}" if ending else "a name without an ending"
        raise InvalidRequest(
            f"{path.name}: {found}; use {', '.join(ENDINGS)}, or --format with one of "
            f"{', '.join(FORMS)}."
        )
    if given in FORMS and usual is not None and FORMS[given].ending != FORMS[usual].ending:
        raise InvalidRequest(
            f"{path.name}: a file of format {given} ends in {FORMS[given].ending}, not {ending}."
        )
    return given or str(usual)


class JsonLines:
    """A record a line, as the API sends it."""

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
    """A CSV file (RFC 4180) whose rows a function makes; a record may make none."""

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


class Parquet:
    """The columns of the CSV, amounts as text: no column type of Parquet holds all of them."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise InvalidRequest(
                "Parquet needs pyarrow; install it with `pip install onebook[parquet]`."
            ) from None
        self._arrow = pyarrow
        kinds = {"timestamp": pyarrow.int64()}
        self._schema = pyarrow.schema([(n, kinds.get(n, pyarrow.string())) for n in COLUMNS])
        self._writer = parquet.ParquetWriter(path, self._schema)
        self._held: list[Row] = []
        self.rows = self.skipped = 0

    def write(self, records: Iterable[Record]) -> None:
        """Add records."""
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
        columns = list(zip(*self._held, strict=True)) or [()] * len(COLUMNS)
        arrays = [
            self._arrow.array(values, type=field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._held = []


def flat(record: Record) -> Row:
    """A record as one row of `COLUMNS`."""
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
    """Every fee in one cell, as `0.2 BTC; 0.036 BTC`: paid, or below zero a rebate."""
    return "; ".join(f"{fee.amount} {fee.currency or '?'}" for fee in fees) or None


def _money(money: Money | UnsetType | None) -> Amount:
    return NOTHING if money is None or money is UNSET else (money.currency, money.amount_str)


def _harmless(cell: str | int | None) -> str | int | None:
    """A text that a spreadsheet will not take for a formula (OWASP, CSV injection).

    What begins with a minus is one unless it is an amount, or a list of amounts as `fees_text` has.
    """
    if isinstance(cell, str) and cell.startswith(FORMULA) and not _AMOUNTS.fullmatch(cell):
        return "'" + cell
    return cell


class Form(NamedTuple):
    """A form of files: the ending of their names, and what makes their writer."""

    ending: str
    make: Callable[[Path, str], Writer]


FORMS: Final = {
    "jsonl": Form(".jsonl", lambda path, _: JsonLines(path)),
    "csv": Form(".csv", lambda path, _: CsvTable(path, COLUMNS, lambda record: [flat(record)])),
    "koinly": Form(".csv", lambda path, _: CsvTable(path, KOINLY, koinly)),
    "cointracking": Form(
        ".csv",
        lambda path, exchange: CsvTable(
            path, COINTRACKING, lambda record: cointracking(record, exchange)
        ),
    ),
    "parquet": Form(".parquet", lambda path, _: Parquet(path)),
}
ENDINGS: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
