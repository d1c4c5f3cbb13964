"""Goal 9, second half: clients that are connected, authenticated and idle, at growing numbers.

For each number: memory of the process for each client, CPU of the process for each client and
second with a ping every 20 s, the longest time of CPU between two turns of the event loop, and the
CPU of a connection until its key is accepted. What the first clients bring along does not count.
With `--subscribed` as many of the most clients have a view each, 20 to a view, at an update a
second: CPU of a delivered message, above that of idling, and the longest turn while the views
change one after the other, and all in the same moment. Then the node drains and starts again: how
long until all clients are back. At last all clients vanish: their process is killed.

    idle.py [--clients 1000 10000 30000 100000] [--seconds 20] [--subscribed 0] [--no-restart]
    idle.py --bare [--clients ...] [--seconds 20] [--subscribed 0]

`--bare` measures the floor instead: a uvloop protocol that pings as often, accepts any key, and
sends to 20 clients at a time with one send() each. When its clients vanish, it reads the end of
every connection and closes none. It is not restarted.

Where the hard limit of open files is lower, it measures to that and says so. It stops when the
machine has little memory left.
"""

import argparse
import array
import asyncio
import ctypes
import gc
import itertools
import mmap
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import load
import node as product
import uvloop
from fanout import SIX
from others import SWITCHING, listener
from sustained import SYMBOLS, views

from onebook import app, config
from onebook.gateway.frames import ping_frame, text_frame
from timing import report

IDLERS = os.environ.get("BENCH_IDLERS", "")  # the compiled idlers.c; `run.py` sets it
FIRST = 500
PING_S = 20.0
CALM_S = 1.5  # a tick of the gateway and a flush of the meter have passed
PULSE_S = 0.005
DRAIN_S = 10.0
AT_ONCE = 64  # connections on the way, of each process of clients
HTTP_MAX = 100
FILES_BESIDE = 1_000  # open files of a process beside its clients' sockets
CLIENT_BYTES = 32_768  # of the whole machine, kernel included, at most
SPARE_BYTES = 2 << 30
RETURN_MAX_S = 120.0
VANISH_MAX_S = 30.0
PER_VIEW = 20  # clients
INTERVAL_MS = 1_000  # of a view
CHANGE_S = 0.02  # between two changes, of one book each
BARE = "bare uvloop protocol"
OURS = "onebook"


ACCEPTED = text_frame(b'{"type":"authentication_success","session_id":"0"}')
PING = ping_frame(bytes(8))
UPDATE = text_frame(bytes(700))  # what a view of `sustained.py` sends


class Counter(IntEnum):
    """The counters of idlers.c."""

    OPEN = 0
    READY = 1
    PONGS = 2
    ATTEMPTS = 3
    FAILED = 4
    SLOWEST_NS = 5
    LAST_NS = 6
    TOLD = 7
    BYTES = 8


