"""How every benchmark times: contenders interleaved in one process, the collector held, medians."""

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

RUNS = int(os.environ.get("BENCH_RUNS", "7"))  # `run.py --runs` sets it
TURN_S = 0.1  # what one contender has of a round, at least


def interleaved(
    contenders: Mapping[str, Callable[[], float]], runs: int = RUNS
) -> dict[str, float]:
    """Give every contender a turn of the same length in each round, so that noise hits all alike.

    Args:
        contenders: Each does its whole work once and returns what one unit of it cost; the fast
            ones do it several times in their turn, and the mean counts.
        runs: Rounds that count; one more round before them warms up.

    Returns:
        The median cost of each.
    """
    costs: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(runs + 1):
        for name, contender in contenders.items():
            cost = _turn(contender)
            if run:
                costs[name].append(cost)
    return {name: statistics.median(values) for name, values in costs.items()}


def _turn(contender: Callable[[], float]) -> float:
    costs = []
    began = time.perf_counter()
    while not costs or time.perf_counter() - began < TURN_S:
        costs.append(contender())
    return statistics.fmean(costs)


def each(work: Callable[[bytes], object], frames: list[bytes]) -> float:
    """Nanoseconds per frame of handing every frame to `work`."""
    with _collector_held():
        began = time.perf_counter_ns()
        for frame in frames:
            work(frame)
        took = time.perf_counter_ns() - began
    return took / len(frames)


def each_at(work: Callable[[bytes, float], object], frames: list[bytes], now: float) -> float:
    """The same for work that takes the time as an argument, as our sessions do."""
    with _collector_held():
        began = time.perf_counter_ns()
        for frame in frames:
            work(frame, now)
        took = time.perf_counter_ns() - began
    return took / len(frames)


def repeated(work: Callable[[], object], count: int) -> float:
    """Nanoseconds per call of `work`."""
    with _collector_held():
        began = time.perf_counter_ns()
        for _ in range(count):
            work()
        took = time.perf_counter_ns() - began
    return took / count


@contextmanager
def _collector_held() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def report(row: str, values: Mapping[str, float], unit: str) -> None:
    """Print one line that `run.py` reads."""
    json.dump({"row": row, "unit": unit, "values": dict(values)}, sys.stdout)
    print(flush=True)
