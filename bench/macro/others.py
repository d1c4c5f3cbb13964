"""The same fan-out without the product: the floor, and the peers' own broadcasts.

    others.py KIND CLIENTS SIZE [STREAMS]

`floor` is one send() per client from C, its frames of a tick joined; `uvicorn` is an ASGI
application on uvicorn with the websockets library, awaiting each client's send; `websockets` is
that library's `broadcast()`. Same sink, same cores, same pace and same counting as the product;
the payload is text of the product's size and stays the same, so that no peer pays for making it.
"""

import array
import asyncio
import ctypes
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable

import load
import uvicorn
import uvloop
from fanout import BLOCKS, MESSAGES_PER_BLOCK, PAUSE_S, POLL_S, TICKS_MIN
from uvicorn.server import ServerState
from websockets.asyncio.server import ServerConnection, broadcast, serve

from timing import report

TEXTS = {1: '{"type":"aggregated_orderbook_update","x":"%s"}', 12: '{"data":"%s"}'}
WIRE_BYTES = {1: 1_016, 12: 12_160}  # what the product sends for these
HEADER_BYTES = 4
BACKLOG = 4_096
SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"  # the sink's key is fixed
)
NAMES = {
    "floor": "C send()",
    "uvicorn": "uvicorn + websockets",
    "websockets": "websockets broadcast()",
}


def payload(size: int) -> str:
    wanted = WIRE_BYTES[size] - HEADER_BYTES
    return TEXTS[size] % ("x" * (wanted - len(TEXTS[size]) + 2))


def frame(size: int) -> bytes:
    data = payload(size).encode()
    return b"\x81\x7e" + len(data).to_bytes(2, "big") + data


def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)


def floor(clients: int, size: int, streams: int) -> float:
    """One thread that does nothing but send()."""
    send_each = ctypes.CDLL(load.FLOOR).send_each
    data = frame(size) * streams
    with listener() as listening, load.Sink(listening.getsockname()[1], clients) as sink:
        sockets = [_accepted(listening) for _ in range(clients)]
        handles = array.array("i", [each.fileno() for each in sockets])
        pointer = ctypes.c_void_p(handles.buffer_info()[0])
        length = ctypes.c_long(len(data))
        count, blocks = _ticks(clients, streams), load.Blocks()
        for _ in range(BLOCKS):
            blocks.begin()
            for _ in range(count):
                expected = sink.received + len(data) * clients
                assert send_each(pointer, clients, data, length) == clients
                time.sleep(PAUSE_S)
                while sink.received < expected:
                    time.sleep(POLL_S)
            blocks.end(count * clients * streams)
        for each in sockets:
            each.close()
    return blocks.median


def _accepted(listening: socket.socket) -> socket.socket:
    connection, _ = listening.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    heard = b""
    while not heard.endswith(b"\r\n\r\n"):
        heard += connection.recv(4_096)
    connection.sendall(SWITCHING)
    connection.setblocking(False)
    return connection


def _ticks(clients: int, streams: int) -> int:
    return max(TICKS_MIN, MESSAGES_PER_BLOCK // clients // streams)


async def drive(
    sink: load.Sink, broadcast: Callable[[], Awaitable[None] | None], wire: int
) -> float:
    """Broadcast, wait until it arrived, and repeat."""
    count, blocks = _ticks(sink.clients, 1), load.Blocks()
    for _ in range(BLOCKS + 1):
        blocks.begin()
        for _ in range(count):
            expected = sink.received + wire * sink.clients
            waiting = broadcast()
            if waiting is not None:
                await waiting
            await asyncio.sleep(PAUSE_S)
            while sink.received < expected:
                await asyncio.sleep(POLL_S)
        blocks.end(count * sink.clients)
    del blocks.costs[0]  # it warmed up
    return blocks.median


async def all_here(sink: load.Sink, connections: list) -> None:
    while len(connections) < sink.clients or sink.connected < sink.clients:
        sink.check()
        await asyncio.sleep(0.05)


async def with_websockets(clients: int, size: int) -> float:
    connections: list[ServerConnection] = []
    text = payload(size)

    async def handler(connection: ServerConnection) -> None:
        connections.append(connection)
        await connection.wait_closed()

    options = {"compression": None, "ping_interval": None, "backlog": BACKLOG}
    async with serve(handler, "127.0.0.1", 0, **options) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with load.Sink(port, clients) as sink:
            await all_here(sink, connections)
            return await drive(sink, lambda: broadcast(connections, text), len(frame(size)))


async def with_uvicorn(clients: int, size: int) -> float:
    sends: list[Callable[[dict], Awaitable[None]]] = []
    message = {"type": "websocket.send", "text": payload(size)}

    async def application(scope: dict, receive: Callable, send: Callable) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        sends.append(send)
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def broadcast() -> None:
        for send in sends:
            await send(message)

    config = uvicorn.Config(
        application, ws="websockets", lifespan="off", log_config=None,
        ws_per_message_deflate=False, ws_ping_interval=None,
    )  # fmt: skip
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
        sock=listener(),
    )
    port = server.sockets[0].getsockname()[1]
    with load.Sink(port, clients) as sink:
        await all_here(sink, sends)
        return await drive(sink, broadcast, len(frame(size)))


def done(kind: str, clients: int, size: int, streams: int, cost: float) -> None:
    """Report and leave at once: thousands of clients need no goodbye."""
    row = f"fan-out {size} KB to {clients} clients, {streams} a tick"
    report(row, {NAMES[kind]: cost}, "us a message")
    os._exit(0)


def main() -> None:
    kind, clients, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    streams = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    load.settle_on(0)
    load.lift_file_limit(2 * clients + 1_000)
    if kind == "floor":
        done(kind, clients, size, streams, floor(clients, size, streams))

    async def served() -> None:
        serving = {"uvicorn": with_uvicorn, "websockets": with_websockets}[kind]
        done(kind, clients, size, streams, await serving(clients, size))

    uvloop.run(served())


if __name__ == "__main__":
    main()
