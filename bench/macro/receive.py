"""Goal 10: what one frame costs to receive while 30 feeds are quiet in between.

Every 1.5 ms each of 30 connections brings one frame of 20 levels, paced by a process on the other
core. What counts is the receiver's CPU per frame. `bare` is a uvloop protocol that finds the
frames and hands them on; `onebook` is our feed, its session replaced by one that only counts;
`websockets` is that library's client. `onebook, to the book` has the real session: the frame is
decoded, checked and applied.

    receive.py KIND
"""

import asyncio
import base64
import hashlib
import os
import socket
import subprocess
import sys
import time
from typing import Any

import load
import uvloop

import stream
from onebook import feeds
from onebook.books import Books
from onebook.config import FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange, ExchangeLimits, Limit, Quotas
from onebook.feeds import feed as feed_module
from onebook.feeds.stats import ExchangeStats
from onebook.model import Instrument
from onebook.rest import Rest
from timing import report

FEEDS = 30
PACE_S = 0.001_5
SPUN_S = 0.002  # before a round is due: sleep ends too late
ROUNDS = 2_000
FIRST_ROUNDS = 200  # before it counts
DEPTH = 400
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
FRAMES_WAITED_S = 30.0


# The sender, a process of its own


def send(rounds: int, pace_s: float = PACE_S) -> None:
    """Serve `FEEDS` connections one snapshot and then paced updates."""
    load.settle_on(1)
    market = stream.Stream(DEPTH, seed=5)
    bids, asks = market.snapshot()
    snapshot = framed(stream.okx(bids, asks, 0, "snapshot"))
    frames = [framed(stream.okx(*market.frame(20), n)) for n in range(1, rounds + 1)]
    with socket.create_server(("127.0.0.1", 0), backlog=FEEDS) as listening:
        print(listening.getsockname()[1], flush=True)
        connections = [accepted(listening) for _ in range(FEEDS)]
    for connection in connections:
        connection.sendall(snapshot)
    time.sleep(0.5)
    due = time.perf_counter()
    for frame in frames:
        time.sleep(max(0.0, due - time.perf_counter() - SPUN_S))
        while time.perf_counter() < due:
            pass
        for connection in connections:
            connection.send(frame)
        due += pace_s
    sys.stdin.read()


def framed(payload: bytes) -> bytes:
    if len(payload) < 126:
        return bytes((0x81, len(payload))) + payload
    if len(payload) < 65_536:
        return b"\x81\x7e" + len(payload).to_bytes(2, "big") + payload
    return b"\x81\x7f" + len(payload).to_bytes(8, "big") + payload


def accepted(listening: socket.socket) -> socket.socket:
    connection, _ = listening.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    heard = b""
    while not heard.endswith(b"\r\n\r\n"):
        heard += connection.recv(4_096)
    upgrade(connection, heard)
    return connection


def upgrade(connection: socket.socket, heard: bytes) -> None:
    """Answer the request of a WebSocket client."""
    lines = [line.partition(b":") for line in heard.split(b"\r\n")]
    key = next(value.strip() for name, _, value in lines if name.lower() == b"sec-websocket-key")
    accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
    connection.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


# The receivers


class Count:
    """Counts frames and, between two of them, CPU."""

    def __init__(self) -> None:
        self.frames = 0
        self.whole = asyncio.Event()
        self._began = 0.0
        self.cost_us = 0.0

    def frame(self, payload: bytes, _: float = 0.0) -> None:
        self.frames += 1
        if self.frames == FEEDS * FIRST_ROUNDS:
            self._began = time.process_time()
        elif self.frames == FEEDS * ROUNDS:
            took = time.process_time() - self._began
            self.cost_us = took / (FEEDS * (ROUNDS - FIRST_ROUNDS)) * 1e6
            self.whole.set()


class CountingSession:
    """A session that asks for nothing and counts what comes."""

    pending = False
    ended = None

    def __init__(self, instruments: list[Instrument], count: Count) -> None:
        self.instruments = instruments
        self.received = count.frame

    def drain(self, now: float) -> list[Any]:
        return []

    def opened(self, now: float) -> None: ...

    def received_control(self, now: float) -> None: ...

    def tick(self, now: float) -> None: ...

    def closed(self, now: float, reason: str = "") -> None: ...


