"""An update of a view as a frame: protobuf beside the JSON delta of the same change.

The simulated market of `bytes.py` with 20 levels a side, ten updates a second. What is timed is
`Stream.advance` and the frame for all clients of the view, after the merge, which all forms share.
The forms take turns at being the first after the market's changes, when caches are cold; of each
place in a turn the median counts.
"""

import sys
import time
from pathlib import Path
from statistics import fmean, median

BENCH = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH)]

import bytes as market  # noqa: E402
from onebook.gateway.fanout import FrameVariant  # noqa: E402
from onebook.streams import Stream, StreamKey, ViewOptions  # noqa: E402
from onebook.streams.members import StreamMembers  # noqa: E402
from timing import RUNS, report  # noqa: E402

SECONDS = 20.0
DEPTH = 20
INTERVAL_S = 0.1
ROW = "update of 20 levels a side to its frame"
FORMS = {
    "json": ViewOptions(depth=DEPTH, mode="delta"),
    "array": ViewOptions(depth=DEPTH, mode="delta", levels="array"),
    "protobuf": ViewOptions(depth=DEPTH, mode="delta", encoding="protobuf"),
}
NAMES = tuple(FORMS)
VARIANTS = {form: FrameVariant(packed=False, number=int(form == "protobuf")) for form in NAMES}


def costs() -> dict[str, float]:
    """Nanoseconds of an update, by form."""
    harness, deltas = market.simulation(SECONDS, market.Counter())
    streams = {form: opened(harness, options) for form, options in FORMS.items()}
    spent_ns: dict[str, list[list[int]]] = {form: [[] for _ in FORMS] for form in FORMS}
    updates, due = 0, 0.0
    for at, delta in deltas:
        harness.change(delta, at)
        if at < due:
            continue
        due, updates, first = at + INTERVAL_S, updates + 1, updates % len(NAMES)
        for place, form in enumerate(NAMES[first:] + NAMES[:first]):
            stream, variant = streams[form], VARIANTS[form]
            assert stream.merge()
            began = time.perf_counter_ns()
            variant.update(stream.advance(int(at * 1e6), at))
            spent_ns[form][place].append(time.perf_counter_ns() - began)
    return {form: fmean(map(median, places)) for form, places in spent_ns.items()}


def opened(harness: market.Harness, options: ViewOptions) -> Stream:
    """Make a stream of the harness's books."""
    names = tuple(sorted(harness.counter.instruments))
    members = StreamMembers(names, [harness.counter.instruments[name] for name in names])
    members.refresh(harness.books)
    return Stream(StreamKey(market.SYMBOL, names, options), members, harness.clock.now_s)


def main() -> None:
    costs()  # warms up
    runs = [costs() for _ in range(RUNS)]
    report(ROW, {form: median(run[form] for run in runs) for form in FORMS}, "ns")


if __name__ == "__main__":
    main()
