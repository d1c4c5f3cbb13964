"""What a feeds node and a gateway add to the way from a frame to a client's bytes, in milliseconds.

    python bench/macro/nodes_latency.py --rate 2000 --seconds 15

The same load on one process and on a feeds node, a nats-server and a gateway, in turn. Where the
exchanges are connected, 10 levels of the open books change at a rate, as feeds change them; the
amount of the best bid is the monotonic time of the change. A client follows every book by its best
level at the shortest interval and subtracts. Exchanges, nodes and client have a process each. CPU
is that of a process over the frames that were applied: with merging, encoding and sending to the
one client, and in the feeds node and the one process with what makes the changes.
"""

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import msgspec
import node as product
import uvloop
from msgspec import Raw, Struct
from websockets.asyncio.client import connect

from nodes import cpu_of, nats_server
from onebook import app, config
from onebook.app import feeder
from onebook.exchanges.kit import Delta
from onebook.model import Health
from timing import report

EXCHANGES = ("binance", "okx", "bybit", "kraken", "kucoin", "htx", "mexc", "bitget")
LEVELS = 5  # that change on each side
INTERVAL_MS = 10
TICK_S = 0.0005
WARM_S = 3.0
WAIT_S = 60.0


class Data(Struct):
    """What the client reads of an update's data."""

    bids: list[list[Any]]


class Update(Struct):
    """What the client reads of a message."""

    type: str
    subscription_id: str = ""
    data: Data | None = None


def settings_of(folder: Path, role: str, port: int) -> config.Settings:
    """The settings of one node."""
    return config.load(
        overrides={
            **product.files_in(folder),
            "gateway": {"drain_s": 0, "connects_per_minute": 0},
            "node": {"role": role},
            "nats": {"servers": (f"nats://127.0.0.1:{port}",)},
        }
    )


async def line() -> str:
    """A line of the standard input."""
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


async def side(words: argparse.Namespace) -> None:
    """One node: "go" on its standard input changes books for some seconds, its end stops it."""
    urls = json.loads(words.places)
    places = {
        name: config.ExchangeSettings(ws_url=ws, rest_url=rest) for name, (ws, rest) in urls.items()
    }
    settings = settings_of(Path(words.folder), words.side, words.port)
    async with AsyncExitStack() as stack:
        if words.side == "feeds":
            node = await stack.enter_async_context(feeder.running(settings, overrides=places))
            say(pid=os.getpid())
        else:
            running = app.running(settings, overrides=places, gateway_limits=product.QUICK)
            node = await stack.enter_async_context(running)
            assert await node.catalogue.first_read(WAIT_S)
            keys = await product.keys_for(node, len(EXCHANGES))
            listed = {
                name: [each.symbol for each in node.catalogue.listed(name)] for name in places
            }
            say(pid=os.getpid(), url=node.url, key=keys[0], listed=listed)
        while (await line()).strip():
            await changed(node.books, words.rate, words.seconds + WARM_S)


async def changed(books, rate: int, seconds: float) -> None:
    """Change the live books in turn at a rate; print how many changes there were."""
    live = [each for each in books if each.health is Health.LIVE]
    touched = []
    for book in live:
        bids, asks = book.core.top(LEVELS)
        (best, _), *rest = bids
        others = ",".join(f'["{price}","{{0}}"]' for price, _ in rest)
        lower = ",".join(f'["{price}","{{0}}"]' for price, _ in asks)
        touched.append((book.instrument, best, others, lower))
    began, sent, late_s = time.monotonic(), 0, 0.0
    for instrument, best, others, lower in itertools.cycle(touched):
        now = time.monotonic()
        while (due := began + sent / rate) > now:
            await asyncio.sleep(max(TICK_S, due - now))
            now = time.monotonic()
        late_s = max(late_s, now - due)
        if now - began >= seconds:
            break
        stamp, amount = int(now * 1e6), 1 + sent % 7
        bids = f'[["{best}","{stamp}"],{others.replace("{0}", str(amount))}]'
        asks = f"[{lower.replace('{0}', str(amount))}]"
        delta = Delta(instrument, Raw(bids.encode()), Raw(asks.encode()))
        assert books.change(delta, now) is None
        sent += 1
    say(frames=sent, books=len(live), late_s=late_s)


