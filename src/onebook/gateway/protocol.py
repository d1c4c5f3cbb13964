"""One client's socket: RFC 6455 in, prebuilt frames out.

uvicorn hands a WebSocket upgrade to `Connection` (`uvicorn.Config(ws=hub.protocol)`): it is made
with (config, server_state, app_state), told `connection_made`, given the bytes of the upgrade
request and from then on everything the peer sends. The handshake and every incoming frame are
checked by the sans-I/O websockets library; its objects live only while they are needed, so that
an idle connection costs little. Frames to clients are built by the hub and written as they are.

Nothing here knows what messages mean: see `client`.
"""

import asyncio
import logging
import struct
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from urllib.parse import parse_qs

import msgspec
from websockets.datastructures import Headers, MultipleValuesError
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN as PARSER_OPEN
from websockets.protocol import SERVER, Protocol
from websockets.server import ServerProtocol

from onebook import sockets
from onebook.core import iso
from onebook.gateway import frames
from onebook.gateway.client import Client
from onebook.gateway.codes import CloseCode
from onebook.gateway.direct import Peer
from onebook.gateway.door import Seat
from onebook.gateway.plain import shown
from onebook.logs import redact
from onebook.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from onebook.gateway.hub import Hub

IPPROTO_TCP: Final = 6
NO_STATUS: Final = 1005
ABNORMAL: Final = 1006
VERSION: Final = "13"  # RFC 6455 section 4.4
REQUEST_LINE_BYTES_MAX: Final = 8_192  # of the websockets library

# What the library refuses in its own words, by its status: error and message.
REFUSALS: Final = {
    HTTPStatus.BAD_REQUEST: ("invalid_request", "This is not a WebSocket handshake of RFC 6455."),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        "method_not_allowed",
        "This path does not answer that method; see the Allow header.",
    ),
    HTTPStatus.REQUEST_URI_TOO_LONG: (
        "request_too_large",
        "The path and query of a WebSocket upgrade are too long.",
    ),
    HTTPStatus.FORBIDDEN: (
        "origin_not_allowed",
        "Pages of this origin may not connect; the operator lists those that may.",
    ),
    HTTPStatus.UPGRADE_REQUIRED: (
        "upgrade_required",
        f"This path speaks WebSocket version {VERSION}; the request asks for something else.",
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: (
        "internal_server_error",
        "Something went wrong on our side; it has been logged.",
    ),
}

# What is looked at after our close frame, in search of the peer's: then the socket is not read
# any more. A frame counts as so many bytes, because each costs time.
CLOSING_BYTES_MAX: Final = 65_536
CLOSING_FRAME_BYTES: Final = 1_024
PIECES_MAX: Final = 16  # reads without a whole frame; after them a pause between two reads
PIECE_PAUSE_S: Final = 0.01

# The library would log each connection; one line at the end is enough and is ours.
library_log = logging.getLogger("onebook.gateway.websockets")
library_log.setLevel(logging.ERROR)


class _Inbound:
    """A message of several frames that is not complete yet, with the parser that checks it."""

    __slots__ = ("begun", "opcode", "parser", "payload")

    def __init__(self, parser: Protocol) -> None:
        self.parser = parser
        self.payload = bytearray()
        self.opcode = Opcode.TEXT
        self.begun = False


