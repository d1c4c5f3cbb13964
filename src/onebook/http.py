"""The HTTP side of the one port: uvicorn's protocol with deadlines and a count of sockets.

uvicorn waits without limit for the rest of a request and for a client to read its answer. Here each
wait of a connection has a deadline (`Wait`), one timer looks after all of them, and a socket that
finds the node full, or its address with too many, is answered 503 or 429 and closed. A WebSocket
upgrade takes the socket over; its place (`SocketSlot`) goes with it.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, auto
from typing import Any, ClassVar, Final, Protocol

import h11
import uvicorn
from msgspec import json
from prometheus_client import Counter, Gauge
from uvicorn.protocols.http.h11_impl import H11Protocol

from onebook import sockets
from onebook.config import ServerSettings
from onebook.core import iso
from onebook.errors import ConfigError
from onebook.metrics import LOOP_LAG

TICK_S: Final = 0.25
BACKLOG: Final = 4_096
STOP_S: Final = 5  # for requests under way when everything else has stopped
UNSENT_BYTES_MAX: Final = 131_072  # in the kernel, so that a slow client's progress is seen
RETRY_AFTER_S: Final = 5

# What is refused before any route is known: reason phrase, error code, message.
REFUSALS: Final = {
    404: ("Not Found", "not_found", "Only /metrics is answered at this address."),
    408: ("Request Timeout", "request_timeout", "The request did not arrive in time."),
    429: (
        "Too Many Requests",
        "rate_limit_exceeded",
        "This address has too many connections open; close some or try again shortly.",
    ),
    503: (
        "Service Unavailable",
        "service_unavailable",
        "This node has no free connection; try again shortly.",
    ),
}

SOCKETS: Final = Gauge("onebook_sockets", "Open sockets of clients, HTTP and WebSocket.")
REFUSED: Final = Counter("onebook_sockets_refused", "Sockets closed when accepted.", ["reason"])
EXPIRED: Final = Counter("onebook_http_expired", "HTTP connections ended by a deadline.", ["wait"])
ACCEPT_FAILING: Final = Gauge(
    "onebook_accept_failing", "1 while no socket can be accepted: the process has no file left."
)

# A counter without a sample is absent, and `increase` cannot see the first one.
for _reason in ("full", "address"):
    REFUSED.labels(_reason)

log = logging.getLogger("onebook.http")


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket, bound before anything else starts: a port in use is the commonest mistake.

    Raises:
        ConfigError: It cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _not_had(host, port, error) from None
    with listener:
        yield listener


@contextmanager
def sharing(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to a port that processes of this user share (SO_REUSEPORT).

    It listens when the server starts, and no sooner: from then on the kernel sends clients here.

    Raises:
        ConfigError: The port is in use by a process that does not share it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as `create_server`
        try:
            bound.bind((host, port))
        except OSError as error:
            raise _not_had(host, port, error) from None
        yield bound


def _not_had(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"Cannot listen on {host} port {port}: {error.strerror or error}.")


class Wait(Enum):
    """What an HTTP connection waits for."""

    HEADERS = auto()
    BODY = auto()
    ANSWER = auto()  # ours: it has limits of its own
    WRITE = auto()
    NEXT = auto()  # a next request: uvicorn's own keep-alive timer


class SocketSlot(Protocol):
    """The place of one open socket."""

    def leave(self) -> None:
        """The socket is closed."""


class AddressCounter(Protocol):
    """Counts the open sockets of addresses."""

    def enter(self, address: str) -> SocketSlot | None:
        """Count an open socket of an address; None where it has as many as it may."""

    def trusts(self, peer: str) -> bool:
        """Whether a peer is on this machine or a trusted proxy."""

    def socket_headers(self, retry_after_s: int) -> dict[str, str]:
        """The header fields of an answer to an address with too many sockets."""


class InputTurns(Protocol):
    """Shares turns of the event loop among the connections that have input."""

    def read(self, reader: Any) -> None:
        """Have a connection's `read` called in this turn or a later one."""

    def forget(self, reader: Any) -> None:
        """A connection is gone."""


