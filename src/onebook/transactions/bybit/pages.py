"""Pages of Bybit: query strings, rows, and the records of rows; pure."""

from collections import Counter
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from msgspec import json
from msgspec.structs import replace

from onebook.core import NumberError, canonical, iso
from onebook.model import SECOND_MS
from onebook.transactions.adapter import FailureReason, Page, Source, SourceFailed, Window
from onebook.transactions.bybit.endpoints import Endpoint
from onebook.transactions.bybit.rows import (
    EXCHANGE,
    Context,
    make_id,
    ms,
)
from onebook.transactions.mapping import Row
from onebook.transactions.record import Description, Holder, Ids, Record, Status
from onebook.transactions.windows import is_last

# Bybit's names for the time of a row; the record's main time comes first.
_TIME_FIELDS: Final = (
    "execTime", "transactionTime", "successAt", "createTime", "createdTime", "timestamp",
    "deliveryTime", "orderTime", "updatedTime", "updateTime",
)  # fmt: skip


def query_of(
    endpoint: Endpoint, window: Window, cursor: str, *, symbol: str = "", rows: int | None = None
) -> str:
    """Build the query string of a page, with both bounds and a page size (None: the maximum)."""
    parameters = [f"{name}={value}" for name, value in endpoint.fixed]
    source, times = endpoint.source, endpoint.times
    if symbol:
        parameters.append(f"symbol={quote(symbol, safe='')}")
    if source.window_ms and endpoint.ranged:
        # Inclusive at both ends, at the precision that the endpoint compares.
        last_ms = window.to_ms - source.grain_ms
        parameters += [
            f"{times.start}={window.from_ms // times.unit_ms}",
            f"{times.end}={last_ms // times.unit_ms}",
        ]
    if source.window_ms:
        parameters.append(f"limit={rows or source.page_rows}")
    return "&".join(parameters) + cursor_parameter(cursor)


def cursor_parameter(cursor: str) -> str:
    """Encode a cursor for a query string; Bybit's are already percent-encoded, or base64."""
    if not cursor:
        return ""
    return f"&cursor={cursor if '%' in cursor else quote(cursor, safe='')}"


def rows_of(endpoint: Endpoint, result: Any) -> tuple[list[Row], str]:
    """The rows of an answer, and the cursor of the next page.

    Raises:
        SourceFailed: The answer does not have the documented form.
    """
    try:
        holder = result
        if endpoint.rows == "coin":  # a list with one account and its coins
            holder = result["list"][0] if result["list"] else {"coin": []}
        rows = [] if holder[endpoint.rows] is None else holder[endpoint.rows]
        cursor = result.get("nextPageCursor") or ""
        if not isinstance(rows, list) or not isinstance(cursor, str):
            raise TypeError
        if endpoint.rows == "balance":  # the funding wallet lists every existing coin
            rows = [row for row in rows if canonical(row.get("walletBalance")) not in (None, "0")]
        return rows, cursor
    except (LookupError, TypeError, AttributeError, NumberError):
        raise undocumented() from None


def read_row(row: Row, endpoint: Endpoint, context: Context) -> tuple[Record, bool]:
    """Map a row to a record; an unreadable row becomes a marked record with the raw row."""
    try:
        record = endpoint.mapper(row, context)
    except (LookupError, TypeError, ValueError, AttributeError):
        return unreadable_record(row, endpoint, context), False
    if record.timestamp < endpoint.source.begins_ms:  # seconds where ms are documented
        return unreadable_record(row, endpoint, context), False
    return record, True


def with_holder(record: Record, uid: str | None) -> Record:
    """Set the user id of a record's account, unless it has one."""
    holder = record.account
    if uid is None or (holder is not None and holder.uid is not None):
        return record
    return replace(record, account=_holder(holder.wallet if holder else None, uid))


@lru_cache(maxsize=64)
def _holder(wallet: str | None, uid: str) -> Holder:
    return Holder(wallet, uid)


def read_rows(
    rows: list[Row], endpoint: Endpoint, context: Context, window: Window
) -> tuple[list[Record], int]:
    """The records of a page's rows, in their order, and the number of unreadable rows.

    An unreadable row keeps its place, by its own time or the previous row's. At any other place, an
    answer that continues from a cursor would skip it.
    """
    read = [read_row(row, endpoint, context) for row in rows]
    unreadable = sum(not fits for _, fits in read)
    if unreadable and endpoint.source.window_ms:
        times = _times(rows, read, endpoint.source, window)
        read = [
            (record, True)
            if fits or at is None
            else (unreadable_record(row, endpoint, context, at), False)
            for row, (record, fits), at in zip(rows, read, times, strict=True)
        ]
    records = [record for record, _ in read]
    return (_with_ordinals(records, context) if endpoint.id_field else records), unreadable


