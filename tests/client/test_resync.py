"""The clients reconnect if a requested full book does not arrive."""

import pytest
from websockets.asyncio.server import serve

from client.test_js import needs_node, run
from client.test_watch import GAP, HOST, Scripted, seen, update
from onebook.client import session

STATUS = {
    "type": "exchange_status", "symbol": "BTC/USDT", "exchange": "okx", "state": "stale",
}  # fmt: skip
ACCEPTED = {"type": "aggregated_subscription_response", "id": "BTC/USDT", "symbol": "BTC/USDT"}
SECOND = ["hear", "hear", update(1, 12), "stay"]


@pytest.mark.parametrize("message", [GAP, STATUS])
async def test_what_else_comes_is_no_answer_to_a_resync(monkeypatch, message):
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_S", 0.05)
    script = Scripted(
        ["hear", "hear", update(1, 10), "seen", GAP, "seen", "hear", message, "stay"], SECOND
    )
    assert await seen(script, 4) == [(True, 10), (False, None), (False, None), (True, 12)]


async def test_a_subscription_that_is_accepted_has_a_book_in_time(monkeypatch):
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_S", 0.05)
    script = Scripted(["hear", "hear", ACCEPTED, STATUS, "stay"], SECOND)
    assert await seen(script, 2) == [(False, None), (True, 12)]


LATER = """
import { Onebook } from "MODULE";
const seen = [];
let late = 0;
const now = performance.now.bind(performance);
performance.now = () => now() + late;
const client = new Onebook(process.env.ONEBOOK_URL, "the key", { random: () => 0 });
for await (const view of client.watch("BTC/USDT")) {
  seen.push(view.problem?.code ?? view.bids[0].price);
  if (view.problem?.code === "gap") late += 11_000;
  process.stdout.write("seen\\n");
  if (view.live && late) break;
}
console.log(JSON.stringify(seen));
"""


@needs_node
@pytest.mark.parametrize("message", [GAP, STATUS])
async def test_in_node_what_else_comes_is_no_answer_to_a_resync(message):
    script = Scripted(
        ["hear", "hear", update(1, 10), "seen", GAP, "seen", "hear", message, message, "stay"],
        SECOND,
    )
    async with serve(script, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await run(
            LATER,
            on_line=lambda line: script.seen.release(),
            ONEBOOK_URL=f"http://{HOST}:{port}",
        )
    assert found == ["10", "gap", "no_answer", "12"]
