"""Endpoint 3: usage of a key in this billing period.

The specification puts the key in the path. It never appears in logs, metrics or errors (`edge.py`
uses route templates), and the response forbids caching and referrers.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from onebook.accounts import UsageReport
from onebook.api.bodies import errors
from onebook.api.context import Parts, address
from onebook.errors import (
    AccountSuspended,
    ApiKeyNotFound,
    InternalError,
    RateLimitExceeded,
    ServiceUnavailable,
)

router = APIRouter(tags=["usage"])


@router.get(
    # `:path`, so that a key with a slash in it is an unknown key and not an unknown page.
    "/api/v1/data-usage/{api_key:path}",
    summary="Data used in this period",
    responses=errors(
        AccountSuspended, ApiKeyNotFound, RateLimitExceeded, InternalError, ServiceUnavailable
    ),
)
async def data_usage(
    api_key: Annotated[str, Path(description="The API key itself.")],
    request: Request,
    parts: Parts,
) -> UsageReport:
    """Return the usage of a key. Counts against no limit; needs no session.

    Sixty unknown keys in a minute from one address are followed by 429.
    """
    return await parts.accounts.usage_report(
        api_key, address=address(request), now_ms=parts.clock.wall_ms()
    )
