"""Misbehaving clients: raw sockets with just enough WebSocket."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

from steady import PATIENCE_S

MASK = b"\0\0\0\0"
UPGRADE = (
    b"GET /api/v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\n\r\n"
)


def frame(first, payload=b""):
    size = len(payload)
    if size < 126:
        return bytes((first, 0x80 | size)) + MASK + payload
    if size < 65_536:
        return bytes((first, 0x80 | 126)) + size.to_bytes(2, "big") + MASK + payload
    return bytes((first, 0x80 | 127)) + size.to_bytes(8, "big") + MASK + payload


def text(**message):
    return frame(0x81, json.dumps(message).encode())


class Raw:
    """A socket after its upgrade, which reads and answers only on demand."""

    def __init__(self, sock, loop):
        self.sock = sock
        self._loop = loop
        self.rest = b""

    async def send(self, data):
        await self._loop.sock_sendall(self.sock, data)

    def push(self, data):
        """Send as many bytes as the kernel accepts now; return their number."""
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0

    async def read(self, size=65_536):
        """The received bytes; b"" at the end."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._loop.sock_recv(self.sock, size)
            except ConnectionError:
                return b""

    async def frames(self, count):
        """The server's next frames, as (first byte, payload)."""
        found = []
        while len(found) < count:
            whole, self.rest = split(self.rest)
            found += whole
            if len(found) < count:
                data = await self.read()
                assert data, "the server closed the connection"
                self.rest += data
        return found

    async def all_frames(self):
        """Every frame until the end."""
        data = self.rest
        while more := await self.read():
            data += more
        return split(data)[0]


def split(data):
    """Complete server frames as (first byte, payload), and the remaining bytes."""
    found, at = [], 0
    while at + 2 <= len(data):
        size, start = data[at + 1], at + 2
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        elif size == 127:
            size, start = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        if start + size > len(data):
            break
        found.append((data[at], data[start : start + size]))
        at = start + size
    return found, data[at:]


@asynccontextmanager
async def raw(node, key=None, *, receive_bytes=None):
    """A raw socket after its upgrade, authenticated if there is a key."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", node.port))
        peer = Raw(sock, loop)
        await peer.send(UPGRADE)
        head = b""
        while b"\r\n\r\n" not in head:
            head += await peer.read()
        assert b" 101 " in head, head
        peer.rest = head.partition(b"\r\n\r\n")[2]
        await peer.frames(2)  # the welcome and a ping
        if key is not None:
            await peer.send(text(type="authenticate", api_key=key))
            ((_, payload),) = await peer.frames(1)
            assert json.loads(payload)["session_id"], payload
        yield peer