class Idlers:
    """Clients in a process of their own on the second core."""

    def __init__(
        self, port: int, clients: int, hellos: Iterable[list[str]], *, first: int, at_once: int
    ) -> None:
        self.clients = clients
        self._folder = tempfile.TemporaryDirectory()
        hello, counters = (Path(self._folder.name, name) for name in ("hello", "counters"))
        hello.write_text("".join("\n".join(lines) + "\n\n" for lines in hellos))
        counters.write_bytes(bytes(8 * len(Counter)))
        with counters.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8 * len(Counter))
        self.counters = memoryview(self._map).cast("Q")
        words = (port, clients, hello, counters, first, at_once)
        self._process = subprocess.Popen([IDLERS, *map(str, words)], stdin=subprocess.PIPE)
        load.settle_on(1, self._process.pid)

    def __enter__(self) -> "Idlers":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self.counters.release()
        self._map.close()
        self._folder.cleanup()

    def kill(self) -> None:
        """End all clients at once; the kernel has closed their sockets when this returns."""
        self._process.kill()
        self._process.wait()

    def check(self) -> None:
        """Fail if the process ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the clients ended with {self._process.returncode}")


def total(groups: list[Idlers], counter: Counter) -> int:
    return sum(each.counters[counter] for each in groups)


async def ready(groups: list[Idlers], timeout_s: float) -> None:
    """Wait until every client is authenticated."""
    deadline = time.monotonic() + timeout_s
    while (count := total(groups, Counter.READY)) < sum(each.clients for each in groups):
        for each in groups:
            each.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} clients are authenticated")
        await asyncio.sleep(0.05)


class Pulse:
    """Notes the longest CPU time of this thread between two turns of the event loop.

    CPU and not wall time, so that other programs of the machine do not count.
    """

    def __init__(self) -> None:
        self.longest_s = self.collecting_s = self._collected_s = 0.0

    def __enter__(self) -> "Pulse":
        self._task = asyncio.create_task(self._run())
        gc.callbacks.append(self._collecting)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collecting)
        self._task.cancel()
        self._note()

    async def _run(self) -> None:
        self._before_s = time.thread_time()
        while True:
            await asyncio.sleep(PULSE_S)
            self._note()

    def _note(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._before_s)
        self._before_s = now_s

    def _collecting(self, phase: str, _: object) -> None:
        now_s = time.thread_time()
        if phase == "stop":
            self.collecting_s = max(self.collecting_s, now_s - self._collected_s)
        self._collected_s = now_s


async def settled_memory() -> int:
    await asyncio.sleep(CALM_S)
    return load.resident()


async def share(seconds: float) -> float:
    """Seconds of CPU a second."""
    cpu, began = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - began)


def within_limits(wanted: list[int]) -> Iterator[int]:
    """The numbers of clients that this machine permits, the largest cut down to its limits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = sys.maxsize if hard == resource.RLIM_INFINITY else hard - FILES_BESIDE
    for clients in wanted:
        if clients > files:
            print(f"{clients} clients: this process may open {hard} files", file=sys.stderr)
            if not any(files - FIRST <= each <= files for each in wanted):
                yield files
            return
        yield clients


def free_bytes() -> int:
    words = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return 1024 * int(words["MemAvailable"].split()[0])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def settings_for(clients: int) -> Iterator[config.Settings]:
    with tempfile.TemporaryDirectory() as name:
        tables = product.files_in(Path(name))
        tables["server"] = {"port": free_port(), "http_connections_max": HTTP_MAX}
        gateway = {
            "connections_max": clients + 100, "connects_per_minute": 0, "drain_s": DRAIN_S,
            "ping_interval_s": PING_S,
        }  # fmt: skip
        yield config.load(overrides={**tables, "gateway": gateway})


async def grow(
    port: int, stack: ExitStack, hellos: list[list[str]], words: argparse.Namespace
) -> list[Idlers]:
    """Connect more and more clients; report each number."""
    groups: list[Idlers] = []
    count, prefix = 0, f"{BARE}, " if words.bare else ""
    first_bytes, first_share = 0, 0.0
    values: dict[str, float] = {}
    for clients in (FIRST, *words.clients):
        if free_bytes() < (clients - count) * CLIENT_BYTES + SPARE_BYTES:
            print(f"{clients} clients: too little memory is free", file=sys.stderr)
            break
        with Pulse() as pulse:
            cpu = time.process_time()
            while count < clients:
                more = min(clients - count, 19_000)
                group = Idlers(
                    port, more, hellos[count : count + more], first=count, at_once=AT_ONCE
                )
                groups.append(stack.enter_context(group))
                count += more
                await ready(groups, load.PATIENCE_S + more / 100)
            cpu = (time.process_time() - cpu) / groups[-1].clients
        connecting = pulse
        held, pongs = await settled_memory(), total(groups, Counter.PONGS)
        with Pulse() as pulse:
            took = await share(words.seconds)
        if clients == FIRST:
            first_bytes, first_share = held, took
            continue
        pongs = total(groups, Counter.PONGS) - pongs
        assert total(groups, Counter.READY) == clients
        each = clients - FIRST
        values = {
            "KiB": (held - first_bytes) / each / 1024,
            "us of CPU a second": (took - first_share) / each * 1e6,
            "longest turn, ms of CPU": pulse.longest_s * 1e3,
            "longest turn while connecting, ms of CPU": connecting.longest_s * 1e3,
            "longest collection while connecting, ms of CPU": connecting.collecting_s * 1e3,
            "us of CPU to connect": cpu * 1e6,
            "pongs each": pongs / clients,
        }
        values = {prefix + name: value for name, value in values.items()}
        report(f"{clients} idle authenticated clients", values, "")
    report("idle authenticated client", values, "of the most")
    return groups