class Node:
    """A process of one role."""

    def __init__(self, stack: ExitStack, words: argparse.Namespace, **values: object) -> None:
        command = [sys.executable, __file__, "--rate", str(words.rate)]
        command += ["--seconds", str(words.seconds)]
        for name, value in values.items():
            command += [f"--{name}", str(value)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(self._end)

    async def answer(self) -> dict:
        text = await asyncio.to_thread(self.process.stdout.readline)
        assert text, "a node ended"
        return json.loads(text)

    def go(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def _end(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.process.stdout.close()


class Client:
    """Follows every book; notes how old each update's change was."""

    def __init__(self) -> None:
        self.latencies_ms: list[float] = []
        self.live: set[tuple[str, str]] = set()
        self.counting = False

    async def follow(self, url: str, key: str, name: str, symbols: list[str]) -> None:
        path = url.replace("http", "ws", 1) + "/api/v1/ws"
        decoder = msgspec.json.Decoder(Update, strict=False)
        stamps: dict[str, int] = {}
        async with connect(path, compression=None, close_timeout=1) as socket:
            view = {"exchanges": [name], "depth": 1, "levels": "array", "interval_ms": INTERVAL_MS}
            for text in product.hello(key, *({"symbol": each, **view} for each in symbols)):
                await socket.send(text)
            async for text in socket:
                now_ms = time.monotonic() * 1e3
                update = decoder.decode(text)
                if update.data is None:
                    assert "error" not in text, text
                    continue
                if not update.data.bids:
                    continue
                book = update.subscription_id
                self.live.add((name, book))
                stamp = int(float(update.data.bids[0][1]))
                if self.counting and stamp > 1_000_000 and stamps.get(book) != stamp:
                    self.latencies_ms.append(now_ms - stamp / 1e3)
                stamps[book] = stamp


async def once(places: dict, words: argparse.Namespace, *, many: bool) -> dict[str, float]:
    """One run on one process, or on a feeds node and a gateway."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port, broker = stack.enter_context(nats_server()) if many else (4222, None)
        common = {"folder": folder, "port": port, "places": json.dumps(places)}
        feeds = Node(stack, words, side="feeds" if many else "all", **common)
        answer = await feeds.answer()
        pids = {"feeds node" if many else "one process": answer["pid"]}
        if many:
            answer = await Node(stack, words, side="gateway", **common).answer()
            pids |= {"gateway": answer["pid"], "nats-server": broker}
        client = Client()
        wanted = sum(map(len, answer["listed"].values()))
        async with asyncio.timeout(2 * WAIT_S + words.seconds):
            tasks = [
                asyncio.create_task(client.follow(answer["url"], answer["key"], name, symbols))
                for name, symbols in answer["listed"].items()
            ]
            while len(client.live) < wanted:
                for task in tasks:
                    assert not task.done(), task.exception()
                await asyncio.sleep(0.1)
            feeds.go()
            await asyncio.sleep(WARM_S)
            before = {name: cpu_of(pid) for name, pid in pids.items()}
            client.counting = True
            await asyncio.sleep(words.seconds)
            client.counting = False
            used = {name: cpu_of(pid) - before[name] for name, pid in pids.items()}
            done = await feeds.answer()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    frames = done["frames"] * words.seconds / (words.seconds + WARM_S)
    found = sorted(client.latencies_ms)
    return {
        "books": done["books"],
        "frames/s": frames / words.seconds,
        "updates/s": len(found) / words.seconds,
        "changes late ms": done["late_s"] * 1e3,
        "p50 ms": found[len(found) // 2],
        "p99 ms": found[len(found) * 99 // 100],
        "p99.9 ms": found[len(found) * 999 // 1000],
        **{f"{name} us a frame": each / frames * 1e6 for name, each in used.items()},
    }


async def measure(words: argparse.Namespace) -> None:
    with product.still_exchanges() as settings:
        places = {name: (settings[name].ws_url, settings[name].rest_url) for name in EXCHANGES}
        for _ in range(words.runs):
            one = await once(places, words, many=False)
            many = await once(places, words, many=True)
            report("one process", one, "")
            report("feeds node, nats-server, gateway", many, "")
            names = ("p50 ms", "p99 ms", "p99.9 ms")
            report("added", {name: many[name] - one[name] for name in names}, "")


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--rate", type=int, default=2_000, help="changes a second, all books")
    words.add_argument("--seconds", type=float, default=15.0)
    words.add_argument("--runs", type=int, default=2)
    words.add_argument("--side", choices=("all", "feeds", "gateway"))
    words.add_argument("--folder")
    words.add_argument("--port", type=int)
    words.add_argument("--places")
    given = words.parse_args()
    uvloop.run(side(given) if given.side else measure(given))


if __name__ == "__main__":
    main()
