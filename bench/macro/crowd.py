"""Every exchange at once: all connectors beside many clients in one node, for as long as wanted.

Each exchange is simulated with 15 pairs in a process beside the node, and enforces and counts its
limits; the clients are the sink in another. Every now and then all exchanges vanish and come back,
so that everything reconnects at once. What counts: how late the node's event loop is, its CPU, its
memory over time, and the frames it takes per second of CPU. The figures are one line of JSON on
standard output; on standard error is the progress and, at the end, a line for each goal. A goal
that is missed, a book that does not come back and a lost client end it with status 1. SIGINT and
SIGTERM end it early, with the figures up to then.

    crowd.py [--seconds 1800] [--rate 5] [--clients 200] [--symbols 15] [--storm-every 120]

`make load` compiles the sink and runs it.
"""

import argparse
import asyncio
import itertools
import json
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import crowd_exchanges
import load
import node as product
import uvloop
from prometheus_client import REGISTRY

from onebook import app, config
from onebook.exchanges import EXCHANGES
from onebook.feeds.limits import LIMITS
from onebook.model import Health
from timing import report

PROCESSES = 2  # of simulated exchanges
FRAMES, RECONNECTS = "onebook_exchange_frames", "onebook_exchange_reconnects"
LOOK_S = 0.01
SAMPLE_S = 1.0
WARM_S = 15.0  # before figures count: seeding, first growth of caches
ALL_LIVE_S = 180.0  # bitFlyer's book comes whole every 5 s; connection limits spread the rest
LATE_MAX_MS, GROWTH_MAX = 50.0, 5.0  # the goals: of the loop's lag, p99; of memory, percent
PROGRESS_S = 15.0
# A short run has its storms more often, but no connection before it counts as stable: until then
# each storm doubles its wait, and some books would rightly need minutes.
STORMS_MIN = 3
LAG, GROWTH, STORMS = "loop lag p99 ms", "memory growth %", "storms"
VIEW = {"exchanges": "all", "depth": 20, "levels": "array", "interval_ms": 100}


class Failed(Exception):
    """A promise was broken."""


class Goal(NamedTuple):
    """A goal, what was found, and whether it is reached."""

    what: str
    found: str
    reached: bool

    def __str__(self) -> str:
        return f"{'PASS' if self.reached else 'FAIL'}  {self.what}: {self.found}"


