"""One HTTP connection: uvicorn's h11 protocol with socket limits, deadlines and fair input.

A WebSocket upgrade takes over the socket and its slot (`SocketSlot`). uvicorn's own timer is not
used, because it covers only idle connections, and not in every state.
"""

import asyncio
import re
import socket
import time
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import h11
from msgspec import json
from prometheus_client import Counter
from uvicorn.protocols.http.h11_impl import H11Protocol

from onebook import sockets
from onebook.core import iso
from onebook.http.socket_limits import CountedSocket, Sockets

UPGRADE_SINCE: Final = b"1.1"
ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE)


class RequestParser(h11.Connection):
    """h11's parser with two rules of RFC 9110 and 9112 that h11 leaves to its caller.

    It converts the request target to origin-form, and drops an `Upgrade` header of HTTP/1.0.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return h11's next event, with a corrected request."""
        event = super().next_event()
        return _effective(event) if isinstance(event, h11.Request) else event


def _effective(request: h11.Request) -> h11.Request:
    target, headers = bytes(request.target), [*request.headers.raw_items()]
    absolute = ABSOLUTE.fullmatch(target)
    if absolute is not None:  # RFC 9112 section 3.2.2: its host overrides the header
        host, path = absolute.groups()
        target = path if path.startswith(b"/") else b"/" + path
        headers = [(b"Host", host), *_without(headers, b"host")]
    if request.http_version < UPGRADE_SINCE:  # RFC 9110 section 7.8: ignored in HTTP/1.0
        headers = _without(headers, b"upgrade")
    return h11.Request(
        method=request.method,
        target=target,
        headers=headers,
        http_version=request.http_version,
    )


def _without(headers: list[tuple[bytes, bytes]], name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in headers if field[0].lower() != name]


class Wait(Enum):
    """The event that an HTTP connection waits for."""

    HEADERS = auto()
    BODY = auto()
    ANSWER = auto()  # the application responds
    WRITE = auto()  # the client reads the response
    NEXT = auto()  # the next request
    CLOSING = auto()  # the client reads the last bytes, or ends TLS


class Expiry(Enum):
    """Action on a connection whose deadline has passed."""

    REFUSE = auto()  # 408; aborted if a response has started
    ABORT = auto()
    CLOSE = auto()


class Deadline(NamedTuple):
    """The deadline of one state.

    Args:
        renewed: Whether progress of the client restarts it. The deadline of ANSWER, counted from
        the headers of the request, still applies.
    """

    then: Expiry
    renewed: bool = False


DEADLINES: Final[Mapping[Wait, Deadline]] = {
    Wait.HEADERS: Deadline(Expiry.REFUSE),
    Wait.BODY: Deadline(Expiry.REFUSE),
    Wait.ANSWER: Deadline(Expiry.ABORT),
    Wait.WRITE: Deadline(Expiry.ABORT, renewed=True),
    Wait.NEXT: Deadline(Expiry.CLOSE),
    Wait.CLOSING: Deadline(Expiry.ABORT, renewed=True),
}
BETWEEN_REQUESTS: Final = (Wait.HEADERS, Wait.NEXT)


class HttpTimeouts(NamedTuple):
    """Timeouts of an HTTP connection, in seconds; tests pass shorter ones."""

    header_s: float = 10.0  # to receive the TLS handshake, request line and headers
    body_s: float = 30.0  # to receive the body after the headers
    write_s: float = 30.0  # without progress while the client reads the response
    idle_s: float = 5.0  # between requests


TIMEOUTS: Final = HttpTimeouts()


