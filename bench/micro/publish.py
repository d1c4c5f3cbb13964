"""Goal 4: merge 8 (25) exchanges, top 50 with attribution, encoded, against `orjson.dumps` alone.

orjson gets the finished dict; ours starts from the books. From one update to the next a quarter of
each book's best levels get another amount, which is half of the merged levels or more: what stays
the same need not be printed again.
"""

import itertools
import json
from collections.abc import Callable

import orjson

import stream
from onebook import core
from onebook.core import reference
from timing import interleaved, repeated, report

DEPTH = 1_000
TOP = 50
CALLS = 500
MEMBERS = (8, 25)
HEAD = b'{"type":"aggregated_orderbook_update","symbol":"BTC/USDT","data":{'
TAIL = b',"stale_exchanges":[]}}'


def books(count: int, implementation: type) -> list[core.Book]:
    """So many full books of one symbol, each with its own levels."""
    filled = []
    for number in range(count):
        book = implementation()
        book.replace(*(_levels(side) for side in _sides(number)))
        filled.append(book)
    return filled


def _sides(number: int) -> tuple[stream.Side, stream.Side]:
    return stream.Stream(DEPTH, seed=100 + number).snapshot()


def _levels(side: stream.Side) -> bytes:
    return json.dumps([[stream.price(p), stream.amount(q)] for p, q in side]).encode()


def moved_on(members: list[core.Book]) -> list[core.Book]:
    """Give every fourth of the best levels another amount."""
    for number, book in enumerate(members):
        changes = [[(p, q + 1) for p, q in side[:TOP:4]] for side in _sides(number)]
        book.apply(*(_levels(side) for side in changes))
    return members


def publisher(count: int, module: object) -> Callable[[], bytes]:
    """One publish: merge and encode, of the one state of the books and of the other in turn."""
    one, other = books(count, module.Book), moved_on(books(count, module.Book))  # type: ignore[attr-defined]
    view = module.View([f"exchange{n}" for n in range(count)], depth=TOP)  # type: ignore[attr-defined]
    states = itertools.cycle((one, other))

    def publish() -> bytes:
        view.merge(next(states))
        return view.full(HEAD, TAIL)

    return publish


def compare(count: int) -> None:
    ours, slow = publisher(count, core), publisher(count, reference)
    document = json.loads(ours())
    contenders = {
        "onebook": lambda: repeated(ours, CALLS),
        "onebook, pure Python": lambda: repeated(slow, CALLS // 25),
        "orjson.dumps of the ready dict": lambda: repeated(lambda: orjson.dumps(document), CALLS),
    }
    report(f"publish {count} exchanges", interleaved(contenders), "ns")
    report(f"update of {count} exchanges", {"onebook": len(ours())}, "bytes")


def main() -> None:
    for count in MEMBERS:
        compare(count)


if __name__ == "__main__":
    main()
