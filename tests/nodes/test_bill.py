"""What a gateway that is killed did not bill: at most its last flush, and nothing twice."""

import asyncio
import json
import os
import re
import signal
import time
from contextlib import AsyncExitStack

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from databases import database
from nodes.servers import binary
from onebook import config
from onebook.accounts.periods import period_at
from onebook.simulator.server import SimulatedExchanges
from onebook.store import Store, UsageCell
from steady import PATIENCE_S, waited_s
from workers.test_group import key_in, started, written

LOST_S = 1.0  # the flush interval, 0.25 s of a slow write and the time of one write
CLIENTS = 6
BEFORE_S = 2.5  # of updates before the kill


class Reader:
    """A client that notes when it had received how many billed bytes."""

    def __init__(self, socket):
        self.socket = socket
        self.noted = []  # (monotonic s, bytes so far)
        self.cut = False

    @property
    def received(self):
        return self.noted[-1][1]

    def updated(self, for_s):
        """Whether it has received for so long."""
        return len(self.noted) > 1 and self.noted[-1][0] - self.noted[0][0] >= for_s

    def received_by(self, at):
        return max((count for when, count in self.noted if when <= at), default=0)

    async def run(self, key):
        await self.socket.recv()  # the first welcome is before the key, and nobody's
        await self.socket.send(json.dumps({"type": "authenticate", "api_key": key}))
        view = {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "interval_ms": 50}
        await self.socket.send(json.dumps(view))
        count = 0
        try:
            while True:
                count += len((await self.socket.recv()).encode())
                self.noted.append((time.monotonic(), count))
        except ConnectionClosed as end:
            self.cut = end.rcvd is None


async def billed(url):
    """The bytes that the database has for the one key."""
    async with Store(url) as store:
        (key,) = await store.keys()
        period = period_at(key.created_at_ms, key.created_at_ms)
        return await store.usage(UsageCell(key.key_id, period.start_ms))


@pytest.fixture
def url(tmp_path):
    with database("postgresql", tmp_path) as address:
        yield address.replace("postgresql", "postgresql+asyncpg")


async def test_a_killed_gateway_loses_at_most_its_last_flush_and_others_nothing(tmp_path, url):
    binary()
    async with SimulatedExchanges(["okx"], rate_hz=20) as simulated:
        simulated["okx"].admit_all()
        file = written(tmp_path, simulated.urls)
        file.write_text(re.sub(r"url = '.*db'", f"url = '{url}'", file.read_text()))
        assert config.load(file).store.url == url
        key = await key_in(file)
        async with started(file) as service, AsyncExitStack() as stack:
            port = (await service.logged(r"All gateways listen on port (\d+)"))[1]
            where = f"ws://127.0.0.1:{port}/api/v1/ws"
            pid = service.pids()["gateway-1"]
            waited = waited_s(pid)
            readers = []
            for _ in range(CLIENTS):
                connecting = connect(where, compression=None, close_timeout=1)
                readers.append(Reader(await stack.enter_async_context(connecting)))
            tasks = [asyncio.create_task(each.run(key)) for each in readers]
            async with asyncio.timeout(PATIENCE_S):
                while any(not each.updated(BEFORE_S) for each in readers):
                    await asyncio.sleep(0.05)
            waited = waited_s(pid) - waited
            killed_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            await service.logged(r"gateway-1 works again")
            service.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*tasks)
                assert await service.process.wait() == 0
        counted = await billed(url)
    received = sum(each.received for each in readers)
    safe_at = killed_at - LOST_S - waited
    lost_most = sum(each.received - each.received_by(safe_at) for each in readers if each.cut)
    print(f"received {received}, billed {counted}, may lose {lost_most}")
    assert received - lost_most <= counted <= received
