"""Merge and print a view of 8 and 25 books, 50 levels a side, beside orjson on the finished dict.

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


if __name__ == "__main__":
    main()
