"""What a frame of the fast best prices costs, for each exchange whose best prices are fused.

The whole path behind the socket: session, connector, the rule of `onebook.fusing`, and the overlay
of the book. The simulated exchange sends `STATES` states of the market in each interval of its
depth, as Binance does on a busy day; only the frames of the best prices are timed. In the end the
book must show the newest best prices. The same intervals are played `PASSES` times, and of each the
fastest counts: the rest is other work of the machine.

    tops.py [NAME ...]
"""

import sys
import time
from collections.abc import Iterable

from simulated import NOW, OPENING_S, Case, Ours, Simulated

from onebook.exchanges import EXCHANGES
from onebook.model import Health
from onebook.simulator.kit.board import Now
from timing import report

STATES = 11  # of the market in an interval of the depth
INTERVALS = 200
PASSES = 30
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


def costs(ours: Ours, frames: Frames) -> list[int]:
    """Nanoseconds of each interval for its frames of the best prices."""
    session, book = ours.again()
    counts = ours.tops
    before = counts.shown
    received = session.received
    at, took = NOW.s + OPENING_S, []
    for tops, depth in frames:
        began = time.perf_counter_ns()
        for frame in tops:
            received(frame, at)
        took.append(time.perf_counter_ns() - began)
        for frame in depth:
            received(frame, at)
    assert book.health is Health.LIVE, book.reason
    shown, count = counts.shown - before, count_of(frames)
    assert shown > count // 2, f"{shown} of {count} were shown"
    return took


def count_of(frames: Frames) -> int:
    """The number of frames of the best prices."""
    return sum(len(tops) for tops, _ in frames)


def measure(names: Iterable[str]) -> None:
    for name in names:
        for channel in ("", *EXCHANGES[name].channels):
            case = Case(name, channel)
            if not case.exchange.tops:
                continue
            simulated = Simulated(name)
            ours = Ours(simulated, case)
            frames = frames_of(simulated, ours)
            passes = [costs(ours, frames) for _ in range(PASSES)]
            fastest = sum(map(min, zip(*passes, strict=True))) / count_of(frames)
            report(f"top frame, {case}", {"onebook": fastest}, "ns")


if __name__ == "__main__":
    measure(sys.argv[1:] or EXCHANGES)
