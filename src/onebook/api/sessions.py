"""Endpoints 1 to 3: create a session from a key, validate a session, report a key's usage.

The specification puts the key of endpoint 3 in the path. It never appears in logs, metrics or
errors (`edge.py` uses route templates), and the response forbids caching and referrers.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from onebook.accounts import UsageReport
from onebook.api.bodies import (
    CODES,
    Authenticated,
    AuthenticateRequest,
    NoSession,
    Problem,
    SessionStatus,
    errors,
)
from onebook.api.edge import Documented, Parts, address, body_schema, caller, identify
from onebook.api.problems import BEARER
from onebook.errors import (
    AccountSuspended,
    ApiKeyDisabled,
    ApiKeyNotFound,
    InternalError,
    InvalidApiKey,
    InvalidSession,
    MissingApiKey,
    MissingAuthorization,
    RateLimitExceeded,
    RequestTooLarge,
    ServiceUnavailable,
    SessionExpired,
)

router = APIRouter(tags=["sessions"])
usage = APIRouter(tags=["usage"])


@router.post(
    "/api/v1/authenticate",
    summary="Exchange an API key for a session",
    responses=errors(
        MissingApiKey,
        InvalidApiKey,
        ApiKeyDisabled,
        RequestTooLarge,
        RateLimitExceeded,
        InternalError,
        ServiceUnavailable,
    ),
    openapi_extra=body_schema(AuthenticateRequest),
)
async def authenticate(request: Request, parts: Parts) -> Authenticated:
    """Return a session token that is valid for 24 hours. Earlier sessions of the key stay valid.

    After ten failed attempts in a minute, an address gets 429 until the minute is over.
    """
    session = await parts.accounts.authenticate(
        await _api_key(request), address=address(request), now_ms=parts.clock.wall_ms()
    )
    key = session.key
    identify(request, key.key_id)
    return Authenticated(
        message=f"Authenticated with {key.tier.value} access.",
        session_token=session.token,
        user_id=key.account_id,
        user_tier=key.tier,
        expires_at=session.expires_at_ms,
    )


async def _api_key(request: Request) -> str | None:
    """Return the key in the body; None for a body without a key, even if it is not JSON."""
    try:
        body = AuthenticateRequest.model_validate_json(await request.body(), strict=True)
    except ValidationError:
        return None
    return body.api_key


_STATUS_401 = {
    "model": NoSession | Problem,
    "description": "The token is invalid or expired (NoSession), or it is absent or its key is "
    "suspended (Problem, also with `authenticated: false`).",
    CODES: [MissingAuthorization.code, ApiKeyDisabled.code],
}


@router.get(
    "/api/v1/session-status",
    summary="Is this session valid?",
    response_model=SessionStatus,
    responses={
        401: _STATUS_401,
        **errors(RateLimitExceeded, InternalError, ServiceUnavailable),
    },
)
async def session_status(
    request: Request, parts: Parts, documented: Documented
) -> SessionStatus | JSONResponse:
    """Return account and expiry of the session."""
    try:
        session = await caller(request, parts, documented)
    except (InvalidSession, SessionExpired):
        body = NoSession(message="The session token is invalid or expired.")
        return JSONResponse(body.model_dump(), 401, headers=BEARER)
    except (MissingAuthorization, ApiKeyDisabled) as error:
        error.details["authenticated"] = False
        raise
    return SessionStatus(
        user_id=session.key.account_id,
        user_tier=session.key.tier,
        expires_at=session.expires_at_ms,
        created_at=session.created_at_ms,
        message="The session is valid.",
    )


@usage.get(
    # `:path`, so that a text with a slash is an unknown key, not an unknown page.
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
    """Return the usage of a key. Needs no session and does not count against any limit.

    After sixty unknown keys in a minute, an address gets 429.
    """
    return await parts.accounts.usage_report(
        api_key, address=address(request), now_ms=parts.clock.wall_ms()
    )
