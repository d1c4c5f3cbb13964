"""Exports from a client's perspective, over real sockets to the API and the file host."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from e2e.service import client_of, key_of, node_on
from gateway.test_transactions import seen
from onebook.model import DAY_MS
from onebook.simulator import SimulatedExchanges
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx
from onebook.simulator.accounts.okx.exports import SimulatedOkxFiles
from onebook.simulator.accounts.serving import serving
from onebook.transactions.credentials import Credentials
from steady import PATIENCE_S
from transactions.okx_support import KEY
from transactions.unpaced import unpaced

DAYS = 200
HOUR_MS = 3_600_000


def now_ms():
    return time.time_ns() // 1_000_000


class World:
    """A node, a client, and an account whose exchange makes exports at once."""

    def __init__(self):
        self.ahead_ms = 0
        self.from_ms = now_ms() - DAYS * DAY_MS
        account = OkxAccount(OkxHistory(self.from_ms, now_ms(), rows=120))
        self.files = SimulatedOkxFiles(account, now_ms=lambda: now_ms() + self.ahead_ms)
        self.okx = SimulatedOkx(account, [KEY], files=self.files, limited=False)


@asynccontextmanager
async def world(folder):
    there = World()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(asyncio.timeout(PATIENCE_S * 3))
        stack.enter_context(unpaced())
        url, there.files.url = await enter(serving(there.okx)), await enter(serving(there.files))
        still = await enter(SimulatedExchanges(["okx"], rate_hz=0))
        there.node = await enter(
            node_on(
                still.urls,
                folder,
                transactions={
                    "overrides": {"okx": {"mainnet_url": url, "hosts": {"files": there.files.url}}},
                    "master_key_file": str(folder / "master_key"),
                },
            )
        )
        credentials = Credentials(KEY.api_key, KEY.secret, passphrase=KEY.passphrase)
        vault = there.node.transactions._vault
        await vault.put("okx", "mainnet", credentials, now_ms=now_ms())
        there.key = await key_of(there.node)
        there.client = await enter(client_of(there.node, there.key, max_size=None))
        yield there


async def fetched(there):
    """The REST response."""
    async with httpx.AsyncClient(base_url=there.node.url, timeout=PATIENCE_S) as client:
        answer = await client.post("/api/v1/authenticate", json={"api_key": there.key})
        headers = {"Authorization": f"Bearer {answer.json()['session_token']}"}
        answer = await client.post(
            "/api/v1/transactions",
            headers=headers,
            json={"exchange": "okx", "transaction_types": ["ledger"], "start_time": there.from_ms},
        )
        answer.raise_for_status()
        return answer.json()


async def test_a_client_hears_which_exports_it_has_to_wait_for(tmp_path):
    async with world(tmp_path) as there:
        asked_ms = now_ms()
        await there.client.say(
            action="subscribe_transactions",
            exchange="okx",
            transaction_types=["ledger"],
            start_time=there.from_ms,
            live=False,
        )
        *progress, answer, done = await seen(there.client, "transaction_complete")
        assert progress[-1]["type"] == "transaction_progress"
        (newest, *_) = progress[-1]["exports"]
        assert newest["exchange"] == "okx"
        assert newest["requested_at"] is None or newest["requested_at"] >= asked_ms
        (entry,) = answer["coverage"]
        assert entry["reason"] == "export_pending"
        assert answer["errors"][0]["error"] == "export_pending"
        assert done["partial"]
        # Later, the same question has the whole answer, and no more to wait for.
        jobs = there.node.transactions._exports
        while jobs.working:
            await asyncio.wait(jobs.working)
        there.ahead_ms = HOUR_MS
        whole = await fetched(there)
        assert (whole["partial"], whole["errors"]) == (False, [])
        (entry,) = whole["coverage"]
        assert entry["complete"]
        assert len(whole["transactions"]) > len(answer["transactions"])
        assert there.files.downloads
        assert len(list((tmp_path / "exports").iterdir())) == there.files.downloads
