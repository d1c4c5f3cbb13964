"""Access to a simulated exchange account: a loopback port, or an httpx transport."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import httpx
import uvicorn
from starlette.types import ASGIApp

LOOPBACK: Final = "127.0.0.1"


class LoopbackServer(uvicorn.Server):
    """uvicorn without signal handlers: it ends with its context."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the caller."""
        yield


@asynccontextmanager
async def serving(exchange: ASGIApp) -> AsyncIterator[str]:
    """Serve on a free loopback port within the context; yields the address."""
    listener = socket.create_server((LOOPBACK, 0))
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
        """Pass on a request; returns its response."""
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
