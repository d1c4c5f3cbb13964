"""The exchange of `library.py`: OKX's protocol on a core of its own, and what it plays.

    library_exchange.py FILE

Each line on standard input names a phase; it is played to the one subscriber and answered with a
line of JSON. FILE holds two times of the monotonic clock for each book, in nanoseconds: when its
last frame was sent, written here, and when the subscriber last had its book, written there.
"""

import json
import mmap
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import load
import receive

import stream

COINS = (
    "BTC", "ETH", "SOL", "DOGE", "XRP", "ADA", "AVAX", "DOT", "LINK", "LTC", "BCH", "ATOM", "NEAR",
    "UNI", "AAVE", "ETC", "FIL", "APT", "ARB", "SUI",
)  # fmt: skip
SYMBOLS = [f"{coin}/USDT" for coin in COINS]
NATIVES = [symbol.replace("/", "-") for symbol in SYMBOLS]
BOOKS = len(SYMBOLS)
LEVELS = 20
KEPT = 400  # levels a side that OKX keeps in step
STALL_S = 0.1  # for so long a round waits for the one before it
NANO = 1e9


class Phase(NamedTuple):
    """A number of rounds, each a frame of every book: at a pace, or each when the last was read."""

    rounds: int
    pace_s: float | None


WARM, PACED, BUSY = "warm", "paced", "busy"
PHASES = {WARM: Phase(50, 0.008), PACED: Phase(300, 0.008), BUSY: Phase(1_200, None)}


class Played(NamedTuple):
    """What a phase was: its frames, and the time from sending one until its book was had."""

    frames: int
    p50_us: float
    p99_us: float


class Times:
    """The two times of each book, shared by both processes."""

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self.sent, self.had = words[:BOOKS], words[BOOKS:]

    @staticmethod
    def make(path: str) -> None:
        Path(path).write_bytes(bytes(8 * 2 * BOOKS))

    @property
    def all_had(self) -> bool:
        return all(had >= sent for sent, had in zip(self.sent, self.had, strict=True))

    def latencies(self) -> Iterator[int]:
        return (had - sent for sent, had in zip(self.sent, self.had, strict=True) if had >= sent)


class Exchange:
    """The other process, seen from the contender's."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/times"
            Times.make(path)
            self.times = Times(path)
            self._process = subprocess.Popen(
                [sys.executable, __file__, path],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            place = f"127.0.0.1:{self._line().strip()}"
        self.ws, self.rest = f"ws://{place}/ws/v5/public", f"http://{place}"

    def play(self, phase: str) -> Played:
        """Wait for the end of a phase."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{phase}\n")
        self._process.stdin.flush()
        return Played(*json.loads(self._line()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def best_at_the_end() -> tuple[float, float]:
    """The best prices of every book when all phases were played."""
    market = stream.Stream(KEPT, seed=5)
    market.snapshot()  # as `serve` does: its amounts are drawn from the same numbers
    for _ in range(sum(phase.rounds for phase in PHASES.values())):
        market.frame(LEVELS)
    bids, asks = market.snapshot()
    return float(stream.price(bids[0][0])), float(stream.price(asks[0][0]))


def serve(path: str) -> None:
    """Answer the list of instruments and one subscriber, and play the phases that are asked for."""
    load.settle_on(1)
    times = Times(path)
    market = stream.Stream(KEPT, seed=5)
    snapshot = stream.okx(*market.snapshot(), 0, "snapshot")
    count = sum(phase.rounds for phase in PHASES.values())
    frames = iter([stream.okx(*market.frame(LEVELS), n) for n in range(1, count + 1)])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection = _subscribed(listening)
        for native in NATIVES:
            acknowledged = {"event": "subscribe", "arg": {"channel": "books", "instId": native}}
            connection.sendall(receive.framed(json.dumps(acknowledged).encode()))
            connection.sendall(receive.framed(_about(native, snapshot)))
        for line in sys.stdin:
            phase = PHASES[line.strip()]
            rounds = [_round(next(frames)) for _ in range(phase.rounds)]
            try:
                latencies = sorted(_play(rounds, phase.pace_s, connection, times))
            except ConnectionError:
                return  # the contender has ended
            p50, p99 = statistics.median(latencies), latencies[len(latencies) * 99 // 100]
            print(json.dumps([phase.rounds * BOOKS, p50 / 1e3, p99 / 1e3]), flush=True)


def _round(frame: bytes) -> list[bytes]:
    return [receive.framed(_about(native, frame)) for native in NATIVES]


def _play(
    rounds: list[list[bytes]], pace_s: float | None, connection: socket.socket, times: Times
) -> list[int]:
    """Send the rounds; return the latencies of the books that were had before their next frame."""
    latencies: list[int] = []
    due = time.perf_counter()
    for frames in rounds:
        for at, frame in enumerate(frames):
            times.sent[at] = time.perf_counter_ns()
            connection.sendall(frame)
        if pace_s is None:
            _wait(times)
        else:  # asleep, so that it takes nothing of a core whose threads both share
            due = max(due + pace_s, time.perf_counter())  # what is late is not made up for
            time.sleep(max(0.0, due - time.perf_counter()))
        latencies += times.latencies()
    _wait(times)
    return latencies


def _wait(times: Times) -> None:
    """Wait until every book was had; the newest of what came late."""
    until = time.perf_counter() + STALL_S
    while not times.all_had and time.perf_counter() < until:
        pass


def _about(native: str, frame: bytes) -> bytes:
    return frame.replace(b"BTC-USDT", native.encode())


def _subscribed(listening: socket.socket) -> socket.socket:
    """Answer requests until one is an upgrade whose client has asked for every book."""
    while True:
        connection, _ = listening.accept()
        heard = _request(connection)
        if b"upgrade: websocket" in heard.lower():
            receive.upgrade(connection, heard)
            wanted = set(NATIVES)
            while wanted:
                wanted -= set(re.findall(r"[A-Z]+-USDT", _message(connection)))
            return connection
        body = json.dumps({"code": "0", "data": [_listing(native) for native in NATIVES]}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)
        connection.close()


def _request(connection: socket.socket) -> bytes:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    heard = b""
    while not heard.endswith(b"\r\n\r\n"):
        heard += connection.recv(4_096)
    return heard


def _listing(native: str) -> dict[str, str]:
    base, quote = native.split("-")
    return {
        "instType": "SPOT", "instId": native, "baseCcy": base, "quoteCcy": quote,
        "tickSz": "0.01", "lotSz": "0.00001", "state": "live",
    }  # fmt: skip


def _message(connection: socket.socket) -> str:
    """Read one masked frame (RFC 6455 section 5.2)."""
    length = _exactly(connection, 2)[1] & 0x7F
    if length == 126:
        length = int.from_bytes(_exactly(connection, 2))
    mask = _exactly(connection, 4)
    payload = _exactly(connection, length)
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)).decode()


def _exactly(connection: socket.socket, count: int) -> bytes:
    return connection.recv(count, socket.MSG_WAITALL)


if __name__ == "__main__":
    serve(sys.argv[1])
