"""Middleware around every request, and the request dependencies of routes.

`Edge` adds security headers, metrics and the access log. It logs the route's template, never the
path, because the path of endpoint 3 contains a key. `ErrorAnswers` applies the size limit and
answers unhandled exceptions. CORS is between the two, so that pages of other origins can read every
error. The dependencies authenticate, then apply the rate limit, then parse the body, so that
refused requests are not parsed.
"""

import logging
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Request, Security
from fastapi.responses import Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import Counter, Histogram
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onebook import logs
from onebook.accounts import Decision, RestSession
from onebook.api.problems import error_fields, from_status, from_validation, problem
from onebook.api.services import Services
from onebook.errors import InvalidRequest, NotFound, RequestTooLarge

EXCHANGE: Final = "onebook.exchange"
METRICS_PATH: Final = "/metrics"
UNMATCHED: Final = "unmatched"
BODY_BYTES_MAX: Final = 65_536  # maximum size of a request body
CLIENT_GONE: Final = 499  # nginx's status for a client that disconnected before the response

# Polled every few seconds by monitoring: counted but not logged.
QUIET_ROUTES: Final = frozenset({"/livez", "/readyz", METRICS_PATH, "/api/v1/health"})
# Paths that end in a slash
WITH_SLASH: Final = frozenset({"/", "/api/v1/", "/api/v1/data-usage/"})
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
HSTS: Final = "max-age=31536000"

REQUESTS = Counter("onebook_http_requests", "HTTP answers", ["method", "route", "status"])
SECONDS = Histogram("onebook_http_request_duration_seconds", "Time to answer", ["route"])

access = logging.getLogger(logs.ACCESS)
log = logging.getLogger("onebook.api")

Body = TypeVar("Body", bound=BaseModel)

_scheme = HTTPBearer(
    scheme_name="session",
    bearerFormat="obs_...",
    description="The `session_token` returned by `POST /api/v1/authenticate`; valid for 24 hours.",
    auto_error=False,
)


@dataclass
class RequestRecord:
    """State of one request for its log line, metrics and metered bytes."""

    started_s: float
    scope: Scope
    status: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    decision: Decision | None = None
    key_id: str = ""