class Deadlines:
    """The deadlines of all HTTP connections in due order, with a single timer.

    Args:
        timeouts: The timeouts of all states except ANSWER.
        answer_timeout_s: Maximum seconds from the headers of a request to the end of its response.
    """

    def __init__(self, timeouts: HttpTimeouts, *, answer_timeout_s: float) -> None:
        self._timeouts_s = {
            Wait.HEADERS: timeouts.header_s,
            Wait.BODY: timeouts.body_s,
            Wait.ANSWER: answer_timeout_s,
            Wait.WRITE: timeouts.write_s,
            Wait.NEXT: timeouts.idle_s,
            Wait.CLOSING: timeouts.write_s,
        }
        self._due: dict[Wait, dict[HttpConnection, float]] = {wait: {} for wait in Wait}
        self._loop = asyncio.get_running_loop()

    def begin(self, connection: "HttpConnection", wait: Wait) -> None:
        """Start the deadline of a connection's state, replacing the previous one."""
        self.leave(connection)
        connection.wait = wait
        if DEADLINES[wait].renewed:
            connection.unread = connection.unacknowledged()
        if wait in BETWEEN_REQUESTS:
            self._due[Wait.ANSWER].pop(connection, None)
        else:
            self._set(connection, Wait.ANSWER)
        self._set(connection, wait)

    def _set(self, connection: "HttpConnection", wait: Wait) -> None:
        self._due[wait].setdefault(connection, self._loop.time() + self._timeouts_s[wait])

    def leave(self, connection: "HttpConnection") -> None:
        """Remove the deadline of a state; the deadline of the request stays."""
        if connection.wait not in (None, Wait.ANSWER):
            self._due[connection.wait].pop(connection, None)
        connection.wait = None

    def end(self, connection: "HttpConnection") -> None:
        """Remove all deadlines of a connection or its request."""
        self.leave(connection)
        self._due[Wait.ANSWER].pop(connection, None)

    def check(self) -> None:
        """Close the connections whose deadline has passed."""
        now_s = self._loop.time()
        for wait, due in self._due.items():
            while due:
                connection, deadline_s = next(iter(due.items()))
                if deadline_s > now_s:
                    break
                self._expire(connection, wait)

    def _expire(self, connection: "HttpConnection", wait: Wait) -> None:
        if wait is Wait.WRITE and not connection.transport.get_write_buffer_size():
            connection.wait_again()
        elif DEADLINES[wait].renewed and connection.unacknowledged() < connection.unread:
            self.begin(connection, wait)  # the client made progress
        else:
            self.end(connection)
            connection.expired(wait)


UNSENT_BYTES_MAX: Final = 131_072  # in the kernel; small, to see a slow client's progress

# Responses to requests refused before routing: reason phrase, error code, message.
REFUSALS: Final = {
    400: ("Bad Request", "invalid_request", "This is not an HTTP/1.1 request of RFC 9112."),
    404: ("Not Found", "not_found", "This address serves only /metrics."),
    408: ("Request Timeout", "request_timeout", "The request did not arrive in time."),
    429: (
        "Too Many Requests",
        "rate_limit_exceeded",
        "This address has too many connections open; close some or try again shortly.",
    ),
    503: (
        "Service Unavailable",
        "service_unavailable",
        "This node has reached its connection limit; try again shortly.",
    ),
}

EXPIRED: Final = Counter("onebook_http_expired", "HTTP connections ended by a deadline.", ["wait"])
# PromQL's `increase` ignores the first sample of a counter that was absent.
for _wait in Wait:
    if DEADLINES[_wait].then is not Expiry.CLOSE:  # closing an idle connection is not an error
        EXPIRED.labels(_wait.name.lower())


class InputTurns(Protocol):
    """Shares turns of the event loop among the connections that have input."""

    def read(self, reader: Any) -> None:
        """Schedule a connection's `read` for this turn or a later one."""

    def forget(self, reader: Any) -> None:
        """Remove a closed connection."""


