"""Goal 9, second half: clients that are connected, authenticated and idle, at growing numbers.

For each number: memory of the process for each client, CPU of the process for each client and
second with a ping every 20 s, the longest time of CPU between two turns of the event loop, and the
CPU of a connection until its key is accepted. What the first clients bring along does not count.
With `--subscribed` as many of the most clients have a view each, 20 to a view, at an update a
second: CPU of a delivered message, above that of idling, and the longest turn while the views
change one after the other, and all in the same moment. Then the node drains and starts again: how
long until all clients are back. At last all clients vanish: their process is killed.

    idle.py [--clients 1000 10000 30000 100000] [--seconds 20] [--subscribed 0] [--no-restart]
    idle.py --shared [...]
    idle.py --bare [--clients ...] [--seconds 20] [--subscribed 0]

Where the hard limit of open files is lower, it measures to that and says so. It stops when the
machine has little memory left.

`--shared` measures beyond that limit what depends on the number of clients in our code: they share
real sockets (`shared.py` states what that leaves out). The floor of a message is then measured with
the same sockets.

`--bare` measures the floor instead: a uvloop protocol that pings as often, accepts any key, and
sends to 20 clients at a time with one send() each. When its clients vanish, it reads the end of
every connection and closes none. It is not restarted.
"""

import argparse
import array
import asyncio
import ctypes
import gc
import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import load
import node as product
import uvloop
from fanout import SIX
from idlers import Counter, Idlers, OwnSockets
from others import SWITCHING, listener
from shared import Line, ListeningLoop, SharedSockets
from sustained import SYMBOLS, views

from onebook import app, config, http
from onebook.gateway.frames import ping_frame, text_frame
from timing import report

FIRST = 500
PING_S = 20.0
CALM_S = 1.5  # a tick of the gateway and a flush of the meter have passed
PULSE_S = 0.005
DRAIN_S = 10.0
SHARED_DRAIN_S = 30.0  # of 100,000 clients; the default of a node
HTTP_MAX = 100
FILES_BESIDE = 1_000  # open files of a process beside its clients' sockets
CLIENT_BYTES = 32_768  # of the whole machine, kernel included, at most
SPARE_BYTES = 2 << 30
RETURN_MAX_S = 120.0
VANISH_MAX_S = 30.0
PER_VIEW = 20  # clients, by default
SHARED_SOCKETS = 16_000  # at most
INTERVAL_MS = 1_000  # of a view
CHANGE_S = 0.02  # between two changes, of one book each
BARE = "bare uvloop protocol"
OURS = "onebook"


ACCEPTED = text_frame(b'{"type":"authentication_success","session_id":"0"}')
PING = ping_frame(bytes(8))
UPDATE = text_frame(bytes(700))  # what a view of `sustained.py` sends


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


