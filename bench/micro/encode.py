"""An update of a view as a frame: protobuf beside the JSON delta of the same change.

The simulated market of `bytes.py` with 20 levels a side, ten updates a second. What is timed is
`Stream.advance` and the frame for all clients of the view, after the merge, which both share.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH)]

import bytes as market  # noqa: E402
from onebook.gateway.fanout import FrameVariant  # noqa: E402
from onebook.streams import Stream  # noqa: E402
from timing import RUNS, report  # noqa: E402

SECONDS = 20.0
DEPTH = 20
ROW = "update of 20 levels a side to its frame"
FORMS = {"json": ("object", None), "array": ("array", None), "protobuf": ("object", "protobuf")}
PLAIN, BINARY = FrameVariant(packed=False), FrameVariant(packed=False, number=1)


class Clocked(market.Counter):
    """A publisher that adds up the time of framing."""

    def __init__(self) -> None:
        super().__init__()
        self.spent_ns = dict.fromkeys(FORMS, 0)

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        self.published += 1
        name = form_of(stream)
        if name is not None:
            began = time.perf_counter_ns()
            (BINARY if name == "protobuf" else PLAIN).update(payload)
            self.spent_ns[name] += time.perf_counter_ns() - began


def form_of(stream: Stream) -> str | None:
    options = stream.key.options
    if options.depth != DEPTH or options.mode != "delta":
        return None
    found = (options.levels, options.encoding)
    return next((name for name, form in FORMS.items() if form == found), None)


def costs() -> dict[str, float]:
    """Nanoseconds of an update, by form."""
    clocked, advance = Clocked(), Stream.advance

    def timed(stream: Stream, wall_us: int, now: float) -> bytes:
        began = time.perf_counter_ns()
        payload = advance(stream, wall_us, now)
        if (name := form_of(stream)) is not None:
            clocked.spent_ns[name] += time.perf_counter_ns() - began
        return payload

    Stream.advance = timed  # type: ignore[method-assign]
    try:
        sums = market.simulated(SECONDS, clocked)
    finally:
        Stream.advance = advance  # type: ignore[method-assign]
    return {name: spent / sums.updates for name, spent in clocked.spent_ns.items()}


def main() -> None:
    costs()  # warms up
    runs = [costs() for _ in range(RUNS)]
    report(ROW, {name: statistics.median(run[name] for run in runs) for name in FORMS}, "ns")


if __name__ == "__main__":
    main()
