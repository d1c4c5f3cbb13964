"""Goal 9, second half: memory of the process for each authenticated client that is idle.

The difference between two crowds, so that what the first client brings along does not count.

    idle.py [--clients 4000]
"""

import argparse
import asyncio
import gc

import load
import node as product
import uvloop

from timing import report

FIRST = 500
CALM_S = 1.5  # a tick of the gateway and a flush of the meter have passed


async def settled_memory() -> int:
    await asyncio.sleep(CALM_S)
    gc.collect()
    return load.resident()


async def measure(clients: int) -> None:
    async with product.running(FIRST + clients) as node:
        keys = await product.keys_for(node, FIRST + clients)
        hellos = list(product.hellos(keys, [[]]))
        port, connections = node.address[1], node.gateway.connections
        with load.Sink(port, FIRST, hellos[:FIRST]) as first:
            await product.subscribed(node, first, 0)
            before = await settled_memory()
            with load.Sink(port, clients, hellos[FIRST:]) as second:
                while sum(each.processor.key is not None for each in connections) < FIRST + clients:
                    second.check()
                    await asyncio.sleep(0.1)
                after = await settled_memory()
    report("idle authenticated client", {"onebook": (after - before) / clients / 1024}, "KiB")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=4_000)
    words = parser.parse_args()
    load.settle_on(0)
    uvloop.run(measure(words.clients))


if __name__ == "__main__":
    main()
