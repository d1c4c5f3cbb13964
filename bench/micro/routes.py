"""Route 8 sizes both ways over 35 books by prices after fees; merge and encoding included.

    python bench/micro/routes.py

Times are CPU times, in which the machine's other load does not count. Each round changes one book
first. The sizes go from one level to most of the 500 that a route may use; lots make most splits
differ from the walk through net prices.
"""

import statistics
import time
from typing import Any

from core_apply import stream

from onebook.books import LiveBook
from onebook.core import COMPILED, Book
from onebook.fill import BookEnds
from onebook.model import Instrument
from onebook.streams.fill import FillView, RouteView, fill_sizes

MEMBERS = 35
ROUNDS = 200
FEES = ("0.1", "0.08", "0.075", "0.26", "0", "0.4", "-0.01")  # percent
LOTS = ("0.00001", "0.0001", "0.001", "0.00000001", "")
AMOUNTS = ("0.01", "0.1", "0.5", "1", "2.5", "5", "10", "25")


class Members:
    """The books of a view without a service."""

    def __init__(self, books: list[Book]) -> None:
        self.names = [f"exchange{member}" for member in range(len(books))]
        self.cores: list[Book | None] = [*books]
        self.instruments: list[Instrument | None] = [
            Instrument(name, "BTC/USDT", "BTCUSDT", lot=LOTS[member % len(LOTS)])
            for member, name in enumerate(self.names)
        ]
        self.books: list[LiveBook] = []

    def ends(self) -> list[BookEnds]:
        return [BookEnds(name, None, None) for name in self.names]

    def age_ms(self, exchange: str, now: float) -> int:
        return 12


def main() -> None:
    print("compiled" if COMPILED else "reference")
    lives = [stream(1_000, 300 + member) for member in range(MEMBERS)]
    books = [Book() for _ in lives]
    for book, (whole, _) in zip(books, lives, strict=True):
        book.replace(*whole)
    members = Members(books)
    fees = [FEES[at % len(FEES)] for at in range(len(members.names))]
    sizes = fill_sizes(AMOUNTS, [])
    views: dict[str, Any] = {
        "fills without fees": FillView(members.names, sizes),
        "routes with fees": RouteView(members.names, sizes, fees),
    }
    taken: dict[str, list[int]] = {name: [] for name in views}
    for at in range(ROUNDS):
        member = at % MEMBERS
        books[member].apply(*lives[member][1][at // MEMBERS])
        for name, view in views.items():
            start = time.thread_time_ns()
            view.merge(members)
            view.json(members, 0.0)
            taken[name].append(time.thread_time_ns() - start)
    for name, times in taken.items():
        times.sort()
        print(
            f"{name}: {len(AMOUNTS)} sizes, both directions, {MEMBERS} books: median "
            f"{statistics.median(times) / 1e6:.2f} ms, 95 % below {times[-ROUNDS // 20] / 1e6:.2f}"
        )


if __name__ == "__main__":
    main()