class CountedSocket:
    """One open socket of the node, and of its address; `leave` gives both back, once."""

    __slots__ = ("_counted", "_seat")

    def __init__(self, counted: "Sockets", seat: SocketSlot | None) -> None:
        self._counted: Sockets | None = counted
        self._seat = seat

    def leave(self) -> None:
        """The socket is closed."""
        counted, self._counted = self._counted, None
        if counted is None:
            return
        counted.left()
        if self._seat is not None:
            self._seat.leave()


class Sockets:
    """How many sockets clients have open.

    Args:
        sockets_max: Returns how many sockets all clients may have; called each time.
        probes_max: Beside these, for trusted peers: health checks of a full node.
    """

    def __init__(
        self, address_limiter: AddressCounter, *, sockets_max: Callable[[], int], probes_max: int
    ) -> None:
        self.count = 0
        self._address_limiter = address_limiter
        self._sockets_max = sockets_max
        self._probes_max = probes_max
        self._full = False

    def enter(self, peer: str) -> CountedSocket | int:
        """Take a place for a socket, or the HTTP status with which it is refused."""
        trusted = self._address_limiter.trusts(peer)
        if self.count >= self._sockets_max() + (self._probes_max if trusted else 0):
            REFUSED.labels("full").inc()
            if not self._full:
                log.warning("The node is full: %d sockets; more are refused with 503.", self.count)
            self._full = True
            return 503
        seat = None
        if not trusted:
            seat = self._address_limiter.enter(peer)
            if seat is None:
                REFUSED.labels("address").inc()
                return 429
        self.count += 1
        SOCKETS.set(self.count)
        return CountedSocket(self, seat)

    def headers(self, status: int) -> dict[str, str]:
        """The header fields that tell a client when to try again, and its limit."""
        if status not in (429, 503):
            return {}
        limit = self._address_limiter.socket_headers(RETRY_AFTER_S) if status == 429 else {}
        return {"Retry-After": str(RETRY_AFTER_S), **limit}

    def left(self) -> None:
        """A socket is closed; its `CountedSocket` says so."""
        self.count -= 1
        SOCKETS.set(self.count)
        if self._full and self.count < self._sockets_max():
            log.info("The node is below its socket limit again: %d sockets.", self.count)
            self._full = False


