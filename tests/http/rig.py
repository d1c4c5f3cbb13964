"""A server on its own port, and clients that send anything."""

import asyncio
import json
import socket
import time
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from prometheus_client import REGISTRY

from onebook import http
from onebook.config import ServerSettings
from onebook.gateway.scheduler import Turns
from onebook.gateway.upgrade import AddressLimiter
from onebook.http import HttpTimeouts
from steady import PATIENCE_S

BIG = b"x" * 20_000_000
QUICK = HttpTimeouts(header_s=0.5, body_s=0.5, write_s=0.5, idle_s=1.0)


async def application(scope, receive, send):
    """Answers with a small page, with the length of a body, or with a very big page."""
    body = b"small"
    if scope["path"] == "/big":
        body = BIG
    elif scope["method"] == "POST" and scope["path"] != "/early":
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message["body"])
            if not message["more_body"]:
                break
        body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    if scope["path"] == "/never":  # while there is a client: the end of a server waits for it
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    if scope["path"] == "/early":  # the body is still on its way
        body = b"early"
        headers = [(b"content-length", b"5")]
    if scope["path"] == "/left":  # as endpoint 10 does with a client that reads nothing
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(20):
            body = {"type": "http.response.body", "body": BIG[:1_000_000], "more_body": True}
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await send(body)
                    continue
            return
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for at in range(0, len(body), 100_000):
        last = at + 100_000 >= len(body)
        await send(
            {"type": "http.response.body", "body": body[at : at + 100_000], "more_body": not last}
        )


class Upgraded(asyncio.Protocol):
    """An echo that takes over an upgraded socket, as the gateway's protocol does."""

    def __init__(self, config, server_state, app_state):
        self.slots = ()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def hold_slot(self, slot):
        self.slots += (slot,)

    def pace_reading(self):
        pass

    def connection_lost(self, exc):
        for slot in self.slots:
            slot.leave()


@asynccontextmanager
async def served(
    *,
    connections_max=100,
    addresses_max=0,
    trusted=False,
    turn_s=0.001,
    tls=None,
    answer_timeout_s=60.0,
    timeouts=QUICK,
    **settings,
):
    """A port; its clients are untrusted unless stated."""
    address_limiter = AddressLimiter(0, sockets_per_address_max=addresses_max)
    if not trusted:
        address_limiter.trusts = lambda peer: False
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with http.serving(
            application,
            listener,
            websocket=Upgraded,
            turns=Turns(
                turn_s=turn_s,
                monotonic=time.monotonic,
                call_soon=asyncio.get_running_loop().call_soon,
            ),
            address_limiter=address_limiter,
            connections_max=lambda: connections_max,
            forwarded_from=(),
            tls=tls,
            answer_timeout_s=answer_timeout_s,
            timeouts=timeouts,
            settings=ServerSettings(**settings),
        ):
            yield listener.getsockname()[1]


class Peer:
    """A client that sends anything."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self):
        """All bytes until the server closes."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@asynccontextmanager
async def peer_of(port, **options):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


def problem(answer):
    """The body of an error, in the form that every error of the service has."""
    head, _, content = answer.partition(b"\r\n\r\n")
    assert b"\r\nContent-Type: application/json\r\n" in head
    body = json.loads(content)
    assert list(body) == ["error", "message", "timestamp"]
    assert body["message"].endswith(".")
    assert datetime.fromisoformat(body["timestamp"]).tzinfo
    return body


def measured(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0
