"""Request dependencies of routes: authentication, rate limit and body.

They run in this order, so that a refused request is not parsed.
"""

from typing import Annotated, TypeVar

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ValidationError

from onebook.accounts import Decision, RestSession
from onebook.api.edge import EXCHANGE, RequestRecord
from onebook.api.problems import from_validation
from onebook.api.services import Services

Body = TypeVar("Body", bound=BaseModel)

_scheme = HTTPBearer(
    scheme_name="session",
    bearerFormat="obs_...",
    description="The `session_token` returned by `POST /api/v1/authenticate`; valid for 24 hours.",
    auto_error=False,
)


async def services(request: Request) -> Services:
    """The services of this app."""
    found: Services = request.app.state.services
    return found


Parts = Annotated[Services, Depends(services)]
# Declares bearer authentication in OpenAPI; `accounts.session` reads the header.
Documented = Annotated[HTTPAuthorizationCredentials | None, Security(_scheme)]


def address(request: Request) -> str:
    """The client address, as reported by the server or a trusted proxy."""
    return request.client.host if request.client else "unknown"


async def caller(request: Request, parts: Parts, documented: Documented) -> RestSession:
    """Authenticate a Bearer request and count it against the rate limit of its key."""
    given = request.headers.getlist("authorization")
    # Several headers are one comma-separated list (RFC 9110 section 5.3), which no token is.
    found = await parts.accounts.session(", ".join(given) if given else None, parts.clock.wall_ms())
    key = found.key
    identify(request, key.key_id)
    _count(request, parts.accounts.limits.take(key.key_id, key.tier, parts.clock.monotonic()))
    return found


Caller = Annotated[RestSession, Depends(caller)]


async def counted_by_address(request: Request, parts: Parts) -> None:
    """Count a public request against its address."""
    _count(request, parts.accounts.limits.take_address(address(request), parts.clock.monotonic()))


ByAddress = Depends(counted_by_address)


def identify(request: Request, key_id: str) -> None:
    """Add the key of a request to the access log."""
    exchange: RequestRecord = request.scope[EXCHANGE]
    exchange.key_id = key_id


def _count(request: Request, decision: Decision) -> None:
    exchange: RequestRecord = request.scope[EXCHANGE]
    exchange.decision = decision  # `edge.py` writes its headers, whatever the answer will be
    decision.require("requests")


async def read_body(request: Request, model: type[Body]) -> Body:
    """Parse the JSON body into a model, with strict types.

    Raises:
        InvalidRequest: It is not; the message names the field.
        RequestTooLarge: It is over the limit.
    """
    try:
        return model.model_validate_json(await request.body(), strict=True)
    except ValidationError as error:
        raise from_validation(error) from None


def body_schema(model: type[BaseModel]) -> dict[str, object]:
    """The OpenAPI `requestBody` of a route that uses `read_body`."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