def delayed() -> float:
    """Seconds that this thread was ready to run and waited for its core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


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


@contextmanager
def settings_for(clients: int, drain_s: float = DRAIN_S) -> Iterator[config.Settings]:
    """Settings of nodes that start after one another on the same port, which is held meanwhile."""
    with tempfile.TemporaryDirectory() as name, http.sharing("127.0.0.1", 0) as held:
        tables = product.files_in(Path(name))
        tables["server"] = {"port": held.getsockname()[1], "http_connections_max": HTTP_MAX}
        gateway = {
            "connections_max": clients + 100, "connects_per_minute": 0, "drain_s": drain_s,
            "ping_interval_s": PING_S,
        }  # fmt: skip
        yield config.load(overrides={**tables, "gateway": gateway})


Clients = OwnSockets | SharedSockets


async def grow(clients: Clients, words: argparse.Namespace, prefix: str = "") -> None:
    """Connect more and more clients; report each number."""
    first_bytes, first_share = 0, 0.0
    values: dict[str, float] = {}
    for count in (FIRST, *words.clients):
        if free_bytes() < (count - len(clients)) * CLIENT_BYTES + SPARE_BYTES:
            print(f"{count} clients: too little memory is free", file=sys.stderr)
            break
        more = count - len(clients)
        with Pulse() as connecting:
            cpu = time.process_time()
            await clients.grow(count)
            cpu = (time.process_time() - cpu) / more
        held, pongs = await settled_memory(), clients.pongs
        with Pulse() as pulse:
            took = await share(words.seconds)
        clients.check()
        if count == FIRST:
            first_bytes, first_share = held, took
            continue
        each = count - FIRST
        values = {
            "KiB": (held - first_bytes) / each / 1024,
            "us of CPU a second": (took - first_share) / each * 1e6,
            "longest turn, ms of CPU": pulse.longest_s * 1e3,
            "longest collection, ms of CPU": pulse.collecting_s * 1e3,
            "longest turn while connecting, ms of CPU": connecting.longest_s * 1e3,
            "longest collection while connecting, ms of CPU": connecting.collecting_s * 1e3,
            "us of CPU to connect": cpu * 1e6,
            "pongs each": (clients.pongs - pongs) / count,
        }
        values = {prefix + name: value for name, value in values.items()}
        report(f"{count} idle authenticated clients", values, "")
    report("idle authenticated client", values, "of the most")


async def deliver(
    name: str,
    clients: Clients,
    words: argparse.Namespace,
    sent: Callable[[], int],
    change: Callable[[], object],
) -> None:
    """Measure the CPU of a delivered message above that of idling; `sent` counts messages."""
    idle = await share(words.seconds)
    messages, received = sent(), clients.received
    changing = asyncio.create_task(_repeat(change))
    with Pulse() as pulse:
        took = await share(words.seconds)
    changing.cancel()
    messages = sent() - messages
    values = {
        f"{name}, us a message": (took - idle) * words.seconds / messages * 1e6,
        f"{name}, messages a second": messages / words.seconds,
        f"{name}, bytes a message": (clients.received - received) / messages,
        f"{name}, longest turn, ms of CPU": pulse.longest_s * 1e3,
        f"{name}, longest collection, ms of CPU": pulse.collecting_s * 1e3,
    }
    report(f"{words.subscribed} of {len(clients)} clients subscribed", values, "")
    report("update of a subscribed client", values, "")


async def _repeat(change: Callable[[], object]) -> None:
    due = time.monotonic()
    while True:
        change()
        due += CHANGE_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def returned(settings: config.Settings, places, clients: OwnSockets, began: float) -> None:
    """Start the node again, and wait until all clients are back."""
    drained_s = time.monotonic() - began
    for each in clients.groups:
        each.counters[Counter.SLOWEST_NS] = 0
    failed, started = clients.total(Counter.FAILED), time.monotonic()
    async with app.running(settings, overrides=places, port_shared=True) as node:
        listening_s, cpu_s, delayed_s = time.monotonic(), time.process_time(), delayed()
        with Pulse() as pulse:
            await clients.ready(RETURN_MAX_S)
        back_s = time.monotonic()
        slowest_ns = max(each.counters[Counter.SLOWEST_NS] for each in clients.groups)
        values = {
            "clients": len(node.gateway.connections),
            "told when to return": clients.total(Counter.TOLD),
            "seconds of the drain": drained_s,
            "seconds to start": listening_s - started,
            "seconds until all were back": back_s - listening_s,
            "seconds of CPU until then": time.process_time() - cpu_s,
            "seconds of waiting for the core": delayed() - delayed_s,
            "longest wait of one, s": slowest_ns / 1e9,
            "attempts that failed": clients.total(Counter.FAILED) - failed,
            "longest turn, ms of CPU": pulse.longest_s * 1e3,
        }
        report("all clients return", values, "")
        await vanish("", node.gateway.connections, killing(clients))


async def vanish(prefix: str, connections: Sized, end_all: Callable[[], Awaitable[None]]) -> None:
    """End all clients, and wait until the server has released their connections."""
    clients, cpu = len(connections), time.process_time()
    deadline = time.monotonic() + VANISH_MAX_S
    with Pulse() as pulse:
        await asyncio.sleep(2 * PULSE_S)
        await end_all()
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


def killing(clients: OwnSockets) -> Callable[[], Awaitable[None]]:
    """Kill the processes of the clients.

    The event loop stands still until the last socket is closed, so that its next turn finds all of
    them; otherwise their number depends on how fast the kernel closes them beside it.
    """

    async def kill() -> None:
        for each in clients.groups:
            each.kill()

    return kill


async def measure(words: argparse.Namespace) -> None:
    most = max(words.clients)
    load.lift_file_limit(most + FILES_BESIDE)
    with ExitStack() as stack, settings_for(most) as settings:
        places = stack.enter_context(product.still_exchanges())
        async with app.running(settings, overrides=places, port_shared=True) as node:
            clients = OwnSockets(node.address[1], await hellos_for(node, words), stack)
            await grow(clients, words)
            if words.subscribed:
                await deliver_views("", node, clients, words)
            if not words.restart:
                await vanish("", node.gateway.connections, killing(clients))
                return
            began = time.monotonic()
            await drain("", node)
        await returned(settings, places, clients, began)


async def hellos_for(node: app.Node, words: argparse.Namespace) -> list[list[str]]:
    """What each client says: its key, and the first ones a subscription."""
    most = max(words.clients)
    keys = await product.keys_for(node, most)
    hellos = list(itertools.islice(product.hellos(keys, [[]]), most))
    if words.subscribed:
        wanted = product.hellos(keys, views(words.subscribed // words.per_view, INTERVAL_MS))
        hellos[: words.subscribed] = itertools.islice(wanted, words.subscribed)
    return hellos


async def drain(prefix: str, node: app.Node) -> None:
    """Close all clients within the drain time."""
    with Pulse() as pulse:
        await node.gateway.drain()
    report("drain of all", {f"{prefix}longest turn, ms of CPU": pulse.longest_s * 1e3}, "")


async def measure_shared(words: argparse.Namespace) -> None:
    most, sockets = max(words.clients), min(SHARED_SOCKETS, max(words.clients))
    prefix = "shared sockets, "
    load.lift_file_limit(sockets + FILES_BESIDE)
    with ExitStack() as stack, settings_for(sockets, SHARED_DRAIN_S) as settings:
        places = stack.enter_context(product.still_exchanges())
        async with app.running(settings, overrides=places, port_shared=True) as node:
            permit(node.settings, most)  # not before, because the node reserves a file for each
            hellos = await hellos_for(node, words)
            clients = SharedSockets(hellos, *await connected_lines(stack, sockets))
            clients.port = node.address[1]
            await grow(clients, words, prefix)
            if words.subscribed:
                await deliver_views(prefix, node, clients, words)
                floor = Floor(clients.sockets(words.subscribed), words.per_view)
                await deliver(f"{prefix}{BARE}", clients, words, lambda: floor.sent, floor.send)
            await drain(prefix, node)
            clients.forget()

        if words.restart:
            async with app.running(settings, overrides=places, port_shared=True) as node:
                permit(node.settings, most)
                clients.port = node.address[1]
                cpu, began = time.process_time(), time.monotonic()
                with Pulse() as pulse:
                    await clients.grow(most)
                values = {
                    f"{prefix}us of CPU each": (time.process_time() - cpu) / most * 1e6,
                    f"{prefix}seconds until all were back": time.monotonic() - began,
                    f"{prefix}longest turn, ms of CPU": pulse.longest_s * 1e3,
                }
                report("all clients return", values, "")
                await vanish(prefix, node.gateway.connections, clients.end_all)


async def connected_lines(stack: ExitStack, sockets: int) -> tuple[list[Line], Idlers]:
    """Connect the sockets that clients share."""
    lines: list[Line] = []
    listening = stack.enter_context(listener())
    await asyncio.get_running_loop().create_server(lambda: Line(lines), sock=listening)
    port = listening.getsockname()[1]
    idlers = stack.enter_context(Idlers(port, sockets, [["nothing"]], shared=True))
    while len(lines) < sockets:
        idlers.check()
        await asyncio.sleep(0.05)
    return lines, idlers


def permit(settings: config.Settings, clients: int) -> None:
    """Change the limit of connections as a reload does."""
    object.__setattr__(settings.gateway, "connections_max", clients + 100)


async def deliver_views(
    prefix: str, node: app.Node, clients: Clients, words: argparse.Namespace
) -> None:
    """Change one book after the other, each view once a second; then all in the same moment."""
    streams, fanout = node.gateway.streams, node.gateway.fanout
    assert len(streams) == words.subscribed // words.per_view
    hand = product.Hand(node, SIX, SYMBOLS)
    hand.fill()
    await asyncio.sleep(CALM_S)
    calls = itertools.count()

    def change_all() -> None:
        if not next(calls) % round(INTERVAL_MS / 1e3 / CHANGE_S):
            hand.change()

    for when, change in (("", hand.change_next), (", all at once", change_all)):
        name = f"{prefix}{OURS}{when}"
        await deliver(
            name, clients, words, lambda: streams.published_total * words.per_view, change
        )
    assert not fanout.conflated_total
    clients.check()


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


class Floor:
    """Sends a frame to each socket in turn, all of them in `INTERVAL_MS`."""

    def __init__(self, sockets: "array.array[int]", per_view: int) -> None:
        self._sockets = sockets
        self._per_view = per_view
        self._send_each = ctypes.CDLL(load.FLOOR).send_each
        self._next = 0
        self._due = 0.0
        self.sent = 0

    def send(self) -> None:
        """Send to a part of them, a view at a time."""
        count, frame = len(self._sockets), ctypes.c_long(len(UPDATE))
        self._due += count // self._per_view * CHANGE_S * 1e3 / INTERVAL_MS
        while self._due >= 1:
            self._due -= 1
            first = self._sockets.buffer_info()[0] + self._next * self._sockets.itemsize
            sent = self._send_each(ctypes.c_void_p(first), self._per_view, UPDATE, frame)
            assert sent == self._per_view
            self._next = (self._next + self._per_view) % count
            self.sent += self._per_view


class BareServer:
    """Pings each client every `PING_S`, those that are due once a second."""

    def __init__(self) -> None:
        self._slots: list[list[asyncio.Transport]] = [[] for _ in range(int(PING_S))]
        self.sockets = array.array("i")
        self.connections: set[asyncio.Transport] = set()

    def add(self, transport: asyncio.Transport) -> None:
        self.connections.add(transport)
        self._slots[len(self.sockets) % len(self._slots)].append(transport)
        self.sockets.append(transport.get_extra_info("socket").fileno())

    async def run(self) -> None:
        for slot in itertools.cycle(self._slots):
            await asyncio.sleep(1.0)
            for transport in slot:
                transport.write(PING)


async def measure_bare(words: argparse.Namespace) -> None:
    most, prefix = max(words.clients), f"{BARE}, "
    load.lift_file_limit(most + FILES_BESIDE)
    server = BareServer()
    with ExitStack() as stack, listener() as listening:
        loop = asyncio.get_running_loop()
        serving = await loop.create_server(lambda: BareClient(server), sock=listening)
        pinging = asyncio.create_task(server.run())
        clients = OwnSockets(listening.getsockname()[1], [["hello"]] * most, stack)
        await grow(clients, words, prefix)
        if words.subscribed:
            floor = Floor(server.sockets[: words.subscribed], words.per_view)
            await deliver(BARE, clients, words, lambda: floor.sent, floor.send)
        pinging.cancel()
        await vanish(prefix, server.connections, killing(clients))
        serving.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 30_000, 100_000])
    parser.add_argument("--seconds", type=float, default=PING_S)
    parser.add_argument("--subscribed", type=int, default=0)
    parser.add_argument("--per-view", type=int, default=PER_VIEW)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--restart", action=argparse.BooleanOptionalAction, default=True)
    words = parser.parse_args()
    words.clients.sort()
    load.settle_on(0)
    if words.shared:
        uvloop.run(measure_shared(words), loop_factory=ListeningLoop)
        return
    words.clients = [*within_limits(words.clients)]
    uvloop.run(measure_bare(words) if words.bare else measure(words))


if __name__ == "__main__":
    main()