def _with_ordinals(records: list[Record], context: Context) -> list[Record]:
    """Give each record an id: equal rows without one get their ordinal on the page.

    Two equal rows are certainly two events only if they are on one page, because windows overlap,
    and so do pages when rows are added. So all rows of one time must be on one page: see
    `with_instant`.
    """
    found: Counter[str] = Counter()
    apart = []
    for record in records:
        first = record.transactionId
        found[first] += record.ids.native is None
        if found[first] > 1:
            twin = make_id(context, "twin", f"{first}:{found[first]}")
            record = replace(record, transactionId=twin)
        apart.append(record)
    return apart


def begins_unnamed(page: Page) -> bool:
    """Whether the first rows of a page, all of one time, lack an id."""
    return any(
        record.ids.native is None and record.timestamp == page.records[0].timestamp
        for record in page.records
    )


def holds_instant(page: Page, at_ms: int, source: Source) -> bool:
    """Whether a page certainly contains all rows of the time it begins with."""
    older = any(record.timestamp < at_ms for record in page.records)
    return older or not page.cursor or is_last(source, page.rows, full_page=False)


def with_instant(page: Page, whole: Page, at_ms: int) -> Page:
    """Replace a page's rows of one time by those of another page, which has all of them."""
    records = [record for record in whole.records if record.timestamp == at_ms]
    known = {record.transactionId for record in records}
    records += [record for record in page.records if record.transactionId not in known]
    return replace(page, records=records)


def uncountable() -> SourceFailed:
    """The failure for equal rows without an id that do not fit on one page."""
    return SourceFailed(
        FailureReason.UNREADABLE,
        "One second has more rows without an id than fit on a page of Bybit, so equal rows cannot"
        " be counted.",
    )


def _times(
    rows: list[Row], read: list[tuple[Record, bool]], source: Source, window: Window
) -> list[int | None]:
    """The time of each row: its own, or the previous row's if its own is unreadable.

    Without a previous row, it is the newest time that the page can contain. The next row's time is
    never used, because an answer that continues between the two would skip the row.
    """
    times = [
        record.timestamp if fits else _own_time(row, source, window)
        for row, (record, fits) in zip(rows, read, strict=True)
    ]
    if source.untimed:  # rows are not in time order
        return times
    before = window.seen_ms
    for index, at in enumerate(times):
        before = times[index] = before if at is None else at
    return times


def _own_time(row: Row, source: Source, window: Window) -> int | None:
    """The first of a row's times that is within its window.

    A time in seconds counts as the end of its second: if the record were earlier than the time that
    the exchange filters by, an answer that continues between the two would skip it.
    """
    below_ms = window.to_ms + source.lag_ms
    for name in _TIME_FIELDS:
        try:
            at_ms = ms(row, name)
        except (TypeError, ValueError, AttributeError):
            continue
        for unit_ms in (1, SECOND_MS):  # some endpoints write seconds
            if at_ms and window.from_ms <= at_ms * unit_ms < below_ms:
                return min(at_ms * unit_ms + max(0, unit_ms - source.grain_ms), below_ms - 1)
    return None


def unreadable_record(
    row: Row, endpoint: Endpoint, context: Context, at_ms: int | None = None
) -> Record:
    """Return a record for an unreadable row.

    Its id is a digest of the entire row, because two queries of one type (with and without a coin)
    may return it. Equal rows become one record: only an id could distinguish a repeated row from
    two.
    """
    at_ms = context.fallback_time_ms if at_ms is None else at_ms
    kind = endpoint.source.type
    native = row.get(endpoint.id_field) if isinstance(row, dict) else None
    return Record(
        transactionId=make_id(context, kind, json.encode(row, order="sorted").decode()),
        timestamp=at_ms,
        label="Other",
        description=Description("Bybit Record", "This record could not be read."),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=kind,
        kind="other",
        status=Status.UNKNOWN,
        ids=Ids(native=native if isinstance(native, str) and native else None),
        incomplete=("timestamp", "amount"),
    )


def as_evidence(page: Page) -> Page:
    """The retention bound that a page proves; its rows are not delivered."""
    shown = [record for record in page.records if record.status is Status.COMPLETED]
    if not shown:
        return Page([], page.rows, page.cursor)
    newest_ms = max(max(record.timestamp, record.updated_at or 0) for record in shown)
    return Page([], page.rows, "", kept_from_ms=newest_ms + 1)


def undocumented() -> SourceFailed:
    """The failure for an answer without the documented form."""
    return SourceFailed(
        FailureReason.UNREADABLE, "Bybit's answer does not have the documented form."
    )
