"""Billing periods: calendar months in UTC, anchored and clamped."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.accounts.periods import period_after, period_at
from onebook.model import DAY_MS

MOMENTS = st.integers(0, 4_102_444_800_000)  # until 2100


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("created", "now", "start", "end"),
    [
        ("2026-01-15T10:30", "2026-01-15T10:30", "2026-01-15", "2026-02-15"),
        ("2026-01-15T10:30", "2026-02-14T23:59:59.999", "2026-01-15", "2026-02-15"),
        ("2026-01-15T10:30", "2026-02-15", "2026-02-15", "2026-03-15"),
        ("2026-01-31", "2026-02-01", "2026-01-31", "2026-02-28"),
        ("2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31"),
        ("2026-01-31", "2026-03-30", "2026-02-28", "2026-03-31"),
        ("2026-01-31", "2026-04-30", "2026-04-30", "2026-05-31"),
        ("2028-01-31", "2028-02-29", "2028-02-29", "2028-03-31"),
        ("2028-02-29", "2029-02-28", "2029-02-28", "2029-03-29"),
        ("2026-12-05", "2027-01-01", "2026-12-05", "2027-01-05"),
    ],
)
def test_periods_are_months_from_the_day_of_creation(
    created: str, now: str, start: str, end: str
) -> None:
    assert period_at(ms(created), ms(now)) == (ms(start), ms(end))


@given(MOMENTS, MOMENTS)
def test_a_period_holds_the_moment_it_is_asked_for(created_ms: int, now_ms: int) -> None:
    start_ms, end_ms = period_at(created_ms, now_ms)
    assert start_ms <= now_ms < end_ms
    assert 28 * DAY_MS <= end_ms - start_ms <= 31 * DAY_MS
    assert start_ms % DAY_MS == end_ms % DAY_MS == 0


@given(MOMENTS, MOMENTS)
def test_periods_are_contiguous_and_disjoint(created_ms: int, now_ms: int) -> None:
    period = period_at(created_ms, now_ms)
    assert period_at(created_ms, period.start_ms) == period
    assert period_at(created_ms, period.end_ms - 1) == period
    assert period_at(created_ms, period.start_ms - 1).end_ms == period.start_ms
    assert period_after(created_ms, period).start_ms == period.end_ms


@given(MOMENTS)
def test_the_first_period_begins_on_the_day_of_creation(created_ms: int) -> None:
    assert period_at(created_ms, created_ms).start_ms == created_ms // DAY_MS * DAY_MS
