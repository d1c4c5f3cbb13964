"""Billing periods, and the usage of each key in each of its periods.

Periods are calendar months in UTC, anchored on the day a key was created. A key created on the 31st
starts its February period on the 28th or 29th, and its March period on the 31st again: the anchor
is clamped, never moved.
"""

from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import Struct

from onebook.accounts.keys import key_of
from onebook.clock import iso_ms
from onebook.model import KeyStatus, Tier
from onebook.store import KeyRow, UsageCell


class Period(NamedTuple):
    """The milliseconds from `start_ms` on and before `end_ms`."""

    start_ms: int
    end_ms: int


def period_at(created_at_ms: int, now_ms: int) -> Period:
    """Return the period that contains a time, for a key created at another time."""
    day = _utc(created_at_ms).day
    now = _utc(now_ms)
    month = now.year * 12 + now.month - 1
    if now_ms < _boundary(month, day):
        month -= 1
    return Period(_boundary(month, day), _boundary(month + 1, day))


def period_after(created_at_ms: int, period: Period) -> Period:
    """Return the period after another one of the same key."""
    return period_at(created_at_ms, period.end_ms)


def _boundary(month: int, day: int) -> int:
    """Return midnight of a day in a month counted from year 0, clamped to the month's end."""
    year, index = divmod(month, 12)
    last = monthrange(year, index + 1)[1]
    return int(datetime(year, index + 1, min(day, last), tzinfo=UTC).timestamp()) * 1_000


def _utc(at_ms: int) -> datetime:
    seconds, milliseconds = divmod(at_ms, 1_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=milliseconds * 1_000)


class BillingLine(Struct, frozen=True):
    """One key in one of its billing periods; field names as in `UsageReport`."""

    user_id: str
    username: str
    key_id: str
    billing_tier: Tier
    api_key_status: KeyStatus
    period_start: str
    period_end: str
    bytes_used: int
    bytes_limit: int
    usage_percentage: float


def billing_lines(
    keys: Iterable[KeyRow],
    used_bytes: Mapping[UsageCell, int],
    periods: Period,
    *,
    allowance_bytes: int,
) -> list[BillingLine]:
    """Return the lines of all billing periods that start within a time range.

    A period belongs to the range in which it starts, so that reports over consecutive months
    contain each period once. A key without usage also has a line. Tier, status and allowance are
    the current ones; earlier values are in the audit trail. All counted bytes are in a line, even
    in a period before the key was created, because a clock may have been wrong then.

    Args:
        keys: All keys, with their current status.
        used_bytes: The counted bytes.
        periods: The time range.
        allowance_bytes: The allowance of keys without their own.
    """
    counted: defaultdict[str, set[int]] = defaultdict(set)
    for cell in used_bytes:
        if periods.start_ms <= cell.period_start_ms < periods.end_ms:
            counted[cell.key_id].add(cell.period_start_ms)
    return [
        _line(row, period_at(row.created_at_ms, start_ms), used_bytes, allowance_bytes)
        for row in sorted(keys, key=_order)
        for start_ms in sorted(counted[row.key_id].union(_beginning_in(periods, row.created_at_ms)))
    ]


def current_lines(
    keys: Iterable[KeyRow],
    used_bytes: Mapping[UsageCell, int],
    now_ms: int,
    *,
    allowance_bytes: int,
) -> list[BillingLine]:
    """Return the line of each key's billing period that contains a time."""
    return [
        _line(row, period_at(row.created_at_ms, now_ms), used_bytes, allowance_bytes)
        for row in sorted(keys, key=_order)
    ]


def _order(row: KeyRow) -> tuple[str, str]:
    return row.username, row.key_id


def _line(
    row: KeyRow, period: Period, used_bytes: Mapping[UsageCell, int], allowance_bytes: int
) -> BillingLine:
    key = key_of(row)
    limit_bytes = key.allowance_of(allowance_bytes)
    count = used_bytes.get(UsageCell(row.key_id, period.start_ms), 0)
    return BillingLine(
        user_id=row.account_id,
        username=row.username,
        key_id=row.key_id,
        billing_tier=row.tier,
        api_key_status=key.status,
        period_start=iso_ms(period.start_ms),
        period_end=iso_ms(period.end_ms),
        bytes_used=count,
        bytes_limit=limit_bytes,
        usage_percentage=round(count * 100 / limit_bytes, 2),
    )


def _beginning_in(span: Period, created_at_ms: int) -> Iterator[int]:
    """Return the starts of a key's periods within a time range."""
    period = period_at(created_at_ms, max(span.start_ms, created_at_ms))
    while period.start_ms < span.end_ms:
        if period.start_ms >= span.start_ms:
            yield period.start_ms
        period = period_after(created_at_ms, period)
