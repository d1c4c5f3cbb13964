"""Apply frames of 20 levels: ns per level at several depths, each frame seen once a pass.

    python bench/micro/core_apply.py [FOLDER]

`FOLDER` may hold another module `core` with a `Book().levels(bids, asks, 8, 8)` to run in turn
with ours. The stream is this file's own: a walk around the touch, a third of it deletes.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from onebook.core import COMPILED, Book

FRAMES = 3_000
LEVELS = 20
PASSES = 7


def text(levels: list[tuple[int, int]]) -> bytes:
    rows = (
        f'["{p // 100}.{p % 100:02d}000000","{q // 10**5}.{q % 10**5:05d}000"]' for p, q in levels
    )
    return ("[" + ",".join(rows) + "]").encode()


def stream(depth: int, seed: int) -> tuple[tuple[bytes, bytes], list[tuple[bytes, bytes]]]:
    """Return a whole book and frames of changes, most of them near the touch."""
    source = random.Random(seed)
    touch = 6_712_345

    def size() -> int:
        return source.randrange(1, 10 ** source.choice((3, 4, 5, 6)))

    def rank() -> int:
        return source.randrange(40) if source.random() < 0.8 else source.randrange(depth * 2)

    whole = [[(touch + sign * (1 + 2 * n), size()) for n in range(depth)] for sign in (-1, 1)]
    frames = []
    for _ in range(FRAMES):
        touch += source.choice((-1, 0, 0, 0, 1))
        sides: list[list[tuple[int, int]]] = [[], []]
        for _ in range(LEVELS):
            side = source.randrange(2)
            price = touch + (1 + rank()) * (1 if side else -1)
            sides[side].append((price, 0 if source.random() < 0.45 else size()))
        frames.append((text(sides[0]), text(sides[1])))
    return (text(whole[0]), text(whole[1])), frames


def timed(change: Callable[..., Any], frames: list[tuple[bytes, bytes]], *more: int) -> float:
    start = time.perf_counter_ns()
    for bids, asks in frames:
        change(bids, asks, *more)
    return (time.perf_counter_ns() - start) / len(frames) / LEVELS


def main() -> None:
    other = None
    if len(sys.argv) > 1:
        sys.path.insert(0, sys.argv[1])
        import core as other  # type: ignore[import-not-found, no-redef]
    print("compiled" if COMPILED else "reference")
    for depth in (50, 1_000, 5_000):
        whole, frames = stream(depth, 7)
        ours, theirs = [], []
        for _ in range(PASSES):
            book = Book()
            book.replace(*whole)
            ours.append(timed(book.apply, frames))
            if other:
                peer = other.Book()
                peer.levels(*whole, 8, 8)
                theirs.append(timed(peer.levels, frames, 8, 8))
        held = book.bid_count + book.ask_count
        line = f"depth {depth:5}: {statistics.median(ours):6.1f} ns a level"
        line += f", {book.nbytes / held:.1f} B"
        if theirs:
            line += f"; other {statistics.median(theirs):.1f} ns"
        print(line)


if __name__ == "__main__":
    main()
