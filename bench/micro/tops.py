"""What a frame of the fast best prices costs, for each exchange whose best prices are fused.

The whole path behind the socket: session, connector, the rule of `onebook.fusing`, and the overlay
of the book. The simulated exchange sends `STATES` states of the market in each interval of its
depth, as Binance does on a busy day; only the frames of the best prices are timed. In the end the
book must show the newest best prices.

    tops.py [NAME ...]
"""

import sys
import time
from collections.abc import Iterable
from functools import partial

from simulated import NOW, OPENING_S, Case, Ours, Simulated

from onebook.exchanges import EXCHANGES
from onebook.model import Health
from onebook.simulator.kit.board import Now
from timing import interleaved, report

STATES = 11  # of the market in an interval of the depth
INTERVALS = 200
INTERVAL_MS = 100

Frames = list[tuple[list[bytes], list[bytes]]]  # of each interval: best prices, then the depth


def frames_of(simulated: Simulated, ours: Ours) -> Frames:
    """The frames of many intervals as the client gets them."""
    found: Frames = []
    for interval in range(INTERVALS):
        tops: list[bytes] = []
        for state in range(STATES):
            after = interval * INTERVAL_MS + state * INTERVAL_MS // STATES
            now = Now(NOW.s + OPENING_S + after / 1_000, NOW.ms + int(OPENING_S * 1_000) + after)
            simulated.move()
            tops += simulated.tops_of(ours.client, now)
        found.append((tops, simulated.depth_of(ours.client, now)))
    return found


def cost(ours: Ours, frames: Frames) -> float:
    """Nanoseconds for a frame of the best prices."""
    session, book = ours.again()
    counts = ours.tops
    before = counts.shown
    received = session.received
    at, took, count = NOW.s + OPENING_S, 0, 0
    for tops, depth in frames:
        began = time.perf_counter_ns()
        for frame in tops:
            received(frame, at)
        took += time.perf_counter_ns() - began
        count += len(tops)
        for frame in depth:
            received(frame, at)
    assert book.health is Health.LIVE, book.reason
    shown = counts.shown - before
    assert shown > count // 2, f"{shown} of {count} were shown"
    return took / count


def measure(names: Iterable[str]) -> None:
    for name in names:
        for channel in ("", *EXCHANGES[name].channels):
            case = Case(name, channel)
            if not case.exchange.tops:
                continue
            simulated = Simulated(name)
            ours = Ours(simulated, case)
            frames = frames_of(simulated, ours)
            work = partial(cost, ours, frames)
            report(f"top frame, {case}", interleaved({"onebook": work}), "ns")


if __name__ == "__main__":
    measure(sys.argv[1:] or EXCHANGES)
