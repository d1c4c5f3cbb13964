"""Keys over two gateways: caps on connections, rates, suspension and the bill, on PostgreSQL."""

import asyncio
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from databases import database
from e2e.service import client_of, settings_in, ws_url
from nodes.servers import nats_server
from onebook import app
from onebook.accounts.admin import Admin
from onebook.accounts.billing import period_at
from onebook.accounts.pepper import load_pepper
from onebook.accounts.sessions import SESSIONS_PER_KEY_MAX
from onebook.model import Tier
from onebook.nodes.membership import NodeRole
from onebook.store import AuditedChange, Store, UsageCell
from steady import PATIENCE_S, own_s

CAP = 5
REVOKED_S = 2.0
SESSION_STATUS = "/api/v1/session-status"


@pytest.fixture
def url(tmp_path):
    with database("postgresql", tmp_path) as address:
        yield address


@asynccontextmanager
async def gateways(folder, url, count=2, **accounts):
    async with AsyncExitStack() as stack:
        port = stack.enter_context(nats_server())
        settings = settings_in(
            folder,
            node={"role": "gateway", "heartbeat_timeout_s": 60.0, "isolated_s": 60.0},
            nats={"servers": (f"nats://127.0.0.1:{port}",)},
            store={"url": url.replace("postgresql", "postgresql+asyncpg")},
            gateway={"drain_s": 0, "connects_per_minute": 0},
            accounts=accounts,
        )
        nodes = [await stack.enter_async_context(app.running(settings)) for _ in range(count)]
        admin = Admin(nodes[0].store, load_pepper(settings.store.pepper_file))
        await admin.create_account("alice", change())
        created = await admin.create_key("alice", Tier.BASIC, change())
        async with asyncio.timeout(PATIENCE_S):
            while any(len(alive(each)) < count for each in nodes):
                await asyncio.sleep(0.01)
        yield nodes, admin, created, stack


def alive(node):
    return node.supervisor.presence.members.alive(NodeRole.GATEWAY)


