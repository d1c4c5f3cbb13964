"""One loopback port with REST and WebSocket for one exchange, simulated or replayed.

`Front` decides what each client is sent, and `Loopback` transports it. Every client has a bounded
queue; a client that does not read is disconnected, as by an exchange.
"""

import asyncio
import gzip
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.streams import StreamReader

from onebook.clock import Clock
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit.contract import Exchange
from onebook.simulator.kit.board import (
    Dialect,
    Dropped,
    ExchangeBoard,
    Frame,
    Most,
    Now,
    RestReply,
    SimulatedSession,
    Windows,
    loaded,
)

HOST: Final = "127.0.0.1"
QUEUE_FRAMES_MAX: Final = 4_096
BODY_BYTES_MAX: Final = 65_536  # of a POST body; the rest is not read
PONG_MAX_S: Final = 60.0
CLOSE_MAX_S: Final = 1.0
TOO_SLOW: Final = 1008
NOT_FOUND: Final = RestReply(404, b'{"error":"not found"}')
TOO_MANY = 429


class Urls(NamedTuple):
    """Addresses of an exchange."""

    ws: str
    rest: str


class Posts(StreamReader):
    """Reads a POST body together with the head, because websockets refuses requests with a body."""

    def __init__(self) -> None:
        super().__init__()
        self.body = b""
        self._bytes = 0

    def read_line(  # type: ignore[override]  # its limits differ between versions
        self, *limits: Any
    ) -> Generator[None, None, bytes | bytearray]:
        """Read a line of the head, and with its last line the body."""
        line = yield from super().read_line(*limits)
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            self._bytes = min(int(value), BODY_BYTES_MAX)
            return b"Content-Length: 0\r\n"
        if not line.strip():
            self.body = bytes((yield from self.read_exact(self._bytes)))
        return line


class Connection(ServerConnection):
    """A server connection whose requests may have a body."""

    def __init__(self, protocol: ServerProtocol, *parts: Any, **options: Any) -> None:
        self.posts = protocol.reader = Posts()
        protocol.parser = protocol.parse()
        next(protocol.parser)  # start it, as websockets started the previous parser
        super().__init__(protocol, *parts, **options)


class LoopbackClient:
    """One connected client: its session and its queued frames."""

    def __init__(self, connection: ServerConnection, session: SimulatedSession) -> None:
        self.session = session
        self._connection = connection
        self._queue: asyncio.Queue[Frame | Dropped] = asyncio.Queue(QUEUE_FRAMES_MAX)

    def put(self, frame: Frame | Dropped) -> None:
        """Queue a frame or the end of the connection; a full queue aborts the connection."""
        try:
            self._queue.put_nowait(frame)
        except asyncio.QueueFull:
            self.abort()

    async def put_when_free(self, frame: Frame) -> None:
        """Queue a frame, waiting while the queue is full."""
        await self._queue.put(frame)

    async def drained(self) -> None:
        """Wait until all queued frames were passed to the socket."""
        await self._queue.join()

    def abort(self) -> None:
        """End the connection without a close frame."""
        self._connection.transport.abort()

    async def write(self) -> None:
        """Send queued frames until the connection ends."""
        with suppress(ConnectionClosed):
            while True:
                frame = await self._queue.get()
                if isinstance(frame, Dropped):
                    return await self._connection.close(frame.code, frame.reason)
                await self._connection.send(frame)
                self._queue.task_done()


def ignore(client: LoopbackClient) -> None:
    """Do nothing."""


