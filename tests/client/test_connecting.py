"""A failed connection states its cause: one code and one sentence, in both Python clients."""

import asyncio
import signal
import socket
import ssl
import struct
import sys
from contextlib import asynccontextmanager

import pytest

from e2e.test_tls import Authority
from onebook.client import AsyncOnebook, Onebook, Refused, ServiceError, Unavailable
from steady import PATIENCE_S

HOST = "127.0.0.1"
END = b"\r\n\r\n"
FOREIGN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
UNREADABLE = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"
ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"


async def records(client):
    return [record async for record in client.transactions("bybit")]


async def first_view(client):
    return await anext(client.watch("BTC/USDT", attempts_max=1))


ASYNC = (
    lambda client: client.usage(),
    records,
    first_view,
    lambda client: client.snapshot("BTC/USDT"),
)
SYNC = (
    lambda client: client.usage(),
    lambda client: list(client.transactions("bybit")),
    lambda client: next(client.watch("BTC/USDT", attempts_max=1)),
    lambda client: client.snapshot("BTC/USDT"),
)


async def causes(url, **options):
    """The exception of each request of each client."""

    def blocking():
        found = []
        for use in SYNC:
            with Onebook(url, "the key", attempts_max=1, **options) as client:
                with pytest.raises(ServiceError) as raised:
                    use(client)
                found.append(raised.value)
        return found

    async with asyncio.timeout(PATIENCE_S):
        found = []
        for use in ASYNC:
            async with AsyncOnebook(url, "the key", attempts_max=1, **options) as client:
                with pytest.raises(ServiceError) as raised:
                    await use(client)
                found.append(raised.value)
        return found + await asyncio.to_thread(blocking)


def codes(found):
    """The codes of HTTP and WebSocket requests, equal in both clients."""
    got = [each.code for each in found]
    assert got[:4] == got[4:]
    assert (got[0], got[2]) == (got[1], got[3])
    return got[0], got[2]


