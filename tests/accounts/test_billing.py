"""Billing periods, anchored and clamped, and billing lines: each period in exactly one report."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.accounts.billing import Period, billing_lines, current_lines, period_after, period_at
from onebook.model import DAY_MS, KeyStatus, Tier
from onebook.store import KeyRow, UsageCell

ALLOWANCE_BYTES = 1_000


def at(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1_000


def key(key_id: str, created: str, allowance_bytes: int | None = None) -> KeyRow:
    return KeyRow(
        key_id=key_id,
        account_id="id-alice",
        username="alice",
        account_status=KeyStatus.ACTIVE,
        tier=Tier.PREMIUM,
        status=KeyStatus.ACTIVE,
        prefix="ob_live_abcd",
        created_at_ms=at(created),
        expires_at_ms=None,
        last_used_at_ms=None,
        changed_at_ms=0,
        changed_by="operator",
        reason="",
        allowance_bytes=allowance_bytes,
    )


def spans(months: list[str]) -> list[Period]:
    return [Period(at(a), at(b)) for a, b in pairwise(months)]


def test_reports_over_one_month_after_another_hold_each_period_once() -> None:
    keys = [key("key_1", "2025-12-31"), key("key_2", "2026-02-10")]
    months = ["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01", "2026-05-01"]
    found = [
        (line.key_id, line.period_start[:10], line.period_end[:10])
        for span in spans(months)
        for line in billing_lines(keys, {}, span, allowance_bytes=ALLOWANCE_BYTES)
    ]
    assert sorted(found) == [
        ("key_1", "2026-01-31", "2026-02-28"),
        ("key_1", "2026-02-28", "2026-03-31"),
        ("key_1", "2026-03-31", "2026-04-30"),
        ("key_1", "2026-04-30", "2026-05-31"),
        ("key_2", "2026-02-10", "2026-03-10"),
        ("key_2", "2026-03-10", "2026-04-10"),
        ("key_2", "2026-04-10", "2026-05-10"),
    ]


def test_a_line_has_usage_and_the_allowance_of_the_key_or_of_the_settings() -> None:
    keys = [key("key_1", "2026-01-05"), key("key_2", "2026-01-05", allowance_bytes=4_000)]
    start_ms = at("2026-02-05")
    used = {UsageCell("key_1", start_ms): 250, UsageCell("key_2", start_ms): 1_000}
    span = Period(at("2026-02-01"), at("2026-03-01"))
    lines = billing_lines(keys, used, span, allowance_bytes=ALLOWANCE_BYTES)
    assert [(line.bytes_used, line.bytes_limit, line.usage_percentage) for line in lines] == [
        (250, 1_000, 25.0),
        (1_000, 4_000, 25.0),
    ]
    assert [line.billing_tier for line in lines] == [Tier.PREMIUM, Tier.PREMIUM]


def test_a_key_has_no_period_before_it_was_made() -> None:
    span = Period(at("2026-01-01"), at("2026-02-01"))
    assert billing_lines([key("key_1", "2026-02-01")], {}, span, allowance_bytes=1) == []


def test_current_lines_are_the_periods_that_hold_now() -> None:
    keys = [key("key_1", "2026-01-31"), key("key_2", "2026-02-10")]
    lines = current_lines(keys, {}, at("2026-03-05"), allowance_bytes=ALLOWANCE_BYTES)
    assert [line.period_start[:10] for line in lines] == ["2026-02-28", "2026-02-10"]


def test_usage_that_was_counted_before_a_key_was_made_is_billed() -> None:
    """The key was created while the machine's clock was a month ahead."""
    made = key("key_1", "2026-03-05")
    used = {UsageCell("key_1", at("2026-02-05")): 700}
    now = current_lines([made], used, at("2026-02-07"), allowance_bytes=ALLOWANCE_BYTES)
    assert [(line.period_start[:10], line.bytes_used) for line in now] == [("2026-02-05", 700)]
    months = ["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"]
    found = [
        (line.period_start[:10], line.bytes_used)
        for span in spans(months)
        for line in billing_lines([made], used, span, allowance_bytes=ALLOWANCE_BYTES)
    ]
    assert found == [("2026-02-05", 700), ("2026-03-05", 0)]


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
