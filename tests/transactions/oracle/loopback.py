"""HTTP exchanges of the oracles on loopback ports, for commands in processes of their own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Answer = Callable[[asyncio.StreamReader], Awaitable[bytes | None]]


@asynccontextmanager
async def listening_on_loopback(answer: Answer) -> AsyncIterator[str]:
    """Serve an exchange on a free loopback port; yields the URL.

    Args:
        answer: Reads one request and returns its answer; None ends the connection.
    """
    served: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served[asyncio.current_task()] = writer
        try:
            while (answered := await answer(reader)) is not None:
                writer.write(answered)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in served.values():
            writer.close()
        await asyncio.gather(*filter(None, served))
