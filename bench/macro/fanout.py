"""Goals 6, 7, 8 and 11: one update of a stream to many clients, through the whole product.

A book changes; the node merges, encodes, frames and writes; a sink in another process counts what
arrives. What counts is the node's CPU time, kernel included, per delivered message. How many
bytes must arrive is taken from the product's own meter, so that each run also proves the meter:
everything that it counted arrived, and nothing else did.

    fanout.py --clients 1000 --size 12 [--streams 5] [--form json protobuf] [--packed] [--rest]
        [--hub]

With both forms half of the clients have binary updates of the same book, and there are two streams.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import load
import node as product
import uvloop

from onebook import app
from onebook.gateway import frames
from onebook.streams.streams import PUBLISHING_MAX_S
from timing import report

SIX = ["binance", "okx", "bybit", "coinbase", "kraken", "poloniex"]
SYMBOLS = ["BTC/USDT", "ETH/USDT", "SOL/USDT", "BTC/USD", "ETH/USD"]
# What a client asks for to get about so many kilobytes an update.
VIEWS: dict[int, tuple[list[str], dict[str, object]]] = {
    1: (["okx"], {"depth": 15, "levels": "array"}),
    12: (SIX, {"depth": 50, "levels": "object"}),
}
FORMS: dict[str, dict[str, object]] = {"json": {}, "protobuf": {"encoding": "protobuf"}}
INTERVAL_MS = 10
HEADER_BYTES = 4  # of a frame with a payload of 126 to 65,535 bytes
BLOCKS = 5
MESSAGES_PER_BLOCK = 10_000
TICKS_MIN = 4
PAUSE_S = 0.012  # a stream of 10 ms is due again; the others wait as long
POLL_S = 0.002
REST_REQUESTS = 30


class Ticks:
    """Changes books, and waits until every client has what followed."""

    def __init__(
        self, node: app.Node, sink: load.Sink, hand: product.Hand, streams: int, forms: int
    ) -> None:
        self._node = node
        self._sink = sink
        self._hand = hand
        self._streams = streams
        # One client of each form of updates, and how many there are.
        every = list(node.gateway.connections)
        binary = [bool(each.processor.numbers) for each in every]
        self._witnesses = [
            (every[binary.index(kind)].output, binary.count(kind))
            for kind in (False, True)
            if kind in binary
        ]
        assert len(self._witnesses) == forms
        self.wire_bytes = 0.0  # of all messages of one client and tick, on average
        self.reached_s: list[float] = []  # from the change to the last client

    async def tick(self) -> None:
        streams, sink = self._node.gateway.streams, self._sink
        published, metered, base = streams.published_total, self._metered(), sink.received
        began = time.monotonic()
        self._hand.change(self._streams)
        await asyncio.sleep(PAUSE_S)
        assert streams.published_total == published + self._streams * len(self._witnesses)
        expected = base
        for before, after, (_, clients) in zip(
            metered, self._metered(), self._witnesses, strict=True
        ):
            assert after - before >= 126 * self._streams, "shorter headers are not counted"
            expected += (after - before + HEADER_BYTES * self._streams) * clients
        self.wire_bytes = (expected - base) / sink.clients
        while sink.received < expected:
            if time.monotonic() > began + load.PATIENCE_S:
                raise TimeoutError(f"{expected - sink.received} bytes are missing")
            await asyncio.sleep(POLL_S)
        assert sink.received == expected, (sink.received, expected)
        self.reached_s.append(sink.last_s - began)

    def _metered(self) -> list[int]:
        return [output.sent + output.total for output, _ in self._witnesses]


async def settled(sink: load.Sink) -> None:
    """Wait until nothing arrives any more."""
    received = -1
    while received != sink.received:
        received = sink.received
        await asyncio.sleep(0.25)


async def measure(words: argparse.Namespace) -> None:
    exchanges, view = VIEWS[words.size]
    symbols = SYMBOLS[: words.streams]
    options = {"exchanges": exchanges, "interval_ms": INTERVAL_MS, **view}
    subscriptions = [
        [{"symbol": symbol, **options, **FORMS[form]} for symbol in symbols] for form in words.form
    ]
    async with product.running(words.clients) as node:
        keys = await product.keys_for(node, words.clients)
        hellos = product.hellos(keys, subscriptions)
        port = node.address[1]
        with load.Sink(port, words.clients, hellos, packed=words.packed) as sink:
            await product.subscribed(node, sink, words.streams)
            # One book of each stream is enough to change it: those of the first exchange.
            hand = product.Hand(node, exchanges, symbols)
            hand.fill()
            await settled(sink)
            ticks = Ticks(node, sink, hand, words.streams, len(words.form))
            await _report(node, ticks, words)
            if words.rest:
                await _beside_rest(node, keys[0], ticks)


async def _report(node: app.Node, ticks: Ticks, words: argparse.Namespace) -> None:
    count = max(TICKS_MIN, MESSAGES_PER_BLOCK // words.clients // words.streams)
    for _ in range(2):
        await ticks.tick()
    ticks.reached_s.clear()
    whole = await _blocks(ticks.tick, count, count * words.clients * words.streams)
    assert not node.gateway.fanout.conflated_total
    row = f"fan-out {words.size} KB to {words.clients} clients, {words.streams} a tick"
    form = {("json",): "", ("protobuf",): ", binary"}.get(tuple(words.form), ", both forms")
    name = "onebook" + form + ", compressed" * words.packed
    report(row, {name: whole}, "us a message")
    facts = {
        "wire bytes": ticks.wire_bytes / words.streams,
        "ms to the last client": statistics.median(ticks.reached_s) * 1e3,
    }
    report(f"{row}, {name}", facts, "")
    if words.hub:
        report(row, {f"{name}, hub only": await _hub_only(node, ticks, count)}, "us a message")


async def _blocks(tick, count: int, messages: int) -> float:
    blocks = load.Blocks()
    for _ in range(BLOCKS):
        blocks.begin()
        for _ in range(count):
            await tick()
        blocks.end(messages)
    return blocks.median


async def _hub_only(node: app.Node, ticks: Ticks, count: int) -> float:
    """The same without the change, the merge and the encoding: frame and write."""
    gateway, sink = node.gateway, ticks._sink
    streams = node.gateway.streams
    (stream,) = streams._open.values()
    payload = stream.full()
    packed = next(iter(gateway.connections)).output.packed
    size = len((frames.deflated_frame if packed else frames.text_frame)(payload))

    async def tick() -> None:
        expected = sink.received + size * sink.clients
        gateway.fanout.publish(stream, payload, stream.full)
        while gateway.fanout.flush(time.monotonic() + PUBLISHING_MAX_S):
            await asyncio.sleep(0)
        await asyncio.sleep(PAUSE_S)
        async with asyncio.timeout(load.PATIENCE_S):
            while sink.received < expected:
                await asyncio.sleep(POLL_S)

    return await _blocks(tick, count, count * sink.clients)


async def _beside_rest(node: app.Node, key: str, ticks: Ticks) -> None:
    """Real GET and POST requests on the same port while the updates go on."""
    script = Path(__file__).with_name("rest.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, node.url, str(REST_REQUESTS),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    load.settle_on(1, process.pid)
    talk = asyncio.create_task(process.communicate(key.encode()))
    delivered = 0
    while not talk.done():
        await ticks.tick()
        delivered += ticks._sink.clients
    answer, _ = talk.result()
    facts = json.loads(answer)
    assert facts.pop("failed") == 0, facts
    report("REST beside the fan-out", {**facts, "messages meanwhile": delivered}, "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--size", type=int, choices=VIEWS, default=1)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--form", nargs="+", choices=FORMS, default=["json"])
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--hub", action="store_true")
    words = parser.parse_args()
    load.settle_on(0)
    try:
        uvloop.run(measure(words))
    except subprocess.SubprocessError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
