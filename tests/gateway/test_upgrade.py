"""Upgrades over real sockets: the accepted ones, and the HTTP responses to the others."""

import asyncio
import re
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from websockets.server import ServerProtocol

from gateway.attack import text
from gateway.helpers import refused
from gateway.rig import PATIENCE_S, gateway, parse, settled
from onebook.gateway import GatewayLimits
from onebook.gateway.upgrade import (
    ADDRESSES_MAX,
    FORGOTTEN_S,
    AddressLimiter,
    Handshake,
    Offenders,
    Upgrader,
)

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
    """A client of the protocol without an HTTP server in front of it."""
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


def test_60_attempts_a_minute_from_one_address_and_others_are_not_affected():
    address_limiter = AddressLimiter(60)
    assert not any(address_limiter.attempt("192.0.2.1", 0.0) for _ in range(60))
    assert address_limiter.attempt("192.0.2.1", 0.0)["Retry-After"] == "1"
    assert address_limiter.attempt("192.0.2.2", 0.0) == {}
    assert address_limiter.attempt("192.0.2.1", 1.0) == {}


def test_ipv6_counts_by_64():
    address_limiter = AddressLimiter(1)
    assert address_limiter.attempt("2001:db8::1", 0.0) == {}
    assert address_limiter.attempt("2001:db8::2", 0.0)
    assert address_limiter.attempt("2001:db8:0:1::1", 0.0) == {}


def test_zero_does_not_count():
    assert not any(AddressLimiter(0).attempt("192.0.2.1", 0.0) for _ in range(1_000))


@pytest.mark.parametrize(
    ("peer", "forwarded", "whose"),
    [
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("10.0.0.5", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("::1", "198.51.100.7", "198.51.100.7"),
        ("", "198.51.100.7", "unknown"),
        ("socket", "198.51.100.7", "socket"),
    ],
)
def test_only_a_trusted_proxy_names_another_address(peer, forwarded, whose):
    assert AddressLimiter(60, ("10.0.0.0/8", "::1")).address(peer, forwarded) == whose


def test_an_address_has_so_many_sockets_until_one_is_closed():
    limiter = AddressLimiter(0, sockets_per_address_max=2)
    first, second = limiter.enter("2001:db8::1"), limiter.enter("2001:db8::2")
    assert first is not None
    assert second is not None
    assert limiter.enter("2001:db8::3") is None
    assert limiter.enter("192.0.2.1") is not None
    first.leave()
    first.leave()  # uncounted once
    assert limiter.enter("2001:db8::3") is not None
    assert limiter.enter("2001:db8::4") is None


def test_a_refusal_says_when_to_return_in_every_header_that_says_it():
    limiter = AddressLimiter(2, sockets_per_address_max=5)
    assert not any(limiter.attempt("192.0.2.1", 0.0) for _ in range(2))
    assert limiter.attempt("192.0.2.1", 10.5) == {
        "RateLimit-Policy": '"connects";q=2;w=60',
        "RateLimit": '"connects";r=0;t=20',
        "X-RateLimit-Limit": "2",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "20",
        "Retry-After": "20",
    }
    assert limiter.attempt("192.0.2.1", 30.5) == {}
    assert limiter.socket_headers(3) == {
        "RateLimit-Policy": '"sockets";q=5',
        "RateLimit": '"sockets";r=0;t=3',
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "3",
        "Retry-After": "3",
    }


def test_limits_that_change_keep_what_was_counted():
    limiter = AddressLimiter(1, sockets_per_address_max=1)
    assert limiter.attempt("192.0.2.1", 0.0) == {}
    held = limiter.enter("192.0.2.1")
    assert held is not None
    limiter.limit(1, 2)
    assert limiter.attempt("192.0.2.1", 0.0)
    assert limiter.enter("192.0.2.1") is not None
    assert limiter.enter("192.0.2.1") is None
    limiter.limit(0, 0)
    assert limiter.attempt("192.0.2.1", 0.0) == {}
    assert limiter.enter("192.0.2.1") is not None


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.1.2.3", True),
        ("192.0.2.1", False),
        ("", False),
        ("socket", False),
    ],
)
def test_this_machine_and_proxies_are_trusted(peer, trusted):
    assert AddressLimiter(60, ("10.0.0.0/8",)).trusts(peer) is trusted


