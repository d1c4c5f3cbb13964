"""Sockets of a swarm's clients: a raw one (RFC 6455 and 7692), and one of `websockets`.

Each hands on what came, message by message, and counts the payload bytes as they were on the wire.
"""

import asyncio
import socket
import zlib
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from gateway.attack import UPGRADE, frame, split
from steady import PATIENCE_S

OFFER = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
DEFLATE_TAIL = b"\x00\x00\xff\xff"  # RFC 7692 7.2.1
RECEIVE_BYTES = 4_096  # the kernel's buffer of a client that sleeps from time to time
LONG_BYTES = 1_024  # that are worth compressing
TEXT, DEFLATED, CLOSE, PING, PONG = 0x81, 0xC1, 0x88, 0x89, 0x8A


def narrow(port):
    """A connected socket with a small receive buffer."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.connect(("127.0.0.1", port))
    sock.setblocking(False)
    return sock


class Peer:
    """Base class of both kinds: a task that reads while permitted, and passes messages on."""

    def __init__(self):
        self.on_message = None  # called with the payload and its bytes on the wire
        self.reading = asyncio.Event()
        self.reading.set()
        self.close_code = None
        self._task = None

    def begin(self, on_message):
        self.on_message = on_message
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def ended(self):
        """Wait until the connection is closed; raise the reader's error, if any."""
        await self._task

    @property
    def has_ended(self):
        return self._task.done()

    async def cancelled(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def failure(self):
        if self._task.done() and not self._task.cancelled():
            return self._task.exception()
        return None


class RawPeer(Peer):
    """A raw socket; compressed messages are inflated one by one."""

    def __init__(self, sock, *, packed):
        super().__init__()
        self._sock = sock
        self._packed = packed
        self._rest = b""

    async def open(self):
        loop = asyncio.get_running_loop()
        head = UPGRADE[:-2] + OFFER if self._packed else UPGRADE
        await loop.sock_sendall(self._sock, head)
        while b"\r\n\r\n" not in self._rest:
            self._rest += await loop.sock_recv(self._sock, 65_536)
        answer, _, self._rest = self._rest.partition(b"\r\n\r\n")
        assert b" 101 " in answer, answer
        assert (b"permessage-deflate" in answer) == self._packed, answer

    async def send(self, text):
        with suppress(OSError):  # the reader tells why
            await asyncio.get_running_loop().sock_sendall(self._sock, frame(0x81, text.encode()))

    async def close(self):
        with suppress(OSError):  # the reader tells why
            close = frame(CLOSE, (1000).to_bytes(2, "big"))
            await asyncio.get_running_loop().sock_sendall(self._sock, close)
        await self.ended()

    async def vanish(self):
        await self.cancelled()
        self._sock.close()

    async def _read(self):
        loop = asyncio.get_running_loop()
        try:
            while True:
                found, self._rest = split(self._rest)
                for first, payload in found:
                    await self._take(first, payload)
                await self.reading.wait()
                data = await loop.sock_recv(self._sock, 65_536)
                if not data:
                    return
                self._rest += data
        finally:
            self._sock.close()

    async def _take(self, first, payload):
        if first == PING:
            await asyncio.get_running_loop().sock_sendall(self._sock, frame(PONG, payload))
        elif first == CLOSE:
            self.close_code = int.from_bytes(payload[:2], "big")
        elif first == DEFLATED:
            assert self._packed, "a compressed frame that was not negotiated"
            inflated = zlib.decompressobj(-15).decompress(payload + DEFLATE_TAIL)
            self.on_message(inflated, len(payload))
        else:
            assert first == TEXT, f"a frame of {first:#x}"
            assert not self._packed or len(payload) < LONG_BYTES, "a long message is not compressed"
            self.on_message(payload, len(payload))


class _Counted(ClientConnection):
    """A connection of the library that records the received size of each message."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.sizes = []
        self._opened, self._rest = False, b""

    def data_received(self, data):
        self._rest += data
        if not self._opened and b"\r\n\r\n" in self._rest:
            self._opened, self._rest = True, self._rest.partition(b"\r\n\r\n")[2]
        if self._opened:
            found, self._rest = split(self._rest)
            self.sizes += [len(payload) for first, payload in found if first in (TEXT, DEFLATED)]
        super().data_received(data)


class LibraryPeer(Peer):
    """The `websockets` library."""

    def __init__(self, sock, *, packed):
        super().__init__()
        self._sock = sock
        self._packed = packed
        self._socket = None

    async def open(self):
        self._socket = await connect(
            "ws://127.0.0.1/api/v1/ws",
            sock=self._sock,
            compression="deflate" if self._packed else None,
            create_connection=_Counted,
            proxy=None,
            ping_interval=None,
            close_timeout=PATIENCE_S,
            max_queue=1,
        )

    async def send(self, text):
        with suppress(ConnectionClosed):
            await self._socket.send(text)

    async def close(self):
        await self._socket.close()
        await self.ended()

    async def vanish(self):
        await self.cancelled()
        self._socket.transport.abort()
        await self._socket.wait_closed()

    async def _read(self):
        try:
            while True:
                await self.reading.wait()
                payload = await self._socket.recv(decode=False)
                self.on_message(payload, self._socket.sizes.pop(0))
        except ConnectionClosed:
            self.close_code = self._socket.close_code
