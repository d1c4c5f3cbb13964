"""Goal 11: 1,000 streams on 8,000 clients at 10 updates a second, for as long as it is watched.

Every stream is another view (symbol, exchanges, depth) of 18 books that change 50 times a second;
each has 8 clients. What counts: the updates that each client really got, the node's share of its
core, and that no client was skipped.

    sustained.py [--clients 8000] [--streams 1000] [--seconds 10]
"""

import argparse
import asyncio
import itertools
import time

import load
import node as product
import uvloop
from fanout import SIX, settled

from onebook import app
from timing import report

SYMBOLS = ["BTC/USDT", "ETH/USDT", "SOL/USDT"]
DEPTHS = range(8, 18)
EXCHANGES_MAX = 3
INTERVAL_MS = 100
CHANGE_S = 0.02


def views(count: int, interval_ms: int = INTERVAL_MS) -> list[list[dict[str, object]]]:
    """So many different subscriptions, of about a kilobyte an update."""
    choices = [
        list(chosen)
        for size in range(1, EXCHANGES_MAX + 1)
        for chosen in itertools.combinations(SIX, size)
    ]
    made = [
        [{"symbol": symbol, "exchanges": exchanges, "depth": depth, "levels": "array",
          "interval_ms": interval_ms}]
        for depth, exchanges, symbol in itertools.product(DEPTHS, choices, SYMBOLS)
    ]  # fmt: skip
    assert len(made) >= count, f"there are only {len(made)} views"
    return made[:count]


async def watch(node: app.Node, sink: load.Sink, hand: product.Hand, seconds: float) -> None:
    fanout, streams = node.gateway.fanout, node.gateway.streams
    published, skipped = streams.published_total, fanout.conflated_total
    received, cpu, began = sink.received, time.process_time(), time.monotonic()
    due = began
    late_s = 0.0
    while due < began + seconds:
        hand.change()
        due += CHANGE_S
        late_s = max(late_s, time.monotonic() - due)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    took = time.monotonic() - began
    share = (time.process_time() - cpu) / took
    published = streams.published_total - published
    updates = published / len(streams) / took
    await settled(sink)
    values = {
        "updates a second": updates,
        "share of a core": share,
        "messages a second": published * sink.clients / len(streams) / took,
        "bytes a message": (sink.received - received) / (published * sink.clients / len(streams)),
        "skipped": fanout.conflated_total - skipped,
        "longest delay ms": late_s * 1e3,
    }
    report(f"{len(streams)} streams on {sink.clients} clients", values, "")


async def measure(words: argparse.Namespace) -> None:
    async with product.running(words.clients) as node:
        keys = await product.keys_for(node, words.clients)
        hellos = product.hellos(keys, views(words.streams))
        with load.Sink(node.address[1], words.clients, hellos) as sink:
            await product.subscribed(node, sink, 1)
            hand = product.Hand(node, SIX, SYMBOLS)
            hand.fill()
            await settled(sink)
            await watch(node, sink, hand, words.seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=8_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    words = parser.parse_args()
    load.settle_on(0)
    uvloop.run(measure(words))


if __name__ == "__main__":
    main()
