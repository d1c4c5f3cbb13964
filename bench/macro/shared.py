"""Clients of a node that share real sockets: more of them than a process may open files.

Each has a transport of its own for the node's real HTTP and WebSocket protocols, so the node
upgrades, authenticates, pings, charges and closes it like any other. Whatever a client is sent goes
through the real socket of its line, and another process answers its pings and close frames there.
What a client says first, its upgrade request and its key, reaches its protocol without a socket.

What this leaves out: memory and work of the kernel and of uvloop for a socket each, accepting it,
and reading its first bytes.
"""

import array
import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import load
import uvloop
from idlers import AT_ONCE, Counter, Idlers

from onebook.gateway.frames import CLOSE, CONTROL_BYTES_MAX, PING, TEXT, frame_end

REQUEST = (
    b"GET /api/v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ACCEPTED = b"HTTP/1.1 101 "
ANSWERED = (PING, CLOSE)
ENDS_AT_ONCE = 48 * 1_024  # events that libuv handles in one iteration of its loop, at most
CLOSED_MAX_S = 30.0


class ListeningLoop(uvloop.Loop):
    """Remembers the protocol factory of each listening port."""

    def __init__(self) -> None:
        super().__init__()
        self.factories: dict[int, Callable[[], asyncio.Protocol]] = {}

    async def create_server(
        self, protocol_factory: Callable[[], asyncio.Protocol], *, sock: Any, **options: Any
    ) -> Any:
        """Listen on a socket."""
        self.factories[sock.getsockname()[1]] = protocol_factory
        return await super().create_server(protocol_factory, sock=sock, **options)


class Line(asyncio.Protocol):
    """The real socket of many clients, to which its peer answers in the order of their frames."""

    def __init__(self, lines: "list[Line]") -> None:
        self._lines = lines
        self.awaited: deque[SharedTransport] = deque()
        self.overflowed = False  # the socket was full, which no client of its own would have seen
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.socket = transport.get_extra_info("socket")
        self.addresses = {name: transport.get_extra_info(name) for name in ("peername", "sockname")}
        self._lines.append(self)

    def data_received(self, data: bytes) -> None:
        data, start = self._rest + data, 0
        while end := frame_end(data, start, CONTROL_BYTES_MAX):
            self.awaited.popleft().receive(data[start:end])
            start = end
        self._rest = data[start:]

    def pause_writing(self) -> None:
        self.overflowed = True


class SharedTransport(asyncio.Transport):
    """The transport of one client."""

    __slots__ = ("_closing", "_held", "_line", "_paused", "_protocol", "upgraded")

    def __init__(self, line: Line, protocol: Any) -> None:
        self._line = line
        self._protocol = protocol
        self._closing = self._paused = self.upgraded = False
        self._held = b""  # received while reading was paused

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._line.socket if name == "socket" else self._line.addresses.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def receive(self, data: bytes) -> None:
        """Pass bytes of the client to its protocol, or hold them while it does not read."""
        if self._paused:
            self._held += data
        elif not self._closing:
            self._protocol.data_received(data)

    def end(self) -> None:
        """End the client's side."""
        if not self._protocol.eof_received():
            self.close()

    def write(self, data: Any) -> None:
        if not self.upgraded:
            assert data.startswith(ACCEPTED), data
            self.upgraded = True
        elif data[0] in ANSWERED:
            self._line.awaited.append(self)
        if type(data) is memoryview:
            self._line.overflowed = True  # the rest of a frame that the socket did not take
        self._line.transport.write(data)

    def get_write_buffer_size(self) -> int:
        return self._line.transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The line keeps its own."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The line stays open."""

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        if self._held:
            data, self._held = self._held, b""
            asyncio.get_running_loop().call_soon(self.receive, data)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._lose)

    abort = close

    def _lose(self) -> None:
        protocol, self._protocol = self._protocol, None
        protocol.connection_lost(None)


class SharedSockets:
    """Clients of a node over shared sockets; `idlers` is the process at the other ends.

    Args:
        hellos: What each client says after the upgrade.
        lines: The real sockets.
        idlers: The process that has their other ends.
    """

    def __init__(self, hellos: list[list[str]], lines: list[Line], idlers: Idlers) -> None:
        self.clients: list[SharedTransport] = []
        self.port = 0  # of the node
        self._lines = lines
        self._idlers = idlers
        self._hellos = [b"".join(map(_said, hello)) for hello in hellos]

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def pongs(self) -> int:
        """Pings that were answered."""
        return self._idlers.counters[Counter.PONGS]

    @property
    def received(self) -> int:
        """Bytes of all clients."""
        return self._idlers.counters[Counter.BYTES]

    def sockets(self, clients: int) -> "array.array[int]":
        """The sockets of the first clients."""
        lines = (self._lines[number % len(self._lines)] for number in range(clients))
        return array.array("i", (line.socket.fileno() for line in lines))

    async def grow(self, clients: int) -> None:
        """Connect until there are so many, and wait until each is authenticated."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ListeningLoop)
        while (factory := loop.factories.get(self.port)) is None:
            await asyncio.sleep(0.01)
        while (count := len(self)) < clients:
            batch = range(count, min(clients, count + AT_ONCE))
            entering = [self._enter(number, factory()) for number in batch]
            self.clients += entering
            deadline_s = loop.time() + load.PATIENCE_S
            greeted = 0
            while greeted < len(entering) or not all(map(_is_ready, entering)):
                assert loop.time() < deadline_s, "clients are not authenticated"
                await asyncio.sleep(0)
                while greeted < len(entering) and entering[greeted].upgraded:
                    entering[greeted].receive(self._hellos[batch[greeted]])
                    greeted += 1
        self.check()

    def _enter(self, number: int, protocol: asyncio.Protocol) -> SharedTransport:
        transport = SharedTransport(self._lines[number % len(self._lines)], protocol)
        protocol.connection_made(transport)
        protocol.data_received(REQUEST)
        return transport

    def check(self) -> None:
        """Fail if the other process ended, or if a client met a socket that others had filled."""
        self._idlers.check()
        full = sum(line.overflowed for line in self._lines)
        assert not full, f"{full} shared sockets were full"

    def forget(self) -> None:
        """Drop the clients, and the node that has closed them."""
        assert all(each.is_closing() for each in self.clients)
        self.clients = []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ListeningLoop)
        del loop.factories[self.port]

    async def end_all(self) -> None:
        """End all clients, as many in a turn as the event loop would read of real sockets."""
        for first in range(0, len(self.clients), ENDS_AT_ONCE):
            for each in self.clients[first : first + ENDS_AT_ONCE]:
                each.end()
            await asyncio.sleep(0)


def _is_ready(client: SharedTransport) -> bool:
    processor = getattr(client.get_protocol(), "processor", None)
    return processor is not None and processor.key is not None


def _said(line: str) -> bytes:
    """A text message of a client; its mask of zeros leaves the text as it is."""
    text = line.encode()
    length = bytes((len(text),)) if len(text) < 126 else b"\x7e" + len(text).to_bytes(2)
    return bytes((TEXT, length[0] | 0x80)) + length[1:] + bytes(4) + text
