"""Goal 4: merge 8 (25) exchanges, top 50 with attribution, encoded, against `orjson.dumps` alone.

orjson gets the finished dict; ours starts from the books.
"""

import json
from collections.abc import Callable

import orjson

import stream
from onebook import core
from onebook.core import twin
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
        sides = stream.Stream(DEPTH, seed=100 + number).snapshot()
        book.replace(*(_levels(side) for side in sides))
        filled.append(book)
    return filled


def _levels(side: stream.Side) -> bytes:
    return json.dumps([[stream.price(p), stream.amount(q)] for p, q in side]).encode()


def publisher(count: int, module: object) -> Callable[[], bytes]:
    """One publish: merge and encode; a level changes before each, so that none is for nothing."""
    members = books(count, module.Book)  # type: ignore[attr-defined]
    view = module.View([f"exchange{n}" for n in range(count)], depth=TOP)  # type: ignore[attr-defined]
    best = members[0].top(1)[0][0][0]
    changes = [f'[["{best}","{amount}"]]'.encode() for amount in ("1.5", "2.5")]

    def publish() -> bytes:
        members[0].apply(changes[0], b"")
        changes.reverse()
        view.merge(members)
        return view.full(HEAD, TAIL)

    return publish


def compare(count: int) -> None:
    ours, slow = publisher(count, core), publisher(count, twin)
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
