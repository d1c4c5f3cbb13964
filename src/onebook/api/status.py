"""Endpoints 8 and 9, and what machines ask: `/livez`, `/readyz`, `/metrics`."""

import re

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from onebook import __version__
from onebook.api.bodies import HealthReport, Root, RootAuthentication, errors
from onebook.api.context import ByAddress, Parts
from onebook.api.problems import iso
from onebook.api.services import Services

WEBSOCKET_PATH = "/api/v1/ws"
FEATURES = (
    "One order book merged from many exchanges, live over WebSocket",
    "Levels that say which exchanges stand at a price, and with how much",
    "An exchange whose book cannot be trusted leaves the view at once, and says why",
    "Full books or deltas with checksums, paced and compressed as a client asks",
    "Transactions of exchange accounts in one format over REST",
    "50 GB a month for every key, with live usage",
)
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")

router = APIRouter(tags=["service"])
machines = APIRouter(include_in_schema=False)


@router.get("/api/v1/health", summary="Health of the service", responses=errors(500))
async def health(parts: Parts) -> HealthReport:
    """Answer whether the service is healthy, degraded (something is missing) or draining."""
    facts = parts.health()
    names = [exchange.name for exchange in parts.transactions.exchanges]
    return HealthReport(
        status=facts.status,
        unified_api="operational" if facts.ready else "unavailable",
        available_exchanges=names,
        supported_exchanges=len(names),
        timestamp=iso(parts.now_ms()),
        websocket_endpoint=WEBSOCKET_PATH,
        active_exchanges=facts.active_exchanges,
        version=__version__,
    )


@router.get(
    "/api/v1/",
    summary="What this service is",
    dependencies=[ByAddress],
    responses=errors(429, 500),
)
@router.get("/api/v1", include_in_schema=False, dependencies=[ByAddress])
async def root(request: Request, parts: Parts) -> Root:
    """Answer where to connect and how to authenticate."""
    return Root(
        message="Onebook: one live order book across exchanges, one ledger across accounts.",
        websocket_endpoint=WEBSOCKET_PATH,
        authentication=RootAuthentication(method="API key", parameter=_parameter(parts)),
        connection_example=websocket_url(parts.settings.public_url or _own_address(request)),
        features=list(FEATURES),
        documentation="/docs",
    )


def _parameter(parts: Services) -> str:
    way = 'api_key of the first message: {"type": "authenticate", "api_key": "..."}'
    if not parts.query_key_allowed:
        return way
    return f"{way}. The query parameter api_key is the older way: a URL ends up in logs"


def websocket_url(base: str) -> str:
    """The address of the WebSocket of a service, from its HTTP address."""
    return "ws" + base.rstrip("/").removeprefix("http") + WEBSOCKET_PATH


def _own_address(request: Request) -> str:
    host = request.headers.get("host", "")
    # A Host header is the client's word: it comes back only if it looks like one.
    return f"{request.url.scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"


@machines.get("/livez")
async def livez() -> JSONResponse:
    """Say that the event loop turns."""
    return JSONResponse({"live": True})


@machines.get("/readyz")
async def readyz(parts: Parts) -> JSONResponse:
    """Say whether to send clients here: 503 while starting, broken or draining."""
    facts = parts.health()
    ready = facts.ready and not facts.draining
    problems = [*facts.problems, *(["The node is draining."] if facts.draining else [])]
    return JSONResponse({"ready": ready, "problems": problems}, 200 if ready else 503)


@machines.get("/metrics")
async def metrics() -> Response:
    """Write every metric in the Prometheus text format."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
