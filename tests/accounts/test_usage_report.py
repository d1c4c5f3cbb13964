"""The report of a key's usage: its fields, its rounding, and the marks of an allowance."""

import json
import re

import msgspec
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from onebook.accounts import UsageReport
from onebook.accounts.keys import Key
from onebook.accounts.periods import period_at
from onebook.accounts.usage_report import UsageMark, mark_of, usage_report
from onebook.config import AccountsSettings
from onebook.model import DAY_MS, KeyStatus, Tier

from .conftest import START_MS

ALLOWANCE_BYTES = AccountsSettings().allowance_bytes

KEY = Key("key_1", "id-alice", "alice", Tier.PREMIUM, KeyStatus.ACTIVE, "ob_live_", START_MS, None)


def report(used_bytes: int, *, now_ms: int = START_MS, key: Key = KEY) -> UsageReport:
    return usage_report(key, used_bytes, allowance_bytes=ALLOWANCE_BYTES, now_ms=now_ms)


def test_usage_report_has_every_field_of_the_specification() -> None:
    assert to_builtins(report(13_421_772_800)) == {
        "user_id": "id-alice",
        "username": "alice",
        "billing_tier": "premium",
        "api_key_active": True,
        "data_usage": {
            "used_gb": 12.5,
            "limit_gb": 50.0,
            "remaining_gb": 37.5,
            "usage_percentage": 25.0,
            "bytes_used": 13_421_772_800,
            "bytes_limit": 53_687_091_200,
        },
        "billing_period": {
            "reset_date": "2026-02-28T00:00:00.000Z",
            "days_until_reset": 27,
            "next_reset": "2026-03-31T00:00:00.000Z",
        },
        "status": {
            "limit_exceeded": False,
            "warning_threshold": False,
            "api_key_status": "active",
        },
        "timestamp": "2026-01-31T10:30:00.000Z",
    }


def test_usage_percentage_has_two_decimals() -> None:
    assert report(ALLOWANCE_BYTES // 3).data_usage.usage_percentage == 33.33


@pytest.mark.parametrize("used_bytes", [1, 4_000, 53_687, 60_000, 107_374, 1 << 20])
def test_no_number_has_an_exponent(used_bytes: int) -> None:
    found = to_builtins(report(used_bytes).data_usage)
    assert found["bytes_used"] == used_bytes
    for text in (json.dumps(found), msgspec.json.encode(found).decode()):
        assert not re.search(r"\de", text)


def test_remaining_gb_never_falls_below_zero() -> None:
    used = report(ALLOWANCE_BYTES + 2**30).data_usage
    assert (used.remaining_gb, used.used_gb, used.usage_percentage) == (0.0, 51.0, 102.0)


@pytest.mark.parametrize(
    ("left_ms", "days"), [(1, 0), (DAY_MS - 1, 0), (DAY_MS, 1), (27 * DAY_MS + 1, 27)]
)
def test_days_until_reset_are_whole_days_left(left_ms: int, days: int) -> None:
    end_ms = period_at(START_MS, START_MS).end_ms
    assert report(0, now_ms=end_ms - left_ms).billing_period.days_until_reset == days


@pytest.mark.parametrize(
    ("used_bytes", "mark"),
    [
        (0, UsageMark.WITHIN),
        (799, UsageMark.WITHIN),
        (800, UsageMark.WARNING),
        (1_000, UsageMark.WARNING),
        (1_001, UsageMark.OVER),
    ],
)
def test_warning_threshold_is_80_percent_and_the_limit_all_of_it(
    used_bytes: int, mark: UsageMark
) -> None:
    assert mark_of(used_bytes, 1_000) is mark
    status = usage_report(KEY, used_bytes, allowance_bytes=1_000, now_ms=START_MS).status
    assert status.warning_threshold is (mark is not UsageMark.WITHIN)
    assert status.limit_exceeded is (mark is UsageMark.OVER)


def test_an_expired_key_is_reported_as_expired_and_not_active() -> None:
    expired = report(0, key=replace(KEY, expires_at_ms=START_MS))
    assert expired.api_key_active is False
    assert expired.status.api_key_status == "expired"
