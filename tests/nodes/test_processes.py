"""Two feeds nodes and two gateways as processes, simulated exchanges, an oracle on each gateway.

Nodes are killed, join and are drained while books move; whatever happens, no gateway shows a level
as live that the exchange did not publish, or an older book after a newer one.
"""

import asyncio
import os
import re
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx

from nodes.oracle import Published, Subscriber
from nodes.servers import nats_server
from onebook import config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.model import Tier
from onebook.simulator.server import SimulatedExchanges
from onebook.store import AuditedChange, Store
from steady import PATIENCE_S, waited_s

EXCHANGES = ("okx", "kraken", "binance")
SYMBOLS = ("BTC/USDT", "ETH/USDT")
RATE_HZ = 10
BACK_S = 2.0  # a killed node's books are live and new again after so long


class Cluster:
    """Processes of one cluster and what they print."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.running = {}
        self.urls = {}
        self.logs = {}
        self._stack = stack

    def settings(self, nats_port, urls, **node):
        """Write the settings file that all nodes share."""
        lines = [
            "[server]\nport = 0",
            f"[store]\nurl = 'sqlite+aiosqlite:///{self.folder}/onebook.db'",
            f"pepper_file = '{self.folder}/pepper'",
            f"[transactions]\nmaster_key_file = '{self.folder}/master_key'",
            f"[nats]\nservers = ['nats://127.0.0.1:{nats_port}']",
            "[gateway]\ndrain_s = 5\nconnects_per_minute = 0",
            f"[feeds]\nexchanges = {list(urls)}",
        ]
        for name, each in urls.items():
            lines += [
                f"[feeds.overrides.{name}]",
                f"ws_url = '{each.ws}'\nrest_url = '{each.rest}'",
            ]
        (self.folder / "onebook.toml").write_text("\n".join(lines) + "\n")
        return config.load(self.folder / "onebook.toml")

    async def key(self, settings):
        """Make the database, and a key in it."""
        async with Store(settings.store.url) as store:
            await store.upgrade(create=True)
            admin = Admin(store, load_pepper(settings.store.pepper_file))
            change = AuditedChange(time.time_ns() // 1_000_000, "tests", "a test's key")
            await admin.create_account("alice", change)
            return (await admin.create_key("alice", Tier.PREMIUM, change)).text

    async def start(self, name, role):
        """Start a node and wait until it listens."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "onebook", "serve", "--config", str(self.folder / "onebook.toml")),
            *("--role", role),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "ONEBOOK_NODE__NAME": name},
        )
        self.running[name] = process
        self.logs[name] = []
        self._stack.push_async_callback(self._end, process)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                line = (await process.stderr.readline()).decode()
                assert line, "".join(self.logs[name])
                self.logs[name].append(line)
                found = re.search(r"listens on http://127\.0\.0\.1:(\d+)", line)
                if found:
                    break
        port = found.group(1)
        self.urls[name] = f"ws://127.0.0.1:{port}/api/v1/ws"
        reader = asyncio.create_task(self._read(process, self.logs[name]))
        self._stack.callback(reader.cancel)
        async with httpx.AsyncClient() as http, asyncio.timeout(PATIENCE_S):
            while (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code != 200:
                await asyncio.sleep(0.05)

    async def _read(self, process, lines):
        async for line in process.stderr:
            lines.append(line.decode())

    async def _end(self, process):
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        await process.wait()

    async def stop(self, name):
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            return await process.wait()

    def waits_s(self):
        """Seconds that each process waited for the processor so far, this one among them."""
        return {"self": waited_s(), **{n: waited_s(p.pid) for n, p in self.running.items()}}

    def starved_s(self, before):
        """The longest that one of them waited since."""
        now = self.waits_s()
        return max(now[name] - before[name] for name in now.keys() & before.keys())


@asynccontextmanager
async def cluster(folder):
    async with AsyncExitStack() as stack:
        port = stack.enter_context(nats_server())
        simulated = await stack.enter_async_context(SimulatedExchanges(EXCHANGES, rate_hz=RATE_HZ))
        for each in EXCHANGES:
            simulated[each].admit_all()
        nodes = Cluster(folder, stack)
        settings = nodes.settings(port, simulated.urls)
        key = await nodes.key(settings)
        yield nodes, simulated, key, settings


async def followed_once(simulated):
    """Wait until each book is followed by one connection."""
    async with asyncio.timeout(PATIENCE_S):
        while any(simulated[e].followers(s) != 1 for e in EXCHANGES for s in SYMBOLS):
            await asyncio.sleep(0.02)


async def all_fresh(subscribers, tasks):
    """Wait until each book is live and new everywhere; a subscriber that fails ends the wait."""
    fresh = asyncio.gather(*(each.fresh() for each in subscribers))
    done, _ = await asyncio.wait(
        (fresh, *tasks), timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
    )
    if fresh not in done:
        fresh.cancel()
        for each in done:
            await each
        raise AssertionError("a subscriber ended, or no book came")


def states(subscriber, since):
    """What a subscriber was told about health."""
    return [each[2] for each in subscriber.statuses[since:]]


async def test_nodes_die_join_and_leave_under_load(tmp_path):
    async with cluster(tmp_path) as (nodes, simulated, key, _):
        published = Published(simulated, SYMBOLS)
        await asyncio.gather(*(nodes.start(f"f{n}", "feeds") for n in (1, 2)))
        await asyncio.gather(*(nodes.start(f"g{n}", "gateway") for n in (1, 2)))
        subscribers = [Subscriber(published), Subscriber(published)]
        tasks = [
            asyncio.create_task(each.run(nodes.urls[f"g{n}"], key))
            for n, each in enumerate(subscribers, 1)
        ]
        try:
            await all_fresh(subscribers, tasks)
            await followed_once(simulated)

            # A feeds node is killed: its books are stale, then another node's, on every gateway.
            counts = [len(each.statuses) for each in subscribers]
            began = time.monotonic()
            await nodes.kill("f1")
            waits = nodes.waits_s()
            await followed_once(simulated)
            await all_fresh(subscribers, tasks)
            took_s = time.monotonic() - began
            assert took_s < BACK_S + nodes.starved_s(waits)
            for subscriber, count in zip(subscribers, counts, strict=True):
                told = states(subscriber, count)
                # Ids are drawn at each start: now and then the other node serves all these books.
                assert not told or ("stale" in told and told[-1] == "live")
            await followed_once(simulated)

            # Another joins and takes its share, and the one that was there leaves.
            await nodes.start("f3", "feeds")
            assert await nodes.stop("f2") == 0
            await all_fresh(subscribers, tasks)
            await followed_once(simulated)

            # A gateway is killed: its clients are served by the other one.
            await nodes.kill("g1")
            await tasks[0]
            again = Subscriber(published)
            tasks[0] = asyncio.create_task(again.run(nodes.urls["g2"], key))
            await all_fresh([again, subscribers[1]], tasks)
            await followed_once(simulated)
            for each in (*subscribers, again):
                assert each.wrong == []
                assert each.updates >= len(published.books)
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
            for name, lines in nodes.logs.items():
                print(name, "".join(lines))
        assert await nodes.stop("g2") == 0
        assert await nodes.stop("f3") == 0
