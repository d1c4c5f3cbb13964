"""The REST API as an ASGI application: routes, error answers, documents."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from onebook import __version__
from onebook.api import exchanges, sessions, status, transactions, usage
from onebook.api.documents import describe
from onebook.api.edge import Edge
from onebook.api.problems import from_status, problem
from onebook.api.services import Services
from onebook.errors import OnebookError

ROUTERS = (
    sessions.router,
    usage.router,
    exchanges.router,
    transactions.router,
    status.router,
    status.machines,
)
RATE_HEADERS = (
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)


def create_app(services: Services) -> FastAPI:
    """Make the application of one node."""
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
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(OnebookError, _ours)
    app.add_exception_handler(HTTPException, _frameworks)
    app.add_exception_handler(RequestValidationError, _frameworks)
    if services.settings.cors_origins:
        _allow_origins(app, services.settings.cors_origins)
    app.add_middleware(Edge, services=services)
    describe(app, services)
    return app


def _allow_origins(app: FastAPI, origins: tuple[str, ...]) -> None:
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=RATE_HEADERS,
    )


def _ours(request: Request, error: Any) -> Response:
    now_ms = request.app.state.services.now_ms()
    return problem(error, now_ms=now_ms, path=request.url.path)


def _frameworks(request: Request, error: Any) -> Response:
    """What Starlette and FastAPI raise by themselves, in our words."""
    found = from_status(getattr(error, "status_code", 400))
    headers = dict(getattr(error, "headers", None) or {})
    if headers.get("Allow") == "GET":
        headers["Allow"] = "GET, HEAD"  # `edge.py` makes every GET answer HEAD
    now_ms = request.app.state.services.now_ms()
    return problem(found, now_ms=now_ms, path=request.url.path, headers=headers)