async def deliver(
    name: str,
    groups: list[Idlers],
    words: argparse.Namespace,
    sent: Callable[[], int],
    change: Callable[[], object],
) -> None:
    """Measure the CPU of a delivered message above that of idling; `sent` counts messages."""
    idle = await share(words.seconds)
    messages, received = sent(), total(groups, Counter.BYTES)
    changing = asyncio.create_task(_repeat(change))
    with Pulse() as pulse:
        took = await share(words.seconds)
    changing.cancel()
    messages = sent() - messages
    values = {
        f"{name}, us a message": (took - idle) * words.seconds / messages * 1e6,
        f"{name}, messages a second": messages / words.seconds,
        f"{name}, bytes a message": (total(groups, Counter.BYTES) - received) / messages,
        f"{name}, longest turn, ms of CPU": pulse.longest_s * 1e3,
        f"{name}, longest collection, ms of CPU": pulse.collecting_s * 1e3,
    }
    clients = sum(each.clients for each in groups)
    report(f"{words.subscribed} of {clients} clients subscribed", values, "")
    report("update of a subscribed client", values, "")


async def _repeat(change: Callable[[], object]) -> None:
    due = time.monotonic()
    while True:
        change()
        due += CHANGE_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def returned(settings: config.Settings, places, groups: list[Idlers], began: float) -> None:
    """Start the node again, and wait until all clients are back."""
    drained_s = time.monotonic() - began
    for each in groups:
        each.counters[Counter.SLOWEST_NS] = 0
    failed, started = total(groups, Counter.FAILED), time.monotonic()
    async with app.running(settings, overrides=places) as node:
        listening_s = time.monotonic()
        with Pulse() as pulse:
            await ready(groups, RETURN_MAX_S)
        back_s = time.monotonic()
        values = {
            "clients": len(node.gateway.connections),
            "told when to return": total(groups, Counter.TOLD),
            "seconds of the drain": drained_s,
            "seconds to start": listening_s - started,
            "seconds until all were back": back_s - listening_s,
            "longest wait of one, s": max(e.counters[Counter.SLOWEST_NS] for e in groups) / 1e9,
            "attempts that failed": total(groups, Counter.FAILED) - failed,
            "longest turn, ms of CPU": pulse.longest_s * 1e3,
        }
        report("all clients return", values, "")
        await vanish("", node.gateway.connections, groups)


async def vanish(prefix: str, connections: Sized, groups: list[Idlers]) -> None:
    """Kill all clients, and wait until the server has released their connections.

    The event loop stands still until the last socket is closed, so that its next turn finds all of
    them; otherwise their number depends on how fast the kernel closes them beside it.
    """
    clients, cpu = len(connections), time.process_time()
    deadline = time.monotonic() + VANISH_MAX_S
    with Pulse() as pulse:
        await asyncio.sleep(2 * PULSE_S)
        for each in groups:
            each.kill()
        while connections and time.monotonic() < deadline:
            await asyncio.sleep(PULSE_S)
    values = {
        "clients": clients,
        "left": len(connections),
        "us of CPU each": (time.process_time() - cpu) / clients * 1e6,
        "longest turn, ms of CPU": pulse.longest_s * 1e3,
    }
    values = {prefix + name: value for name, value in values.items()}
    report("all clients vanish", values, "")


