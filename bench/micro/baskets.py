"""Merge and encode a view of books in three quotes beside the same books without conversion.

    python bench/micro/baskets.py

24 books, 50 levels a side, with the amount of each exchange: 8 in the view's quote, 8 that their
exchanges' own conversion books convert, and 8 that share one. One book changes before each update;
both views take turns. First the rates in use stand still; then the best levels of one conversion
book change in every update, so that all that depends on it is converted again.
"""

import statistics
import time

from core_apply import stream
from core_view import HEAD, TAIL

from onebook.core import COMPILED, Book, Conversion, View

DEPTH = 50
ROUNDS = 2_000
EACH = 8
RATES = [[(f"{1 - 0.0001 * at:.4f}", "40000") for at in range(1, 51)]]
RATES.append([(f"{1 + 0.0001 * at:.4f}", "40000") for at in range(1, 51)])


def text(levels: list[tuple[str, str]]) -> bytes:
    return ("[" + ",".join(f'["{price}","{amount}"]' for price, amount in levels) + "]").encode()


def main() -> None:
    print("compiled" if COMPILED else "reference")
    for moving in (False, True):
        print("one rate book changes in every update" if moving else "rates stand still")
        measure(moving=moving)


def measure(*, moving: bool) -> None:
    names = [f"exchange{member}" for member in range(3 * EACH)]
    lives = [stream(1_000, 400 + member) for member in range(len(names))]
    books = [Book() for _ in names]
    for book, (whole, _) in zip(books, lives, strict=True):
        book.replace(*whole)
    rates = [Book() for _ in range(EACH)]
    for book in rates:
        book.replace(text(RATES[0]), text(RATES[1]))
    own = [Conversion((name,), (name,)) for name in names[EACH : 2 * EACH]]
    shared = Conversion(names[2 * EACH :], names[:EACH], inverse=True)
    plain, basket = (View(names, depth=DEPTH, split=True) for _ in range(2))
    taken: dict[str, list[int]] = {"gross": [], "basket": [], "of which conversion": []}
    for at in range(ROUNDS):
        member = at % len(books)
        books[member].apply(*lives[member][1][at // len(books)])
        if moving:
            size = str(40_000 + at % 2)
            rates[0].replace(
                text([(RATES[0][0][0], size), *RATES[0][1:]]),
                text([(RATES[1][0][0], size), *RATES[1][1:]]),
            )
        start = time.perf_counter_ns()
        plain.merge(books)
        plain.full(HEAD, TAIL)
        middle = time.perf_counter_ns()
        cores: list[Book | None] = [*books]
        for position, conversion in enumerate(own, EACH):
            cores[position : position + 1] = conversion.convert(
                [books[position]], [rates[position - EACH]], depth=DEPTH
            )
        cores[2 * EACH :] = shared.convert(books[2 * EACH :], rates, depth=DEPTH)
        converted = time.perf_counter_ns()
        basket.merge(cores)
        basket.full(HEAD, TAIL)
        end = time.perf_counter_ns()
        taken["gross"].append(middle - start)
        taken["basket"].append(end - middle)
        taken["of which conversion"].append(converted - middle)
    for figure in (statistics.median, statistics.mean):
        found = {name: figure(times) / 1_000 for name, times in taken.items()}
        costs = ", ".join(f"{name} {cost:.1f} us" for name, cost in found.items())
        ratio = found["basket"] / found["gross"]
        print(f"  {figure.__name__}: {costs}; basket / gross {ratio:.2f}")


if __name__ == "__main__":
    main()
