"""Endpoint 3: what a key has received in this period.

The specification puts the key in the path. It is written to no log, metric or error here
(`edge.py` knows routes by their template), and the answer forbids caches and referrers.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from onebook.accounts import UsageReport
from onebook.api.bodies import BillingPeriod, DataUsage, Usage, UsageStatus, errors
from onebook.api.context import Parts, address
from onebook.api.problems import iso
from onebook.model import DAY_MS, GIB_BYTES, KeyStatus

WARNING_PERCENT = 80

router = APIRouter(tags=["usage"])


@router.get(
    # `:path`, so that a key with a slash in it is an unknown key and not an unknown page.
    "/api/v1/data-usage/{api_key:path}",
    summary="Data used in this period",
    responses=errors(401, 404, 429, 500, 503),
)
async def data_usage(
    api_key: Annotated[str, Path(description="The API key itself.")],
    request: Request,
    parts: Parts,
) -> Usage:
    """Answer the usage of a key. Counts against no limit; needs no session.

    Sixty unknown keys in a minute from one address are followed by 429.
    """
    now_ms = parts.now_ms()
    found = await parts.accounts.usage_report(api_key, address=address(request), now_ms=now_ms)
    return report(found, now_ms=now_ms)


def report(found: UsageReport, *, now_ms: int) -> Usage:
    """Put the facts of a key into the specification's words and units."""
    limit, used = found.bytes_limit, found.bytes_used
    return Usage(
        user_id=found.key.account_id,
        username=found.key.username,
        billing_tier=found.key.tier,
        api_key_active=found.key.status is KeyStatus.ACTIVE,
        data_usage=DataUsage(
            used_gb=round(used / GIB_BYTES, 6),
            limit_gb=round(limit / GIB_BYTES, 6),
            remaining_gb=round(max(0, limit - used) / GIB_BYTES, 6),
            usage_percentage=round(100 * used / limit, 2),
            bytes_used=used,
            bytes_limit=limit,
        ),
        billing_period=BillingPeriod(
            reset_date=iso(found.reset_at_ms),
            days_until_reset=(found.reset_at_ms - now_ms) // DAY_MS,
            next_reset=iso(found.next_reset_at_ms),
        ),
        status=UsageStatus(
            limit_exceeded=used >= limit,
            warning_threshold=100 * used >= WARNING_PERCENT * limit,
            api_key_status=found.key.status,
        ),
        timestamp=iso(now_ms),
    )
