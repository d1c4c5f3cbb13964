"""Goal 9, first half: bytes a level of a full book costs, by the process's resident memory.

The deepest books are measured again after every second level was dropped and another one added, at
random prices.
"""

import gc
import json
import random
import resource
import sys

import publish

import stream
from onebook import core
from onebook.core import reference
from timing import report

BOOKS = 200
DEPTHS = (1_000, 5_000, 50_000)
CHANGED = 100  # levels a side of a frame of random changes


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def changed(number: int, book: core.Book) -> None:
    """Drop half of the levels in random order, and add as many between the others."""
    chosen = random.Random(number)
    frames = []
    for side in publish._sides(number):
        prices = [stream.price(ticks) for ticks, _ in chosen.sample(side, len(side) // 2)]
        frames.append(
            [
                [
                    row
                    for price in prices[at : at + CHANGED]
                    for row in ((price, 0), (f"{price}5", 1))
                ]
                for at in range(0, len(prices), CHANGED)
            ]
        )
    for bids, asks in zip(*frames, strict=True):
        book.apply(json.dumps(bids).encode(), json.dumps(asks).encode())


def main() -> None:
    module = reference if sys.argv[1:] == ["reference"] else core
    for depth in DEPTHS:
        publish.DEPTH = depth
        count = BOOKS * 1_000 // depth // (20 if module is reference else 1)
        publish.books(2, module.Book)
        gc.collect()
        before = resident()
        held = publish.books(count, module.Book)
        gc.collect()
        levels = sum(book.bid_count + book.ask_count for book in held)
        name = "onebook, pure Python" if module is reference else "onebook"
        report(f"memory at depth {depth}", {name: (resident() - before) / levels}, "bytes a level")
    if module is core:
        for number, book in enumerate(held):
            changed(number, book)
        gc.collect()
        cost = (resident() - before) / sum(book.bid_count + book.ask_count for book in held)
        report(f"memory at depth {depth}, changed", {name: cost}, "bytes a level")


if __name__ == "__main__":
    main()
