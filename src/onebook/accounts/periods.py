"""Billing periods: calendar months in UTC, anchored on the day a key was created.

A key of the 31st begins its February on the 28th or 29th and its March on the 31st again: the
anchor is clamped, never moved.
"""

from calendar import monthrange
from datetime import UTC, datetime
from typing import NamedTuple


class Period(NamedTuple):
    """The milliseconds from `start_ms` on and before `end_ms`."""

    start_ms: int
    end_ms: int


def period_at(created_at_ms: int, now_ms: int) -> Period:
    """The period of a key created at one time that holds another."""
    day = _utc(created_at_ms).day
    now = _utc(now_ms)
    month = now.year * 12 + now.month - 1
    if now_ms < _boundary(month, day):
        month -= 1
    return Period(_boundary(month, day), _boundary(month + 1, day))


def period_after(created_at_ms: int, period: Period) -> Period:
    """The period that follows another of the same key."""
    return period_at(created_at_ms, period.end_ms)


def _boundary(month: int, day: int) -> int:
    """Midnight of a day in a month counted from year 0, clamped at the month's end."""
    year, index = divmod(month, 12)
    last = monthrange(year, index + 1)[1]
    return int(datetime(year, index + 1, min(day, last), tzinfo=UTC).timestamp()) * 1_000


def _utc(at_ms: int) -> datetime:
    seconds, milliseconds = divmod(at_ms, 1_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=milliseconds * 1_000)