class HttpConnection(H11Protocol):
    """One HTTP connection. Each server sets the class variables on a subclass."""

    turns: ClassVar[InputTurns]
    deadlines: ClassVar[Deadlines]
    counted: ClassVar[Sockets]
    metrics_port: ClassVar[int | None]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = RequestParser(h11.SERVER)
        self.wait: Wait | None = None
        self.unread = 0  # unread bytes at the last check of a slow client
        self.slot: CountedSocket | None = None
        self.fd = -1
        self.queued = False  # input waits for a later turn of the event loop
        self._lost = False
        self._rest = b""
        self._application = self.app
        self.app = self._answer
        self._websocket: Any = None  # the WebSocket protocol that took over the socket

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Handle an accepted socket."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        entered = self.counted.enter(str(peer[0]) if isinstance(peer, tuple) else "")
        if isinstance(entered, int):
            self.refuse(entered)
            return
        self.slot = entered
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self.fd = sock.fileno()
            sock.setsockopt(socket.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
        self.deadlines.begin(self, Wait.HEADERS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the socket."""
        self._lost = True
        super().connection_lost(exc)
        self._forget_application()
        self.deadlines.end(self)
        self.turns.forget(self)
        if self.slot is not None:
            self.slot.leave()

    def data_received(self, data: bytes) -> None:
        """Process input when it is this connection's turn, unless it was refused."""
        if self.slot is None or self.transport.is_closing():
            return
        if self.wait is Wait.NEXT:
            self.deadlines.begin(self, Wait.HEADERS)
        self._rest += data
        self.turns.read(self)

    def read(self, ends_at: float) -> bool:
        """Process received input."""
        data, self._rest = self._rest, b""
        if data and not self.transport.is_closing():
            super().data_received(data)
            self._update_wait()
        return False

    def pace_reading(self) -> None:
        """Read from the socket, or stop while this connection waits for its turn."""
        if self._websocket is not None:
            self._websocket.pace_reading()
        elif self.queued:
            self.transport.pause_reading()
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Pass the socket to the WebSocket protocol, with its slot and the data received since."""
        self.deadlines.end(self)
        if self.server is not None and self.server[1] == self.metrics_port:
            self.refuse(404)
            return
        super().handle_websocket_upgrade(event)
        self._websocket = self.transport.get_protocol()
        slot, self.slot = self.slot, None
        if slot is not None:
            self._websocket.hold_slot(slot)
        early, self._rest = self.conn.trailing_data[0] + self._rest, b""
        self._forget_application()
        if early:  # frames that the client sent without waiting for the response
            self._websocket.data_received(early)

    def _forget_application(self) -> None:
        """Drop the reference to this object, so that it is freed without a garbage collection."""
        self.app = self._application

    def on_response_complete(self) -> None:
        """Handle a written response; the client may not have read it yet."""
        if self.wait is Wait.ANSWER:
            self.deadlines.end(self)  # those of this request; the next one may have arrived already
        super().on_response_complete()
        self._unset_keepalive_if_required()  # uvicorn's own timer
        unread = self.transport.get_write_buffer_size() and not self.transport.is_closing()
        if unread and self.wait is not Wait.WRITE:
            self.deadlines.begin(self, Wait.WRITE)
        else:
            self._update_wait()

    def pause_writing(self) -> None:
        """Handle a client that stopped reading."""
        super().pause_writing()
        if not self.transport.is_closing():
            self.deadlines.begin(self, Wait.WRITE)

    def resume_writing(self) -> None:
        """Handle a client that reads again."""
        super().resume_writing()
        if self.wait is Wait.WRITE:
            self.wait_again()

    def unacknowledged(self) -> int:
        """Response bytes that the client has not received."""
        held = self.transport.get_write_buffer_size()
        return held + (sockets.unacknowledged(self.fd) if self.fd >= 0 else 0)

    def wait_again(self) -> None:
        """Determine the next wait after the client has read everything."""
        self.deadlines.leave(self)
        self._update_wait()

    def refuse(self, status: int) -> None:
        """Send an error response without a request, and close."""
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
        self._update_wait()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with our error body; uvicorn would send plain text."""
        if self._answer_began():
            self.transport.abort()
        else:
            self.refuse(400)

    def expired(self, wait: Wait) -> None:
        """Handle a deadline that has passed."""
        then = DEADLINES[wait].then
        if then is Expiry.CLOSE:
            self.timeout_keep_alive_handler()
            self._update_wait()
            return
        EXPIRED.labels(wait.name.lower()).inc()
        readable = not self._answer_began() and not self.transport.is_closing()
        if then is Expiry.REFUSE and readable:
            self.refuse(408)
        else:
            self.transport.abort()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Run the application; afterwards uvicorn may close the connection."""
        try:
            await self._application(scope, receive, send)
        finally:
            self.loop.call_soon(self._update_wait)

    def _answer_began(self) -> bool:
        return self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    def _update_wait(self) -> None:
        """Update the awaited event; an unchanged wait keeps its deadline."""
        if self._lost or self._websocket is not None:
            return
        if self.transport.is_closing():
            if self.wait is not Wait.CLOSING:
                self.deadlines.begin(self, Wait.CLOSING)
            return
        if self.wait is Wait.WRITE:
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
