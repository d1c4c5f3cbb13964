"""Endpoints 1 and 2: create a session from a key, and validate a session."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from onebook.api.bodies import (
    CODES,
    Authenticated,
    AuthenticateRequest,
    NoSession,
    Problem,
    SessionStatus,
    errors,
)
from onebook.api.context import Documented, Parts, address, body_schema, caller, identify
from onebook.api.problems import BEARER
from onebook.errors import (
    ApiKeyDisabled,
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

    Ten failed attempts in a minute from one address are followed by 429 until the minute is over.
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
    """The key in the body; any body without a key, even if not JSON, is a missing key."""
    try:
        body = AuthenticateRequest.model_validate_json(await request.body(), strict=True)
    except ValidationError:
        return None
    return body.api_key


_STATUS_401 = {
    "model": NoSession | Problem,
    "description": "The token is invalid or expired (NoSession); there is none, or its key is "
    "suspended (Problem, with `authenticated: false` too).",
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
