"""No step of a node under load blocks its event loop, measured in its own process."""

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from e2e.probed_node import COLLECTOR, ITERATION
from onebook.model import DAY_MS
from onebook.simulator import SimulatedExchanges
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.serving import serving
from steady import PATIENCE_S

TESTS = Path(__file__).parents[1]
ACCOUNT = SimulatedKey("account000000000", "secret0000000000000000000000000000")
# CPU seconds. Twice what is promised, because processes that share a core slow each other down.
STEP_MAX_S = 0.04
# Steps that may take longer, with the rows of docs/explanation/reliability.md.
LONGER = {
    COLLECTOR: 0.1,  # garbage collector
    ITERATION: 0.25,  # all steps that were ready, with the collector's
}
SCRAPERS = 8


@asynccontextmanager
async def probed(folder):
    """A node with a simulated account, and a function that returns its longest steps."""
    now_ms = time.time_ns() // 1_000_000
    account = Account(History(now_ms - 20 * DAY_MS, now_ms, executions=3_000))
    async with (
        SimulatedExchanges(["okx"], rate_hz=20) as simulated,
        serving(SimulatedBybit(account, [ACCOUNT])) as bybit,
    ):
        given = {
            "folder": str(folder),
            "exchanges": {name: (each.ws, each.rest) for name, each in simulated.urls.items()},
            "bybit": bybit,
            "credentials": [ACCOUNT.api_key, ACCOUNT.secret],
        }
        node = await asyncio.create_subprocess_exec(
            sys.executable, TESTS / "e2e" / "probed_node.py", json.dumps(given),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONDEVMODE": ""},
        )  # fmt: skip

        async def said():
            async with asyncio.timeout(PATIENCE_S):
                return json.loads(await node.stdout.readline())

        async def longest(word):
            node.stdin.write(f"{word}\n".encode())
            return await said()

        try:
            yield await said(), longest
        finally:
            node.stdin.close()
            async with asyncio.timeout(PATIENCE_S):
                await node.wait()


async def test_large_answers_and_scrapes_hold_the_loop_in_no_step(tmp_path):
    async with (
        probed(tmp_path) as (node, longest),
        httpx.AsyncClient(base_url=node["url"], timeout=PATIENCE_S) as http,
    ):
        answer = await http.post("/api/v1/authenticate", json={"api_key": node["keys"][0]})
        headers = {"Authorization": f"Bearer {answer.json()['session_token']}"}
        done = False

        async def scrape():
            while not done:
                assert (await http.get("/metrics")).status_code == 200

        async def fetch(accept):
            body = {"exchange": "bybit", "limit": 3_000}
            answer = await http.post(
                "/api/v1/transactions", json=body, headers=headers | {"Accept": accept}
            )
            assert answer.status_code == 200
            assert len(answer.content) > 1_000_000

        await http.get("/metrics")  # what is imported at the first use
        await longest("begin")
        scrapers = [asyncio.create_task(scrape()) for _ in range(SCRAPERS)]
        await asyncio.gather(fetch("application/json"), fetch("application/x-ndjson"))
        done = True
        await asyncio.gather(*scrapers)
        steps = await longest("end")
    too_long = {name: s for name, s in steps.items() if s > LONGER.get(name, STEP_MAX_S)}
    assert too_long == {}, "a step that no row of docs/explanation/reliability.md names"
