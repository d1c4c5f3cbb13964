"""What every server under test shares: its core, the sink of many clients, and how CPU is counted.

The server runs on the first core and the sink on the second, so that the cost of a message is the
server's own: its process time, kernel included, over the messages that arrived.
"""

import mmap
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

SINK = os.environ.get("BENCH_SINK", "")  # the compiled sink.c; `run.py` sets it
FLOOR = os.environ.get("BENCH_FLOOR", "")  # the compiled floor.c
PATIENCE_S = 60.0
BYTES, CLIENTS, LAST_NS = range(3)
COUNTERS = 3


def settle_on(core: int, pid: int = 0) -> None:
    """Keep a process on one core, where there are two; a child begins on its parent's."""
    if (os.cpu_count() or 1) > core:
        os.sched_setaffinity(pid, {core})


def lift_file_limit(files: int) -> None:
    """Allow so many sockets, as far as the machine does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        sys.exit(f"{files} sockets are needed and the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))


class Sink:
    """Clients in a process of their own on the second core.

    Args:
        port: Where they connect.
        clients: How many.
        hellos: What they say after the handshake: lines for one client after the other, over again.
        packed: Whether they want permessage-deflate.
    """

    def __init__(
        self, port: int, clients: int, hellos: Iterable[list[str]] = (), *, packed: bool = False
    ) -> None:
        self.clients = clients
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        hello, counters = folder / "hello", folder / "counters"
        hello.write_text("".join("\n".join(lines) + "\n\n" for lines in hellos))
        counters.write_bytes(bytes(8 * COUNTERS))
        with counters.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8 * COUNTERS)
        self._counters = memoryview(self._map).cast("Q")
        words = [SINK, str(port), str(clients), str(hello), str(counters)]
        self._process = subprocess.Popen(
            words + ["deflate"] * packed, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's SIGINT is the benchmark's alone
        )  # fmt: skip
        settle_on(1, self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._counters.release()
        self._map.close()
        self._folder.cleanup()

    @property
    def received(self) -> int:
        """Bytes that arrived since the handshakes, frame headers included."""
        return self._counters[BYTES]

    @property
    def connected(self) -> int:
        """Clients that have said their hello and are still there."""
        return self._counters[CLIENTS]

    @property
    def last_s(self) -> float:
        """When something last arrived, in monotonic seconds."""
        return self._counters[LAST_NS] / 1e9

    def check(self) -> None:
        """Fail if a client was refused or disconnected."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the sink ended with {self._process.returncode}")


class Blocks:
    """CPU per message over blocks of ticks; the median block counts."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self._began = 0.0

    def begin(self) -> None:
        self._began = time.process_time()

    def end(self, messages: int) -> None:
        self.costs.append((time.process_time() - self._began) / messages * 1e6)

    @property
    def median(self) -> float:
        """Microseconds a message."""
        return statistics.median(self.costs)


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