class HttpConnection(H11Protocol):
    """One HTTP connection. Its class variables are set on the subclass of a server."""

    turns: ClassVar[InputTurns]
    deadlines: ClassVar["Deadlines"]
    counted: ClassVar[Sockets]
    metrics_port: ClassVar[int | None]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.wait: Wait | None = None
        self.unread = 0  # at the last look at a client that reads its answer slowly
        self.place: CountedSocket | None = None
        self.fd = -1
        self.queued = False  # there is input for a later turn of the event loop
        self._rest = b""
        self._heir: Any = None  # the WebSocket protocol that took the socket over

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A socket was accepted."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        place = self.counted.enter(str(peer[0]) if isinstance(peer, tuple) else "")
        if isinstance(place, int):
            self.refuse(place)
            return
        self.place = place
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self.fd = sock.fileno()
            sock.setsockopt(socket.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
        self.deadlines.begin(self, Wait.HEADERS)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        super().connection_lost(exc)
        self.deadlines.end(self)
        self.turns.forget(self)
        if self.place is not None:
            self.place.leave()

    def data_received(self, data: bytes) -> None:
        """Act on what came in when it is this connection's turn, unless it was refused."""
        if self.place is None or self.transport.is_closing():
            return
        if self.wait is Wait.NEXT:
            self.deadlines.begin(self, Wait.HEADERS)
        self._rest += data
        self.turns.read(self)

    def read(self, ends_at: float) -> bool:
        """Act on what came in."""
        data, self._rest = self._rest, b""
        if not self.transport.is_closing():
            super().data_received(data)
            self._look()
        return False

    def pace_reading(self) -> None:
        """Read from the socket, or stop while this connection waits for its turn."""
        if self._heir is not None:
            self._heir.pace_reading()
        elif self.queued:
            self.transport.pause_reading()
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the socket to the WebSocket protocol, with the place that it has."""
        self.deadlines.end(self)
        if self.server is not None and self.server[1] == self.metrics_port:
            self.refuse(404)
            return
        super().handle_websocket_upgrade(event)
        self._heir = self.transport.get_protocol()
        place, self.place = self.place, None
        if place is not None:
            self._heir.take_seat(place)

    def on_response_complete(self) -> None:
        """An answer was written, though perhaps not yet read."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self.deadlines.begin(self, Wait.WRITE)
        else:
            self._look()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self.deadlines.begin(self, Wait.WRITE)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self.wait is Wait.WRITE:
            self.wait_again()

    def unacknowledged(self) -> int:
        """Bytes of answers that the client has not got."""
        held = self.transport.get_write_buffer_size()
        return held + (sockets.unacknowledged(self.fd) if self.fd >= 0 else 0)

    def wait_again(self) -> None:
        """The client has read what there was: find out what is waited for now."""
        self.deadlines.end(self)
        self._look()

    def refuse(self, status: int) -> None:
        """Answer without a request, and close."""
        phrase, code, message = REFUSALS[status]
        timestamp = iso(time.time_ns() // 1_000_000)
        body = json.encode({"error": code, "message": message, "timestamp": timestamp})
        fields = {
            **self.counted.headers(status),
            "Content-Type": "application/json",
            "Cache-Control": "no-store",
            "Connection": "close",
            "Content-Length": str(len(body)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.transport.write(f"HTTP/1.1 {status} {phrase}\r\n{head}\r\n".encode() + body)
        self.transport.close()

    def expired(self, wait: Wait) -> None:
        """A deadline has passed."""
        EXPIRED.labels(wait.name.lower()).inc()
        began = self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
        if wait in (Wait.HEADERS, Wait.BODY) and not began and not self.transport.is_closing():
            self.refuse(408)
        else:
            self.transport.abort()

    def _look(self) -> None:
        """Find out what the connection waits for; a wait that goes on keeps its deadline."""
        if self.wait is Wait.WRITE or self.place is None or self.transport.is_closing():
            return
        theirs = self.conn.their_state
        if theirs is h11.SEND_BODY:
            wait = Wait.BODY
        elif theirs is not h11.IDLE:
            wait = Wait.ANSWER
        elif self.wait is Wait.HEADERS or self.conn.trailing_data[0]:
            wait = Wait.HEADERS
        else:
            wait = Wait.NEXT
        if wait is not self.wait:
            self.deadlines.begin(self, wait)


class Deadlines:
    """The deadlines of all HTTP connections, in the order in which they fall due, and one timer."""

    def __init__(self, settings: ServerSettings) -> None:
        self._timeouts_s = {
            Wait.HEADERS: settings.header_timeout_s,
            Wait.BODY: settings.body_timeout_s,
            Wait.WRITE: settings.write_timeout_s,
        }
        self._due: dict[Wait, dict[HttpConnection, float]] = {wait: {} for wait in self._timeouts_s}
        self._loop = asyncio.get_running_loop()

    def begin(self, connection: HttpConnection, wait: Wait) -> None:
        """A connection waits for something from now on."""
        self.end(connection)
        connection.wait = wait
        if wait is Wait.WRITE:
            connection.unread = connection.unacknowledged()
        if wait in self._due:
            self._due[wait][connection] = self._loop.time() + self._timeouts_s[wait]

    def end(self, connection: HttpConnection) -> None:
        """A connection waits no more."""
        if connection.wait in self._due:
            self._due[connection.wait].pop(connection, None)
        connection.wait = None

    def look(self) -> None:
        """Close the connections whose deadline has passed."""
        now_s = self._loop.time()
        for wait, due in self._due.items():
            while due:
                connection, deadline_s = next(iter(due.items()))
                if deadline_s > now_s:
                    break
                self._expire(connection, wait)

    def _expire(self, connection: HttpConnection, wait: Wait) -> None:
        unread = connection.unacknowledged()
        if wait is Wait.WRITE and not connection.transport.get_write_buffer_size():
            connection.wait_again()
        elif wait is Wait.WRITE and unread < connection.unread:
            self.begin(connection, wait)  # slowly, but it reads
        else:
            self.end(connection)
            connection.expired(wait)


class AcceptWatch:
    """Reports that no socket can be accepted: the event loop itself only logs it."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._failing = False

    def look(self) -> None:
        """Log when it begins and when it ends."""
        failing = sockets.files_exhausted(self._listener.fileno())
        if failing and not self._failing:
            log.error("Cannot accept connections: the process is out of file descriptors.")
        elif self._failing and not failing:
            log.info("Connections can be accepted again.")
        self._failing = failing
        ACCEPT_FAILING.set(failing)


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers, with a deadline for TLS handshakes.

    The socket of `/metrics` speaks plain HTTP.
    """

    def __init__(
        self, config: uvicorn.Config, *, handshake_timeout_s: float, metrics: socket.socket | None
    ) -> None:
        super().__init__(config)
        self._metrics = metrics
        self._handshake_timeout_s = handshake_timeout_s

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: the node decides when it ends."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on the sockets given."""
        config = self.config
        self.servers = [
            await asyncio.get_running_loop().create_server(
                lambda: config.http_protocol_class(  # type: ignore[call-arg]
                    config=config, server_state=self.server_state, app_state={}
                ),
                sock=each,
                ssl=config.ssl if each is not self._metrics else None,
                backlog=BACKLOG,
                ssl_handshake_timeout=(
                    self._handshake_timeout_s if config.ssl and each is not self._metrics else None
                ),
            )
            for each in sockets or ()
        ]
        self.started = True


def reserve_files(settings: ServerSettings, connections_max: int) -> None:
    """Let the process open as many files as these limits need.

    Raises:
        ConfigError: It may not.
    """
    sockets_max = connections_max + settings.http_connections_max
    sockets.raise_file_limit(sockets_max + settings.probe_connections_max + settings.files_reserve)


@asynccontextmanager
async def serving(
    application: Any,
    listener: socket.socket,
    *,
    websocket: Callable[..., asyncio.Protocol],
    turns: InputTurns,
    address_limiter: AddressCounter,
    connections_max: Callable[[], int],
    forwarded_from: Sequence[str],
    tls: ssl.SSLContext | None,
    settings: ServerSettings,
    metrics: socket.socket | None = None,
) -> AsyncIterator[None]:
    """Serve REST, pages and WebSocket upgrades on one socket for as long as the context lasts.

    `connections_max` tells the limit of WebSocket connections, which may change meanwhile.
    `metrics` is a second listener without WebSocket; the application tells its requests apart by
    their port. Its sockets count among all.

    Raises:
        ConfigError: The process may not open enough files.
    """
    reserve_files(settings, connections_max())
    deadlines = Deadlines(settings)
    bound = {
        "turns": turns,
        "deadlines": deadlines,
        "counted": Sockets(
            address_limiter,
            sockets_max=lambda: connections_max() + settings.http_connections_max,
            probes_max=settings.probe_connections_max,
        ),
        "metrics_port": metrics.getsockname()[1] if metrics is not None else None,
    }
    config = uvicorn.Config(
        application,
        http=type("BoundHttpConnection", (HttpConnection,), bound),
        ws=websocket,  # type: ignore[arg-type]  # it calls it, as any factory
        lifespan="off",
        log_config=None,
        access_log=False,  # it would show keys in paths
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=list(forwarded_from),
        timeout_keep_alive=settings.keep_alive_timeout_s,
        timeout_graceful_shutdown=STOP_S,
    )
    config.load()
    config.ssl = tls
    server = HttpServer(config, handshake_timeout_s=settings.header_timeout_s, metrics=metrics)
    watch = AcceptWatch(listener)
    listeners = [listener] if metrics is None else [listener, metrics]
    serving = asyncio.create_task(server.serve(sockets=listeners), name="http")
    looking = asyncio.create_task(_look(deadlines, watch), name="http-deadlines")
    try:
        yield
    finally:
        server.should_exit = True
        await serving
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _look(deadlines: Deadlines, watch: AcceptWatch) -> None:
    """One timer for every connection."""
    while True:
        due_s = time.monotonic() + TICK_S
        await asyncio.sleep(TICK_S)
        LOOP_LAG.observe(max(0.0, time.monotonic() - due_s))
        try:
            deadlines.look()
            watch.look()
        except Exception:
            # A defect in one check must not end them: sockets would stay open.
            log.exception("Checking the deadlines of HTTP connections failed.")