class Front:
    """The clients of one exchange.

    Args:
        dialect: Its protocol.
        board: Its listings, books and sessions.
        clock: The exchange's clock.
        instead: Returns the response to a REST request; None lets the dialect answer.
        started: Called with a client that subscribed; `client.session.started` has the natives.
        gone: Called with a client that disconnected.
    """

    def __init__(
        self,
        dialect: Dialect,
        board: ExchangeBoard,
        *,
        clock: Clock,
        instead: Callable[[str, Mapping[str, str]], RestReply | None],
        started: Callable[[LoopbackClient], None] = ignore,
        gone: Callable[[LoopbackClient], None] = ignore,
    ) -> None:
        self.clients: list[LoopbackClient] = []
        self.silent = False
        self.ping_s = dialect.rules.ping_s
        self.deflate = dialect.rules.deflate
        # Number of exceeded limits by kind: connects, fetches, messages, requests.
        self.breaches: Counter[str] = Counter()
        self.connects = Windows(dialect.rules.connects, breaches=self.breaches, kind="connects")
        self._fetches = Windows(dialect.rules.fetches, breaches=self.breaches, kind="fetches")
        # All clients of the loopback have the same address.
        self._limited_requests = dialect.rules.requests
        self._messages: dict[Most, deque[float]] = {}
        self._requests: dict[Most, deque[float]] = {}
        self._dialect = dialect
        self._board = board
        self._clock = clock
        self._instead = instead
        self._started = started
        self._gone = gone

    def admit_all(self) -> None:
        """Allow connection attempts and requests at any rate; messages keep their limit."""
        self.connects = self._fetches = Windows(())
        self._limited_requests = ()

    def session(self, path: str) -> SimulatedSession:
        """Make the session of a new connection."""
        session, rules = SimulatedSession(path, now_s=self._clock.monotonic()), self._dialect.rules
        session.messages = Windows(
            rules.messages, self._messages, breaches=self.breaches, kind="messages"
        )
        session.requests = Windows(
            self._limited_requests, self._requests, breaches=self.breaches, kind="requests"
        )
        return session

    def admits(self) -> bool:
        """Return whether another connection may be opened now."""
        return self.connects.allow(self._clock.monotonic())

    def joined(self, client: LoopbackClient) -> None:
        """Greet a connected client."""
        self.clients.append(client)
        self._board.sessions.append(client.session)
        self.send(client, self._dialect.opened(client.session, Now.of(self._clock)))
        self._start_subscribed(client)

    def received(self, client: LoopbackClient, frame: str) -> None:
        """Answer a frame of a client.

        Raises:
            Dropped: The exchange ends the connection.
        """
        now = Now.of(self._clock)
        client.session.received(now.s)
        replies = self._dialect.received(client.session, frame, now)
        if self.silent and "ping" in frame.lower():
            self._put(client, replies)  # a frozen exchange answers pings but sends no data
        self.send(client, replies)
        self._start_subscribed(client)

    def left(self, client: LoopbackClient) -> None:
        """Remove a disconnected client."""
        self.clients.remove(client)
        self._board.sessions.remove(client.session)
        self._gone(client)

    def get(self, path: str, query: Mapping[str, str]) -> RestReply | None:
        """Answer a REST request; None for an unknown path."""
        if path in self._dialect.rules.posted:
            return None
        return self._answer(path, query)

    def _answer(self, path: str, query: Mapping[str, str]) -> RestReply | None:
        now, dialect = Now.of(self._clock), self._dialect
        if not self._fetches.allow(now.s, dialect.weight(path, query)):
            return RestReply(TOO_MANY, b"{}", (("Retry-After", "1"),))
        return self._instead(path, query) or dialect.served(path, query, now)

    def post(self, path: str, host: str, question: Mapping[str, str]) -> RestReply | None:
        """Answer a POST of a JSON object to `host`; None for an unknown path."""
        if path in self._dialect.rules.posted:
            return self._answer(path, question)
        return self._instead(path, {}) or self._dialect.post(path, host, Now.of(self._clock))

    def send(self, client: LoopbackClient, frames: Sequence[Frame]) -> None:
        """Send frames to a client, unless the exchange is silent."""
        if not self.silent and frames:
            self._put(client, frames)

    def _put(self, client: LoopbackClient, frames: Sequence[Frame]) -> None:
        client.session.sent_s = self._clock.monotonic()
        for frame in frames:
            client.put(self._encoded(client, frame))

    async def send_when_read(self, client: LoopbackClient, frame: Frame) -> None:
        """Send a book frame in the client's form, waiting while its queue is full."""
        client.session.sent_s = self._clock.monotonic()
        form = client.session.form
        await client.put_when_free(self._encoded(client, form(frame) if form else frame))

    def _encoded(self, client: LoopbackClient, frame: Frame) -> Frame:
        if isinstance(frame, bytes):
            return frame
        if self._dialect.rules.gzip:
            return gzip.compress(frame.encode())
        return frame.encode() if client.session.binary else frame

    def watch(self) -> None:
        """Send due heartbeats and disconnect silent clients."""
        now = Now.of(self._clock)
        for client in self.clients:
            try:
                self._watch(client, now)
            except Dropped as dropped:
                client.put(dropped)

    def _watch(self, client: LoopbackClient, now: Now) -> None:
        session, rules = client.session, self._dialect.rules
        last = (
            max(session.received_s, session.sent_s) if rules.traffic_counts else session.received_s
        )
        if now.s - last > rules.silence_max_s:
            raise Dropped("Idle for too long.")
        if rules.heartbeat_s is not None and now.s - session.heartbeat_s >= rules.heartbeat_s:
            session.heartbeat_s = now.s
            self.send(client, self._dialect.heartbeat(session, now))

    def _start_subscribed(self, client: LoopbackClient) -> None:
        if client.session.started:
            self._started(client)
            client.session.started.clear()


