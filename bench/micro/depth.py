"""Goal 3: what depth costs, from 1,000 levels a side to 50,000.

Deltas of 20 levels, as in `ingest.py`; frames that put a block of new prices between two others in
the middle of a side, and drop it again; a checksum, a fill and a merge; the whole book of 45,500
levels a side that Coinbase sends.
"""

import json
import random
from collections.abc import Callable

import ingest
import ours
import peers

import stream
from onebook import core
from onebook.exchanges import kraken
from onebook.fill import BUY, fills
from onebook.streams.fill import FILL_LEVELS_MAX, fill_side
from timing import each, interleaved, repeated, report

DEPTHS = (1_000, 5_000, 50_000)
ENDS = (DEPTHS[0], DEPTHS[-1])
JUMPED_LEVELS = 130  # more than a block
JUMPS = 400
COINBASE_LEVELS = 45_500
CALLS = 500
CCXT_FRAMES = 1_000
SNAPSHOT_RUNS = 5


def deltas() -> None:
    contenders: dict[str, Callable[[], float]] = {}
    for depth in DEPTHS:
        snapshot, made = ingest.changes(ingest.FRAMES, depth)
        frames = [stream.binance(b, a, n) for n, (b, a) in enumerate(made, start=1)]
        contenders[f"depth {depth}"] = lambda f=frames, s=snapshot: ingest.ingest("binance", f, s)
        if depth in ENDS:
            contenders[f"ccxt, depth {depth}"] = lambda f=frames, s=snapshot: peers.ccxt(
                "binance", f[:CCXT_FRAMES], s
            )
    report("depth", interleaved(contenders), "ns")


def _text(rows: list[tuple[str, str]]) -> bytes:
    return json.dumps(rows).encode()


def _pairs(side: stream.Side) -> bytes:
    return _text([(stream.price(p), stream.amount(q)) for p, q in side])


def _book(depth: int, seed: int = 5) -> core.Book:
    book = core.Book()
    book.replace(*(_pairs(side) for side in stream.Stream(depth, seed=seed).snapshot()))
    return book


def _jumps(depth: int) -> list[bytes]:
    """Blocks of bids between two ticks somewhere in the side, each dropped by the next frame."""
    bids, _ = stream.Stream(depth, seed=5).snapshot()
    chosen = random.Random(1)
    frames = []
    for _ in range(JUMPS):
        tick = stream.price(bids[chosen.randrange(depth // 4, depth)][0])
        prices = [f"{tick}{each:03d}" for each in range(1, JUMPED_LEVELS + 1)]
        frames += [_text([(price, amount) for price in prices]) for amount in ("0.5", "0")]
    return frames


def jumps() -> None:
    contenders = {}
    for depth in ENDS:
        book, frames = _book(depth), _jumps(depth)
        contenders[f"depth {depth}"] = lambda b=book, f=frames: each(
            lambda frame: b.apply(frame, b"[]"), f
        )
    report(f"a block of {JUMPED_LEVELS} new prices", interleaved(contenders), "ns")


def reads() -> None:
    """A checksum of the best levels, a fill and a merge with another book."""
    names = ("one", "two")
    costs: dict[str, dict[str, Callable[[], float]]] = {"checksum": {}, "merge": {}, "fill": {}}
    for depth in ENDS:
        one, two = _book(depth), _book(depth, seed=6)
        best = one.best_pairs()[0]
        view = core.View(names, depth=FILL_LEVELS_MAX, split=True)

        def merge(view=view, one=one, two=two, best=best) -> None:
            one.apply(best, b"[]")
            view.merge([one, two])

        def fill(view=view) -> None:
            fills(fill_side(view.levels(), BUY), BUY, ["100"], [], names, [])

        merge()
        for name, work in (
            ("checksum", lambda one=one: one.crc(kraken.CHECKSUM)),
            ("merge", merge),
            ("fill", fill),
        ):
            costs[name][f"depth {depth}"] = lambda work=work: repeated(work, CALLS)
    for name, contenders in costs.items():
        report(f"{name} of a deep book", interleaved(contenders), "ns")


def whole() -> None:
    """The snapshot of Coinbase's deepest book, through the session into a book."""
    snapshot = stream.Stream(COINBASE_LEVELS, seed=5).snapshot()
    frame = stream.coinbase_snapshot(*snapshot)
    few = stream.Stream(20, seed=5).snapshot()

    def onebook() -> float:
        feed = ours.Feed("coinbase", few)
        cost = each(lambda frame: feed.received(frame, 1.0), [frame])
        assert feed.book.core.bid_count == COINBASE_LEVELS
        return cost

    contenders = {
        "onebook": onebook,
        "ccxt": lambda: peers.ccxt("coinbase", [frame], few),
    }
    values = interleaved(contenders, SNAPSHOT_RUNS)
    report(f"snapshot of {COINBASE_LEVELS} levels a side", values, "ns")


def main() -> None:
    deltas()
    jumps()
    reads()
    whole()


if __name__ == "__main__":
    main()
