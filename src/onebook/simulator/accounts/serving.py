"""The HTTP side of simulated exchange accounts: their hosts, and how clients reach them.

`SimulatedHost` is the common part of the hosts; it is served on a loopback port by `serving`, or
in-process by `SimulatedTransport`.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import ClassVar, Final, NamedTuple

import httpx
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from onebook.simulator.accounts.admission import AccountFaults
from onebook.sockets import send_at_once

LOOPBACK: Final = "127.0.0.1"


class EdgeError(NamedTuple):
    """An error that a proxy or CDN in front of an exchange returns instead of a response."""

    status: int
    body: str
    media_type: str = "text/html"


def cloudflare(status: int) -> EdgeError:
    """Return the error page of Cloudflare for a status."""
    title = f"{status} cloudflare"
    page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
    return EdgeError(status, page)


def path_of(request: Request) -> str:
    """The path of a request, without the rest of its URL, which takes starlette long to parse."""
    path: str = request.scope["path"]
    return path


class SimulatedHost(ABC):
    """A host of a simulated exchange as an ASGI application.

    It counts the requests and injects the transport faults: `slow`, `reset`, `truncated` (half of
    the body) and those in `edge_errors`; a subclass answers, and injects the faults of its API.

    Args:
        now_ms: The exchange's clock.
        sleep: Waits during a slow answer.
        faults: The faults to inject.
    """

    edge_errors: ClassVar[Mapping[str, EdgeError]] = {}

    def __init__(
        self,
        now_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
        faults: AccountFaults | None,
    ) -> None:
        self.faults = faults or AccountFaults()
        self.requests: dict[str, int] = {}
        self.before_page: Callable[[str], None] | None = None
        self._now_ms = now_ms
        self._sleep = sleep

    @abstractmethod
    def _answer(self, request: Request, body: bytes, fault: str) -> Response:
        """Answer a request; `fault` is "" or one of the API's faults."""

    def _path(self, request: Request) -> str:
        """Return the path under which a request is counted and its faults are queued."""
        return path_of(request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve a stream."""
        if scope["type"] == "websocket":
            await self._stream(WebSocket(scope, receive, send))
        elif scope["type"] == "http":
            response = await self._respond(Request(scope, receive))
            await response(scope, receive, send)

    async def _stream(self, socket: WebSocket) -> None:
        """Serve a WebSocket; a host without streams refuses it."""
        await socket.close()

    async def _respond(self, request: Request) -> Response:
        path = self._path(request)
        self.requests[path] = self.requests.get(path, 0) + 1
        fault = self.faults.next(path)
        if fault == "slow":
            await self._sleep(self.faults.slow_s)
        if fault == "reset":
            raise ConnectionResetError("the simulated connection was reset")
        if fault in self.edge_errors:
            error = self.edge_errors[fault]
            return Response(error.body, error.status, media_type=error.media_type)
        response = self._answer(request, await request.body(), fault)
        if fault == "truncated":
            half = response.body[: len(response.body) // 2]
            return Response(half, response.status_code, media_type=response.media_type)
        return response


class LoopbackServer(uvicorn.Server):
    """uvicorn without signal handlers; it ends with its context."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the caller."""
        yield


@asynccontextmanager
async def serving(exchange: ASGIApp) -> AsyncIterator[str]:
    """Serve on a free loopback port within the context; yields the address."""
    listener = socket.create_server((LOOPBACK, 0))
    send_at_once(listener)
    config = uvicorn.Config(
        exchange, log_config=None, lifespan="off", access_log=False, ws="websockets-sansio"
    )
    server = LoopbackServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="simulated exchange")
    try:
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


class SimulatedTransport(httpx.AsyncBaseTransport):
    """httpx transport to an ASGI application, with `latency_s` and connection errors."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        latency_s: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.requests = 0
        self.in_flight = 0
        self._inner = httpx.ASGITransport(app)
        self._latency_s = latency_s
        self._sleep = sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass on a request and return its response."""
        self.requests += 1
        self.in_flight += 1
        try:
            await self._sleep(self._latency_s / 2)
            response = await self._inner.handle_async_request(request)
            await self._sleep(self._latency_s / 2)
            return response
        except ConnectionResetError as error:
            raise httpx.ReadError(str(error), request=request) from None
        finally:
            self.in_flight -= 1
