"""Exports of a quarter's trading bills, made by OKX on request: back to 2021-02-01.

https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-since-2021

- A quarter can be requested once it is over; its file is available within two hours, at busy times
  later, is kept for 30 days, and has links that last five and a half hours.
- 12 requests a day per user; a newer page says one in 10 seconds. We keep both limits, and leave a
  third of the 12 to the user, who requests exports with the same budget.
- The page mentions a decompressed CSV file. Unconfirmed: that it is a zip archive.
- A file has the columns of the bills except type, source, target and notes: the type follows from
  the subtype, and the other account of a transfer is unknown.
- The time zone of quarters is undocumented: each part may contain rows of its neighbours.
"""

import csv
import errno
import hashlib
import io
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from msgspec import json

from onebook.model import HOUR_MS
from onebook.transactions.adapter import FailureReason, SourceFailed
from onebook.transactions.client import Call
from onebook.transactions.export_files import Row
from onebook.transactions.export_jobs import (
    BadExport,
    ExportAnswer,
    ExportPiece,
    ExportRule,
    ExportState,
)
from onebook.transactions.okx.api import CONFIG, EXPORT
from onebook.transactions.okx.endpoints import BILLS_BEGIN_MS
from onebook.transactions.okx.words import SUBTYPES
from onebook.transactions.pools import Budget

MONTHS: Final = 3
EAST_MS: Final = 14 * HOUR_MS  # the first time zone is this far ahead of UTC
WEST_MS: Final = 12 * HOUR_MS
OWNER_BYTES: Final = 8
CSV_BYTES_MAX: Final = 8 << 30  # maximum size of the decompressed file
DAMAGED: Final = (
    BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError,
    OverflowError, OSError,
)  # fmt: skip
NEEDED: Final = frozenset({"billId", "ts", "ccy", "balChg", "bal", "subType"})
# Meanings of refusal codes for an export.
CODES: Final = {
    "51604": ExportState.ABSENT,
    "51606": ExportState.TOO_EARLY,
    "51607": ExportState.MAKING,
    "51608": ExportState.EMPTY,
}
STATES: Final = {
    "finished": ExportState.READY,
    "ongoing": ExportState.MAKING,
    "failed": ExportState.FAILED,
}


def quarters(from_ms: int, to_ms: int, now_ms: int) -> list[ExportPiece]:
    """The quarters in a range, newest first; the last one may not be over."""
    found: list[ExportPiece] = []
    from_ms, to_ms = max(from_ms, BILLS_BEGIN_MS), min(to_ms, now_ms)
    at = datetime.fromtimestamp(from_ms / 1_000, UTC)
    year, number = at.year, (at.month - 1) // MONTHS
    while (start_ms := _quarter_ms(year, number)) < to_ms and from_ms < to_ms:
        following = (year, number + 1) if number < MONTHS else (year + 1, 0)
        name = f"{year}Q{number + 1}"
        label = f"{year} Q{number + 1}"
        found.append(ExportPiece(name, label, start_ms, _quarter_ms(*following)))
        year, number = following
    return found[::-1]


def _quarter_ms(year: int, number: int) -> int:
    return round(datetime(year, number * MONTHS + 1, 1, tzinfo=UTC).timestamp() * 1_000)


def _asked(piece: ExportPiece) -> dict[str, str]:
    return {"year": piece.name[:4], "quarter": piece.name[4:]}


async def owner_of(session: Any) -> str:
    """The user, regardless of the key: limits and files are per user."""
    data = (await session.ask(Call(CONFIG, ""))).value
    user = str(data[0].get("uid") or "") if data and isinstance(data[0], dict) else ""
    if not user:
        raise _undocumented()
    return hashlib.blake2b(f"okx {user}".encode(), digest_size=OWNER_BYTES).hexdigest()


async def apply(session: Any, piece: ExportPiece) -> ExportAnswer:
    """Request the export of a quarter."""
    call = Call(EXPORT, method="POST", body=json.encode(_asked(piece)))
    row, state = await _first(session, call)
    if state is not None:
        return ExportAnswer(state)
    found = {"true": ExportState.READY, "false": ExportState.MAKING}.get(str(row.get("result")))
    if found is None:
        raise _undocumented()
    return ExportAnswer(found)


async def status(session: Any, piece: ExportPiece, reference: str) -> ExportAnswer:
    """Request the state of an export, and a link to it; OKX identifies it by its quarter."""
    row, state = await _first(session, Call(EXPORT, urlencode(_asked(piece))))
    if state is not None:
        return ExportAnswer(state)
    found, url = STATES.get(str(row.get("state"))), str(row.get("fileHref") or "")
    if found is None or (found is ExportState.READY and not url):
        raise _undocumented()
    return ExportAnswer(found, url)


async def _first(session: Any, call: Call) -> tuple[dict[str, Any], ExportState | None]:
    """The first row of an answer, or the state that its refusal means."""
    try:
        data = (await session.ask(call)).value
    except SourceFailed as failure:
        state = CODES.get(str(failure.exchange_code))
        if state is None:
            raise
        return {}, state
    if not data or not isinstance(data[0], dict):
        raise _undocumented()
    return data[0], None


def _undocumented() -> SourceFailed:
    return SourceFailed(FailureReason.UNREADABLE, "OKX's answer does not have the documented form.")


def bills_of(path: Path) -> Iterator[Row]:
    """Yield the bills of a downloaded file, unchanged.

    Raises:
        BadExport: The file does not have the documented form.
    """
    try:
        with ZipFile(path) as archive, archive.open(_only(archive)) as raw:
            text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
            yield from _rows(csv.reader(text, strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise BadExport("it is not a table in CSV") from None
    except DAMAGED as error:
        # `zipfile` seeks to where a damaged directory points.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise BadExport("it is not an intact zip archive") from None


def _only(archive: ZipFile) -> ZipInfo:
    tables = [each for each in archive.infolist() if each.filename.lower().endswith(".csv")]
    if len(tables) != 1:
        raise BadExport(f"it has {len(tables)} tables, not one")
    if tables[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise BadExport("its table is compressed in an unknown way")
    if tables[0].file_size > CSV_BYTES_MAX:
        raise BadExport(f"its table has more than {CSV_BYTES_MAX >> 30} GB")
    return tables[0]


def _rows(table: Iterator[list[str]]) -> Iterator[Row]:
    names = next(table, [])
    lacking = NEEDED - set(names)
    if lacking:
        raise BadExport(f"its table lacks the columns {', '.join(sorted(lacking))}")
    for number, values in enumerate(table, 1):
        if len(values) != len(names):
            raise BadExport(f"its table ends within row {number}, or has another form there")
        row = dict(zip(names, values, strict=True))
        if not row["ts"].isdecimal():
            raise BadExport(f"row {number} of its table has no time")
        yield row


def typed(row: Row) -> Row:
    """Return a bill of an export with its type, as in the list of bills."""
    return row | {"type": SUBTYPES.get(row["subType"], UNKNOWN_TYPE)}


UNKNOWN_TYPE: Final = "0"
EXPORTS: Final = ExportRule(
    pieces=quarters,
    owner=owner_of,
    apply=apply,
    status=status,
    rows=bills_of,
    at_ms=lambda row: int(row["ts"]),
    budget=Budget(12, 1, "exports", left=4),
    before_ms=EAST_MS,
    after_ms=WEST_MS,
)
