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
async def nginx_before(folder, certified, *nodes):
    """Run the example of nginx in front of nodes; its port."""
    _, certificate, key = certified
    port = free_port()
    text = (DEPLOY / "nginx" / "onebook.conf").read_text()
    text = re.sub(r"server \{\n    listen 80;.*?\n\}\n", "", text, flags=re.DOTALL)
    text = re.sub(r"listen \[::\]:443.*\n", "", text).replace("listen 443", f"listen {HOST}:{port}")
    for pattern, path in (("fullchain", certificate), ("privkey", key)):
        text = re.sub(rf"\S+{pattern}\.pem", str(path), text)
    text = text.replace("/var/log/nginx/", f"{folder}/")
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
