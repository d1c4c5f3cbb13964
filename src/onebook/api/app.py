"""The REST API as an ASGI application: routes, error answers, documents."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from onebook import __version__
from onebook.api import fees, history, orderbooks, quality, sessions, status, transactions
from onebook.api.documents import describe
from onebook.api.edge import Edge, ErrorAnswers
from onebook.api.problems import error_fields, from_status, problem
from onebook.api.services import Services
from onebook.errors import OnebookError, OriginNotAllowed

ROUTERS = (
    sessions.router,
    fees.router,
    orderbooks.router,
    history.router,
    quality.router,
    sessions.usage,
    transactions.capabilities,
    transactions.router,
    status.router,
    status.machines,
)
BODY_HEADERS = frozenset({"content-length", "content-type"})
RATE_HEADERS = (
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)


def create_app(services: Services) -> FastAPI:
    """Create the application of one node."""
    app = FastAPI(
        title="Onebook",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.services = services
    app.state.routes = [route for router in ROUTERS for route in router.routes]
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(OnebookError, _ours)
    app.add_exception_handler(HTTPException, _frameworks)
    app.add_exception_handler(RequestValidationError, _frameworks)
    app.add_middleware(ErrorAnswers, services=services)
    if services.settings.cors_origins:
        _allow_origins(app, services.settings.cors_origins)
    app.add_middleware(Edge, services=services)
    describe(app, services)
    return app


class Cors(CORSMiddleware):
    """Starlette's CORS middleware, with our error body for refused preflights."""

    def __init__(self, app: ASGIApp, /, services: Services, **options: Any) -> None:
        super().__init__(app, **options)
        self._now_ms = services.clock.wall_ms

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a CORS preflight request."""
        answer = super().preflight_response(request_headers)
        if answer.status_code < HTTPStatus.BAD_REQUEST:
            return answer
        # Starlette lists the refused parts: "Disallowed CORS origin, method".
        refused = bytes(answer.body).decode().partition("CORS ")[2] or "origin"
        kept = {name: value for name, value in answer.headers.items() if name not in BODY_HEADERS}
        error = OriginNotAllowed(f"Cross-origin request refused: {refused}.")
        return problem(error, now_ms=self._now_ms(), headers=kept)


def _allow_origins(app: FastAPI, origins: tuple[str, ...]) -> None:
    app.add_middleware(
        Cors,
        services=app.state.services,
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=(*RATE_HEADERS, *transactions.FILE_HEADERS),
    )


def _ours(request: Request, error: Any) -> Response:
    now_ms = request.app.state.services.clock.wall_ms()
    return problem(error, now_ms=now_ms, fields=error_fields(request.scope))


def _frameworks(request: Request, error: Any) -> Response:
    """Convert exceptions of Starlette and FastAPI to our error bodies."""
    found = from_status(getattr(error, "status_code", 400))
    headers = dict(getattr(error, "headers", None) or {})
    if headers.get("Allow") == "GET":
        headers["Allow"] = "GET, HEAD"  # `edge.py` makes every GET answer HEAD
    now_ms = request.app.state.services.clock.wall_ms()
    fields = error_fields(request.scope)
    return problem(found, now_ms=now_ms, fields=fields, headers=headers)