ONE, OTHER = "192.0.2.1", "192.0.2.2"


def test_an_address_without_offences_waits_for_nothing():
    offenders = Offenders(1.0, 8.0)
    assert offenders.wait_s(ONE, 0.0) == 0
    offenders.offended(ONE, 0.0)
    assert offenders.wait_s(OTHER, 0.0) == 0


def test_handshakes_after_an_offence_are_a_pause_apart():
    offenders = Offenders(1.0, 8.0)
    offenders.offended(ONE, 0.0)
    assert [offenders.wait_s(ONE, 0.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert offenders.wait_s(ONE, 3.5) == 0.5


def test_the_pause_doubles_with_each_offence_up_to_its_limit():
    offenders = Offenders(1.0, 8.0)
    pauses = []
    now_s = 0.0
    for _ in range(6):
        offenders.offended(ONE, now_s)
        now_s += offenders.wait_s(ONE, now_s)
        pauses.append(offenders.wait_s(ONE, now_s))
        now_s += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_no_handshake_waits_for_longer_than_two_of_the_longest_pauses():
    offenders = Offenders(1.0, 8.0)
    for _ in range(10):
        offenders.offended(ONE, 0.0)
    assert max(offenders.wait_s(ONE, 0.0) for _ in range(100)) == 16.0


def test_an_offence_is_forgotten():
    offenders = Offenders(1.0, 8.0)
    offenders.offended(ONE, 0.0)
    assert offenders.wait_s(ONE, 1.0 + FORGOTTEN_S + 0.1) == 0


def test_ipv6_is_paced_by_64():
    offenders = Offenders(1.0, 8.0)
    offenders.offended("2001:db8::1", 0.0)
    assert offenders.wait_s("2001:db8::2", 0.0) == 1.0
    assert offenders.wait_s("2001:db8:0:1::1", 0.0) == 0


def test_only_so_many_addresses_are_remembered():
    offenders = Offenders(1.0, 8.0)
    for number in range(ADDRESSES_MAX + 1):
        offenders.offended(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert offenders.wait_s("10.0.0.0", 0.0) == 0
    assert offenders.wait_s("10.0.0.1", 0.0) == 1.0


def test_no_pause_paces_nothing():
    offenders = Offenders(0.0, 8.0)
    offenders.offended(ONE, 0.0)
    assert offenders.wait_s(ONE, 0.0) == 0


def of(address):
    return {"additional_headers": {"X-Forwarded-For": address}}


@pytest.mark.parametrize(
    ("message", "code"), [(b"binary", 1003), ("x" * 5_000, 1009), ("\ud800", 1007)]
)
async def test_the_next_handshake_of_an_offender_waits_and_others_do_not(tmp_path, message, code):
    async with gateway(tmp_path, limits=GatewayLimits(offence_pause_s=60.0)) as node:
        waits = []
        node.clock.call_at = lambda at_s, call: waits.append((at_s - node.clock.monotonic(), call))
        async with node.client(**of(ONE)) as client:
            await client.next()
            data = message.encode("utf-8", "surrogatepass") if code == 1007 else message
            await client.socket.send(data, text=code == 1007 or None)
            assert await client.closed() == code
        await settled(lambda: not node.gateway.connections)
        connecting = node.client(**of(ONE))
        entering = asyncio.ensure_future(connecting.__aenter__())
        await settled(lambda: waits)
        async with node.client(**of(OTHER)) as other:
            await other.next()
        assert not entering.done()
        [(wait_s, go_on)] = waits
        assert 0 < wait_s <= 60
        go_on()
        client = await entering
        assert (await client.next())["type"] == "welcome"
        await connecting.__aexit__(None, None, None)
