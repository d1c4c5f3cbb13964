"""The simulated Bybit on a loopback port, for clients that need a socket and for the demo."""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

import uvicorn

from onebook.model import DAY_MS
from onebook.simulator.bybit_account.history import Account, History
from onebook.simulator.bybit_account.keys import SimulatedKey
from onebook.simulator.bybit_account.server import SimulatedBybit

LOOPBACK = "127.0.0.1"
DEMO_DAYS = 90


class Place(NamedTuple):
    """Where it is, and a key that opens it."""

    url: str
    key: SimulatedKey
    exchange: SimulatedBybit


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: whoever entered the context ends it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(exchange: SimulatedBybit) -> AsyncIterator[str]:
    """Answer on a free loopback port for as long as the context lasts; the address comes out."""
    listener = socket.create_server((LOOPBACK, 0))
    config = uvicorn.Config(exchange, log_config=None, lifespan="off", access_log=False)
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="simulated bybit")
    try:
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


@asynccontextmanager
async def demo() -> AsyncIterator[Place]:
    """An account of ninety days behind a key made for this moment."""
    now_ms = time.time_ns() // 1_000_000
    key = SimulatedKey(f"demo{secrets.token_hex(8)}", secrets.token_hex(18))
    account = Account(History(now_ms - DEMO_DAYS * DAY_MS, now_ms))
    exchange = SimulatedBybit(account, [key])
    async with serving(exchange) as url:
        yield Place(url, key, exchange)