class Connection(Peer, asyncio.Protocol):
    """A connected peer. `hub` is set on the subclass that `Hub.protocol` makes."""

    __slots__ = (
        "_closing_bytes",
        "_fd",
        "_handshake",
        "_inbound",
        "_last_bytes",
        "_pieces",
        "_request",
        "_rest",
        "_server_connections",
        "_undelivered",
        "address",
        "changes_until_s",
        "client",
        "code",
        "held",
        "latency_ms",
        "looks",
        "lost",
        "opened_at",
        "packed",
        "ping_at",
        "progress_at",
        "queued",
        "resting",
        "seats",
        "slot",
        "total",
        "unread",
        "wanted",
    )
    hub: "ClassVar[Hub]"

    def __init__(self, config: Any, server_state: Any, app_state: Any, **_: Any) -> None:
        super().__init__()
        self._server_connections = server_state.connections
        self._handshake: ServerProtocol | None = self.hub.handshake()
        self._inbound: _Inbound | None = None
        self._request: Request | None = None  # an upgrade whose answer waits
        self._rest = b""  # bytes that came in and are not yet acted on
        self._fd = -1
        self._pieces = 0  # reads since the last whole frame
        self._closing_bytes = 0  # that came in after our close frame
        self._last_bytes = 0  # of our close frame, the last thing that we send
        self._undelivered: int | None = None  # at the end
        self.client: Client = self.hub.client()
        self.address = ""
        self.code = ABNORMAL
        self.lost = False
        self.held = False  # a key is being verified: nothing is acted on meanwhile
        self.resting = False  # it changed its subscriptions too fast: the same for a while
        self.queued = False  # there is input for the next turns of the event loop
        self.changes_until_s = 0.0  # when the changes of subscriptions are paid for
        self.seats: tuple[Seat, ...] = ()  # places that it takes of an address's sockets
        self.packed = False  # permessage-deflate was negotiated
        self.wanted: set[Stream] | None = None  # streams whose newest book is owed
        self.looks: set[Callable[[], None]] | None = None  # cancel unanswered looks
        self.total = 0
        self.unread = 0  # the write buffer at the last check of a client that is behind
        self.progress_at = 0.0
        self.ping_at = 0.0  # when the unanswered ping was sent; 0 without one
        self.latency_ms = 0.0
        self.slot = 0
        self.opened_at = 0.0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket over from the HTTP protocol."""
        self.transport = cast(asyncio.Transport, transport)
        self._server_connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Act on what came in, as far as it is whole."""
        self._rest = self._rest + data if self._rest else data
        if self.ended:
            self._await_close(len(data))
            return
        if self._pieces >= PIECES_MAX and not self.resting:
            # Bytes that complete no frame cost as much as one: let them gather in the kernel.
            self.hub.rest(self, PIECE_PAUSE_S)
        self._pieces += 1
        self.hub.turns.read(self)

    def eof_received(self) -> bool:
        """The peer sends no more: close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._server_connections.discard(self)
        if self._undelivered is None:
            # Where writing failed, what the transport held is no longer known.
            self._undelivered = (
                self.sent if exc is not None and self.buffered else self.unacknowledged()
            )
        self.lost = self.ended = True
        self.hub.lost(self)
        self.hub.turns.forget(self)
        for seat in self.seats:
            seat.leave()

    def pause_writing(self) -> None:
        """The peer is behind: what is read from it waits too, so no reply can pile up."""
        self.behind = True
        self.hub.fell_behind(self)
        self.pace_reading()

    def resume_writing(self) -> None:
        """The peer reads again: it gets the newest of what it missed."""
        self.behind = False
        self.hub.caught_up(self)
        self.pace_reading()
        if not self.behind:
            self.hub.turns.read(self)

    def shutdown(self) -> None:
        """Close at once: the server stops and nobody drained this connection."""
        if self._handshake is None and not self.ended:
            self.end(CloseCode.DRAINING, "the node stops")
        self.transport.close()

    # Writing

    def say(self, payload: bytes) -> None:
        """Send one text message."""
        frame = frames.deflated_frame(payload) if self.packed else frames.text_frame(payload)
        self.write(frame)

    def write(self, frame: bytes) -> None:
        """Send one built frame."""
        if self.ended:
            return
        self.sent += frames.payload_length(frame)
        self._give(frame)

    def _give(self, data: bytes) -> None:
        self.buffered = True
        self.transport.write(data)

    def ping(self, now_s: float) -> None:
        """Measure the round trip; the answer must come before the next ping."""
        self.ping_at = now_s
        self._give(frames.ping_frame(_ping_payload(now_s)))

    def end(self, code: int, reason: str) -> None:
        """Send a close frame; the socket closes with the peer's answer or in time."""
        if self.ended:
            return
        frame = frames.close_frame(code, reason)
        self._give(frame)
        self._last_bytes = len(frame)
        self._ends(code)

    def hold(self, held: bool) -> None:
        """Stop or go on acting on what comes in."""
        self.held = held
        self.pace_reading()
        if not held:
            self.hub.turns.read(self)

    def rest(self, resting: bool) -> None:
        """The same for a client that changes its subscriptions too fast."""
        self.resting = resting
        if self.lost:
            return
        self.pace_reading()
        if not resting:
            self.hub.turns.read(self)

    def abort(self) -> None:
        """Cut the connection; what the peer has not got by now is not charged."""
        if self._undelivered is None:
            self._undelivered = self.unacknowledged()
        self.transport.abort()

    # What was delivered

    def unacknowledged(self) -> int:
        """Bytes that were written and that the peer has not acknowledged."""
        if self._undelivered is not None:
            return self._undelivered
        if self._fd < 0:
            return 0
        unsent = self.transport.get_write_buffer_size() + sockets.unacknowledged(self._fd)
        return max(0, unsent - self._last_bytes)

    def take_delivered(self) -> int:
        """Payload bytes that the peer has got since the last call."""
        if not self.sent:
            return 0
        delivered = max(0, self.sent - self.unacknowledged())
        self.sent -= delivered
        self.total += delivered
        return delivered

    # Reading

    def read(self, ends_at: float) -> bool:
        """Act on what came in, within the budget of one turn; whether there is more."""
        if self._handshake is not None:
            self._shake_hands(self._handshake)
            self.hub.turns.spend()
            return False
        settings = self.hub.settings
        buffer, start, more = self._rest, 0, False
        for _ in range(settings.turn_frames_max):
            more = False
            if self.ended or not self._may_act():
                break
            end = frames.frame_end(buffer, start, self.client.message_bytes_max)
            if not end:
                break
            frame = buffer[start:end]
            start = end
            self._pieces = 0
            more = start < len(buffer)
            self._frame_received(frame)
            if start >= settings.turn_bytes_max or self.hub.monotonic() >= ends_at:
                break
        self._rest = buffer[start:] if start else buffer
        if self.ended:
            self._await_close(0)
            return False
        return more and self._may_act()

    def _may_act(self) -> bool:
        return not (self.held or self.resting or self.behind or self.lost)

    def _await_close(self, came: int) -> None:
        """After our close frame look for the peer's, and stop reading if it does not come soon."""
        self._closing_bytes += came
        buffer, start = self._rest, 0
        while self._closing_bytes < CLOSING_BYTES_MAX:
            end = frames.frame_end(buffer, start, self.client.message_bytes_max)
            if not end:
                self._rest = buffer[start:]
                return
            if buffer[start] & 0x0F == Opcode.CLOSE:
                self._rest = b""
                self.transport.close()
                return
            start = end
            self._closing_bytes += CLOSING_FRAME_BYTES
        self._rest = b""
        self.pace_reading()

    def pace_reading(self) -> None:
        """Read from the socket, or stop, as the state of the connection asks for."""
        if self.lost or self.transport.is_closing():
            return
        deaf = self._closing_bytes >= CLOSING_BYTES_MAX
        if self.queued or deaf or not self._may_act():
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _frame_received(self, frame: bytes) -> None:
        inbound = self._inbound
        if inbound is None or frame[0] & 0x0F == Opcode.CLOSE:
            # A close may come in the middle of a message: it is answered, not an error.
            inbound = _Inbound(self._parser())
        parser = inbound.parser
        parser.receive_data(frame)
        for event in parser.events_received():
            if not self.ended:
                self._event(inbound, cast(Frame, event))
        self._inbound = inbound if inbound.begun else None
        self._write_parser(parser)

    def _parser(self) -> Protocol:
        parser = Protocol(
            SERVER,
            state=PARSER_OPEN,
            max_size=self.client.message_bytes_max,
            logger=library_log,
        )
        if self.packed:
            parser.extensions = [PerMessageDeflate(True, True, 15, 15)]
        return parser

    def _write_parser(self, parser: Protocol) -> None:
        """Send what RFC 6455 asks for: pongs, and the close after a close or an error."""
        last = b""
        for data in parser.data_to_send():
            if self.ended:
                break
            if data:
                self._give(data)
                last = data
        if parser.state is not PARSER_OPEN and not self.ended:
            sent = parser.close_sent
            self._last_bytes = len(last)
            self._ends(sent.code if sent is not None else NO_STATUS)
            self._half_close()

    def _event(self, inbound: _Inbound, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._data_received(inbound, frame)
        elif frame.opcode is Opcode.PONG and self.ping_at and self._answered(frame.data):
            self.latency_ms = max(0.0, (self.hub.monotonic() - self.ping_at) * 1_000)
            self.ping_at = 0.0
            self.hub.answered()
        elif frame.opcode is not Opcode.CLOSE:
            self.hub.frame_received(self)

    def _data_received(self, inbound: _Inbound, frame: Frame) -> None:
        if frame.opcode is not Opcode.CONT:
            if frame.fin:
                self.message(bytes(frame.data), text=frame.opcode is Opcode.TEXT)
                return
            inbound.opcode = frame.opcode
        inbound.payload += frame.data
        inbound.begun = not frame.fin
        # A fragment costs us as much as a message, and may hold nothing.
        self.hub.frame_received(self)
        if frame.fin and not self.ended:
            self.message(bytes(inbound.payload), text=inbound.opcode is Opcode.TEXT)

    def _answered(self, payload: Any) -> bool:
        return bytes(payload) == _ping_payload(self.ping_at)

    def message(self, data: bytes, *, text: bool) -> None:
        """One whole message: text goes to the client's side of the conversation."""
        if not text:
            self.end(CloseCode.NOT_TEXT, "only text messages are understood")
            return
        try:
            decoded = data.decode()
        except UnicodeDecodeError:
            self.end(CloseCode.NOT_UTF8, "the message is not UTF-8")
            return
        self.hub.heard(self, decoded)

    def _ends(self, code: int) -> None:
        self.ended = True
        self.code = code
        if self.out is not None:
            # What this tick brought is not written after a close frame.
            self.sent -= min(self.sent, sum(map(frames.payload_length, self.out)))
            self.out = None
        self.hub.ending(self)

    def _half_close(self) -> None:
        """Send no more, but read on until the peer closes, so that it can read our close frame."""
        if self.transport.can_write_eof():
            self._last_bytes += 1  # the kernel counts the end of the stream
            self.transport.write_eof()
        else:
            self.transport.close()

    # The handshake

    def _shake_hands(self, handshake: ServerProtocol) -> None:
        if self.resting:
            return
        request, self._request = self._request, None
        if request is not None:
            self._answer(handshake, request)
            return
        data, self._rest = self._rest, b""
        handshake.receive_data(data)
        for event in handshake.events_received():
            request = cast(Request, event)
            wait_s = self.hub.pause_s(self, _header(request.headers, "X-Forwarded-For"))
            if wait_s > 0:
                self._request = request
                self.hub.rest(self, wait_s)
            else:
                self._answer(handshake, request)
        if handshake.handshake_exc is not None and not self.transport.is_closing():
            # The library could not read it: a body, too many or too long lines.
            too_long = len(data.partition(b"\r\n")[0]) > REQUEST_LINE_BYTES_MAX
            status = HTTPStatus.REQUEST_URI_TOO_LONG if too_long else HTTPStatus.BAD_REQUEST
            self._give(self._problem(status, *REFUSALS[status]).serialize())
            self.hub.refused(status)
            self.transport.close()

    def _answer(self, handshake: ServerProtocol, request: Request) -> None:
        """Accept or refuse an upgrade."""
        path, _, query = request.path.partition("?")
        response = self._refusal(request, path) or handshake.accept(request)
        status = HTTPStatus(response.status_code)
        if status in REFUSALS:
            response = self._problem(status, *REFUSALS[status])
        handshake.send_response(response)
        self._give(b"".join(handshake.data_to_send()))
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self.hub.refused(response.status_code)
            self.transport.close()
            return
        self._open(handshake, query)

    def _refusal(self, request: Request, path: str) -> Response | None:
        """Why this upgrade is not even tried; None if it is."""
        if path.removesuffix("/") != self.hub.settings.path:  # as REST ignores one slash
            return self._problem(HTTPStatus.NOT_FOUND, "not_found", f"There is no {shown(path)}.")
        if _header(request.headers, "Sec-WebSocket-Version") != VERSION:
            status = HTTPStatus.UPGRADE_REQUIRED
            return self._problem(status, *REFUSALS[status])
        if not self.hub.has_room():
            return self._problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "service_unavailable",
                "This node takes no connections now.",
                retry_after_s=self.hub.retry_after_s(),
            )
        wait_s = self.hub.knock(self)
        if wait_s:
            return self._problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                "Too many connection attempts from this address.",
                retry_after_s=int(wait_s) + 1,
                limit=self.hub.rate_headers(self),
            )
        return None

    def _problem(
        self,
        status: HTTPStatus,
        error: str,
        message: str,
        *,
        retry_after_s: int = 0,
        limit: Mapping[str, str] | None = None,
    ) -> Response:
        timestamp = iso(self.hub.wall_us() // 1_000)
        fields = {"error": error, "message": redact(message), "timestamp": timestamp}
        body = msgspec.json.encode(fields)
        headers = {**(limit or {}), "Content-Type": "application/json", "Connection": "close"}
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET"
        if status is HTTPStatus.UPGRADE_REQUIRED:
            headers["Connection"] = "Upgrade, close"
            headers["Upgrade"] = "websocket"
            headers["Sec-WebSocket-Version"] = VERSION
        headers["Content-Length"] = str(len(body))
        if retry_after_s:
            headers["Retry-After"] = str(retry_after_s)
        return Response(status, status.phrase, Headers(headers), body)

    def _open(self, handshake: ServerProtocol, query: str) -> None:
        self._handshake = None
        self.packed = bool(handshake.extensions)
        settings = self.hub.settings
        self.transport.set_write_buffer_limits(high=settings.write_buffer_bytes_max)
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            self._fd = sock.fileno()
            # What the kernel has not sent yet is as stale as what we hold: keep it short.
            sock.setsockopt(IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, settings.unsent_bytes_max)
            encrypted = self.transport.get_extra_info("sslcontext") is not None
            if settings.direct_send_allowed and not encrypted:
                self.direct_fd = self._fd
        keys = parse_qs(query).get("api_key") if settings.query_key_allowed else None
        self.hub.opened(self, keys[-1] if keys else None)

    def peer(self) -> str:
        """The address at the other end of the socket."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""


def _ping_payload(now_s: float) -> bytes:
    return struct.pack("!d", now_s)


def _header(headers: Headers, name: str) -> str | None:
    try:
        return headers.get(name)
    except MultipleValuesError:
        return headers.get_all(name)[-1]
