"""HTTP error responses: one form of body for all errors, without tracebacks, keys or tokens.

Every failure is first converted to an error of `onebook.errors`. The body has `error`, `message`,
`timestamp` and the details of the error; the response has the headers of its status.
"""

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from types import MappingProxyType
from typing import Any, Final

from fastapi.responses import Response
from fastapi.routing import APIRoute
from msgspec import json
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from onebook.clock import iso_ms
from onebook.errors import (
    CREDENTIALS_HELD,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    OnebookError,
    RequestTooLarge,
    ServiceUnavailable,
)
from onebook.logs import redact

BEARER = {"WWW-Authenticate": "Bearer"}  # RFC 9110 section 11.6.1

_FOREIGN: dict[int, tuple[type[OnebookError], str]] = {
    400: (InvalidRequest, "The request is malformed."),
    404: (NotFound, "Unknown path; see /docs for all endpoints."),
    405: (MethodNotAllowed, "This path does not support the method; see the Allow header."),
    413: (RequestTooLarge, "The request body is too large."),
    503: (ServiceUnavailable, "The service cannot answer at the moment; retry shortly."),
}


NAME_SHOWN_MAX = 64
# The type required by each kind of pydantic error, by its prefix.
_MUST_BE = (
    ("milliseconds", "a whole number of Unix milliseconds"),
    ("names", "text, or a list of texts"),
    ("string", "text"),
    ("int", "a whole number"),
    ("bool", "true or false"),
    ("list", "a list"),
)


class FailureRoute(APIRoute):
    """A route whose error bodies start with `success: false`."""

    error_fields: Final[Mapping[str, Any]] = {"success": False}


def error_fields(scope: Scope) -> Mapping[str, Any]:
    """Return the fields that a route adds to its error bodies, even for errors before routing."""
    route = scope.get("route") or _route_of(scope)
    return getattr(route, "error_fields", {})


def _route_of(scope: Scope) -> BaseRoute | None:
    routes: list[BaseRoute] = scope["app"].state.routes
    return next((each for each in routes if each.matches(scope)[0] is not Match.NONE), None)


def problem(
    error: OnebookError,
    *,
    now_ms: int,
    fields: Mapping[str, Any] = MappingProxyType({}),
    headers: dict[str, str] | None = None,
) -> Response:
    """Return the response to an error; `fields` are added by its route."""
    body: dict[str, Any] = dict(fields)
    body |= {"error": error.code, "message": error.message, "timestamp": iso_ms(now_ms)}
    body |= error.details
    # Messages quote the client's input, which may be a key.
    content = redact(json.encode(body).decode())
    headers = _headers(error) | (headers or {})
    return Response(content, error.status, headers, media_type="application/json")


def _headers(error: OnebookError) -> dict[str, str]:
    headers = dict(BEARER) if error.status == HTTPStatus.UNAUTHORIZED else {}
    headers |= error.headers
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, ceil(error.retry_after_s)))
    elif error.status == HTTPStatus.TOO_MANY_REQUESTS:
        headers["Retry-After"] = "60"  # optional in RFC 6585; always sent here
    return headers


def from_status(status: int) -> OnebookError:
    """Convert an HTTP error raised by the framework."""
    kind, message = _FOREIGN.get(status, (InternalError, ""))
    return kind(message or "Internal error; it has been logged.")


def from_validation(error: ValidationError) -> InvalidRequest:
    """Convert a validation error; the message names the first invalid field, never its value."""
    return InvalidRequest(_sentence(error.errors(include_input=False, include_url=False)[0]))


def _sentence(fault: ErrorDetails) -> str:
    name = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "json_invalid":
            return "The body is not JSON."
        case "missing":
            return f"Field {name} is required."
        case "extra_forbidden" if name == "credentials":
            return CREDENTIALS_HELD
        case "extra_forbidden":
            return f"Unknown field {name[:NAME_SHOWN_MAX]}."
        case "literal_error":
            expected = fault["ctx"]["expected"].replace("'", '"')
            return f"Field {name} must be {expected}."
    if not name:
        return "The body must be a JSON object."
    kind = next((words for start, words in _MUST_BE if fault["type"].startswith(start)), "")
    return f"Field {name} must be {kind}." if kind else f"Field {name} has an invalid value."
