"""uvicorn embedded in an event loop: ends on request, without its own ticks."""

import asyncio
import socket

import uvicorn

from onebook.http import EmbeddedServer
from onebook.http import server as http_server
from steady import PATIENCE_S


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def test_the_server_ends_at_once_when_asked_and_ticks_only_for_the_date(monkeypatch):
    monkeypatch.setattr(http_server, "DATE_S", 10 * PATIENCE_S)
    config = uvicorn.Config(answer, lifespan="off", log_config=None, ws="none")
    server, ticks = EmbeddedServer(config), []
    on_tick = server.on_tick

    async def ticked(counter):
        ticks.append(counter)
        return await on_tick(counter)

    server.on_tick = ticked
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.timeout(PATIENCE_S):
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answered = await reader.read()
            writer.close()
            assert len(ticks) == 1
            server.end()
            await serving
    assert answered.startswith(b"HTTP/1.1 204")
    assert b"\r\ndate: " in answered
    assert len(ticks) == 2
