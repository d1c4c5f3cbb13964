"""Nodes as processes of one cluster, with simulated exchanges in the test's process."""

import asyncio
import os
import re
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from nodes.servers import nats_server
from onebook import config
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.model import Tier
from onebook.simulator import SimulatedExchanges
from onebook.store import AuditedChange, Store
from steady import PATIENCE_S, waited_s

EXCHANGES = ("okx", "kraken", "gate")
SYMBOLS = ("BTC/USDT", "ETH/USDT")
RATE_HZ = 5


class Cluster:
    """The processes of one cluster, and their output."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.running = {}
        self.places = {}  # host and port of each
        self.urls = {}
        self.logs = {}
        self._stack = stack

    def settings(self, nats_url, urls, store_url, drain_s):
        """Write the settings file that all nodes share."""
        lines = [
            "[server]\nport = 0",
            f"[store]\nurl = '{store_url}'",
            f"pepper_file = '{self.folder}/pepper'",
            f"[transactions]\nmaster_key_file = '{self.folder}/master_key'",
            f"[nats]\nservers = ['{nats_url}']",
            f"[gateway]\ndrain_s = {drain_s}\nconnects_per_minute = 0",
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
        """Create the database, and a key in it."""
        async with Store(settings.store.url) as store:
            await store.database.upgrade(create=True)
            admin = Admin(store, load_pepper(settings.store.pepper_file))
            change = AuditedChange(time.time_ns() // 1_000_000, "tests", "a test's key")
            await admin.create_account("alice", change)
            return (await admin.create_key("alice", Tier.PREMIUM, change)).text

    async def start(self, name, role, *, before=(), program=("-m", "onebook"), **variables):
        """Start a node and wait until it is ready.

        Args:
            before: Words of the command before the node's own.
            program: What Python runs.
            variables: Of its environment.
        """
        process = await asyncio.create_subprocess_exec(
            *before,
            *(
                sys.executable,
                *program,
                "serve",
                "--config",
                str(self.folder / "onebook.toml"),
            ),
            *("--role", role),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "ONEBOOK_NODE__NAME": name, **variables},
        )
        self.running[name] = process
        self.logs[name] = []
        self._stack.push_async_callback(self._end, process)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                line = (await process.stderr.readline()).decode()
                assert line, "".join(self.logs[name])
                self.logs[name].append(line)
                found = re.search(r"listens on http://([\d.]+:\d+)", line)
                if found:
                    break
        self.places[name] = found[1]
        self.urls[name] = f"ws://{found[1]}/api/v1/ws"
        reader = asyncio.create_task(self._read(process, self.logs[name]))
        self._stack.callback(reader.cancel)
        await self.until_ready(name, 200)

    async def until_ready(self, name, expected):
        """Wait for an answer of a node's /readyz."""
        async with httpx.AsyncClient() as http, asyncio.timeout(PATIENCE_S):
            while (await http.get(f"http://{self.places[name]}/readyz")).status_code != expected:
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

    async def served(self, name):
        """The number of books that a feeds node serves, by its metrics."""
        async with httpx.AsyncClient() as http:
            page = (await http.get(f"http://{self.places[name]}/metrics")).text
        counts = re.findall(r"^onebook_node_books{.*} (\S+)$", page, re.MULTILINE)
        return round(sum(map(float, counts)))

    async def busiest(self, names, books):
        """The feeds node that serves most of N books, and its number of books."""
        async with asyncio.timeout(PATIENCE_S):
            while True:  # the metric follows every quarter of a second
                counts = {name: await self.served(name) for name in names}
                if sum(counts.values()) == books:
                    return max(counts.items(), key=lambda each: each[1])
                await asyncio.sleep(0.05)

    def waits_s(self):
        """Seconds that each process, this one included, has waited for a processor."""
        return {"self": waited_s(), **{n: waited_s(p.pid) for n, p in self.running.items()}}

    def starved_s(self, before):
        """The longest such wait since then."""
        now = self.waits_s()
        return max(now[name] - before[name] for name in now.keys() & before.keys())


@asynccontextmanager
async def cluster(
    folder, *, nats_url=None, store_url=None, exchanges=EXCHANGES, rate_hz=RATE_HZ, drain_s=5
):
    """Simulated exchanges, NATS, a settings file and a key in a database; no node yet.

    By default NATS is started here, and the database is SQLite.
    """
    store_url = store_url or f"sqlite+aiosqlite:///{folder}/onebook.db"
    async with AsyncExitStack() as stack:
        if nats_url is None:
            nats_url = f"nats://127.0.0.1:{stack.enter_context(nats_server())}"
        simulated = await stack.enter_async_context(SimulatedExchanges(exchanges, rate_hz=rate_hz))
        for each in exchanges:
            simulated[each].admit_all()
        nodes = Cluster(folder, stack)
        settings = nodes.settings(nats_url, simulated.urls, store_url, drain_s)
        key = await nodes.key(settings)
        yield nodes, simulated, key


async def followed_once(simulated):
    """Wait until each book is followed by one connection."""
    async with asyncio.timeout(PATIENCE_S):
        while any(simulated[e].followers(s) != 1 for e in EXCHANGES for s in SYMBOLS):
            await asyncio.sleep(0.02)


async def all_fresh(subscribers, tasks):
    """Wait until each book is live and new everywhere; fail if a subscriber failed."""
    fresh = asyncio.gather(*(each.fresh() for each in subscribers))
    done, _ = await asyncio.wait(
        (fresh, *tasks), timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
    )
    if fresh not in done:
        fresh.cancel()
        for each in done:
            await each
        raise AssertionError("a subscriber ended, or no book came")


def states_of(subscriber, since):
    """The health states that a subscriber received since then, by book."""
    found = {}
    for exchange, symbol, state, _ in subscriber.statuses[since:]:
        found.setdefault((exchange, symbol), []).append(state)
    return found
