"""Endpoints 8 and 9, and the probes `/livez`, `/readyz` and `/metrics`."""

import hmac
import re
from ipaddress import ip_address
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from msgspec.structs import replace

from onebook import __version__
from onebook.api.bodies import HealthReport, Root, RootAuthentication, errors
from onebook.api.edge import ByAddress, Parts
from onebook.api.services import HealthFacts, Services
from onebook.clock import iso_ms
from onebook.errors import (
    InternalError,
    MissingAuthorization,
    NotFound,
    RateLimitExceeded,
    UpgradeRequired,
)
from onebook.metrics import TEXT_TYPE
from onebook.transactions.availability import Availability

WEBSOCKET_PATH = "/api/v1/ws"
FEATURES = (
    "Live order books merged from many exchanges, over WebSocket",
    "Attribution: exchanges and amounts at each price level",
    "Invalid books are removed from the view at once, with the reason",
    "Full books or deltas with checksums, with selectable interval and compression",
    "Transactions of exchange accounts in one format over REST",
    "50 GB per month and key, with live usage",
)
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")

# Headers of proxies: nginx (as in deploy/), Caddy, Traefik, HAProxy and load balancers set at least
# one of them.
PROXY_HEADERS: Final = ("x-forwarded-for", "forwarded", "via", "x-real-ip", "x-forwarded-proto")

UPGRADE_HEADERS = {
    "Upgrade": "websocket",
    "Connection": "Upgrade, close",
    "Sec-WebSocket-Version": "13",  # RFC 6455 section 4.4
}
_MEANING = {
    Availability.REFUSED: "the exchange refused the credentials.",
    Availability.UNREACHABLE: "the exchange could not be reached.",
    Availability.UNKNOWN: "the database does not answer.",
}

router = APIRouter(tags=["service"])
machines = APIRouter(include_in_schema=False)


async def facts_of(parts: Services) -> tuple[HealthFacts, list[str]]:
    """Return the state of the node and the exchanges whose transactions are available.

    Missing credentials are the operator's choice. Refused credentials and unreachable exchanges are
    problems.
    """
    facts = parts.health()
    availability = await parts.transactions.availability.all() if facts.ready else {}
    problems = [
        f"Transactions of {name}: {_MEANING[state]}"
        for name, state in availability.items()
        if state in _MEANING
    ]
    able = [name for name, state in availability.items() if state is Availability.OPERATIONAL]
    return replace(facts, problems=(*facts.problems, *problems)), able


@router.get(
    "/api/v1/health",
    summary="Health of the service",
    responses=errors(InternalError),
)
async def health(parts: Parts) -> HealthReport:
    """Return whether the service is healthy, degraded or draining.

    `unified_api` is operational while transactions of at least one exchange are available: its
    credentials are set, and the exchange accepted them last time.
    """
    facts, able = await facts_of(parts)
    return HealthReport(
        status=facts.status,
        unified_api="operational" if able else "unavailable",
        available_exchanges=able,
        supported_exchanges=len(parts.transactions.exchanges),
        timestamp=iso_ms(parts.clock.wall_ms()),
        websocket_endpoint=WEBSOCKET_PATH,
        active_exchanges=facts.active_exchanges,
        version=__version__,
    )


@router.get(
    "/api/v1/",
    summary="What this service is",
    dependencies=[ByAddress],
    responses=errors(RateLimitExceeded, InternalError),
)
@router.get("/api/v1", include_in_schema=False, dependencies=[ByAddress])
async def root(request: Request, parts: Parts) -> Root:
    """Return where to connect and how to authenticate."""
    example = websocket_url(base_url(request, parts))
    return Root(
        message="Onebook: one live order book across exchanges, one ledger across accounts.",
        websocket_endpoint=WEBSOCKET_PATH,
        authentication=RootAuthentication(method="API key", parameter=_parameter(parts)),
        connection_example=example + ("?api_key=YOUR_API_KEY" if parts.query_key_allowed else ""),
        features=list(FEATURES),
        documentation="/docs",
    )


def _parameter(parts: Services) -> str:
    way = 'api_key of the first message: {"type": "authenticate", "api_key": "..."}'
    if not parts.query_key_allowed:
        return way
    return f"{way}. The query parameter api_key is the older way, but URLs end up in logs"


def websocket_url(base: str) -> str:
    """Return the WebSocket URL of a service with an HTTP URL."""
    return "ws" + base.rstrip("/").removeprefix("http") + WEBSOCKET_PATH


def base_url(request: Request, parts: Services) -> str:
    """Return the public URL of this service: as configured, or from the request's Host header."""
    if parts.settings.public_url:
        return parts.settings.public_url.rstrip("/")
    host = request.headers.get("host", "")
    # Use the client's Host header only if it is well-formed.
    return f"{request.url.scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"


@router.get("/api/v1/ws", include_in_schema=False)
async def websocket() -> None:
    """Refuse a plain HTTP request; the server handles upgrades before routing."""
    raise UpgradeRequired(
        "This path serves WebSocket connections only: use a WebSocket client.",
        headers=UPGRADE_HEADERS,
    )


@machines.get("/livez")
async def livez() -> JSONResponse:
    """Liveness probe: the event loop is running."""
    return JSONResponse({"live": True})


@machines.get("/readyz")
async def readyz(parts: Parts) -> JSONResponse:
    """Readiness probe: 503 while starting, unhealthy or draining."""
    facts, _ = await facts_of(parts)
    ready = facts.ready and not facts.draining
    problems = [*facts.problems, *(["The node is draining."] if facts.draining else [])]
    body = {"ready": ready, "status": facts.status, "problems": problems}
    return JSONResponse(body, 200 if ready else 503)


@machines.get("/metrics")
async def metrics(request: Request, parts: Parts) -> Response:
    """Return all metrics in the Prometheus text format, if the client is allowed to see them."""
    require_scraper(
        request,
        token=parts.metrics_token,
        private=parts.metrics_port is not None,  # `edge.py` then answers only on that port
    )
    return Response(await parts.exposition.text(), media_type=TEXT_TYPE)


def require_scraper(request: Request, *, token: str, private: bool) -> None:
    """Allow metrics only with the token, or to direct requests from this machine.

    Args:
        token: Value of `server.metrics_token`; "" if none is set.
        private: Whether the request arrived at the separate metrics port, which requires only a
        token.

    Raises:
        MissingAuthorization: The token is absent or wrong.
        NotFound: The request is from another machine and no token is set.
    """
    if _from_here(request) or (private and not token):
        return
    if not token:
        raise NotFound(
            "/metrics is available from this machine, at server.metrics_port, or with the token "
            "of server.metrics_token."
        )
    given = request.headers.get("authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise MissingAuthorization("/metrics requires the token of server.metrics_token.")


def _from_here(request: Request) -> bool:
    """Return whether a request is from this machine, without the header that a proxy adds."""
    if any(name in request.headers for name in PROXY_HEADERS):
        return False
    try:
        return request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False