class Edge:
    """ASGI middleware around the whole API: headers, log and metrics."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        # HEAD is GET without its body (RFC 9110 section 9.3.2), so one route answers both. The
        # scope is copied, because the server still reads the original method.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        inner = _without_slash(inner)
        inner[EXCHANGE] = exchange = RequestRecord(self._services.clock.monotonic(), inner)
        try:
            await self._app(inner, receive, self._sender(exchange, scope["method"], send))
        finally:
            self._record(exchange, scope["method"])

    def _sender(self, exchange: RequestRecord, method: str, send: Send) -> Send:
        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                self._add_headers(MutableHeaders(scope=message), exchange)
            elif method == "HEAD":
                message = {**message, "body": b""}
            exchange.sent_bytes += len(message.get("body", b""))
            await send(message)

        return adding

    def _add_headers(self, headers: MutableHeaders, exchange: RequestRecord) -> None:
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)
        if exchange.scope["scheme"] == "https":
            headers.setdefault("Strict-Transport-Security", HSTS)
        if _framed_twice(exchange.scope):
            headers["Connection"] = "close"  # its end is unknown (RFC 9112 section 6.1)
        if exchange.decision is not None:
            headers.update(exchange.decision.headers())

    def _record(self, exchange: RequestRecord, method: str) -> None:
        route, spent_s = (
            template(exchange.scope),
            self._services.clock.monotonic() - exchange.started_s,
        )
        method = method if method in METHODS else "other"
        REQUESTS.labels(method, route, exchange.status).inc()
        SECONDS.labels(route).observe(spent_s)
        level = logging.DEBUG if route in QUIET_ROUTES else logging.INFO
        fields = logs.fields(
            client_address=_client(exchange.scope),
            key_id=exchange.key_id,
            method=method,
            route=route,
            status=exchange.status,
            duration_ms=round(spent_s * 1e3, 1),
            sent_bytes=exchange.sent_bytes,
            received_bytes=exchange.received_bytes,
        )
        access.log(level, "%s %s %d", method, route, exchange.status, extra=fields)


class ErrorAnswers:
    """ASGI middleware that rejects invalid requests and answers exceptions of routes."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, even if its route raises an exception."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        exchange: RequestRecord = scope[EXCHANGE]
        try:
            if not self._answered_here(scope):
                raise from_status(404)
            if _framed_twice(scope):
                raise InvalidRequest("Send Content-Length or Transfer-Encoding, not both.")
            if _declared_bytes(scope) > BODY_BYTES_MAX:
                raise self._too_large()
            await self._app(scope, self._receiver(exchange, receive), send)
        except ClientDisconnect:
            exchange.status = exchange.status or CLIENT_GONE
        except (RequestTooLarge, InvalidRequest, NotFound) as error:
            await self._problem(error, scope, receive, send)
        except Exception:
            log.exception("Unhandled exception in %s", template(scope))
            if exchange.status:
                raise  # the response has begun, so the connection can only be aborted
            await self._problem(from_status(500), scope, receive, send)

    def _answered_here(self, scope: Scope) -> bool:
        """Return whether this port serves a path; `/metrics` may have its own port."""
        port = self._services.metrics_port
        return port is None or (scope["server"][1] == port) == (scope["path"] == METRICS_PATH)

    async def _problem(self, error: Any, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response = problem(
            error, now_ms=self._services.clock.wall_ms(), fields=error_fields(scope)
        )
        await answer(scope, receive, send)

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"The request body may hold at most {BODY_BYTES_MAX:,} bytes.")

    def _receiver(self, exchange: RequestRecord, receive: Receive) -> Receive:
        async def counting() -> Message:
            message = await receive()
            exchange.received_bytes += len(message.get("body", b""))
            if exchange.received_bytes > BODY_BYTES_MAX:
                raise self._too_large()
            return message

        return counting


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def template(scope: Scope) -> str:
    """Return the path template of the route that answered."""
    path: str = getattr(scope.get("route"), "path", UNMATCHED)
    return path.replace(":path}", "}")


def _without_slash(scope: Scope) -> Scope:
    """Remove one trailing slash; a path with two stays unknown."""
    path: str = scope["path"]
    if not path.endswith("/") or path.endswith("//") or path in WITH_SLASH:
        return scope
    return {**scope, "path": path[:-1], "raw_path": scope.get("raw_path", b"").removesuffix(b"/")}


def _framed_twice(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers and "content-length" in headers


def _declared_bytes(scope: Scope) -> int:
    declared = Headers(scope=scope).get("content-length", "")
    return int(declared) if declared.isascii() and declared.isdigit() else 0


async def services(request: Request) -> Services:
    """Return the services of this app."""
    found: Services = request.app.state.services
    return found


Parts = Annotated[Services, Depends(services)]
# Declares bearer authentication in OpenAPI; `accounts.session` reads the header.
Documented = Annotated[HTTPAuthorizationCredentials | None, Security(_scheme)]


def address(request: Request) -> str:
    """Return the client address as reported by the server or a trusted proxy."""
    return request.client.host if request.client else "unknown"


async def caller(request: Request, parts: Parts, documented: Documented) -> RestSession:
    """Authenticate a Bearer request and count it against the rate limit of its key."""
    given = request.headers.getlist("authorization")
    # Several headers form one comma-separated list (RFC 9110 section 5.3), which is not a token.
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
    exchange.decision = decision  # `Edge` writes its headers, whatever the answer will be
    decision.require("requests")


async def read_body(request: Request, model: type[Body]) -> Body:
    """Parse the JSON body into a model, with strict types.

    Raises:
        InvalidRequest: The body is invalid; the message names the field.
        RequestTooLarge: The body exceeds the limit.
    """
    try:
        return model.model_validate_json(await request.body(), strict=True)
    except ValidationError as error:
        raise from_validation(error) from None


def body_schema(model: type[BaseModel]) -> dict[str, object]:
    """The OpenAPI `requestBody` of a route that uses `read_body`."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