def redirected(exchange: Exchange, urls: Urls) -> Exchange:
    """Return an exchange's facts with other addresses."""
    return msgspec.structs.replace(exchange, ws_url=urls.ws, rest_url=urls.rest)


class Loopback:
    """A server on 127.0.0.1 that keeps its port over stop and start."""

    def __init__(self, name: str, front: Front, *, port: int = 0) -> None:
        self._name = name
        self._front = front
        self._port = port
        self._server: Server | None = None
        self._clients: set[LoopbackClient] = set()

    @property
    def urls(self) -> Urls:
        """Addresses with the paths of the connectors."""
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
            compression="deflate" if self._front.deflate else None,
            create_connection=Connection,
            ping_interval=self._front.ping_s,
            ping_timeout=PONG_MAX_S,
            close_timeout=CLOSE_MAX_S,
        )
        self._port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        """Stop listening; connections end without a close frame, and new ones are refused."""
        server, self._server = self._server, None
        if server is None:
            return
        for client in tuple(self._clients):
            client.abort()
        server.close()
        await server.wait_closed()

    async def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        client = LoopbackClient(connection, self._front.session(connection.request.path))
        writer = asyncio.create_task(client.write())
        self._clients.add(client)
        try:
            await self._converse(client, connection)
        finally:
            self._clients.discard(client)
            self._front.left(client)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _converse(self, client: LoopbackClient, connection: ServerConnection) -> None:
        try:
            self._front.joined(client)
            with suppress(ConnectionClosed):
                async for frame in connection:
                    text = frame if isinstance(frame, str) else frame.decode(errors="replace")
                    self._front.received(client, text)
        except Dropped as dropped:
            await connection.close(dropped.code, dropped.reason)

    def _request(self, connection: ServerConnection, request: Request) -> Response | None:
        if "Upgrade" in request.headers:
            return None if self._front.admits() else connection.respond(429, "too many\n")
        url = urlsplit(request.path)
        # websockets before 17 reads only GET and has no `method`.
        if getattr(request, "method", "GET") == "POST":
            assert isinstance(connection, Connection)
            question = loaded(connection.posts.body.decode(errors="replace")) or {}
            answer = self._front.post(url.path, request.headers["Host"], question)
        else:
            answer = self._front.get(url.path, dict(parse_qsl(url.query)))
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
