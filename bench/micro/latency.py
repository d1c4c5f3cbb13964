"""Goal 5: from a raw frame to the encoded update, publishing on every frame, 8 (25) exchanges.

Run once with the compiled core and once with the reference implementation (`latency.py reference`);
`run.py` interleaves them.
"""

import gc
import statistics
import sys
import time

import ingest
import ours

import stream
from onebook import core
from onebook.books import Books
from onebook.core import reference
from timing import report

TOP = 50
FRAMES = 250
COUNTS = (8, 25)


def main() -> None:
    implementation = "reference" if sys.argv[1:] == ["reference"] else "compiled"
    ours.use(implementation)
    module = reference if implementation == "reference" else core
    for count in COUNTS:
        costs = _costs(count, module)
        cuts = statistics.quantiles(costs, n=100)
        row = f"frame in to update ready, {count} exchanges"
        report(row, {f"{implementation} p50": cuts[49], f"{implementation} p99": cuts[98]}, "ns")


def _costs(count: int, module: object) -> list[float]:
    shared = Books()
    feeds, streamed = [], []
    for number in range(count):
        market = stream.Stream(ingest.DEPTH, seed=100 + number)
        feed = ours.Feed("binance", market.snapshot(), shared, name=f"exchange{number}")
        made = [market.frame(ingest.LEVELS) for _ in range(FRAMES // count + 1)]
        feeds.append(feed)
        streamed.append([stream.binance(b, a, n) for n, (b, a) in enumerate(made, start=1)])
    view = module.View([f"exchange{n}" for n in range(count)], depth=TOP)  # type: ignore[attr-defined]
    cores = [feed.book.core for feed in feeds]
    costs = []
    gc.collect()
    for frames in zip(*streamed, strict=True):
        for feed, frame in zip(feeds, frames, strict=True):
            began = time.perf_counter_ns()
            feed.received(frame, 1.0)
            view.merge(cores)
            view.full(b"{", b"}")
            costs.append(time.perf_counter_ns() - began)
    return costs[count:]


if __name__ == "__main__":
    main()