async def with_feeds(port: int, count: Count, *, to_the_book: bool) -> None:
    """30 of our feeds, run as the supervisor runs them."""
    exchange = exchange_at(port)
    if to_the_book:
        counted_receive(count)
    else:
        feed_module.FeedSession = lambda _, instruments, **__: CountingSession(instruments, count)  # type: ignore[misc]
    instrument = Instrument("okx", "BTC/USDT", "BTC-USDT")
    async with Rest() as rest, asyncio.TaskGroup() as group:
        tasks = []
        for _ in range(FEEDS):
            books = Books()
            books.open(instrument)
            running = feeds.feed.Feed(
                exchange, [instrument], books=books, rest=rest,
                stats=ExchangeStats("okx"), quotas=unlimited(),
            )  # fmt: skip
            tasks.append(group.create_task(running.run()))
        await waited(count)
        for task in tasks:
            task.cancel()


def exchange_at(port: int, name: str = "okx") -> Exchange:
    """Return OKX's protocol under a name, served on loopback."""
    exchange = feeds.enabled(EXCHANGES, FeedSettings(exchanges=("okx",)))["okx"]
    fields = {each: getattr(exchange, each) for each in exchange.__struct_fields__}
    return type(exchange)(**{**fields, "name": name, "ws_url": f"ws://127.0.0.1:{port}/"})


def unlimited() -> Quotas:
    free = (Limit(10**9, 1.0),)
    return Quotas(ExchangeLimits(200, free, connects=free, fetches=free))


def counted_receive(count: Count) -> None:
    """Count behind the real session's own work."""
    received = feed_module.FeedSession.received

    class Session(feed_module.FeedSession):
        def received(self, frame: bytes, now: float) -> None:
            received(self, frame, now)
            count.frame(frame)

    feed_module.FeedSession = Session  # type: ignore[misc]


class Bare(asyncio.Protocol):
    """The least that finds WebSocket frames in what arrives."""

    def __init__(self, count: Count) -> None:
        self._frame = count.frame
        self._rest = b""
        self._open = False

    def connection_made(self, transport: Any) -> None:
        transport.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        if not self._open:
            at = data.index(b"\r\n\r\n") + 4
            self._open = True
        while end - at >= 4:
            length, header = data[at + 1], 2
            if length == 126:
                length, header = data[at + 2] << 8 | data[at + 3], 4
            elif length == 127:
                if end - at < 10:
                    break
                length, header = int.from_bytes(data[at + 2 : at + 10]), 10
            if end - at < header + length:
                break
            self._frame(data[at + header : at + header + length])
            at += header + length
        self._rest = data[at:]


async def with_bare(port: int, count: Count) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(FEEDS):
        await loop.create_connection(lambda: Bare(count), "127.0.0.1", port)
    await waited(count)


async def with_websockets(port: int, count: Count) -> None:
    from websockets.asyncio.client import connect

    url = f"ws://127.0.0.1:{port}/"

    async def one() -> None:
        async with connect(url, compression=None, ping_interval=None, max_size=None) as socket_:
            while True:
                count.frame(await socket_.recv(decode=False))

    tasks = [asyncio.create_task(one()) for _ in range(FEEDS)]
    await waited(count)
    for task in tasks:
        task.cancel()


async def waited(count: Count) -> None:
    # The snapshots count as a round, so no client waits for the last frame.
    async with asyncio.timeout(FRAMES_WAITED_S):
        await count.whole.wait()


KINDS = {
    "bare": ("bare uvloop protocol", with_bare),
    "onebook": ("onebook", lambda port, count: with_feeds(port, count, to_the_book=False)),
    "book": ("onebook, to the book", lambda port, count: with_feeds(port, count, to_the_book=True)),
    "websockets": ("websockets", with_websockets),
}


async def measure(kind: str, port: int) -> None:
    name, receiving = KINDS[kind]
    count = Count()
    await receiving(port, count)
    report("receive a frame on 30 feeds", {name: count.cost_us}, "us a frame")
    os._exit(0)


def main() -> None:
    if sys.argv[1] == "send":
        send(ROUNDS)
        return
    load.settle_on(0)
    with subprocess.Popen(
        [sys.executable, __file__, "send"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as sender:
        assert sender.stdout is not None
        uvloop.run(measure(sys.argv[1], int(sender.stdout.readline())))


if __name__ == "__main__":
    main()