class Exchanges:
    """A process of simulated exchanges."""

    def __init__(self, names: list[str], rate_hz: float, symbols: int) -> None:
        script = Path(__file__).with_name("crowd_exchanges.py")
        self.process = subprocess.Popen(
            [sys.executable, script, ",".join(names), str(rate_hz), str(symbols)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,  # the terminal's SIGINT is ours alone
        )  # fmt: skip
        load.settle_on(1, self.process.pid)
        self.urls: dict[str, list[str]] = self._answer()

    def ask(self, command: str) -> dict:
        """Execute a command; blocks until it is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed("the simulated exchanges ended")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def exchanges(words: argparse.Namespace) -> Iterator[list[Exchanges]]:
    """All of them, spread over some processes."""
    names = list(EXCHANGES)[: words.exchanges]
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(Exchanges(part, words.rate, words.symbols)))
            for part in (names[each::PROCESSES] for each in range(PROCESSES))
            if part
        ]


@contextmanager
def closing(process: Exchanges) -> Iterator[Exchanges]:
    try:
        yield process
    finally:
        process.close()


class Lateness:
    """How late something was, many times over, in bins: a long run costs no more memory or time."""

    BIN_MS = 0.1

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._bins = array("Q", bytes(8 * 100_000))
        self._count = 0

    def add(self, late_ms: float) -> None:
        self.longest_ms = max(self.longest_ms, late_ms)
        self._bins[min(int(late_ms / self.BIN_MS), len(self._bins) - 1)] += 1
        self._count += 1

    def at(self, share: float) -> float:
        """The lateness that this share of all did not exceed, rounded up to a bin."""
        left = share * self._count
        for number, count in enumerate(self._bins, 1):
            left -= count
            if left <= 0:
                return number * self.BIN_MS
        return self.longest_ms


class Watch:
    """How late the loop is: what is due every 10 ms, and when it was done."""

    def __init__(self) -> None:
        self.late = Lateness()
        self._loop = asyncio.get_running_loop()
        self._due = time.monotonic() + LOOK_S
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        self.late.add(max(0.0, now - self._due) * 1e3)
        # What was missed while the loop was busy is one long delay, not many short ones.
        self._due = max(self._due + LOOK_S, now)
        self._timer = self._loop.call_at(self._due, self._look)

    def close(self) -> None:
        self._timer.cancel()


def counted(name: str) -> float:
    """A counter of the node, over all exchanges."""
    return sum(
        sample.value
        for metric in REGISTRY.collect()
        if metric.name == name
        for sample in metric.samples
        if sample.name.endswith("_total")
    )


def down(node: app.Node, wanted: int) -> list[str]:
    """Books that are not live; "missing" where fewer are open than wanted."""
    books = list(node.books)
    missing = [f"{wanted - len(books)} missing"] if len(books) < wanted else []
    now = time.monotonic()
    return missing + [
        f"{book.instrument.exchange} {book.instrument.symbol} ({book.health} for "
        f"{now - book.changed_at:.0f} s, {book.reason}: {book.detail or 'no detail'})"
        for book in books
        if book.health is not Health.LIVE
    ]


async def all_live(node: app.Node, wanted: int, stop: asyncio.Event | None = None) -> float:
    """Wait until every book is live; return how long that took."""
    began = time.monotonic()
    while left := down(node, wanted):
        if (stop and stop.is_set()) or time.monotonic() - began > ALL_LIVE_S:
            raise Failed(f"{len(left)} of {wanted} books are not live: {', '.join(left[:8])}")
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def asked(processes: list[Exchanges], command: str) -> list[dict]:
    """Ask every process of exchanges, beside the loop."""
    return await asyncio.gather(*(asyncio.to_thread(each.ask, command) for each in processes))


async def watched(
    node: app.Node,
    processes: list[Exchanges],
    sink: load.Sink,
    words: argparse.Namespace,
    asked_s: float,
) -> dict[str, float]:
    """Run for the time that was asked for, with storms, and return the figures."""
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    wanted = words.exchanges * words.symbols
    await all_live(node, wanted, stop)
    first_s = time.monotonic() - asked_s
    say(f"{wanted} books are live after {first_s:.1f} s")
    await asyncio.sleep(WARM_S)
    watch, memory, returns = Watch(), array("d"), array("d")
    told_at = time.monotonic() + PROGRESS_S
    read, sent, cpu, began = counted(FRAMES), sink.received, time.process_time(), time.monotonic()
    reconnects = counted(RECONNECTS)
    storm_every = min(words.storm_every, max(LIMITS.stable_s, words.seconds / STORMS_MIN))
    storm_at = began + storm_every
    while (now := time.monotonic()) < began + words.seconds and not stop.is_set():
        sink.check()
        memory.append(load.resident())
        if now >= storm_at:
            await asked(processes, "drop")
            returns.append(await all_live(node, wanted))
            say(f"all exchanges came back: every book is live after {returns[-1]:.1f} s")
            storm_at = time.monotonic() + storm_every
        if now >= told_at:
            told_at = now + PROGRESS_S
            progress(now - began, memory[-1], watch.late)
        await asyncio.sleep(SAMPLE_S)
    took, used = time.monotonic() - began, time.process_time() - cpu
    read, sent = counted(FRAMES) - read, sink.received - sent
    watch.close()
    returns.append(await all_live(node, wanted))
    if sink.connected < words.clients:
        raise Failed(f"{words.clients - sink.connected} clients were lost")
    third = max(1, len(memory) // 3)
    before, after = sum(memory[:third]) / third, sum(memory[-third:]) / third
    return {
        "seconds": took,
        "books": wanted,
        "first live after s": first_s,
        "loop lag p50 ms": watch.late.at(0.5),
        LAG: watch.late.at(0.99),
        "loop lag longest ms": watch.late.longest_ms,
        "frames a second": read / took,
        "frames a second of CPU": read / used,
        "share of a core": used / took,
        "bytes a second to a client": sent / took / words.clients,
        "memory MiB": memory[-1] / 2**20,
        GROWTH: (after / before - 1) * 100,
        STORMS: len(returns) - 1,
        "reconnects": counted(RECONNECTS) - reconnects,
        "longest return s": max(returns),
    }


def progress(after_s: float, memory: float, late: Lateness) -> None:
    """Print where a run stands."""
    say(f"after {after_s:5.0f} s: {memory / 2**20:.1f} MiB, loop lag p99 {late.at(0.99):.1f} ms")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def goals(values: dict[str, float], breaches: dict[str, dict[str, int]]) -> list[Goal]:
    """Judge a run by the goals of `make load`."""
    storms = int(values[STORMS])
    lag, growth = values[LAG], values[GROWTH]
    limits = f"{json.dumps(breaches) if breaches else 'none exceeded'} in {storms} returns of all"
    return [
        Goal(f"event-loop lag p99 under {LATE_MAX_MS:g} ms", f"{lag:.1f} ms", lag < LATE_MAX_MS),
        Goal(
            f"memory flat within {GROWTH_MAX:g} %",
            f"{growth:+.1f} %, the last third of {values['seconds']:.0f} s against the first",
            abs(growth) <= GROWTH_MAX,
        ),
        Goal("no limit of an exchange exceeded", limits, not breaches and storms > 0),
        Goal(
            "every book live again",
            f"{values['books']:.0f} books, last {values['longest return s']:.1f} s after a return",
            True,  # the run ends at once where one does not come back
        ),
    ]


async def measure(words: argparse.Namespace) -> tuple[dict[str, float], list[Goal]]:
    with exchanges(words) as processes:
        places = {
            name: config.ExchangeSettings(ws_url=ws, rest_url=rest)
            for each in processes
            for name, (ws, rest) in each.urls.items()
        }
        listed = [crowd_exchanges.listings(name, words.symbols) for name in places]
        symbols = dict.fromkeys(each.symbol for some in listed for each in some)
        async with product.running(words.clients, places=places) as node:
            keys = await product.keys_for(node, words.clients)
            hellos = product.hellos(keys, [[{"symbol": each, **VIEW}] for each in symbols])
            lines = itertools.islice(hellos, words.clients)
            asked_s = time.monotonic()
            with load.Sink(node.address[1], words.clients, lines) as sink:
                await product.subscribed(node, sink, 1)
                values = await watched(node, processes, sink, words, asked_s)
        counts = await asked(processes, "count")
        breaches = {name: found for each in counts for name, found in each["breaches"].items()}
        late_s = max(each["late_s"] for each in counts)
        return {**values, "exchanges late s": late_s}, goals(values, breaches)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1_800.0)
    parser.add_argument("--rate", type=float, default=5.0, help="changes a second of each book")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--symbols", type=int, default=15)
    parser.add_argument("--exchanges", type=int, default=len(EXCHANGES))
    parser.add_argument("--storm-every", type=float, default=120.0, help="seconds, at most")
    words = parser.parse_args()
    load.settle_on(0)
    try:
        values, judged = uvloop.run(measure(words))
    except Failed as failed:
        sys.exit(f"failed: {failed}")
    report(f"{words.exchanges} exchanges, {words.clients} clients", values, "")
    print(*judged, sep="\n", file=sys.stderr)
    if not all(goal.reached for goal in judged):
        sys.exit(1)


if __name__ == "__main__":
    main()
