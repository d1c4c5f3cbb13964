"""A node without clients, and its HTTP port: `/livez`, `/readyz` and `/metrics`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from socket import socket
from typing import ClassVar, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from onebook import http
from onebook.api.status import require_scraper
from onebook.config import ServerSettings
from onebook.errors import OnebookError
from onebook.gateway.scheduler import TURN_S, Turns
from onebook.gateway.upgrade import AddressLimiter
from onebook.metrics import TEXT_TYPE, Exposition
from onebook.nodes.presence import Presence

CONNECTIONS_MAX: Final = 64  # for probes and Prometheus
ANSWER_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class ProbedNode:
    """A running node without clients."""

    address: tuple[str, int]
    presence: Presence
    lost_bytes: ClassVar[int] = 0  # it has no metering

    @property
    def url(self) -> str:
        """The address of its health and metrics endpoints."""
        return "http://{}:{}".format(*self.address)

    def ready(self) -> bool:
        """Return whether NATS is reachable."""
        return self.presence.members.connected


@asynccontextmanager
async def probed(
    server: ServerSettings, listener: socket, *, ready: Callable[[], bool]
) -> AsyncIterator[None]:
    """Serve health checks and metrics on a private port; `ready` is whether NATS is reachable."""
    turns = Turns(
        turn_s=TURN_S,
        monotonic=time.monotonic,
        call_soon=asyncio.get_running_loop().call_soon,
    )
    limits = {"http_connections_max": CONNECTIONS_MAX}
    async with http.serving(
        _application(server.metrics_token.get_secret_value(), ready),
        listener,
        websocket=None,
        turns=turns,
        address_limiter=AddressLimiter(0),
        connections_max=lambda: 0,
        forwarded_from=(),
        tls=None,
        settings=server.model_copy(update=limits),
        answer_timeout_s=ANSWER_TIMEOUT_S,
    ):
        yield


def _application(token: str, ready: Callable[[], bool]) -> FastAPI:
    application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    exposition = Exposition()

    @application.get("/livez")
    async def livez() -> JSONResponse:
        return JSONResponse({"live": True})

    @application.get("/readyz")
    async def readyz() -> JSONResponse:
        """Report ready while NATS is reachable."""
        reachable = ready()
        problems = [] if reachable else ["NATS is unreachable."]
        return JSONResponse({"ready": reachable, "problems": problems}, 200 if reachable else 503)

    @application.get("/metrics")
    async def metrics(request: Request) -> Response:
        try:
            require_scraper(request, token=token, private=True)
        except OnebookError as error:
            return JSONResponse({"error": error.code, "message": error.message}, error.status)
        return Response(await exposition.text(), media_type=TEXT_TYPE)

    return application
