"""Idle clients of a node in processes of their own (`idlers.c`), with a real socket each."""

import asyncio
import mmap
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path

import load

IDLERS = os.environ.get("BENCH_IDLERS", "")  # the compiled idlers.c; `run.py` sets it
AT_ONCE = 64  # connections on the way, of each process of clients
PER_PROCESS = 19_000  # clients of one process


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
    """A process of clients on the second core.

    Args:
        port: Where they connect.
        clients: How many.
        hellos: What each says after the upgrade, as lines.
        first: The number of the first, in all processes.
        at_once: How many connect at a time.
        shared: Whether each is only the socket of many clients (`shared.py`).
    """

    def __init__(
        self,
        port: int,
        clients: int,
        hellos: Iterable[list[str]],
        *,
        first: int = 0,
        at_once: int = AT_ONCE,
        shared: bool = False,
    ) -> None:
        self.clients = clients
        self._folder = tempfile.TemporaryDirectory()
        hello, counters = (Path(self._folder.name, name) for name in ("hello", "counters"))
        hello.write_text("".join("\n".join(lines) + "\n\n" for lines in hellos))
        counters.write_bytes(bytes(8 * len(Counter)))
        with counters.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8 * len(Counter))
        self.counters = memoryview(self._map).cast("Q")
        words = [IDLERS, *map(str, (port, clients, hello, counters, first, at_once))]
        self._process = subprocess.Popen(words + ["shared"] * shared, stdin=subprocess.PIPE)
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


class OwnSockets:
    """Clients with a real socket each.

    Args:
        port: Where they connect.
        hellos: What each says after the upgrade.
        stack: Ends their processes.
    """

    def __init__(self, port: int, hellos: list[list[str]], stack: ExitStack) -> None:
        self.port = port
        self.groups: list[Idlers] = []
        self._hellos = hellos
        self._stack = stack

    def __len__(self) -> int:
        return sum(each.clients for each in self.groups)

    def total(self, counter: Counter) -> int:
        """The sum of all processes."""
        return sum(each.counters[counter] for each in self.groups)

    @property
    def pongs(self) -> int:
        """Pings that were answered."""
        return self.total(Counter.PONGS)

    @property
    def received(self) -> int:
        """Bytes since the upgrades."""
        return self.total(Counter.BYTES)

    async def grow(self, clients: int) -> None:
        """Connect until there are so many, and wait until each is authenticated."""
        while (count := len(self)) < clients:
            more = min(clients - count, PER_PROCESS)
            hellos = self._hellos[count : count + more]
            group = Idlers(self.port, more, hellos, first=count)
            self.groups.append(self._stack.enter_context(group))
            await self.ready(load.PATIENCE_S + more / 100)

    async def ready(self, timeout_s: float) -> None:
        """Wait until every client is authenticated."""
        deadline = time.monotonic() + timeout_s
        while (count := self.total(Counter.READY)) < len(self):
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{count} clients are authenticated")
            await asyncio.sleep(0.05)

    def check(self) -> None:
        """Fail if a process ended."""
        for each in self.groups:
            each.check()
