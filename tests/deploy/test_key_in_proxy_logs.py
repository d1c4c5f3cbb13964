"""No proxy log contains a key: shipped files, real processes, every written byte."""

import asyncio
import shutil
import ssl
from contextlib import AsyncExitStack, suppress

import pytest

from deploy.proxies import HOST, NAME, caddy_files, free_ports, nginx_files, running
from e2e.test_tls import Authority
from onebook.accounts.keys import SHOWN_LENGTH, new_key

LEAST_SHOWN = 16  # characters of a key in a row that count as a leak: its prefix is 12

KEY = new_key()
HIDDEN = KEY[SHOWN_LENGTH:]
REST = f"/api/v1/data-usage/{KEY}"
QUERY = f"/api/v1/ws?api_key={KEY}"
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def get(path, *, host=NAME, headers="", version="1.1", method="GET"):
    return f"{method} {path} HTTP/{version}\r\nHost: {host}\r\n{headers}\r\n".encode()


def chunked(size):
    return f"{size:x}\r\n{'x' * size}\r\n0\r\n\r\n".encode()


def post(headers):
    return get(REST, method="POST", headers=headers)


REQUESTS = {
    "usage of a key": get(REST),
    "a key in the query": get(QUERY),
    "a WebSocket with a key in the query": get(QUERY, headers=UPGRADE),
    "a key in the referrer": get("/api/v1/health", headers=f"Referer: https://{NAME}{QUERY}\r\n"),
    "a key as a token": get("/api/v1/health", headers=f"Authorization: Bearer {KEY}\r\n"),
    "a path in capitals": get(f"/API/V1/Data-Usage/{KEY}"),
    "two slashes": get(f"//api/v1//data-usage//{KEY}"),
    "an escaped path": get(f"/api/v1/data%2dusage/%6fb_live_{KEY[8:]}"),
    "a path that is not ours": get(f"/{KEY}"),
    "a key without its prefix": get(f"/docs/{KEY[8:]}"),
    "a page below a key": get(f"/api/v1/{KEY}/health"),
    "a path out of the root": get(f"/../../{KEY}"),
    "a null in the path": get(f"/{KEY}%00"),
    "a control character": get(f"{REST}\x01"),
    "a blank in the path": get(f"{REST} x"),
    "a key as the method": get("/", method=KEY),
    "a small method": get(REST, method="get"),
    "an unknown method": get(REST, method="BREW"),
    "an unknown version": get(REST, version="9.9"),
    "an old version": f"GET {REST} HTTP/1.0\r\n\r\n".encode(),
    "the oldest version": f"GET {REST}\r\n".encode(),
    "a proxied request": get(f"http://{NAME}{REST}"),
    "no host": f"GET {REST} HTTP/1.1\r\n\r\n".encode(),
    "another host": get(REST, host="elsewhere.example"),
    "a key as the host": get("/", host=f"{KEY}.example"),
    "an invalid host": get(REST, host="a/b"),
    "two hosts": get(REST, headers=f"Host: {NAME}\r\n"),
    "an invalid header": get(REST, headers="no colon\r\n"),
    "a long path": get(f"/{KEY}{'x' * 40_000}"),
    "a long header": get(REST, headers=f"X-Long: {KEY}{'x' * 40_000}\r\n"),
    "many headers": get(REST, headers="".join(f"X-{n}: {KEY}\r\n" for n in range(2_000))),
    "a long body": post("Content-Length: 100000\r\n") + b"x" * 100_000,
    "a body with the announced length": post("Content-Length: 9999999\r\n"),
    "a long chunked body": post("Transfer-Encoding: chunked\r\n") + chunked(100_000),
    "an invalid chunk": post("Transfer-Encoding: chunked\r\n") + b"zz\r\n",
    "a body that nginx keeps in a file": post("Content-Length: 60000\r\n")
    + KEY.encode() * 1_000
    + b"x" * 3_000,
    "both lengths": post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + chunked(5),
    "an unfinished request": f"GET {REST} HT".encode(),
    "no HTTP": f"{KEY}\r\n\r\n".encode(),
}


class Upstream:
    """Answers like a node, or misbehaves as the request demands."""

    ANSWERS = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}",
        b"",  # ends the connection
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\ncut off",
        b"HTTP/1.1 101 Switching Protocols\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    )

    def __init__(self):
        self.answered = 0

    async def __call__(self, reader, writer):
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            if b"/readyz" in await reader.readuntil(b"\r\n\r\n"):
                writer.write(self.ANSWERS[0])
            else:
                writer.write(self.ANSWERS[self.answered % len(self.ANSWERS)])
                self.answered += 1
            await writer.drain()
        writer.close()


async def send(port, data, tls):
    """Send bytes and read until the proxy has answered or closed the connection."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(2):
            name = NAME if tls else None
            reader, writer = await asyncio.open_connection(
                HOST, port, ssl=tls, server_hostname=name
            )
            try:
                writer.write(data)
                await writer.drain()
                await asyncio.wait_for(reader.read(65_536), 0.5)
            finally:
                writer.close()


async def send_all(plain, secure):
    """Every request to every server: plain, with TLS, and plain where TLS is expected."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    for port, tls in ((plain, None), (secure, trusting), (secure, None)):
        await asyncio.gather(*(send(port, data, tls) for data in REQUESTS.values()))
    if curl := shutil.which("curl"):
        for path in (REST, QUERY, f"/{KEY}{'x' * 20_000}"):
            process = await asyncio.create_subprocess_exec(
                *(curl, "--silent", "--insecure", "--http2", "--max-time", "2"),
                f"https://{HOST}:{secure}{path}",
                stdout=asyncio.subprocess.DEVNULL,
            )
            await process.wait()


def leaked(folder):
    """Every line of every file that contains a part of the key, with the file's name."""
    parts = {HIDDEN[at : at + LEAST_SHOWN].lower() for at in range(len(HIDDEN) - LEAST_SHOWN)}
    return [
        f"{path.name}: {line[:200]}"
        for path in folder.rglob("*")
        if path.is_file() and "conf" not in path.name
        for line in path.read_bytes().decode("latin-1").lower().splitlines()
        if any(part in line for part in parts)
    ]


@pytest.mark.parametrize("state", ["up", "down"])
@pytest.mark.parametrize("program", ["nginx", "caddy"])
async def test_no_log_of_a_proxy_holds_a_key(tmp_path, program, state):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    plain, secure, upstream = free_ports(3)
    files = nginx_files if program == "nginx" else caddy_files
    authority = Authority(tmp_path, "example")
    certified = authority, *authority.vouch()
    words = files(tmp_path, certified, plain, secure, f"{HOST}:{upstream}")
    answers = Upstream()
    async with AsyncExitStack() as stack:
        if state == "up":
            await stack.enter_async_context(await asyncio.start_server(answers, HOST, upstream))
        async with running(tmp_path, (plain, secure), *words):
            await send_all(plain, secure)
    assert (state == "up") == (answers.answered > 0)
    assert leaked(tmp_path) == []
    if program == "nginx":
        written = (tmp_path / "onebook.log").read_text()
        assert '"GET /api/v1/health" ' in written
        assert f"{HOST}:{upstream}" in written
