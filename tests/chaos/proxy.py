"""A TCP proxy that damages what an exchange sends, with one toxic at a time.

It knows HTTP heads and WebSocket frames, so that a toxic can hit whole frames; everything is handed
on as bytes. What has arrived waits in a bounded queue, behind which the exchange is not read.
"""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self

HOST: Final = "127.0.0.1"
QUEUE_PIECES: Final = 10_000
CHUNK_BYTES: Final = 65_536
UPGRADE: Final = b"upgrade: websocket"
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends RST
BROKEN: Final = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


class Piece(NamedTuple):
    """A unit of forwarding: an HTTP head, a part of a body, or a WebSocket frame."""

    data: bytes
    arrived_at: float
    payload_at: int = 0  # where the payload of a message begins; 0 for anything else


class Toxic:
    """Base class; forwards everything unchanged."""

    def installed(self, links: set["Link"]) -> None:
        """Called when the toxic takes effect."""

    async def down(self, link: "Link", piece: Piece) -> None:
        """Forward one unit from the exchange."""
        await link.give(piece.data)

    async def up(self, link: "Link", data: bytes) -> None:
        """Forward bytes from the feed."""
        await link.send(data)


class Link:
    """One connection of a feed, and its connection to the exchange."""

    def __init__(self, proxy: "Proxy", feed: asyncio.StreamWriter) -> None:
        self.swallowing = False  # nothing passes any more, and no end is seen
        self.held: Piece | None = None
        self.proxy = proxy
        self._feed = feed
        self._exchange: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def give(self, data: bytes) -> None:
        """Write to the feed."""
        self._feed.write(data)
        await self._feed.drain()

    async def send(self, data: bytes) -> None:
        """Write to the exchange."""
        assert self._exchange is not None
        self._exchange.write(data)
        await self._exchange.drain()

    def cut(self) -> None:
        """Reset both sides."""
        for writer in (self._feed, self._exchange):
            if writer is not None:
                sock = writer.get_extra_info("socket")
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()

    def leave_half_open(self) -> None:
        """Lose the exchange silently: no FIN, no RST, no byte."""
        self.swallowing = True
        if self._exchange is not None:
            self._exchange.transport.abort()

    def end(self) -> None:
        """Close the feed's side with FIN, after the written bytes."""
        self._feed.close()

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Forward in both directions until either ends."""
        try:
            upstream, self._exchange = await asyncio.open_connection(HOST, self.proxy.upstream)
        except OSError:
            self.cut()
            return
        queue: asyncio.Queue[Piece | None] = asyncio.Queue(QUEUE_PIECES)
        tasks = [
            asyncio.create_task(work)
            for work in (self._read(upstream, queue), self._down(queue), self._up(reader))
        ]
        try:
            await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self._feed.transport.abort()
            self._exchange.transport.abort()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            self.proxy.bugs += [
                each
                for each in outcomes
                if isinstance(each, Exception) and not isinstance(each, BROKEN)
            ]

    async def _read(
        self, upstream: asyncio.StreamReader, queue: asyncio.Queue[Piece | None]
    ) -> None:
        with suppress(*BROKEN):
            async for piece in pieces(upstream):
                await queue.put(piece)
        if not self.swallowing:
            await queue.put(None)

    async def _down(self, queue: asyncio.Queue[Piece | None]) -> None:
        while (piece := await queue.get()) is not None:
            if not self.swallowing:
                await self.proxy.toxic.down(self, piece)
        if self.swallowing:
            await asyncio.Event().wait()  # the end of the exchange is swallowed too

    async def _up(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK_BYTES):
            self.proxy.upgrades += data.startswith(b"GET ") and UPGRADE in data.lower()
            if not self.swallowing:
                await self.proxy.toxic.up(self, data)


class Proxy:
    """Listens on a port in front of `upstream`; `toxic` decides what happens to the bytes."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.links: set[Link] = set()
        self.upgrades = 0  # how many handshakes of WebSocket came
        self.bugs: list[Exception] = []
        self._toxic = Toxic()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def toxic(self) -> Toxic:
        return self._toxic

    @toxic.setter
    def toxic(self, toxic: Toxic) -> None:
        self._toxic = toxic
        toxic.installed(self.links)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, HOST, 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)  # what was accepted just now has its task
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        assert not self.bugs, self.bugs

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(self, writer)
        self.links.add(link)
        task = asyncio.create_task(link.run(reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self.links.discard(link))
        task.add_done_callback(lambda _: writer.transport.abort())  # also where it never began


async def pieces(reader: asyncio.StreamReader) -> AsyncIterator[Piece]:
    """Split a server's bytes: the HTTP head, then frames, or body parts as they arrive."""
    now = asyncio.get_running_loop().time
    head = await reader.readuntil(b"\r\n\r\n")
    yield Piece(head, now())
    if b" 101 " not in head.split(b"\r\n", 1)[0]:
        while data := await reader.read(CHUNK_BYTES):
            yield Piece(data, now())
        return
    while True:
        head = await reader.readexactly(2)
        length = head[1] & 0x7F
        if length == 126:
            head += await reader.readexactly(2)
            length = int.from_bytes(head[2:])
        elif length == 127:
            head += await reader.readexactly(8)
            length = int.from_bytes(head[2:])
        data = head + await reader.readexactly(length)
        yield Piece(data, now(), len(head) if head[0] & 0x0F in (1, 2) else 0)


class Delay(Toxic):
    """Delay by `least_s` and up to `jitter_s` more, in order."""

    def __init__(self, least_s: float, jitter_s: float, seed: int = 1) -> None:
        self._least_s, self._jitter_s = least_s, jitter_s
        self._random = random.Random(seed)

    async def down(self, link: Link, piece: Piece) -> None:
        due = piece.arrived_at + self._least_s + self._random.random() * self._jitter_s
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        await super().down(link, piece)


class Cut(Toxic):
    """Reset every open connection; later ones work."""

    def installed(self, links: set[Link]) -> None:
        for link in links:
            link.cut()


class Storm(Toxic):
    """Reset every connection, including new ones, at the first byte."""

    def installed(self, links: set[Link]) -> None:
        for link in links:
            link.cut()

    async def down(self, link: Link, piece: Piece) -> None:
        await super().down(link, piece)
        if piece.payload_at:
            link.cut()


class BlackHole(Toxic):
    """Forward nothing in either direction; keep connections open and accept new ones."""

    def installed(self, links: set[Link]) -> None:
        for link in links:
            link.swallowing = True

    async def down(self, link: Link, piece: Piece) -> None:
        link.swallowing = True  # TCP never delivers the rest of a stream after a gap

    async def up(self, link: Link, data: bytes) -> None:
        link.swallowing = True


class HalfOpen(Toxic):
    """The exchange loses all connections unnoticed by the feed; new ones work."""

    def installed(self, links: set[Link]) -> None:
        for link in links:
            link.leave_half_open()


class Throttle(Toxic):
    """Limit the bytes per second of each connection, in small chunks."""

    CHUNK: Final = 256

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s

    async def down(self, link: Link, piece: Piece) -> None:
        for start in range(0, len(piece.data), self.CHUNK):
            chunk = piece.data[start : start + self.CHUNK]
            await link.give(chunk)
            if link.proxy.toxic is self:
                await asyncio.sleep(len(chunk) / self._bytes_per_s)


class Slicer(Toxic):
    """Single bytes, each in its own write."""

    async def down(self, link: Link, piece: Piece) -> None:
        for at in range(len(piece.data)):
            await link.give(piece.data[at : at + 1])
            await asyncio.sleep(0)


class Spoil(Toxic):
    """Replace some messages, except the first, by the result of `spoilt`."""

    def __init__(self, share: float, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self._share = share

    async def down(self, link: Link, piece: Piece) -> None:
        if piece.payload_at and self.random.random() < self._share:
            await self.spoil(link, piece)
        else:
            await super().down(link, piece)

    async def spoil(self, link: Link, piece: Piece) -> None:
        raise NotImplementedError


class Corrupt(Spoil):
    """Replace the middle third of a message by bytes that are not UTF-8."""

    async def spoil(self, link: Link, piece: Piece) -> None:
        data, third = bytearray(piece.data), (len(piece.data) - piece.payload_at) // 3
        start = piece.payload_at + third
        data[start : start + third] = b"\xff" * third
        await link.give(bytes(data))


class CorruptHead(Spoil):
    """Set all reserved bits of a frame."""

    async def spoil(self, link: Link, piece: Piece) -> None:
        await link.give(bytes([piece.data[0] | 0x70]) + piece.data[1:])


class Truncate(Spoil):
    """End the connection in the middle of a frame."""

    async def spoil(self, link: Link, piece: Piece) -> None:
        await link.give(piece.data[: len(piece.data) // 2])
        link.swallowing = True
        link.end()


class Duplicate(Spoil):
    """Deliver a message twice."""

    async def spoil(self, link: Link, piece: Piece) -> None:
        await link.give(piece.data * 2)


class Reorder(Spoil):
    """Deliver a message after the one that follows it."""

    async def down(self, link: Link, piece: Piece) -> None:
        held, link.held = link.held, None
        if held is None:
            await super().down(link, piece)
        else:
            await link.give(piece.data)
            await link.give(held.data)

    async def spoil(self, link: Link, piece: Piece) -> None:
        link.held = piece


class Drop(Spoil):
    """Drop a message."""

    async def spoil(self, link: Link, piece: Piece) -> None:
        pass
