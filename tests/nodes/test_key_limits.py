"""Limits of one key over two gateway processes, real NATS and PostgreSQL: requests and connections.

The sans-I/O tests of the same are `test_key_rates.py`.
"""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import NamedTuple

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from databases import database
from nodes.processes import cluster
from onebook import config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.config import TierSettings
from onebook.gateway import LIMITS
from onebook.model import Tier
from onebook.store import AuditedChange, Store
from steady import PATIENCE_S

GATEWAYS = ("g1", "g2")
LIMIT = TierSettings().basic.requests_per_minute
CAP = TierSettings().basic.connections_max
OVER_MAX = 1.05  # of what the key is entitled to
UNDER_MAX = 0.95  # a limit over many gateways must not cost the key requests
FLOOD_S = 8.0
BATCH = 10  # requests and commands between two looks at the clock
BATCH_S = 0.2
LATER_S = 3.0  # a gateway where the key is first used so late finds nearly all of it taken
CONNECTION_LIMIT = 4004
REFUSED_S = 2 / LIMITS.flood_per_s  # after a refused command, so that they are no flood
# A busy machine must not look like a dead node.
VARIABLES = {
    "ONEBOOK_NODE__HEARTBEAT_TIMEOUT_S": "60",
    "ONEBOOK_NODE__ISOLATED_S": "60",
    "ONEBOOK_LOG__ACCESS": "false",
}


@pytest.fixture
def url(tmp_path):
    with database("postgresql", tmp_path) as address:
        yield address


class Flood(NamedTuple):
    """The responses to requests or commands at one gateway."""

    granted: int
    refused: int


@asynccontextmanager
async def gateways(folder, url):
    """Two gateway processes, and the feeds process that they need to be ready."""
    async with cluster(folder, store_url=url, exchanges=("okx",), rate_hz=0) as (nodes, _, _):
        await nodes.start("f1", "feeds", **VARIABLES)
        await asyncio.gather(*(nodes.start(name, "gateway", **VARIABLES) for name in GATEWAYS))
        try:
            yield nodes
        finally:
            for name, lines in nodes.logs.items():
                print(name, "".join(lines))


async def basic_key(nodes, account):
    """The text of a key of the basic tier."""
    settings = config.load(nodes.folder / "onebook.toml")
    async with Store(settings.store.url) as store:
        admin = Admin(store, load_pepper(settings.store.pepper_file))
        change = AuditedChange(time.time_ns() // 1_000_000, "tests", "a test's key")
        await admin.create_account(account, change)
        return (await admin.create_key(account, Tier.BASIC, change)).text


async def requests(place, key, begins_at, ends_at):
    """Send requests over REST, as fast as they are answered."""
    granted = refused = 0
    async with httpx.AsyncClient(base_url=f"http://{place}", timeout=PATIENCE_S) as http:
        made = await http.post("/api/v1/authenticate", json={"api_key": key})
        bearer = {"Authorization": f"Bearer {made.json()['session_token']}"}
        await until(begins_at)
        while time.monotonic() < ends_at:
            for _ in range(BATCH):
                answer = await http.get("/api/v1/session-status", headers=bearer)
                assert answer.status_code in (200, 429), answer.text
                granted += answer.status_code == 200
                refused += answer.status_code == 429
            await asyncio.sleep(BATCH_S)
    return Flood(granted, refused)


async def commands(url, key, begins_at, ends_at):
    """Send commands over a WebSocket, as fast as they are answered."""
    granted = refused = 0
    async with connect(url, compression=None, close_timeout=1) as socket:
        await socket.recv()
        await socket.send(json.dumps({"type": "authenticate", "api_key": key}))
        assert json.loads(await socket.recv())["type"] == "welcome"
        await until(begins_at)
        while time.monotonic() < ends_at:
            for _ in range(BATCH):
                await socket.send('{"type":"ping"}')
            answered = 0
            while answered < BATCH:
                answer = json.loads(await socket.recv())
                if answer["type"] == "rate_limit_warning":
                    continue
                answered += 1
                if answer["type"] == "pong":
                    granted += 1
                else:
                    assert answer["error"] == "rate_limit_exceeded", answer
                    refused += 1
                    await asyncio.sleep(REFUSED_S)
            await asyncio.sleep(BATCH_S)
    return Flood(granted, refused)


async def until(moment):
    while time.monotonic() < moment:
        await asyncio.sleep(0.01)


async def flooded(nodes, key, later_s):
    """Flood both gateways by REST and WebSocket, the second one from `later_s` on."""
    began = time.monotonic() + 1.0  # connections and sessions are made by then
    ends = began + FLOOD_S
    async with asyncio.TaskGroup() as group:
        floods = []
        for name, begins in zip(GATEWAYS, (began, began + later_s), strict=True):
            rest = requests(nodes.places[name], key, begins, ends)
            floods.append(group.create_task(rest))
            ws = commands(nodes.urls[name], key, begins, ends)
            floods.append(group.create_task(ws))
    # The bucket, which is full, and what it gets meanwhile.
    entitled = LIMIT * (1 + (time.monotonic() - began) / 60)
    results = [each.result() for each in floods]
    granted = sum(each.granted for each in results)
    print(f"granted {granted} of {entitled:.0f}, {granted / entitled:.3f}: {results}")
    assert all(each.refused > 0 for each in results)
    assert UNDER_MAX * entitled <= granted <= OVER_MAX * entitled


async def test_requests_and_commands_over_two_gateways_get_the_limit_once(tmp_path, url):
    async with gateways(tmp_path, url) as nodes:
        await flooded(nodes, await basic_key(nodes, "at one moment"), 0.0)
        await flooded(nodes, await basic_key(nodes, "one after the other"), LATER_S)


async def opened(url, key):
    """A connection that has sent its key."""
    socket = await connect(url, compression=None, close_timeout=1)
    await socket.recv()
    await socket.send(json.dumps({"type": "authenticate", "api_key": key}))
    return socket


async def lasting(socket):
    """Whether a connection answers its ping; if not, the code that it is closed with."""
    kinds = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            await socket.send('{"type":"ping"}')
            while "pong" not in kinds:
                kinds.append(json.loads(await socket.recv())["type"])
    except ConnectionClosed as end:
        return end.rcvd and end.rcvd.code
    return None


async def test_connections_opened_at_one_moment_on_two_gateways_are_cut_to_the_cap(tmp_path, url):
    async with gateways(tmp_path, url) as nodes:
        key = await basic_key(nodes, "bob")
        places = [nodes.urls[name] for name in GATEWAYS] * CAP
        sockets = await asyncio.gather(*(opened(place, key) for place in places))
        try:
            # Closing one too many takes the time in which the gateways learn of one another's.
            async with asyncio.timeout(PATIENCE_S):
                while sum(each.state is State.CLOSED for each in sockets) < len(places) - CAP:
                    await asyncio.sleep(0.01)
            codes = await asyncio.gather(*map(lasting, sockets))
            assert codes.count(None) == CAP
            assert codes.count(CONNECTION_LIMIT) == len(places) - CAP
            # The place of one that leaves is free again on the other gateway, and no more than it.
            kept = [number for number, code in enumerate(codes) if code is None]
            await sockets[kept[0]].close()
            other = nodes.urls[GATEWAYS[1 - kept[0] % 2]]
            async with asyncio.timeout(PATIENCE_S):
                while await lasting(again := await opened(other, key)) is not None:
                    await asyncio.sleep(0.05)
            sockets.append(again)
            assert await lasting(await opened(other, key)) == CONNECTION_LIMIT
        finally:
            for socket in sockets:
                await socket.close()