async def measure(words: argparse.Namespace) -> None:
    most = max(words.clients)
    load.lift_file_limit(most + FILES_BESIDE)
    with ExitStack() as stack, settings_for(most) as settings:
        places = stack.enter_context(product.still_exchanges())
        async with app.running(settings, overrides=places) as node:
            keys = await product.keys_for(node, most)
            hellos = list(product.hellos(keys, [[]]))
            wanted = views(words.subscribed // PER_VIEW, INTERVAL_MS) if words.subscribed else []
            for number, hello in enumerate(product.hellos(keys, wanted)) if wanted else ():
                if number < words.subscribed:
                    hellos[number] = hello
            groups = await grow(node.address[1], stack, hellos, words)
            if words.subscribed:
                await deliver_views(node, groups, words)
            if not words.restart:
                await vanish("", node.gateway.connections, groups)
                return
            began = time.monotonic()
            with Pulse() as pulse:
                await node.gateway.drain()
            report("drain of all", {"longest turn, ms of CPU": pulse.longest_s * 1e3}, "")
        if words.restart:
            await returned(settings, places, groups, began)


async def deliver_views(node: app.Node, groups: list[Idlers], words: argparse.Namespace) -> None:
    """Change one book after the other, each view once a second; then all in the same moment."""
    streams, fanout = node.gateway.streams, node.gateway.fanout
    assert len(streams) == words.subscribed // PER_VIEW
    hand = product.Hand(node, SIX, SYMBOLS)
    hand.fill()
    await asyncio.sleep(CALM_S)
    calls = itertools.count()

    def change_all() -> None:
        if not next(calls) % round(INTERVAL_MS / 1e3 / CHANGE_S):
            hand.change()

    for name, change in ((OURS, hand.change_next), (f"{OURS}, all at once", change_all)):
        await deliver(name, groups, words, lambda: streams.published_total * PER_VIEW, change)
    assert not fanout.conflated_total


class BareClient(asyncio.Protocol):
    """Upgrades, accepts whatever is said first, and ignores the rest."""

    def __init__(self, server: "BareServer") -> None:
        self._server = server
        self._upgraded = self._accepted = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._upgraded:
            self._upgraded = True
            self.transport.write(SWITCHING)
        elif not self._accepted:
            self._accepted = True
            self.transport.write(ACCEPTED)
            self._server.add(self.transport)

    def eof_received(self) -> bool:
        self._server.connections.discard(self.transport)
        return True  # uvloop would close all of them in this turn of the event loop

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self.transport)


class BareServer:
    """Pings each client every `PING_S`, those that are due once a second."""

    def __init__(self) -> None:
        self._slots: list[list[asyncio.Transport]] = [[] for _ in range(int(PING_S))]
        self._sockets = array.array("i")
        self.connections: set[asyncio.Transport] = set()
        self.sent = self._next = 0

    def add(self, transport: asyncio.Transport) -> None:
        self.connections.add(transport)
        self._slots[len(self._sockets) % len(self._slots)].append(transport)
        self._sockets.append(transport.get_extra_info("socket").fileno())

    async def run(self) -> None:
        for slot in itertools.cycle(self._slots):
            await asyncio.sleep(1.0)
            for transport in slot:
                transport.write(PING)

    def send(self, subscribed: int) -> None:
        """Send each subscribed client a frame, a part of them in each call."""
        for _ in range(subscribed // PER_VIEW * int(CHANGE_S * 1e3) // INTERVAL_MS):
            first = self._sockets.buffer_info()[0] + self._next * self._sockets.itemsize
            frame = ctypes.c_long(len(UPDATE))
            assert (
                ctypes.CDLL(load.FLOOR).send_each(ctypes.c_void_p(first), PER_VIEW, UPDATE, frame)
                == PER_VIEW
            )
            self._next = (self._next + PER_VIEW) % subscribed
            self.sent += PER_VIEW


async def measure_bare(words: argparse.Namespace) -> None:
    most = max(words.clients)
    load.lift_file_limit(most + FILES_BESIDE)
    server = BareServer()
    with ExitStack() as stack, listener() as listening:
        loop = asyncio.get_running_loop()
        serving = await loop.create_server(lambda: BareClient(server), sock=listening)
        pinging = asyncio.create_task(server.run())
        hellos = [["hello"]] * most
        groups = await grow(listening.getsockname()[1], stack, hellos, words)
        if words.subscribed:
            await deliver(
                BARE, groups, words, lambda: server.sent, lambda: server.send(words.subscribed)
            )
        pinging.cancel()
        await vanish(f"{BARE}, ", server.connections, groups)
        serving.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 30_000, 100_000])
    parser.add_argument("--seconds", type=float, default=PING_S)
    parser.add_argument("--subscribed", type=int, default=0)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--restart", action=argparse.BooleanOptionalAction, default=True)
    words = parser.parse_args()
    words.clients = [*within_limits(sorted(words.clients))]
    load.settle_on(0)
    uvloop.run(measure_bare(words) if words.bare else measure(words))


if __name__ == "__main__":
    main()