def change():
    return AuditedChange(time.time_ns() // 1_000_000, "tests", "a test")


async def opened(node, text):
    """A connection that has sent its key, and the type of the reply."""
    socket = await connect(ws_url(node), compression=None, close_timeout=1)
    await socket.recv()
    await socket.send(json.dumps({"type": "authenticate", "api_key": text}))
    async with asyncio.timeout(PATIENCE_S):
        answer = json.loads(await socket.recv())
    return socket, answer.get("error", answer["type"])


def total(node, key_id):
    """The connections of a key that a gateway counts: its own and other gateways'."""
    here = len(node.gateway.connections.of_key(key_id))
    return here + node.gateway.authenticator.peers.elsewhere(key_id)


async def counted(nodes, key_id, wanted):
    async with asyncio.timeout(PATIENCE_S):
        while any(total(node, key_id) != wanted for node in nodes):
            await asyncio.sleep(0.01)


async def closed(socket):
    """The code that a connection is closed with."""
    try:
        while True:
            await socket.recv()
    except ConnectionClosed as end:
        return end.rcvd.code


async def test_a_key_has_its_connections_once_over_all_gateways(tmp_path, url):
    async with gateways(tmp_path, url) as (nodes, _, key, stack):
        sockets = []
        for number in range(CAP):
            socket, answer = await opened(nodes[number % 2], key.text)
            stack.push_async_callback(socket.close)
            assert answer == "welcome"
            sockets.append(socket)
        await counted(nodes, key.row.key_id, CAP)
        for node in nodes:
            socket, answer = await opened(node, key.text)
            await socket.close()
            assert answer == "connection_limit_exceeded"
        await sockets[0].close()
        await counted(nodes, key.row.key_id, CAP - 1)
        socket, answer = await opened(nodes[1], key.text)
        stack.push_async_callback(socket.close)
        assert answer == "welcome"


async def test_connections_opened_at_one_moment_are_cut_to_the_cap(tmp_path, url):
    async with gateways(tmp_path, url) as (nodes, _, key, stack):
        found = await asyncio.gather(*(opened(nodes[n % 2], key.text) for n in range(2 * CAP)))
        for socket, _answer in found:
            stack.push_async_callback(socket.close)
        await counted(nodes, key.row.key_id, CAP)


async def test_a_suspension_closes_the_key_s_sockets_on_every_gateway_within_2_s(tmp_path, url):
    async with gateways(tmp_path, url) as (nodes, admin, key, _):
        sockets = [(await opened(node, key.text))[0] for node in nodes]
        began = own_s()
        await admin.move_key(key.row.key_id, "suspend", change())
        codes = await asyncio.gather(*map(closed, sockets))
        assert own_s() - began < REVOKED_S
        assert codes == [4002, 4002]


async def test_an_immediate_rotation_closes_the_old_text_s_sockets_on_every_gateway_within_2_s(
    tmp_path, url
):
    async with gateways(tmp_path, url) as (nodes, admin, key, _):
        sockets = [(await opened(node, key.text))[0] for node in nodes]
        began = own_s()
        new = await admin.rotate_key(key.row.key_id, change(), overlap_ms=0)
        codes = await asyncio.gather(*map(closed, sockets))
        assert own_s() - began < REVOKED_S
        assert codes == [4002, 4002]
        for node in nodes:
            socket, answer = await opened(node, new.text)
            await socket.close()
            assert answer == "welcome"


async def test_a_key_that_expires_is_closed_on_every_gateway_within_2_s(tmp_path, url):
    async with gateways(tmp_path, url) as (nodes, admin, _, _):
        lives_s = 1.0
        expires_at_ms = time.time_ns() // 1_000_000 + int(lives_s * 1_000)
        key = await admin.create_key("alice", Tier.BASIC, change(), expires_at_ms=expires_at_ms)
        began = own_s()
        sockets = [(await opened(node, key.text))[0] for node in nodes]
        codes = await asyncio.gather(*map(closed, sockets))
        assert time.time_ns() // 1_000_000 >= expires_at_ms
        assert own_s() - began < lives_s + REVOKED_S
        assert codes == [4002, 4002]


async def test_a_session_that_another_gateway_ended_is_over_everywhere_within_2_s(tmp_path, url):
    async with gateways(tmp_path, url) as (nodes, _, key, stack):
        https = [await stack.enter_async_context(httpx.AsyncClient()) for _ in nodes]

        async def session(number):
            answer = await https[number].post(
                f"{nodes[number].url}/api/v1/authenticate", json={"api_key": key.text}
            )
            return answer.json()["session_token"]

        async def status(number, token):
            bearer = {"Authorization": f"Bearer {token}"}
            answer = await https[number].get(f"{nodes[number].url}{SESSION_STATUS}", headers=bearer)
            return answer.status_code

        first = await session(0)
        assert [await status(number, first) for number in (0, 1)] == [200, 200]
        for _ in range(SESSIONS_PER_KEY_MAX):
            second = await session(1)  # at last the first has to go
        began = own_s()
        for number in (0, 1):
            while await status(number, first) != 401:
                assert own_s() - began < REVOKED_S
                await asyncio.sleep(0.02)
            assert await status(number, second) == 200


async def test_what_both_gateways_delivered_is_billed_to_the_byte_at_a_stop(tmp_path, url):
    async with AsyncExitStack() as outer:
        nodes, _, key, _ = await outer.enter_async_context(gateways(tmp_path, url))
        clients = [await outer.enter_async_context(client_of(node, key.text)) for node in nodes]
        for _ in range(5):
            for client in clients:
                await client.say(type="get_exchanges")
                await client.kind("exchanges_data")
        received = [client.received_bytes for client in clients]
        account = nodes[0].settings.store.url
    assert min(received) > 0
    async with Store(account) as store:
        period = period_at(key.row.created_at_ms, key.row.created_at_ms)
        assert await store.usage.total(UsageCell(key.row.key_id, period.start_ms)) == sum(received)
