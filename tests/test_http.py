"""HTTP over real sockets: half-finished requests, silent and full nodes, no file left."""

import asyncio
import json
import resource
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime

import httpx
import pytest
import uvloop
from prometheus_client import REGISTRY

from e2e.house import client_of, key_of, settings_in
from onebook import app, http, sockets
from onebook.config import ServerSettings
from onebook.errors import ConfigError
from onebook.gateway.door import Door
from onebook.gateway.turns import Turns
from steady import PATIENCE_S, own_s

BIG = b"x" * 20_000_000
QUICK = {
    "header_timeout_s": 0.5,
    "body_timeout_s": 0.5,
    "write_timeout_s": 0.5,
    "keep_alive_timeout_s": 1,
}


async def application(scope, receive, send):
    """Answers with a small page, with the length of a body, or with a very big page."""
    body = b"small"
    if scope["path"] == "/big":
        body = BIG
    elif scope["method"] == "POST":
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
    """Takes an upgraded socket over, as the gateway's protocol does."""

    def __init__(self, config, server_state, app_state):
        self.seats = ()

    def take_seat(self, seat):
        self.seats += (seat,)

    def pace_reading(self):
        pass

    def connection_lost(self, exc):
        for seat in self.seats:
            seat.leave()


@asynccontextmanager
async def served(
    *, connections_max=100, addresses_max=0, trusted=False, turn_s=0.001, tls=None, **settings
):
    """A port; its clients are strangers unless they are to be trusted."""
    door = Door(0, sockets_per_address_max=addresses_max)
    if not trusted:
        door.trusts = lambda peer: False
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
            door=door,
            connections_max=lambda: connections_max,
            forwarded_from=(),
            tls=tls,
            settings=ServerSettings(**{**QUICK, **settings}),
        ):
            yield listener.getsockname()[1]


class Peer:
    """A client that sends what a test asks for."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self):
        """All that comes until the server closes."""
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


HALVES = {
    "no byte": (b"", "headers", b""),
    "half a request line": (b"GET /sma", "headers", b""),
    "half of the headers": (b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n", "headers", b""),
    "headers without the body": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
        "body",
        b"",
    ),
    "a slow body": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n", "body", b"x"),
    "slow headers": (b"GET / HTTP/1.1\r\nHost: x\r\n", "headers", b"X-A: b\r\n"),
}


async def drip(peer, piece):
    while piece:
        await peer.send(piece)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_half_a_request_is_answered_408_and_closed_in_time(run, kind):
    begin, wait, piece = HALVES[kind]

    async def talk():
        async with served() as port, peer_of(port) as peer:
            before = measured("onebook_http_expired_total", wait=wait)
            await peer.send(begin)
            dripping = asyncio.create_task(drip(peer, piece))
            answer = await peer.rest()
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
            # A body that still comes may reset the connection before its answer was read.
            assert answer.startswith(b"HTTP/1.1 408 ") or (piece and not answer)
            assert not answer or problem(answer)["error"] == "request_timeout"
            assert measured("onebook_http_expired_total", wait=wait) == before + 1

    run(talk())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_answer_that_is_never_read_is_cut_off(run):
    async def talk():
        async with served() as port, peer_of(port, limit=1_024) as peer:
            before = measured("onebook_http_expired_total", wait="write")
            peer.writer.transport.pause_reading()
            await peer.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                while measured("onebook_http_expired_total", wait="write") == before:
                    await asyncio.sleep(0.05)
            peer.writer.transport.resume_reading()
            assert len(await peer.rest()) < len(BIG)

    run(talk())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_answer_that_the_application_gave_up_is_cut_off_though_nothing_reads_it(run):
    """uvicorn closes such a connection, which waits for its buffer: the deadline aborts it."""

    async def talk():
        async with served() as port, peer_of(port, limit=1_024) as peer:
            before = measured("onebook_http_expired_total", wait="write")
            peer.writer.transport.pause_reading()
            await peer.send(b"GET /left HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                while not measured("onebook_sockets"):
                    await asyncio.sleep(0.01)
            began_s = own_s()
            async with asyncio.timeout(PATIENCE_S):
                while measured("onebook_sockets"):
                    await asyncio.sleep(0.05)
            assert own_s() - began_s < 3
            assert measured("onebook_http_expired_total", wait="write") == before + 1

    run(talk())


async def test_an_answer_that_is_read_slowly_is_not_cut_off():
    async with served(write_timeout_s=1.0) as port, peer_of(port, limit=65_536) as peer:
        await peer.send(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        size = 0
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(30):  # for longer than the deadline, with steps shorter than it
                size += len(await peer.reader.read(50_000))
                await asyncio.sleep(0.1)
            while data := await peer.reader.read(1_000_000):
                size += len(data)
    assert size > len(BIG)


async def test_requests_one_after_the_other_have_their_own_deadlines():
    waits = {"header_timeout_s": 2.0, "keep_alive_timeout_s": 2}
    async with served(**waits) as port, peer_of(port) as peer:
        for _ in range(4):
            await asyncio.sleep(0.6)
            await peer.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
            async with asyncio.timeout(PATIENCE_S):
                assert (await peer.reader.readuntil(b"\r\n\r\n2")).startswith(b"HTTP/1.1 200")
        assert await peer.rest() == b""  # nobody asks any more: keep-alive


async def test_sockets_of_one_address_are_limited_and_counted_back():
    async with served(addresses_max=2, header_timeout_s=30.0) as port:
        async with peer_of(port) as one, peer_of(port):
            async with peer_of(port) as third:
                answer = await third.rest()
                assert answer.startswith(b"HTTP/1.1 429 ")
                assert b"Retry-After: 5\r\n" in answer
                for field in (b"RateLimit: ", b"RateLimit-Policy: ", b"X-RateLimit-Limit: 2\r\n"):
                    assert b"\r\n" + field in answer
                assert problem(answer)["error"] == "rate_limit_exceeded"
            await one.send(
                b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
            await asyncio.sleep(0.1)
            async with peer_of(port) as fourth:  # a socket that was upgraded still counts
                assert (await fourth.rest()).startswith(b"HTTP/1.1 429 ")
        async with asyncio.timeout(PATIENCE_S):
            while measured("onebook_sockets"):
                await asyncio.sleep(0.01)
        async with peer_of(port) as again:
            await again.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                assert await again.reader.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_a_full_node_still_answers_this_machine(caplog):
    caplog.set_level("INFO")
    full = {"connections_max": 2, "http_connections_max": 1, "header_timeout_s": 30.0}
    async with served(trusted=True, **full) as port, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(peer_of(port))
        async with peer_of(port) as probe:
            await probe.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                assert await probe.reader.readline() == b"HTTP/1.1 200 OK\r\n"
    async with served(**full) as port:
        async with AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(peer_of(port))
            before = measured("onebook_sockets_refused_total", reason="full")
            for _ in range(2):
                async with peer_of(port) as stranger:
                    answer = await stranger.rest()
                    assert answer.startswith(b"HTTP/1.1 503 ")
                    assert b"\r\nRetry-After: 5\r\n" in answer
                    assert problem(answer)["error"] == "service_unavailable"
            assert measured("onebook_sockets_refused_total", reason="full") == before + 2
        async with asyncio.timeout(PATIENCE_S):
            while "has room again" not in caplog.text:
                await asyncio.sleep(0.02)
    assert caplog.text.count("The node is full: 3 sockets") == 1
    assert measured("onebook_sockets") == 0


async def test_many_requests_at_once_are_spread_over_turns():
    async with served(turn_s=1e-9) as port, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(peer_of(port)) for _ in range(20)]
        for _ in range(3):
            for peer in peers:
                peer.writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
            for peer in peers:
                async with asyncio.timeout(PATIENCE_S):
                    await peer.reader.readuntil(b"\r\n\r\n2")


# Open files


def in_process(program):
    """Run a program of its own, because limits of a process cannot be raised again."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_soft_limit_of_open_files_is_raised_to_what_is_needed():
    done = in_process("""
        import resource
        from onebook.sockets import raise_file_limit
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        raise_file_limit(1000)
        raise_file_limit(500)
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    """)
    assert done.stdout == "1000\n", done.stderr


