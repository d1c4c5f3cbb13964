"""The examples of reverse proxies in use: a WebSocket client gets books through them, over TLS."""

import asyncio
import json
import re
import shutil
import socket
import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from client.place import place
from e2e.test_tls import Authority
from steady import PATIENCE_S

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")

DEPLOY = Path(__file__).parents[2] / "deploy"
HOST = "127.0.0.1"
POLL_S = 0.05
CLIENT_WAITS = (
    "client_header_timeout|client_body_timeout|send_timeout|keepalive_timeout|lingering_time"
)


def free_port():
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        return unused.getsockname()[1]


@asynccontextmanager
async def running(port, *words):
    """Run a proxy until its port answers, and end it afterwards."""
    process = await asyncio.create_subprocess_exec(
        *map(str, words), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                assert process.returncode is None, "the proxy has ended"
                try:
                    _, writer = await asyncio.open_connection(HOST, port)
                except OSError:
                    await asyncio.sleep(POLL_S)
                else:
                    writer.close()
                    break
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def first_book(port, authority, key):
    """What a client sees: the acceptance of its key, then a book."""
    trusted = ssl.create_default_context(cafile=str(authority.file))
    url = f"wss://{HOST}:{port}/api/v1/ws"
    subscribe = {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "exchanges": "all"}
    async with asyncio.timeout(PATIENCE_S), connect(url, ssl=trusted) as ws:
        await ws.send(json.dumps({"type": "authenticate", "api_key": key}))
        await ws.send(json.dumps(subscribe | {"depth": 5}))
        async for text in ws:
            message = json.loads(text)
            if message["type"] == "aggregated_orderbook_update":
                return message["data"]


@pytest.fixture
def certified(tmp_path):
    authority = Authority(tmp_path, "example")
    return authority, *authority.vouch()


@asynccontextmanager
async def nginx_before(folder, certified, *nodes, hurried=False):
    """Run the example of nginx in front of nodes, with a tenth of its timeouts; its port."""
    _, certificate, key = certified
    port = free_port()
    text = (DEPLOY / "nginx" / "onebook.conf").read_text()
    text = re.sub(r"server \{\n    listen 80;.*?\n\}\n", "", text, flags=re.DOTALL)
    text = re.sub(r"listen \[::\]:443.*\n", "", text).replace("listen 443", f"listen {HOST}:{port}")
    for pattern, path in (("fullchain", certificate), ("privkey", key)):
        text = re.sub(rf"\S+{pattern}\.pem", str(path), text)
    text = text.replace("/var/log/nginx/", f"{folder}/")
    if hurried:
        text = re.sub(rf"\b({CLIENT_WAITS}) (\d+)s;", r"\1 \g<2>00ms;", text)
    (line,) = re.findall(r"    server 127\.0\.0\.1:8000.*;\n", text)
    lines = [line.replace("127.0.0.1:8000", each.url.removeprefix("http://")) for each in nodes]
    (folder / "onebook.conf").write_text(text.replace(line, "".join(lines)))
    folders = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ {folders} include {folder}/onebook.conf; }}\n"
    )
    async with running(port, "nginx", "-p", folder, "-c", folder / "nginx.conf"):
        yield port


@needs_nginx
async def test_books_come_through_nginx(tmp_path, certified):
    (tmp_path / "node").mkdir()
    async with (
        place(tmp_path / "node", gateway={"forwarded_from": [HOST]}) as node,
        nginx_before(tmp_path, certified, node) as port,
    ):
        book = await first_book(port, certified[0], node.key)
    assert len(book["bids"]) == 5
    log = (tmp_path / "onebook.log").read_text()
    assert '"GET /api/v1/ws" 101' in log
    assert node.key not in log


@needs_nginx
async def test_nginx_sends_clients_of_a_node_that_drains_to_the_other_at_once(tmp_path, certified):
    for name in ("node", "other"):
        (tmp_path / name).mkdir()
    gateway = {"forwarded_from": [HOST], "drain_s": 0}
    async with (
        place(tmp_path / "node", gateway=gateway) as node,
        place(tmp_path / "other", gateway=gateway) as other,
        nginx_before(tmp_path, certified, node, other) as port,
    ):
        await other.node.drain()  # it listens on, and refuses
        for _ in range(4):  # each node is the first choice of some
            await first_book(port, certified[0], node.key)
        await node.node.drain()
        with pytest.raises(InvalidStatus) as refused:
            await first_book(port, certified[0], node.key)
    assert refused.value.response.status_code == 503
    assert int(refused.value.response.headers["Retry-After"]) > 0


# What a client of the proxy sends over TLS and then leaves: each state of its connection.
POST = "POST /api/v1/auth HTTP/1.1\r\nHost: books.example\r\n"
BEHIND = {
    "connected": "",
    "headers": "GET /livez HTTP/1.1\r\nHost: books",
    "body": f"{POST}Content-Length: 9\r\n\r\na",
    "next request": "GET /livez HTTP/1.1\r\nHost: books.example\r\n\r\n",
    "body after an early answer": f"{POST}Content-Length: 99999\r\n\r\na",
    "next request after the rest of a body": f"{POST}Content-Length: 3\r\n\r\na",
}


@needs_nginx
async def test_every_state_of_a_connection_behind_nginx_has_an_end(tmp_path, certified):
    """The timeouts of the example, a tenth as long; the node's are those of its own suite."""
    (tmp_path / "node").mkdir()
    quick = {"header_timeout_s": 0.5, "body_timeout_s": 1.0, "write_timeout_s": 0.5}
    async with (
        place(tmp_path / "node", gateway={"forwarded_from": [HOST]}, server=quick) as node,
        nginx_before(tmp_path, certified, node, hurried=True) as port,
    ):
        trusted = ssl.create_default_context(cafile=str(certified[0].file))
        peers = {state: await asyncio.open_connection(HOST, port, ssl=trusted) for state in BEHIND}
        dripping = []
        for state, (_, writer) in peers.items():
            writer.write(BEHIND[state].encode())
            if "body" in state:
                dripping.append(asyncio.create_task(drip(writer)))
        for state, (reader, writer) in peers.items():
            try:
                async with asyncio.timeout(15):
                    await reader.read()
            except ConnectionError:
                pass
            except TimeoutError:
                pytest.fail(f"nginx holds a connection open: {state}")
            writer.close()
        for each in dripping:
            each.cancel()
        await asyncio.gather(*dripping, return_exceptions=True)


async def drip(writer):
    while True:
        await asyncio.sleep(0.2)
        writer.write(b"b")
        await writer.drain()


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
async def test_books_come_through_caddy(tmp_path, certified):
    authority, certificate, key = certified
    port = free_port()
    text = (DEPLOY / "caddy" / "Caddyfile").read_text()
    site = f"https://{HOST}:{port} {{\n\tbind {HOST}\n\ttls {certificate} {key}"
    assert "\nbooks.example {" in text
    text = "{\n\tadmin off\n\tauto_https off\n}\n" + text.replace("books.example {", site)
    (tmp_path / "node").mkdir()
    async with place(tmp_path / "node", gateway={"forwarded_from": [HOST]}) as node:
        assert "reverse_proxy 127.0.0.1:8000 {" in text
        text = text.replace("127.0.0.1:8000", node.url.removeprefix("http://"))
        (tmp_path / "Caddyfile").write_text(text)
        words = ("caddy", "run", "--adapter", "caddyfile", "--config", tmp_path / "Caddyfile")
        async with running(port, *words):
            book = await first_book(port, authority, node.key)
    assert len(book["bids"]) == 5
