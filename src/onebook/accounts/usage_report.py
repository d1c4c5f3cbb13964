"""Usage of a key against its allowance: the report for clients, and the marks of the meter."""

from enum import IntEnum
from typing import Final

from msgspec import Struct

from onebook.accounts.keys import Key, status_at
from onebook.accounts.periods import period_after, period_at
from onebook.clock import iso_ms
from onebook.model import DAY_MS, GIB_BYTES, KeyStatus
from onebook.store import Store, UsageCell

WARNING_PERCENT: Final = 80
GIB_DECIMALS: Final = 4  # smaller numbers are printed with an exponent; the bytes are exact


class DataUsage(Struct, frozen=True):
    """How much of the allowance is used; GB are GiB."""

    used_gb: float
    limit_gb: float
    remaining_gb: float
    usage_percentage: float
    bytes_used: int
    bytes_limit: int


class BillingPeriod(Struct, frozen=True):
    """When the allowance is renewed."""

    reset_date: str
    days_until_reset: int
    next_reset: str


class UsageStatus(Struct, frozen=True):
    """What the usage means for the key."""

    limit_exceeded: bool
    warning_threshold: bool
    api_key_status: KeyStatus


class UsageReport(Struct, frozen=True):
    """The body of GET /data-usage, field by field as the specification has it."""

    user_id: str
    username: str
    billing_tier: str
    api_key_active: bool
    data_usage: DataUsage
    billing_period: BillingPeriod
    status: UsageStatus
    timestamp: str


class UsageMark(IntEnum):
    """Share of the allowance that a key has used."""

    WITHIN = 0
    WARNING = 1
    OVER = 2


def mark_of(used_bytes: int, allowance_bytes: int) -> UsageMark:
    """The mark of a number of bytes in an allowance."""
    if used_bytes > allowance_bytes:
        return UsageMark.OVER
    if used_bytes * 100 >= allowance_bytes * WARNING_PERCENT:
        return UsageMark.WARNING
    return UsageMark.WITHIN


def usage_report(key: Key, used_bytes: int, *, allowance_bytes: int, now_ms: int) -> UsageReport:
    """Report what a key has used in the period that holds `now_ms`.

    `allowance_bytes` is that of keys without one of their own.
    """
    allowance_bytes = key.allowance_of(allowance_bytes)
    period = period_at(key.created_at_ms, now_ms)
    status = status_at(key, now_ms)
    mark = mark_of(used_bytes, allowance_bytes)
    return UsageReport(
        user_id=key.account_id,
        username=key.username,
        billing_tier=key.tier.value,
        api_key_active=status is KeyStatus.ACTIVE,
        data_usage=DataUsage(
            used_gb=gib(used_bytes),
            limit_gb=gib(allowance_bytes),
            remaining_gb=gib(max(0, allowance_bytes - used_bytes)),
            usage_percentage=round(used_bytes * 100 / allowance_bytes, 2),
            bytes_used=used_bytes,
            bytes_limit=allowance_bytes,
        ),
        billing_period=BillingPeriod(
            reset_date=iso_ms(period.end_ms),
            days_until_reset=(period.end_ms - now_ms) // DAY_MS,
            next_reset=iso_ms(period_after(key.created_at_ms, period).end_ms),
        ),
        status=UsageStatus(
            limit_exceeded=mark is UsageMark.OVER,
            warning_threshold=mark is not UsageMark.WITHIN,
            api_key_status=status,
        ),
        timestamp=iso_ms(now_ms),
    )


async def stored_usage(store: Store, key: Key, now_ms: int) -> int:
    """The bytes of a key's current period that the store has, from every node."""
    period = period_at(key.created_at_ms, now_ms)
    return await store.usage(UsageCell(key.key_id, period.start_ms))


def gib(count: int) -> float:
    """Convert bytes to GiB, as reports print them."""
    return round(count / GIB_BYTES, GIB_DECIMALS)
