"""Upgrades over real sockets: which are accepted, and the HTTP answers to the others."""

import asyncio
import re
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from websockets.server import ServerProtocol

from gateway.attack import text
from gateway.helpers import refused
from gateway.rig import PATIENCE_S, gateway, parse, settled
from onebook.gateway.upgrade import Handshake, Upgrader

UPGRADE = (
    b"Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)

VERSION_13 = b"Sec-WebSocket-Version: 13\r\n"

GET = b"GET /api/v1/ws HTTP/1.1\r\n"


async def test_any_other_path_is_404(node):
    response = await refused(f"ws://127.0.0.1:{node.port}/api/v1/wss")
    assert response.status_code == HTTPStatus.NOT_FOUND
    assert parse(response.body)["error"] == "not_found"


async def test_more_than_60_attempts_a_minute_from_one_address_are_429(tmp_path):
    async with gateway(tmp_path, connects_per_minute=2) as node:
        for _ in range(2):
            async with node.client():
                pass
        response = await refused(node.url)
        assert response.status_code == HTTPStatus.TOO_MANY_REQUESTS
        wait_s = response.headers["Retry-After"]
        assert 1 <= int(wait_s) <= 30
        assert response.headers["RateLimit-Policy"] == '"connects";q=2;w=60'
        assert response.headers["RateLimit"] == f'"connects";r=0;t={wait_s}'
        assert parse(response.body)["message"].endswith(f"try again in {wait_s} s.")
        assert re.search(r"\.\d{3}Z$", parse(response.body)["timestamp"])
        async with node.client(additional_headers={"X-Forwarded-For": "198.51.100.7"}):
            pass


async def test_only_listed_origins_may_come_from_a_browser(tmp_path):
    async with gateway(tmp_path, origins=("https://books.example",)) as node:
        response = await refused(node.url, origin="https://evil.example")
        assert response.status_code == HTTPStatus.FORBIDDEN
        assert parse(response.body)["error"] == "origin_not_allowed"
        async with node.client(origin="https://books.example"), node.client():
            pass


@pytest.mark.parametrize(
    ("request_bytes", "status", "error"),
    [
        (GET + UPGRADE + b"Sec-WebSocket-Version: 8\r\n\r\n", 426, "upgrade_required"),
        (GET + UPGRADE + b"\r\n", 426, "upgrade_required"),
        (GET + UPGRADE.partition(b"Sec-")[0] + VERSION_13 + b"\r\n", 400, "invalid_request"),
        (GET + UPGRADE + VERSION_13 + b"Content-Length: 5\r\n\r\nhello", 400, "invalid_request"),
        (
            GET + UPGRADE + VERSION_13 + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            400,
            "invalid_request",
        ),
        (GET + UPGRADE + VERSION_13 + b"X: a\r\n" * 200 + b"\r\n", 400, "invalid_request"),
        (
            b"GET /api/v1/ws?" + b"a" * 9_000 + b" HTTP/1.1\r\n" + UPGRADE + VERSION_13 + b"\r\n",
            414,
            "request_too_large",
        ),
        (b"POST" + GET[3:] + UPGRADE + VERSION_13 + b"\r\n", 405, "method_not_allowed"),
        (
            b"GET /ob_live_" + b"a" * 49 + GET[14:] + UPGRADE + VERSION_13 + b"\r\n",
            404,
            "not_found",
        ),
    ],
)
async def test_every_refused_upgrade_is_answered_in_json_and_closed(
    node, request_bytes, status, error
):
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(request_bytes)
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert parse(body)["error"] == error
    assert b"aaaaaaaa" not in body
    assert (b"Sec-WebSocket-Version: 13" in head) is (status == 426)


async def test_one_trailing_slash_of_the_path_is_ignored(node):
    async with node.client(query="/") as client:
        assert (await client.next())["type"] == "welcome"


async def test_compression_is_without_context_takeover_or_off(tmp_path, node):
    async with node.client(compression="deflate") as client:
        answer = client.socket.response.headers["Sec-WebSocket-Extensions"]
        assert "server_no_context_takeover" in answer
        assert "client_no_context_takeover" in answer
    (folder := tmp_path / "other").mkdir()
    async with (
        gateway(folder, compression_allowed=False) as plain,
        plain.client(compression="deflate") as client,
    ):
        assert "Sec-WebSocket-Extensions" not in client.socket.response.headers


@pytest.mark.parametrize("data", [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01" * 50 + b"\r\n\r\n"])
async def test_bytes_that_are_no_upgrade_end_the_connection(node, data):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: node.gateway.protocol(None, node.server_state, {}), "127.0.0.1", 0
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()
        await writer.wait_closed()
    assert not node.gateway.connections


@asynccontextmanager
async def direct(node):
    """A client of the protocol without an HTTP server before it."""
    loop = asyncio.get_running_loop()
    async with await loop.create_server(
        lambda: node.gateway.protocol(None, node.server_state, {}), "127.0.0.1", 0
    ) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.transport.abort()


@pytest.mark.parametrize("delay_s", [0.0, 0.01])
async def test_frames_that_come_with_the_upgrade_are_answered_in_order(node, delay_s, monkeypatch):
    monkeypatch.setattr(Upgrader, "delay_s", lambda upgrader, address: delay_s)
    key = await node.key()
    early = text(type="ping", id=1) + text(type="authenticate", api_key=key, id=2)
    request = GET + UPGRADE + VERSION_13 + b"\r\n"
    async with direct(node) as (reader, writer):
        writer.write(request + early + text(type="get_subscriptions", id=3))
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.readuntil(b'"id":3')
    places = [answer.find(each) for each in (b" 101 ", b'"type":"welcome"', b'"id":1', b'"id":2')]
    assert places == sorted(places)
    assert places[0] > 0


@pytest.mark.parametrize("at", range(1, len(GET + UPGRADE + VERSION_13) + 6))
def test_a_handshake_ends_at_its_empty_line_however_it_is_cut(at):
    request = GET + UPGRADE + VERSION_13 + b"\r\n"
    data = request + b"\r\n\r\nmore"
    handshake = Handshake(ServerProtocol())
    rest = handshake.received(data[:at])
    if handshake.request is None:
        assert (rest, at < len(request)) == (b"", True)
        rest = handshake.received(data[at:])
    else:
        rest += data[at:]
    assert handshake.request.headers["Sec-WebSocket-Version"] == "13"
    assert (rest, handshake.broken) == (b"\r\n\r\nmore", False)


async def test_uvicorn_may_stop_during_a_handshake(node):
    loop = asyncio.get_running_loop()
    made = []

    def protocol():
        made.append(node.gateway.protocol(None, node.server_state, {}))
        return made[0]

    async with await loop.create_server(protocol, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await settled(lambda: made and made[0] in node.server_state.connections)
        made[0].shutdown()
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_two_forwarded_headers_count_the_last(tmp_path):
    headers = [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "198.51.100.7")]
    async with gateway(tmp_path) as node, node.client(additional_headers=headers):
        (connection,) = node.gateway.connections
        assert connection.address == "198.51.100.7"


async def test_a_full_node_answers_503_with_retry_after(tmp_path):
    async with gateway(tmp_path, connections_max=1) as node, node.client():
        response = await refused(node.url)
        assert response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        assert 1 <= int(response.headers["Retry-After"]) <= 10
        assert parse(response.body)["error"] == "service_unavailable"
