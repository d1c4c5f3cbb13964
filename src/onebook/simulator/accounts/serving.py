"""A simulated exchange on a loopback port, for clients that need a socket."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

LOOPBACK: Final = "127.0.0.1"


class LoopbackServer(uvicorn.Server):
    """uvicorn without its signal handlers: leaving the context ends it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the caller."""
        yield


@asynccontextmanager
async def serving(exchange: ASGIApp) -> AsyncIterator[str]:
    """Answer on a free loopback port for as long as the context lasts; the address comes out."""
    listener = socket.create_server((LOOPBACK, 0))
    config = uvicorn.Config(exchange, log_config=None, lifespan="off", access_log=False)
    server = LoopbackServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="simulated exchange")
    try:
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()
