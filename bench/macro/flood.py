"""What floods from ten sockets cost the other clients: p99, server CPU, longest turn of the loop.

The node runs in this process; the flood and the clients that are measured run in processes of
their own. A book changes every 20 ms and its amount is the time at which the change was due, so
that a client knows how old an update is, stalls of the server included. Updates that a stall kept
back count as well (https://www.infoq.com/presentations/latency-response-time/). Rounds without
and with each flood alternate; medians count. A flood ends by itself.

    flood.py [--kinds pings,half_frames] [--rounds 5] [--seconds 3] [--sockets 10]
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

import flooder
import load
import node as product
import uvloop
from websockets.asyncio.client import connect

from onebook import app, gateway

CHANGE_S = 0.02
BEAT_S = 0.001
CLIENTS = 20
SYMBOL = "BTC/USDT"
VIEW = {"symbol": SYMBOL, "exchanges": ["okx"], "depth": 1, "interval_ms": 10, "levels": "array"}
PATIENCE_S = 30.0
START_S = 0.5  # until the flood's process waits for its line
AMOUNT = re.compile(r'"bids":\[\[[^,]+,([0-9.]+)')
MINUTES = itertools.count()


# The clients that are measured


async def watch(port: int, key: str) -> None:
    """Say "ready", then answer each line of input with the latencies since the last, sorted."""
    latencies: list[float] = []

    async def listen() -> None:
        uri = f"ws://127.0.0.1:{port}/api/v1/ws"
        async with connect(uri, compression=None, proxy=None, ping_interval=None) as client:
            for line in product.hello(key, VIEW):
                await client.send(line)
            async for text in client:
                found = AMOUNT.search(text)
                if found and float(found[1]) > 100:
                    age = time.monotonic() - float(found[1])
                    while age > 0:  # an update was due every CHANGE_S of it
                        latencies.append(age)
                        age -= CHANGE_S

    load.settle_on(1)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(listen()) for _ in range(CLIENTS)]
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(sorted(latencies)), flush=True)
            latencies.clear()
        for task in tasks:
            task.cancel()


class Clients:
    """The measured clients' process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def latencies(self) -> list[float]:
        """What was measured since the last call."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(PATIENCE_S):
            return json.loads(await self._process.stdout.readline())


class Loop:
    """The longest turn of the event loop, seen from a tick of one millisecond.

    `busiest_s` is the most CPU time between two ticks: what other programs on the machine do does
    not lengthen it.
    """

    def __init__(self) -> None:
        self.longest_s = self.busiest_s = 0.0

    async def run(self) -> None:
        while True:
            began, spent = time.monotonic(), time.thread_time()
            await asyncio.sleep(BEAT_S)
            self.busiest_s = max(self.busiest_s, time.thread_time() - spent)
            self.longest_s = max(self.longest_s, time.monotonic() - began - BEAT_S)


async def change(hand: product.Hand) -> None:
    """Change the best bid every CHANGE_S; its amount is when that was due."""
    due = time.monotonic()
    while True:
        due += CHANGE_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        hand.set_amount(f"{due:.4f}")
        due = max(due, time.monotonic() - CHANGE_S)  # what a stall kept back is not sent after it


async def one_round(
    clients: Clients, loop: Loop, kind: str, words: argparse.Namespace, port: int
) -> dict[str, float]:
    facts: dict[str, float] = {}
    process = None
    if kind:
        arguments = (kind, port, words.seconds, words.sockets, next(MINUTES))
        process = await asyncio.create_subprocess_exec(
            sys.executable, Path(__file__).with_name("flooder.py"), *map(str, arguments),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        await asyncio.sleep(START_S)
    await clients.latencies()
    loop.longest_s = loop.busiest_s = 0.0
    cpu = time.process_time()
    if process is not None:
        async with asyncio.timeout(words.seconds + PATIENCE_S):
            out, _ = await process.communicate(b"\n")
        facts = json.loads(out)
    else:
        await asyncio.sleep(words.seconds)
    facts["cpu_s"] = time.process_time() - cpu
    facts["longest_turn_ms"] = loop.longest_s * 1e3
    facts["busiest_turn_ms"] = loop.busiest_s * 1e3
    found = await clients.latencies()
    facts["p50_ms"] = statistics.median(found) * 1e3 if found else float("nan")
    facts["p99_ms"] = found[int(len(found) * 0.99)] * 1e3 if found else float("nan")
    return facts


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0]}


async def measure(words: argparse.Namespace) -> None:
    # The contract's limits, but for the measured clients, which all come from one address.
    async with product.running(1_000, limits=gateway.LIMITS, connects_per_minute=60) as node:
        (key, *_) = await product.keys_for(node, CLIENTS)
        hand = product.Hand(node, ["okx"], [SYMBOL])
        hand.fill()
        port = node.address[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--watch", str(port),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "FLOOD_KEY": key}, limit=1 << 26,
        )  # fmt: skip
        clients, loop = Clients(process), Loop()
        owned = [asyncio.create_task(loop.run())]
        try:
            while (
                sum(bool(each.processor.subscriptions) for each in node.gateway.connections)
                < CLIENTS
            ):
                await asyncio.sleep(0.05)
            owned.append(asyncio.create_task(change(hand)))
            await asyncio.sleep(0.5)
            for kind in words.kinds.split(","):
                await _compare(node, clients, loop, kind, words, port)
        finally:
            for task in owned:
                task.cancel()
            process.stdin.close()
            await process.wait()


async def _compare(
    node: app.Node, clients: Clients, loop: Loop, kind: str, words: argparse.Namespace, port: int
) -> None:
    quiet, flooded = [], []
    for _ in range(words.rounds):
        quiet.append(await one_round(clients, loop, "", words, port))
        flooded.append(await one_round(clients, loop, kind, words, port))
        await asyncio.sleep(0.2)
    ratios = [
        after["p99_ms"] / before["p99_ms"] for before, after in zip(quiet, flooded, strict=True)
    ]
    report = {
        "kind": kind,
        "p99_ratio": round(statistics.median(ratios), 2),
        "quiet": medians(quiet),
        "flood": medians(flooded),
    }
    print(json.dumps(report), flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--watch"]:
        uvloop.run(watch(int(sys.argv[2]), os.environ["FLOOD_KEY"]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default=",".join(flooder.KINDS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--sockets", type=int, default=10)
    words = parser.parse_args()
    load.settle_on(0)
    uvloop.run(measure(words))


if __name__ == "__main__":
    main()
