"""A flood: one process, non-blocking sockets that connect again whenever they are cut off.

    flooder.py KIND PORT SECONDS SOCKETS MINUTE

It begins with a line of input and ends by itself; what it sent comes out as one line of JSON. It
has the lowest priority, so that what it costs is the server's and not the measuring machine's.
"""

import json
import os
import selectors
import socket
import sys
import time
import zlib

import load

SOCKET_PAUSE_S = 0.02  # after a refused connection
MASK = b"\0\0\0\0"


def frame(first: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 65_536:
        head = bytes((first, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + MASK + payload


def deflated(text: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (deflate.compress(text) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]


# What each socket sends once, then over and over.
KINDS: dict[str, tuple[bytes, bytes]] = {
    "empty_fragments": (frame(0x01, b""), frame(0x00, b"") * 2_000),
    "byte_fragments": (frame(0x01, b""), frame(0x00, b"x") * 2_000),
    "pings": (b"", frame(0x89, b"") * 2_000),
    "pongs": (b"", frame(0x8A, b"") * 2_000),
    "tiny_texts": (b"", frame(0x81, b"{}") * 2_000),
    "unknown_types": (b"", frame(0x81, b'{"type":"what"}') * 1_000),
    "huge_message": (frame(0x01, b""), frame(0x00, bytes(4_096)) * 4),
    "half_frames": (frame(0x81, bytes(65_536))[:14], b"x"),
    "bombs": (b"", frame(0xC1, deflated(b" " * 65_536)) * 100),
    "big_bombs": (b"", frame(0xC1, deflated(bytes(32_000_000)))),
    "silent_reconnects": (b"", b""),
}


class Flooder:
    """One socket of a flood."""

    def __init__(
        self, kind: str, port: int, address: str, selector: selectors.BaseSelector
    ) -> None:
        self.first, self.again = KINDS[kind]
        self.port, self.selector = port, selector
        self.address = address
        self.sent = self.connects = 0
        self.connect()

    def connect(self) -> None:
        self.connects += 1
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=1.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(
            b"GET /api/v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\n"
            b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
            b"X-Forwarded-For: " + self.address.encode() + b"\r\n\r\n"
        )
        self.left = b""
        self.started = self.upgraded = False
        self.socket.setblocking(False)
        self.selector.register(self.socket, selectors.EVENT_READ, self)

    def reconnect(self) -> None:
        self.selector.unregister(self.socket)
        self.socket.close()
        time.sleep(SOCKET_PAUSE_S / 10)
        self.connect()

    def act(self, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = self.socket.recv(65_536)
                if not data or (not self.upgraded and b" 101 " not in data):
                    time.sleep(SOCKET_PAUSE_S)
                    self.reconnect()
                    return
                if not self.upgraded:
                    self.upgraded = True
                    mask = selectors.EVENT_READ | selectors.EVENT_WRITE
                    self.selector.modify(self.socket, mask, self)
            if events & selectors.EVENT_WRITE:
                data = self.left or (self.again if self.started else self.first + self.again)
                self.started = True
                if not data:
                    self.selector.modify(self.socket, selectors.EVENT_READ, self)
                    return
                count = self.socket.send(data)
                self.sent += count
                self.left = data[count:]
        except BlockingIOError:
            pass
        except OSError:
            self.reconnect()


def flood(kind: str, port: int, seconds: int, sockets: int, minute: int) -> None:
    os.nice(19)
    load.settle_on(1)
    sys.stdin.readline()
    with selectors.DefaultSelector() as selector:
        # Each round is a minute of its own for the limit of attempts: other addresses.
        addresses = [f"198.18.{minute}.{number}" for number in range(sockets)]
        flooders = [Flooder(kind, port, address, selector) for address in addresses]
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for key, events in selector.select(0.1):
                try:
                    key.data.act(events)
                except OSError:
                    time.sleep(SOCKET_PAUSE_S)
    sent, connects = (
        sum(getattr(each, name) for each in flooders) for name in ("sent", "connects")
    )
    print(json.dumps({"sent": sent, "connects": connects}))


if __name__ == "__main__":
    flood(sys.argv[1], *map(int, sys.argv[2:]))
