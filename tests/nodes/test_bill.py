"""Usage that a killed gateway did not bill: at most its last flush, and nothing twice."""

import asyncio
import json
import time
from contextlib import AsyncExitStack

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from databases import database
from nodes.processes import cluster
from onebook import config
from onebook.accounts.billing import period_at
from onebook.app import feeder
from onebook.store import Store, UsageCell
from steady import PATIENCE_S, waited_s

LOST_S = 1.0  # the flush interval, 0.25 s of a slow write and the time of one write
CLIENTS = 3  # of each gateway
BEFORE_S = 1.5  # of updates before the kill


class Reader:
    """A client that records when it had received how many billed bytes."""

    def __init__(self, socket):
        self.socket = socket
        self.noted = []  # (monotonic s, bytes so far)
        self.cut = False
        self._reached = asyncio.Event()

    @property
    def received(self):
        return self.noted[-1][1]

    def received_by(self, at):
        return max((count for when, count in self.noted if when <= at), default=0)

    async def reached(self):
        """Return once it has received for `BEFORE_S`."""
        await self._reached.wait()

    async def run(self, key):
        await self.socket.recv()  # the first welcome comes before the key and is not charged
        await self.socket.send(json.dumps({"type": "authenticate", "api_key": key}))
        view = {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "interval_ms": 50}
        await self.socket.send(json.dumps(view))
        count = 0
        try:
            while True:
                count += len((await self.socket.recv()).encode())
                self.noted.append((time.monotonic(), count))
                if self.noted[-1][0] - self.noted[0][0] >= BEFORE_S:
                    self._reached.set()
        except ConnectionClosed as end:
            self.cut = end.rcvd is None


async def billed(url):
    """The billed bytes of the one key in the database."""
    async with Store(url) as store:
        (key,) = await store.accounts.list_keys()
        period = period_at(key.created_at_ms, key.created_at_ms)
        return await store.usage.total(UsageCell(key.key_id, period.start_ms))


@pytest.fixture
def url(tmp_path):
    with database("postgresql", tmp_path) as address:
        yield address


async def test_a_killed_gateway_loses_at_most_its_last_flush_and_others_nothing(tmp_path, url):
    async with AsyncExitStack() as stack:
        each = {"exchanges": ("okx",), "rate_hz": 20, "store_url": url, "drain_s": 0}
        nodes, _, key = await stack.enter_async_context(cluster(tmp_path, **each))
        settings = config.load(
            tmp_path / "onebook.toml", overrides={"node": {"role": "feeds", "name": "feeds"}}
        )
        await stack.enter_async_context(feeder.running(settings))
        gateways = ("g1", "g2")
        await asyncio.gather(*(nodes.start(name, "gateway") for name in gateways))
        readers = []
        for name in gateways * CLIENTS:
            connecting = connect(nodes.urls[name], compression=None, close_timeout=1)
            readers.append(Reader(await stack.enter_async_context(connecting)))
        tasks = [asyncio.create_task(each.run(key)) for each in readers]
        pid = nodes.running["g1"].pid
        waited = waited_s(pid)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(each.reached() for each in readers))
        waited = waited_s(pid) - waited
        killed_at = time.monotonic()
        await nodes.kill("g1")
        await nodes.start("g1", "gateway")  # takes in what the killed one left, if anything
        assert await asyncio.gather(*(nodes.stop(name) for name in gateways)) == [0, 0]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*tasks)
    counted = await billed(url)
    received = sum(each.received for each in readers)
    safe_at = killed_at - LOST_S - waited
    assert sum(each.cut for each in readers) == CLIENTS
    lost_most = sum(each.received - each.received_by(safe_at) for each in readers if each.cut)
    safe = sum(each.received_by(safe_at) for each in readers if each.cut)
    print(f"received {received}, billed {counted}, may lose {lost_most} and not {safe}")
    assert received - lost_most <= counted <= received
