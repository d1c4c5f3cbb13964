"""The past in both clients, from a history that a node recorded, into the present."""

import asyncio
import sys
from contextlib import aclosing, asynccontextmanager

from client.test_js import needs_node
from client.test_js import run as run_js
from docs.examples import blocks, environment, finished
from gateway.rig import SYMBOL, settled
from gateway.test_past import recording
from onebook.client import watch

PAST = 40


@asynccontextmanager
async def recorded(folder):
    """A node with a past of `PAST` changes, and changes and records until the block ends."""
    async with recording(folder) as (node, _, recorder):
        node.snapshot("okx")
        start = node.clock.wall_us()
        number = 0
        ended = False

        async def change():
            nonlocal number
            while not ended:
                number += 1
                node.delta("okx", [("100", str(number + 1))])
                await asyncio.sleep(0.01)  # the market's pace
                if number % 10 == 0:
                    await recorder.flush()

        changing = asyncio.create_task(change())
        await settled(lambda: number > PAST)
        try:
            yield node, start
        finally:
            ended = True
            await changing


def amount_of(view):
    return next(int(each.amount) for each in view.bids if each.price == 100)


OPTIONS = {"exchanges": "okx", "interval_ms": 0, "depth": 5}


async def test_python_yields_every_update_of_the_past_to_a_slow_loop_across_reconnects(tmp_path):
    async with recorded(tmp_path) as (node, start):
        amounts, lost = [], 0
        url = f"http://127.0.0.1:{node.port}"
        views = watch(url, await node.key(), SYMBOL, start=start, speed=0, **OPTIONS)
        async with aclosing(views):
            async for view in views:
                if not view.live:
                    lost += 1
                    continue
                if not view.past:
                    break
                amounts.append(amount_of(view))
                await asyncio.sleep(0)
                if len(amounts) == PAST // 2:
                    for each in tuple(node.gateway.connections):
                        each.output.transport.abort()
            live = [amount_of(await anext(views)) for _ in range(3)]
        assert lost
        seen = [each for at, each in enumerate(amounts) if not at or each != amounts[at - 1]]
        assert seen == [*range(1, len(seen) + 1)]
        assert len(seen) > PAST // 2
        assert seen[-1] <= live[0] <= live[-1]


JS = """
import { Onebook } from "MODULE";

const { ONEBOOK_URL: url, ONEBOOK_KEY: key, START } = process.env;
const seen = { amounts: [], past: [], ended: null };
const session = new Onebook(url, key).session({
  view: (view, message) => {
    if (!view.live || message?.type === "exchange_status") return;
    seen.amounts.push(Number(view.bids.find(({ price }) => price === "100").amount));
    seen.past.push(view.past);
    if (!view.past && seen.past.length > seen.ended.at + 5) session.stop();
  },
  notice: (message) => {
    if (message.type !== "history_end") return;
    seen.ended = { at: seen.past.length, until: message.recorded_until };
  },
});
const options = { exchanges: ["okx"], intervalMs: 0, depth: 5, start: START, speed: 0 };
session.subscribe("BTC/USDT", options);
await session.run();
console.log(JSON.stringify(seen));
"""


@needs_node
async def test_javascript_calls_its_handler_for_every_update(tmp_path):
    async with recorded(tmp_path) as (node, start):
        url = f"http://127.0.0.1:{node.port}"
        seen = await run_js(JS, ONEBOOK_URL=url, ONEBOOK_KEY=await node.key(), START=str(start))
    ended = seen["ended"]["at"]
    assert seen["past"] == [True] * ended + [False] * (len(seen["past"]) - ended)
    amounts = seen["amounts"]
    distinct = [each for at, each in enumerate(amounts) if not at or each != amounts[at - 1]]
    assert distinct == [*range(1, len(distinct) + 1)]
    assert ended > PAST // 2
    assert seen["ended"]["until"]


async def test_the_example_of_the_guide_runs(tmp_path):
    (program,) = blocks("guides/history.md", "python", "play")
    async with recorded(tmp_path) as (node, start):
        given = environment(f"http://127.0.0.1:{node.port}", await node.key())
        program = program.replace('"2026-11-27T14:03:00", speed=10', f'"{start}", speed=0')
        assert str(start) in program
        ends = "            if not view.past:\n                break\n"
        status, out, errors = await finished(sys.executable, "-u", "-c", program + ends, **given)
    assert (status, errors) == (0, "")
    lines = out.splitlines()
    assert len(lines) > 3  # 100 ms apart
    assert {line.split()[0] for line in lines[:-1]} == {"past"}
    assert lines[-1].startswith("live ")