def test_a_hard_limit_that_is_too_low_is_one_clear_sentence(monkeypatch):
    def refuse(*_):
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 4_096))
    with pytest.raises(ConfigError, match=r"need 11,272 open files, .* may open 4,096: raise"):
        sockets.raise_file_limit(11_272)


def test_a_process_without_files_says_that_it_accepts_nothing_and_when_it_does_again():
    done = in_process("""
        import logging, os, resource, socket, sys
        from onebook.http import ACCEPT_FAILING, AcceptWatch
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level="INFO")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            watch = AcceptWatch(listener)
            watch.look()
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            held = []
            try:
                while True:
                    held.append(os.dup(0))
            except OSError:
                pass
            watch.look()
            watch.look()
            print(ACCEPT_FAILING._value.get())
            for each in held:
                os.close(each)
            watch.look()
            print(ACCEPT_FAILING._value.get())
    """)
    assert done.stdout.splitlines() == [
        "ERROR No connection can be accepted: the process has no open file left.",
        "1.0",
        "INFO Connections can be accepted again.",
        "0.0",
    ], done.stderr


async def test_1300_silent_sockets_shut_nobody_out_of_a_node_that_began_with_1024_files(tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 16_000:
        pytest.skip("the hard limit of open files is too low for this test")
    process = subprocess.Popen(
        [
            "/bin/sh", "-c", 'ulimit -Sn 1024; exec "$@"', "sh", sys.executable, "-m", "onebook",
            "demo", "--port", "0",
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        url = await asyncio.get_running_loop().run_in_executor(None, _page, process)
        port = httpx.URL(url).port
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(1_300)]
        try:
            async with httpx.AsyncClient(base_url=url, timeout=10) as client:
                assert (await client.get("/livez")).status_code == 200
        finally:
            for each in silent:
                each.close()
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _page(process):
    for line in process.stdout:
        if "the live page" in line:
            return line.split()[-1].partition("#")[0]
    raise AssertionError("the demo did not start")


async def test_a_whole_node_has_its_deadlines_and_its_places(tmp_path):
    settings = settings_in(tmp_path, server={**QUICK, "port": 0})
    async with app.running(settings, overrides={}) as node:
        key = await key_of(node)
        async with client_of(node, key) as client:
            async with peer_of(node.address[1]) as peer:
                await peer.send(b"GET /livez HTT")
                assert (await peer.rest()).startswith(b"HTTP/1.1 408 ")
            await client.say(type="ping")
            assert (await client.next())["type"] == "pong"
            assert measured("onebook_sockets") == 1
        async with asyncio.timeout(PATIENCE_S):
            while measured("onebook_sockets"):
                await asyncio.sleep(0.02)
