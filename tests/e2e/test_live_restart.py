"""A client follows an account while its node is killed: each missed record arrives once."""

import asyncio
import signal
import time

import httpx

from client.place import ACCOUNT, small_account
from e2e.service import settings_in
from e2e.test_process import listening, process
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.client import AsyncOnebook
from onebook.model import Tier
from onebook.store import AuditedChange, Store
from onebook.transactions.credentials import Credentials, Vault, master_keys
from steady import PATIENCE_S

TYPES = ["trades", "deposits"]


def now_ms():
    return time.time_ns() // 1_000_000


async def prepared(folder):
    """Make the database that nodes share, with credentials; returns the text of a key."""
    settings = settings_in(folder)
    async with Store(settings.store.url) as store:
        await store.database.upgrade(create=True)
        admin = Admin(store, load_pepper(settings.store.pepper_file))
        change = AuditedChange(now_ms(), "tests", "a test's key")
        await admin.create_account("alice", change)
        vault = Vault(store.credentials, master_keys(settings.transactions))
        credentials = Credentials(ACCOUNT.api_key, ACCOUNT.secret)
        await vault.put("bybit", "mainnet", credentials, now_ms=now_ms())
        return (await admin.create_key("alice", Tier.PREMIUM, change)).text


def environment(folder, url, port):
    return {
        "ONEBOOK_SERVER__PORT": str(port),
        "ONEBOOK_STORE__URL": f"sqlite+aiosqlite:///{folder / 'onebook.db'}",
        "ONEBOOK_STORE__PEPPER_FILE": str(folder / "pepper"),
        "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": str(folder / "master_key"),
        "ONEBOOK_TRANSACTIONS__OVERRIDES__BYBIT__MAINNET_URL": url,
        "ONEBOOK_FEEDS__EXCHANGES": "[]",
        "XDG_DATA_HOME": str(folder),
    }


class Followed:
    """What a client of the Python package received."""

    def __init__(self, url, key):
        self.records = []
        self.states = []
        self._events = AsyncOnebook(url, key).follow_transactions(
            "bybit", TYPES, start=now_ms() - 3_600_000
        )

    async def read(self):
        async for event in self._events:
            if event.change == "status":
                self.states.append(event.status["state"])
            else:
                self.records.append((event.change, event.record))

    @property
    def ids(self):
        return [record["transactionId"] for change, record in self.records if change != "updated"]


async def fetched(url, key):
    """The ids that a fetch returns now."""
    async with httpx.AsyncClient(base_url=url) as http:
        session = await http.post("/api/v1/authenticate", json={"api_key": key})
        answer = await http.post(
            "/api/v1/transactions",
            json={
                "exchange": "bybit", "transaction_types": TYPES, "limit": 10_000,
                "start_time": now_ms() - 3_600_000,
            },
            headers={"Authorization": f"Bearer {session.json()['session_token']}"},
        )  # fmt: skip
    assert answer.status_code == 200, answer.text
    return {each["transactionId"] for each in answer.json()["transactions"]}


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.05)


async def test_a_killed_node_comes_back_and_nothing_is_lost_or_told_twice(tmp_path):
    key = await prepared(tmp_path)
    async with small_account(days=2, executions=20) as served:
        bybit = served.exchange
        async with process("serve", **environment(tmp_path, served.url, 0)) as node:
            port = await listening(node)
            url = f"http://127.0.0.1:{port}"
            followed = Followed(url, key)
            reading = asyncio.create_task(followed.read())
            await until(lambda: "live" in followed.states)
            bybit.act("spot")
            bybit.act("deposit")
            await until(lambda: len(followed.ids) >= 2)
            node.send_signal(signal.SIGKILL)
            await node.wait()
        for kind in ("spot", "linear", "deposit"):
            bybit.act(kind)  # while no node runs
        async with process("serve", **environment(tmp_path, served.url, port)) as node:
            await listening(node)
            await until(lambda: followed.states.count("live") >= 2)
            bybit.act("spot")
            ids = await fetched(url, key)
            await until(lambda: set(followed.ids) >= ids)
            assert len(followed.ids) == len(set(followed.ids))
            assert set(followed.ids) == await fetched(url, key)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


class Balancer:
    """An address in front of the nodes, which connects to the current one."""

    def __init__(self):
        self.port = 0
        self._pipes = set()

    async def connected(self, reader, writer):
        onward = await asyncio.open_connection("127.0.0.1", self.port)
        pairs = ((reader, onward[1]), (onward[0], writer))
        for source, sink in pairs:
            pipe = asyncio.create_task(self._pipe(source, sink))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _pipe(self, source, sink):
        try:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()


async def test_the_client_of_a_killed_node_goes_on_at_another_one(tmp_path):
    key = await prepared(tmp_path)
    balancer = Balancer()
    async with (
        small_account(days=2, executions=20) as served,
        await asyncio.start_server(balancer.connected, "127.0.0.1", 0) as server,
        process("serve", **environment(tmp_path, served.url, 0)) as first,
        process("serve", **environment(tmp_path, served.url, 0)) as second,
    ):
        balancer.port, other = await listening(first), await listening(second)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        both = [Followed(address, key), Followed(f"http://127.0.0.1:{other}", key)]
        reading = [asyncio.create_task(each.read()) for each in both]
        await until(lambda: all("live" in each.states for each in both))
        for kind in ("spot", "linear", "deposit"):
            served.exchange.act(kind)
        ids = await fetched(address, key)
        await until(lambda: all(set(each.ids) >= ids for each in both))
        balancer.port = other
        first.send_signal(signal.SIGKILL)
        await first.wait()
        served.exchange.act("spot")
        ids = await fetched(address, key)
        await until(lambda: all(set(each.ids) >= ids for each in both))
        for each in both:
            assert len(each.ids) == len(set(each.ids))
            assert set(each.ids) == ids
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
