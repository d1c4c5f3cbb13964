"""The example reverse proxies: a WebSocket client gets books through them, over TLS."""

import asyncio
import json
import re
import shutil
import ssl
from contextlib import asynccontextmanager

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from client.place import place
from deploy.proxies import HOST, NAME, caddy_files, free_ports, nginx_files, running
from e2e.test_tls import Authority
from onebook.http import HttpTimeouts
from steady import PATIENCE_S

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")

CLIENT_WAITS = (
    "client_header_timeout|client_body_timeout|send_timeout|keepalive_timeout|lingering_time"
)


async def first_book(port, authority, key):
    """The messages that a client receives: its authentication, then a book."""
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
async def before(files, folder, certified, *nodes):
    """Run an example in front of nodes; yields its ports without and with TLS."""
    ports = free_ports(2)
    places = [each.url.removeprefix("http://") for each in nodes]
    async with running(folder, ports, *files(folder, certified, *ports, *places)):
        yield ports


@needs_nginx
async def test_books_come_through_nginx(tmp_path, certified):
    (tmp_path / "node").mkdir()
    async with (
        place(tmp_path / "node", gateway={"forwarded_from": [HOST]}) as node,
        before(nginx_files, tmp_path, certified, node) as (_, port),
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
        before(nginx_files, tmp_path, certified, node, other) as (_, port),
    ):
        await other.node.drain()  # it listens on, and refuses
        for _ in range(4):  # each node is the first choice of some
            await first_book(port, certified[0], node.key)
        await node.node.drain()
        with pytest.raises(InvalidStatus) as refused:
            await first_book(port, certified[0], node.key)
    assert refused.value.response.status_code == 503
    assert int(refused.value.response.headers["Retry-After"]) > 0


def hurried_nginx_files(folder, *places):
    """The nginx example with its timeouts divided by ten."""
    words = nginx_files(folder, *places)
    text = (folder / "onebook.conf").read_text()
    hurried = re.sub(rf"\b({CLIENT_WAITS}) (\d+)s;", r"\1 \g<2>00ms;", text)
    assert hurried != text
    (folder / "onebook.conf").write_text(hurried)
    return words


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
    """The example's timeouts divided by ten; the node's are tested in its own suite."""
    (tmp_path / "node").mkdir()
    quick = HttpTimeouts(header_s=0.5, body_s=1.0, write_s=0.5)
    async with (
        place(tmp_path / "node", gateway={"forwarded_from": [HOST]}, timeouts=quick) as node,
        before(hurried_nginx_files, tmp_path, certified, node) as (_, port),
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
    (tmp_path / "node").mkdir()
    async with (
        place(tmp_path / "node", gateway={"forwarded_from": [HOST]}) as node,
        before(caddy_files, tmp_path, certified, node) as (_, port),
    ):
        book = await first_book(port, certified[0], node.key)
    assert len(book["bids"]) == 5


@pytest.mark.parametrize("files", [nginx_files, caddy_files])
async def test_pages_without_tls_are_redirected(tmp_path, certified, files):
    if shutil.which(files.__name__.removesuffix("_files")) is None:
        pytest.skip("it is not installed")
    (tmp_path / "node").mkdir()
    async with (
        place(tmp_path / "node", gateway={"forwarded_from": [HOST]}) as node,
        before(files, tmp_path, certified, node) as (port, _),
        httpx.AsyncClient(trust_env=False) as http,
    ):
        answer = await http.get(f"http://{HOST}:{port}/docs", headers={"Host": NAME})
    assert answer.status_code in (301, 308)
    assert answer.headers["Location"].startswith(f"https://{NAME}")
