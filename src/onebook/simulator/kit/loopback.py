"""One loopback port that answers REST and WebSocket for one exchange, real or replayed.

Sockets only: what is said is decided by the `Talk` it is given. Every client has a bounded
queue; one that does not read is cut off, as an exchange does.
"""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.streams import StreamReader

from onebook.exchanges import EXCHANGES
from onebook.simulator.kit.board import Dropped, Frame, RestReply, SimulatedSession, loaded

HOST: Final = "127.0.0.1"
QUEUE_FRAMES_MAX: Final = 4_096
BODY_BYTES_MAX: Final = 65_536  # of a question by POST; the rest is not read
PONG_MAX_S: Final = 60.0
CLOSE_MAX_S: Final = 1.0
TOO_SLOW: Final = 1008
NOT_FOUND: Final = RestReply(404, b'{"error":"not found"}')


class Urls(NamedTuple):
    """Where a feed finds an exchange."""

    ws: str
    rest: str


class Talk(Protocol):
    """What an exchange sends; the loopback transports it."""

    ping_s: float | None
    deflate: bool

    def admits(self) -> bool:
        """Whether another connection may be opened now."""

    def session(self, path: str) -> SimulatedSession:
        """A client's connection begins."""

    def joined(self, client: "LoopbackClient") -> None:
        """A client connected."""

    def received(self, client: "LoopbackClient", frame: str) -> None:
        """A client sent a frame.

        Raises:
            Dropped: The exchange ends the connection.
        """

    def left(self, client: "LoopbackClient") -> None:
        """A client has disconnected."""

    def get(self, path: str, query: Mapping[str, str]) -> RestReply | None:
        """Answer a REST request; None where there is no such path."""

    def post(self, path: str, host: str, question: Mapping[str, str]) -> RestReply | None:
        """Answer a POST to `host` with this JSON object; None where there is no such path."""


class Posts(StreamReader):
    """Reads the body of a POST with its head: websockets refuses a request that has one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = b""
        self._bytes = 0

    def read_line(  # type: ignore[override]  # its limits differ between versions
        self, *limits: Any
    ) -> Generator[None, None, bytes | bytearray]:
        """Read a line of the head, and with its last one the body."""
        line = yield from super().read_line(*limits)
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            self._bytes = min(int(value), BODY_BYTES_MAX)
            return b"Content-Length: 0\r\n"
        if not line.strip():
            self.body = bytes((yield from self.read_exact(self._bytes)))
        return line


class Connection(ServerConnection):
    """A connection whose requests may have a body."""

    def __init__(self, protocol: ServerProtocol, *parts: Any, **options: Any) -> None:
        self.posts = protocol.reader = Posts()
        protocol.parser = protocol.parse()
        next(protocol.parser)  # it begins, as that of the reader before did
        super().__init__(protocol, *parts, **options)


class LoopbackClient:
    """One connected client: its session and the frames that wait for it."""

    def __init__(self, connection: ServerConnection, session: SimulatedSession) -> None:
        self.session = session
        self._connection = connection
        self._queue: asyncio.Queue[Frame | Dropped] = asyncio.Queue(QUEUE_FRAMES_MAX)

    def put(self, frame: Frame | Dropped) -> None:
        """Queue a frame, or the end of the connection; a full queue cuts it off."""
        try:
            self._queue.put_nowait(frame)
        except asyncio.QueueFull:
            self.abort()

    async def waited_put(self, frame: Frame) -> None:
        """Queue a frame as soon as there is room, however long that takes."""
        await self._queue.put(frame)

    async def drained(self) -> None:
        """Wait until every queued frame was handed to the socket."""
        await self._queue.join()

    def abort(self) -> None:
        """End the connection without a word."""
        self._connection.transport.abort()

    async def write(self) -> None:
        """Send what is queued until the connection ends."""
        with suppress(ConnectionClosed):
            while True:
                frame = await self._queue.get()
                if isinstance(frame, Dropped):
                    return await self._connection.close(frame.code, frame.reason)
                await self._connection.send(frame)
                self._queue.task_done()


class Loopback:
    """A server on 127.0.0.1; the port stays the same over stop and start."""

    def __init__(self, name: str, talk: Talk, *, port: int = 0) -> None:
        self._name = name
        self._talk = talk
        self._port = port
        self._server: Server | None = None
        self._clients: set[LoopbackClient] = set()

    @property
    def urls(self) -> Urls:
        """Addresses with the paths that the connectors use."""
        exchange = EXCHANGES[self._name]
        ws, rest = urlsplit(exchange.ws_url), urlsplit(exchange.rest_url)
        query = f"?{ws.query}" if ws.query else ""
        return Urls(
            f"ws://{HOST}:{self._port}{ws.path}{query}", f"http://{HOST}:{self._port}{rest.path}"
        )

    async def start(self) -> None:
        """Listen."""
        if self._server:
            return
        self._server = await serve(
            self._serve,
            HOST,
            self._port,
            process_request=self._request,
            compression="deflate" if self._talk.deflate else None,
            create_connection=Connection,
            ping_interval=self._talk.ping_s,
            ping_timeout=PONG_MAX_S,
            close_timeout=CLOSE_MAX_S,
        )
        self._port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        """Vanish: every connection ends without a close frame, new ones are refused."""
        server, self._server = self._server, None
        if server is None:
            return
        for client in tuple(self._clients):
            client.abort()
        server.close()
        await server.wait_closed()

    async def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        client = LoopbackClient(connection, self._talk.session(connection.request.path))
        writer = asyncio.create_task(client.write())
        self._clients.add(client)
        try:
            await self._converse(client, connection)
        finally:
            self._clients.discard(client)
            self._talk.left(client)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _converse(self, client: LoopbackClient, connection: ServerConnection) -> None:
        try:
            self._talk.joined(client)
            with suppress(ConnectionClosed):
                async for frame in connection:
                    text = frame if isinstance(frame, str) else frame.decode(errors="replace")
                    self._talk.received(client, text)
        except Dropped as dropped:
            await connection.close(dropped.code, dropped.reason)

    def _request(self, connection: ServerConnection, request: Request) -> Response | None:
        if "Upgrade" in request.headers:
            return None if self._talk.admits() else connection.respond(429, "too many\n")
        url = urlsplit(request.path)
        # websockets before 17 reads GET only and names no method.
        if getattr(request, "method", "GET") == "POST":
            assert isinstance(connection, Connection)
            question = loaded(connection.posts.body.decode(errors="replace")) or {}
            answer = self._talk.post(url.path, request.headers["Host"], question)
        else:
            answer = self._talk.get(url.path, dict(parse_qsl(url.query)))
        answer = answer or NOT_FOUND
        headers = Headers(
            {
                "Content-Type": "application/json",
                "Content-Length": str(len(answer.body)),
                "Connection": "close",
                **dict(answer.headers),
            }
        )
        return Response(answer.status, HTTPStatus(answer.status).phrase, headers, answer.body)
