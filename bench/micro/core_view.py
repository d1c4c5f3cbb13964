"""Merge and print a view of 8 and 25 books, 50 levels a side, beside orjson on the finished dict.

Then views with the amount of each exchange, by gross and by net prices: they take turns, and their
ratio is of the medians of merge and full together.

    python bench/micro/core_view.py

One frame is applied between two views, so that no branch is learnt from repetition; the same
view once more and again says what repetition would hide.
"""

import importlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from core_apply import stream

from onebook.core import COMPILED, Book, View

DEPTH = 50
ROUNDS = 2_000
FEES = ("0.1", "0.08", "0.075", "0.26", "0", "0.4", "-0.01")  # percent
HEAD = b'{"type":"aggregated_orderbook_update","symbol":"BTC/USDT","data":{'
TAIL = b"}}"


def timed_us(action: Callable[[], Any], *, rounds: int = 40, repeats: int = 100) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(repeats):
            action()
        taken.append((time.perf_counter_ns() - start) / repeats)
    return statistics.median(taken) / 1_000


def main() -> None:
    orjson = importlib.import_module("orjson")
    print("compiled" if COMPILED else "reference")
    for members in (8, 25):
        lives = [stream(1_000, 100 + member) for member in range(members)]
        books = [Book() for _ in lives]
        for book, (whole, _) in zip(books, lives, strict=True):
            book.replace(*whole)
        view = View([f"exchange{member}" for member in range(members)], depth=DEPTH)
        fresh = []
        for at in range(ROUNDS):
            member = at % members
            books[member].apply(*lives[member][1][at // members])
            start = time.perf_counter_ns()
            view.merge(books)
            view.full(HEAD, TAIL)
            fresh.append(time.perf_counter_ns() - start)
        document = view.full(HEAD, TAIL)
        ready = orjson.loads(document)
        merge = timed_us(partial(view.merge, books))
        full = timed_us(partial(view.full, HEAD, TAIL))
        dumps = timed_us(partial(orjson.dumps, ready))
        print(
            f"{members:2} books, {len(document)} B: merge {merge:.2f} us, full {full:.2f}, "
            f"delta {timed_us(partial(view.delta, HEAD, TAIL)):.2f}, "
            f"checksum {timed_us(view.checksum):.2f}; orjson.dumps {dumps:.2f}; "
            f"ratio {(merge + full) / dumps:.3f}; fresh {statistics.median(fresh) / 1_000:.2f}"
        )
        compare_net(books, lives)


def compare_net(books: list[Book], lives: list[Any]) -> None:
    """Time views by net prices beside the same by gross prices, after each frame.

    With one fee for all the levels are the same ones, with other prices; with several fees few
    exchanges share a level.
    """
    names = [f"exchange{member}" for member in range(len(books))]
    several = [FEES[member % len(FEES)] for member in range(len(books))]
    for arrays in (False, True):
        tables = (None, ["0.075"] * len(books), several)
        views = [View(names, depth=DEPTH, split=True, arrays=arrays, fees=each) for each in tables]
        taken: list[list[int]] = [[] for _ in views]
        for at in range(ROUNDS * 2):
            member = at % len(books)
            books[member].apply(*lives[member][1][(at // len(books)) % len(lives[member][1])])
            for step in range(len(views)):
                which = (at + step) % len(views)
                start = time.perf_counter_ns()
                views[which].merge(books)
                views[which].full(HEAD, TAIL)
                taken[which].append(time.perf_counter_ns() - start)
        gross, one, many = (statistics.median(each) / 1_000 for each in taken)
        sizes = [len(view.full(HEAD, TAIL)) for view in views]
        print(
            f"{len(books):2} books, {'arrays' if arrays else 'objects'} with split: gross "
            f"{gross:.2f} us ({sizes[0]} B); net, one fee: {one:.2f} us ({sizes[1]} B), ratio "
            f"{one / gross:.3f}; {len(FEES)} fees: {many:.2f} us ({sizes[2]} B), ratio "
            f"{many / gross:.3f}"
        )


if __name__ == "__main__":
    main()
