"""uvicorn's server as a part of a process that has an event loop and signal handlers of its own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import uvicorn

DATE_S: Final = 1.0  # how often the Date header is renewed


class EmbeddedServer(uvicorn.Server):
    """uvicorn without its signal handlers and its ten ticks a second, which wake an idle node."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop serving: `serve` closes all connections and returns."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Renew the Date header until the end."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._ending.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: the node decides when it ends."""
        yield