@asynccontextmanager
async def answering(answer, context=None, *, end=END):
    """The port of a server that reads until EOF, sends these bytes and closes."""

    async def serve(reader, writer):
        try:
            await reader.readuntil(end)
            writer.write(answer)
            await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, HOST, 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_server_that_resets_the_connection_after_the_request():
    async def serve(reader, writer):
        await reader.readuntil(END)
        linger = struct.pack("ii", 1, 0)  # closed so, a socket sends RST
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async with await asyncio.start_server(serve, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = (await causes(f"http://{HOST}:{port}"))[::4]  # over HTTP
    assert {(each.code, each.message) for each in found} == {
        ("no_answer", f"{HOST}:{port} closed the connection before answering.")
    }


@pytest.mark.parametrize(("family", "host", "shown"), [
    (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    (socket.AF_INET6, "::1", "[::1]"),
])  # fmt: skip
async def test_a_dead_port(family, host, shown):
    with socket.socket(family) as unused:
        try:
            unused.bind((host, 0))
        except OSError:
            pytest.skip(f"no {host} here")
        port = unused.getsockname()[1]
        found = await causes(f"http://{shown}:{port}")
    assert codes(found) == ("unreachable", "unreachable")
    assert {each.message for each in found} == {f"Connection refused by {shown}:{port}."}
    assert all(isinstance(each, Unavailable) for each in found)


async def test_a_proxy_of_the_environment_is_named(monkeypatch):
    """The proxy refuses, and only the message reveals that a proxy is used."""
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        dead = unused.getsockname()[1]
        monkeypatch.setenv("HTTP_PROXY", f"http://{HOST}:{dead}")
        hint = "A proxy is configured in the environment (HTTP_PROXY); use NO_PROXY to bypass it."
        found = await causes("http://books.invalid:8000")
        assert {each.message for each in found} == {
            f"Connection refused by books.invalid:8000. {hint}"
        }
        monkeypatch.setenv("NO_PROXY", HOST)
        found = await causes(f"http://{HOST}:{dead}")
        assert {each.message for each in found} == {f"Connection refused by {HOST}:{dead}."}


async def test_a_proxy_that_refuses_now_is_asked_again(monkeypatch):
    async with answering(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n") as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://{HOST}:{port}")
        found = await causes("http://books.invalid:8000")
    assert codes(found) == ("http_503", "unreachable")
    assert all(isinstance(each, Unavailable) for each in found)
    assert "proxy rejected connection: HTTP 503. A proxy is configured" in found[2].message


INTERRUPTED = """
import signal, sys
from onebook.client import Onebook

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored

with Onebook(sys.argv[1], "the key") as client:
    try:
        for view in client.watch("BTC/USDT"):
            print("a view")
    except KeyboardInterrupt:
        print("interrupted")
"""


async def test_ctrl_c_in_a_loop_over_views_is_a_keyboard_interrupt():
    asked = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(END)
        asked.set()
        await reader.read()
        writer.close()

    async with (
        await asyncio.start_server(serve, HOST, 0) as server,
        asyncio.timeout(PATIENCE_S),
    ):
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", INTERRUPTED, f"http://{HOST}:{port}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        await asked.wait()
        process.send_signal(signal.SIGINT)
        printed, _ = await process.communicate()
    assert printed.decode().splitlines() == ["interrupted"]
    assert process.returncode == 0


def test_ctrl_c_before_the_wait_for_a_view_ends_the_loop_too(monkeypatch):
    """The signal may arrive after the step has begun and before anything waits for it."""
    begin, steps = asyncio.run_coroutine_threadsafe, []

    def interrupted(work, loop):
        future = begin(work, loop)
        if work.__name__ == "_following":
            begin(asyncio.sleep(0), loop).result(PATIENCE_S)  # the step has begun
            steps.append(future)
            raise KeyboardInterrupt
        return future

    with socket.create_server((HOST, 0)) as silent:
        url = f"http://{HOST}:{silent.getsockname()[1]}"
        with Onebook(url, "the key") as client:
            monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(client.watch("BTC/USDT"))
        assert [each.cancelled() for each in steps] == [True]


async def test_a_host_that_is_not_known():
    assert codes(await causes("http://nowhere.invalid")) == ("unknown_host", "unknown_host")


async def test_a_certificate_that_is_not_trusted(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path, "stranger").vouch())
    async with answering(ABSENT, context) as port:
        found = await causes(f"https://{HOST}:{port}")
    assert codes(found) == ("untrusted_certificate", "untrusted_certificate")
    assert all(isinstance(each, Refused) for each in found)
    assert all("SSL_CERT_FILE" in each.message for each in found)


async def test_a_handshake_that_fails_is_no_error_of_the_system(tmp_path):
    """OpenSSL numbers its own errors: its 8, an early end, was shown as "Exec format error"."""
    authority = Authority(tmp_path, "ours")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.vouch())
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    older = ssl.create_default_context(cafile=str(authority.file))
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    async with answering(ABSENT, context) as port:
        found = await causes(f"https://{HOST}:{port}", ssl_context=older)
    assert codes(found) == ("unreachable", "unreachable")
    told = (
        f"The TLS handshake with {HOST}:{port} failed: ",
        f"{HOST}:{port} closed the connection",
    )
    assert [each.message for each in found if not each.message.startswith(told)] == []


async def test_a_server_without_tls():
    async with answering(ABSENT, end=b"\x16") as port:  # the first byte of TLS
        assert codes(await causes(f"https://{HOST}:{port}")) == ("no_tls", "no_tls")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ABSENT, ("http_404", "http_404")),
        (FOREIGN, ("not_onebook", "http_200")),
        (UNREADABLE, ("no_answer", "http_200")),
        (b"SSH-2.0-other\r\n\r\n", ("no_answer", "no_handshake")),
        (b"", ("no_answer", "no_handshake")),
    ],
)
async def test_a_server_of_another_kind(answer, expected):
    async with answering(answer) as port:
        found = await causes(f"http://{HOST}:{port}")
    assert codes(found) == expected
    assert all(f"{HOST}:{port}" in each.message for each in found)
