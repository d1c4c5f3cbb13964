"""Two processes and a nats-server: what passing books between nodes costs, and how long it takes.

    python bench/macro/nodes.py --rate 2000 --seconds 10

The feeds side applies deltas of 10 levels to 50 books at a rate and publishes them; the gateway
side applies what comes. Each delta carries the monotonic time at which it was applied, as the
amount of a level, so latency is from book to book: all that several nodes add to one process. CPU
is that of each process divided by frames; `--rate 0` measures how many frames a second pass at all.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import uvloop

from onebook.books import Books
from onebook.config import NatsSettings
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Instrument
from onebook.nodes import wire
from onebook.nodes.nats import NatsBus
from onebook.nodes.publisher import PublishedBooks
from onebook.nodes.replica import Replica, apply
from onebook.nodes.subjects import SNAPSHOT, BookKey, Subjects

BOOKS = 50
LEVELS = 10
NODE = 1
CLUSTER = "bench"
TICK_S = 0.001
WARM_S = 1.0
INSTRUMENTS = [Instrument("bench", f"C{n}/USDT", f"C{n}") for n in range(BOOKS)]


def levels(side, first):
    step = -1 if side == "bids" else 1
    rows = ((100_000 + step * (n + 1), first if not n else 5) for n in range(LEVELS // 2))
    return b"[%b]" % b",".join(b'["%d","%d"]' % row for row in rows)


def bus_of(port, name):
    return NatsBus(NatsSettings(servers=(f"nats://127.0.0.1:{port}",)), name=name)


async def feeds(port, rate, seconds):
    """Apply deltas and publish them; print CPU seconds and frames."""
    async with bus_of(port, "bench feeds") as bus:
        subjects = Subjects(CLUSTER)
        books = PublishedBooks(NODE, publish=bus.publish, subject_of=subjects.book)

        def answer(payload, reply):
            exchange, _, symbol = payload.decode().partition(" ")
            bus.publish(reply, books.snapshot(BookKey(exchange, symbol), time.monotonic()))

        bus.subscribe(subjects.request(NODE, SNAPSHOT), answer)
        for each in INSTRUMENTS:
            books.open(each)
            books.fill(Snapshot(each, levels("bids", 1), levels("asks", 1)), time.monotonic())
        await asyncio.sleep(WARM_S)
        cpu, began, sent = time.process_time(), time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate) if rate else sent + 50
            while sent < due:
                each = INSTRUMENTS[sent % BOOKS]
                now = time.monotonic()
                stamp = int(now * 1e6)
                books.change(Delta(each, levels("bids", stamp), levels("asks", 7)), now)
                sent += 1
            await asyncio.sleep(TICK_S if rate else 0)
        cpu = time.process_time() - cpu
        await asyncio.sleep(WARM_S)
    alone = Books()
    for each in INSTRUMENTS:
        alone.open(each)
        alone.fill(Snapshot(each, levels("bids", 1), levels("asks", 1)), 0.0)
    at = time.process_time()
    for number in range(20_000):
        stamp = int(time.monotonic() * 1e6)
        each = INSTRUMENTS[number % BOOKS]
        alone.change(Delta(each, levels("bids", stamp), levels("asks", 7)), 0.0)
    unpublished_us = (time.process_time() - at) / 20_000 * 1e6
    print(json.dumps({"frames": sent, "cpu_s": cpu, "unpublished_us": unpublished_us}))


async def gateway(port, seconds):
    """Apply what comes; print latencies and CPU seconds."""
    latencies, books = [], Books()
    counted = 0
    async with bus_of(port, "bench gateway") as bus:
        subjects = Subjects(CLUSTER)
        replicas = {}
        for each in INSTRUMENTS:
            books.open(each)
            replica = replicas[each] = Replica(each, held_max=2_000)
            replica.served_by([NODE])

            def received(payload, reply, each=each, replica=replica):
                nonlocal counted
                counted += 1
                now = time.monotonic()
                effects = replica.received(wire.frame_of(payload))
                if not apply(effects, books, each, now):
                    replica.refused()
                if counted % 10 == 0 and replica.live:
                    ((_, stamp),), _ = books.get(each).core.top(1)
                    if int(stamp) > 1:  # not the snapshot's
                        latencies.append(time.monotonic() * 1e3 - int(stamp) / 1e3)

            bus.subscribe(subjects.book(BookKey(each.exchange, each.symbol)), received)
        print("ready", flush=True)
        await asyncio.sleep(WARM_S)
        for each, replica in replicas.items():
            if node := replica.ask(time.monotonic(), 0.0):
                key = f"{each.exchange} {each.symbol}".encode()
                payload = await bus.request(subjects.request(node, SNAPSHOT), key, 5.0)
                frame = wire.frame_of(payload) if payload else None
                apply(replica.answered(node, frame), books, each, time.monotonic())
        latencies.clear()
        cpu, before = time.process_time(), counted
        await asyncio.sleep(seconds)
        cpu, frames = time.process_time() - cpu, counted - before
    found = sorted(latencies) or [float("nan")]
    print(
        json.dumps(
            {
                "frames": frames,
                "cpu_s": cpu,
                "live": sum(1 for _ in books.live()),
                "gaps": sum(each.gaps for each in replicas.values()),
                "p50_ms": found[len(found) // 2],
                "p99_ms": found[min(len(found) - 1, len(found) * 99 // 100)],
            }
        )
    )


def cpu_of(pid):
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def nats_server():
    """A nats-server on a free port; yields the port and the process."""
    program = shutil.which("nats-server") or str(Path(sys.executable).with_name("nats-server"))
    with tempfile.TemporaryDirectory() as folder:
        words = [program, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", folder]
        broker = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            while not (files := [each for each in Path(folder).glob("*.ports") if _written(each)]):
                time.sleep(0.05)
            port = json.loads(files[0].read_text())["nats"][0].rpartition(":")[2]
            yield int(port), broker.pid
        finally:
            broker.kill()
            broker.wait()


def _written(file):
    return file.read_text().rstrip().endswith("}")


def measure(rate, seconds):
    with nats_server() as (port, broker):
        me = [sys.executable, __file__, "--port", str(port), "--rate", str(rate)]
        receiver = subprocess.Popen(
            [*me, "--side", "gateway", "--seconds", str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        receiver.stdout.readline()
        sender = subprocess.Popen(
            [*me, "--side", "feeds", "--seconds", str(seconds + 2 * WARM_S)],
            stdout=subprocess.PIPE,
            text=True,
        )
        before = cpu_of(broker)
        got = json.loads(receiver.communicate()[0])
        broker_s = cpu_of(broker) - before
        sent = json.loads(sender.communicate()[0])
    each_us = sent["cpu_s"] / sent["frames"] * 1e6
    print(f"rate wanted            {rate or 'most'} frames/s, {BOOKS} books, {LEVELS} levels each")
    print(
        f"feeds side             {each_us:.0f} us of CPU a frame, of which "
        f"{sent['unpublished_us']:.0f} apply it"
    )
    print(f"nats-server            {broker_s / max(1, got['frames']) * 1e6:.0f} us a frame")
    print(
        f"gateway side           {got['cpu_s'] / max(1, got['frames']) * 1e6:.0f} us a frame, "
        f"{got['frames'] / seconds:.0f} frames/s, {got['live']} books live, {got['gaps']} gaps"
    )
    if rate:  # else the queue is as long as the run
        print(f"added latency          p50 {got['p50_ms']:.2f} ms, p99 {got['p99_ms']:.2f} ms")


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--rate", type=int, default=2_000)
    words.add_argument("--seconds", type=float, default=10.0)
    words.add_argument("--side", choices=("feeds", "gateway"))
    words.add_argument("--port")
    given = words.parse_args()
    if given.side == "feeds":
        uvloop.run(feeds(given.port, given.rate, given.seconds))
    elif given.side == "gateway":
        uvloop.run(gateway(given.port, given.seconds))
    else:
        measure(given.rate, given.seconds)


if __name__ == "__main__":
    main()
