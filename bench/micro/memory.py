"""Goal 9, first half: bytes a level of a full book costs, by the process's resident memory.

The deepest books are few, so the text that fills them would hide their memory: they state it
themselves (`Book.nbytes`), whole and after half of the levels were dropped and as many added
between the others, in random order.
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
DEPTHS = (1_000, 5_000)
DEEPEST = 50_000
CHANGED = 100  # levels a side that a frame drops, and adds


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def change(book: core.Book, snapshot: tuple[stream.Side, stream.Side]) -> None:
    chosen = random.Random(1)
    bids, asks = (
        [stream.price(ticks) for ticks, _ in chosen.sample(side, len(side) // 2)]
        for side in snapshot
    )
    for at in range(0, len(bids), CHANGED):
        texts = []
        for prices in (bids, asks):
            some = prices[at : at + CHANGED]
            rows = [[price, "0"] for price in some] + [[f"{price}5", "1"] for price in some]
            texts.append(json.dumps(rows).encode())
        book.apply(*texts)


def deepest() -> None:
    publish.DEPTH = DEEPEST
    (book,) = publish.books(1, core.Book)
    for when in ("", ", changed"):
        if when:
            change(book, publish._sides(0))
        cost = book.nbytes / (book.bid_count + book.ask_count)
        report(f"memory at depth {DEEPEST}{when}", {"onebook": cost}, "bytes a level")


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
        deepest()


if __name__ == "__main__":
    main()
