"""A node killed at any moment loses less than one second of usage and never counts twice.

Real processes, sockets and files: each node serves real clients over loopback until SIGKILL. The
second is promised of a process that gets its share of the processor: what the node had to wait for
it in its last seconds is allowed besides.
`CRASH_POINTS=200` is the long run (`make soak`).
"""

import asyncio
import os
import random
import shutil
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

import crashing
from e2e.service import PATIENCE_S, Client
from onebook.accounts import Admin
from onebook.accounts.keys import key_of
from onebook.accounts.pepper import load_pepper
from onebook.accounts.usage import apply_files, stored_usage
from onebook.model import Tier
from onebook.simulator import SimulatedExchanges
from onebook.store import AuditedChange, Store
from steady import waited_s
from together import forking

POINTS = int(os.environ.get("CRASH_POINTS", "6"))
SEED = 20_260_131
AT_ONCE = 2
CLIENTS = 2
LOST_MAX_S = 1.0
TIMEOUT_S = 60 + 30 * POINTS
WATCH_STEP_S = 0.05
NAMES = ["okx", "kraken"]
RATE_HZ = 20.0


class Loss(NamedTuple):
    """Seconds of unbilled usage, and how long the node waited for a processor."""

    wall_s: float
    waited_s: float

    @property
    def own_s(self):
        return self.wall_s - self.waited_s


@dataclass
class Point:
    """Bytes that one killed node delivered, by time of arrival, and bytes that it billed."""

    killed_at: float = 0.0
    metered: int = 0
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    waited: list[tuple[float, float]] = field(default_factory=list)  # for the processor, by time

    @property
    def received(self):
        return sum(count for _, count in self.arrivals)

    def loss(self):
        """Seconds before the kill at which the first unbilled byte arrived."""
        billed = self.metered
        for arrived_at, count in self.arrivals:
            billed -= count
            if billed < 0:
                waited = self._waited_by(self.killed_at) - self._waited_by(arrived_at)
                return Loss(self.killed_at - arrived_at, waited)
        return Loss(0.0, 0.0)

    def _waited_by(self, now_s):
        return max(waited for at, waited in self.waited if at <= now_s)

    async def watch(self, pid):
        """Record how long a process has waited for a processor, until cancelled."""
        while True:
            self.note(pid)
            await asyncio.sleep(WATCH_STEP_S)

    def note(self, pid):
        self.waited.append((time.monotonic(), waited_s(pid)))


@pytest.fixture(scope="module")
def nodes():
    """Starts node processes."""
    return forking()


@pytest.fixture
async def template(tmp_path):
    """A folder with a database and one key; copied for every node."""
    folder = tmp_path / "template"
    folder.mkdir()
    async with Store(f"sqlite:///{folder}/onebook.db") as store:
        await store.database.upgrade()
        admin = Admin(store, load_pepper(folder / "pepper"))
        change = AuditedChange(time.time_ns() // 1_000_000, "tests", "")
        await admin.create_account("alice", change)
        made = await admin.create_key("alice", Tier.ENTERPRISE, change)
    return folder, key_of(made.row), made.text


async def billed(folder, key):
    """The billed bytes after the next start has read the node's usage file."""
    async with Store(f"sqlite:///{folder}/onebook.db") as store:
        await apply_files(folder, "onebook.db", store, time.time_ns() // 1_000_000)
        return await stored_usage(store, key, time.time_ns() // 1_000_000)


async def client_on(address, text, point, stack):
    """Connect, authenticate and subscribe; return the task that reads to the end."""
    url = f"ws://{address[0]}:{address[1]}/api/v1/ws"
    socket = await stack.enter_async_context(connect(url, compression=None, close_timeout=1))
    client = Client(socket)
    await client.kind("welcome")
    await client.say(type="authenticate", api_key=text)
    await client.say(type="subscribe_aggregated", symbol="BTC/USDT", interval_ms=20)

    async def read():
        try:
            while True:
                message = await socket.recv()
                point.arrivals.append((time.monotonic(), len(message.encode())))
        except ConnectionClosed:
            return

    return asyncio.create_task(read())


async def cancelled(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def run_node(nodes, folder, urls, text, stop, **tables):
    """Serve clients until `stop` ends the process; return what they received."""
    point = Point()
    parent, child = nodes.Pipe()
    process = nodes.Process(target=crashing.serve, args=(folder, urls, child, tables))
    process.start()
    child.close()
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
            address = await asyncio.to_thread(parent.recv)
            watching = asyncio.create_task(point.watch(process.pid))
            stack.push_async_callback(cancelled, watching)
            readers = [await client_on(address, text, point, stack) for _ in range(CLIENTS)]
            while len(point.arrivals) < 2 * CLIENTS:
                await asyncio.sleep(0.01)
            await stop(process, point)
            await asyncio.gather(*readers)
            await asyncio.to_thread(process.join)
    finally:
        process.kill()
        process.join()
        status = process.exitcode
        process.close()
        parent.close()
    return point, status


@pytest.mark.timeout(TIMEOUT_S)
async def test_a_crash_loses_at_most_one_second_and_never_counts_twice(nodes, template, tmp_path):
    folder, key, text = template
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    turn = asyncio.Semaphore(AT_ONCE)

    async def crash(number, after_s):
        async def kill(process, point):
            await asyncio.sleep(after_s)
            point.note(process.pid)
            point.killed_at = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)

        async with turn:
            own = tmp_path / str(number)
            shutil.copytree(folder, own)
            point, _ = await run_node(nodes, own, simulated.urls, text, kill)
            point.metered = await billed(own, key)
            shutil.rmtree(own)
        return point

    async with SimulatedExchanges(NAMES, rate_hz=RATE_HZ) as simulated:
        points = await asyncio.gather(
            *(crash(number, chance.uniform(0.3, 2.5)) for number in range(POINTS))
        )
    losses = sorted((point.loss() for point in points), key=lambda loss: loss.own_s)
    print(
        f"{POINTS} points; lost seconds: median {losses[len(losses) // 2].own_s:.3f}, "
        f"greatest {[f'{each.own_s:.3f} + {each.waited_s:.3f} starved' for each in losses[-3:]]}, "
        f"by the wall clock {max(losses).wall_s:.3f}; "
        f"{sum(p.received for p in points)} bytes delivered, "
        f"{sum(p.received - p.metered for p in points)} not billed"
    )
    assert [p for p in points if p.metered > p.received] == [], "billed more than was delivered"
    assert losses[-1].own_s <= LOST_MAX_S
    assert any(p.received > p.metered > 0 for p in points), "killed in the middle of the work"


async def test_a_clean_stop_bills_every_byte(nodes, template):
    folder, key, text = template

    async def stop(process, point):
        await asyncio.sleep(0.7)
        os.kill(process.pid, signal.SIGTERM)

    async with SimulatedExchanges(NAMES, rate_hz=RATE_HZ) as simulated:
        point, status = await run_node(
            nodes, folder, simulated.urls, text, stop, gateway={"drain_s": 0.2}
        )
    assert (status, await billed(folder, key)) == (0, point.received)
