"""The examples of reverse proxies in use: a WebSocket client gets books through them, over TLS."""

import asyncio
import json
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
from steady import PATIENCE_S

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")


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
async def before(files, folder, certified, *nodes):
    """Run an example in front of nodes; its ports without and with TLS."""
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
