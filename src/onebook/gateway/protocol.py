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

from onebook.gateway import frames
from onebook.gateway.client import Client
from onebook.gateway.codes import CloseCode
from onebook.gateway.direct import Peer
from onebook.streams import Stream, iso_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from onebook.gateway.hub import Hub

TCP_NOTSENT_LOWAT: Final = 25  # linux/tcp.h
IPPROTO_TCP: Final = 6
NO_STATUS: Final = 1005
ABNORMAL: Final = 1006

# The library would log each connection; one line at the end is enough and is ours.
library_log = logging.getLogger("onebook.gateway.websockets")
library_log.setLevel(logging.ERROR)


class _Inbound:
    """A message of several frames that is not complete yet, with the parser that checks it."""

    __slots__ = ("opcode", "parser", "parts")

    def __init__(self, parser: Protocol) -> None:
        self.parser = parser
        self.parts: list[bytes] = []
        self.opcode = Opcode.TEXT


class Connection(Peer, asyncio.Protocol):
    """A connected peer. `hub` is set on the subclass that `Hub.protocol` makes."""

    __slots__ = (
        "_handshake",
        "_inbound",
        "_rest",
        "_server_connections",
        "address",
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
        self._rest = b""  # bytes that came in and are not yet acted on
        self.client: Client = self.hub.client()
        self.address = ""
        self.code = ABNORMAL
        self.lost = False
        self.held = False  # a key is being verified: nothing is acted on meanwhile
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
        if self._handshake is not None:
            self._shake_hands(self._handshake, data)
            return
        self._rest = self._rest + data if self._rest else data
        self.read()

    def eof_received(self) -> bool:
        """The peer sends no more: close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._server_connections.discard(self)
        self.lost = self.ended = True
        self.hub.lost(self)

    def pause_writing(self) -> None:
        """The peer is behind: what is read from it waits too, so no reply can pile up."""
        self.behind = True
        self.hub.fell_behind(self)
        self._pace_reading()

    def resume_writing(self) -> None:
        """The peer reads again: it gets the newest of what it missed."""
        self.behind = False
        self.hub.caught_up(self)
        self._pace_reading()
        if not self.behind:
            self.read()

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
        self._give(frames.close_frame(code, reason))
        self._ends(code)

    def hold(self, held: bool) -> None:
        """Stop or go on acting on what comes in."""
        self.held = held
        self._pace_reading()
        if not held:
            self.read()

    # Reading

    def read(self) -> None:
        """Act on every whole frame that came in, unless the peer must wait."""
        buffer, start = self._rest, 0
        bytes_max = self.hub.settings.message_bytes_max
        while not (self.held or self.behind or self.lost):
            end = frames.frame_end(buffer, start, bytes_max)
            if not end:
                break
            frame = buffer[start:end]
            start = end
            if not self.ended:
                self._frame_received(frame)
            elif frame[0] & 0x0F == Opcode.CLOSE:
                self.transport.close()
        self._rest = buffer[start:] if start else buffer

    def _pace_reading(self) -> None:
        if self.lost or self.transport.is_closing():
            return
        if self.held or self.behind:
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
            self._event(inbound, cast(Frame, event))
        self._inbound = inbound if inbound.parts else None
        self._write_parser(parser)

    def _parser(self) -> Protocol:
        parser = Protocol(
            SERVER,
            state=PARSER_OPEN,
            max_size=self.hub.settings.message_bytes_max,
            logger=library_log,
        )
        if self.packed:
            parser.extensions = [PerMessageDeflate(True, True, 15, 15)]
        return parser

    def _write_parser(self, parser: Protocol) -> None:
        """Send what RFC 6455 asks for: pongs, and the close after a close or an error."""
        for data in parser.data_to_send():
            if self.ended:
                break
            if data:
                self._give(data)
        if parser.state is not PARSER_OPEN and not self.ended:
            sent = parser.close_sent
            self._ends(sent.code if sent is not None else NO_STATUS)
            self._half_close()

    def _event(self, inbound: _Inbound, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                inbound.opcode = frame.opcode
            inbound.parts.append(bytes(frame.data))
            if frame.fin:
                message = b"".join(inbound.parts)
                inbound.parts.clear()
                self.message(message, text=inbound.opcode is Opcode.TEXT)
        elif frame.opcode is Opcode.PONG and self.ping_at and self._answered(frame.data):
            self.latency_ms = max(0.0, (self.hub.monotonic() - self.ping_at) * 1_000)
            self.ping_at = 0.0
        elif frame.opcode is not Opcode.CLOSE:
            self.hub.control_received(self)

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
        self.hub.ending(self)

    def _half_close(self) -> None:
        """Send no more, but read on until the peer closes, so that it can read our close frame."""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    # The handshake

    def _shake_hands(self, handshake: ServerProtocol, data: bytes) -> None:
        handshake.receive_data(data)
        for event in handshake.events_received():
            request = cast(Request, event)
            path, _, query = request.path.partition("?")
            response = self._refusal(request, path) or handshake.accept(request)
            handshake.send_response(response)
            self._give(b"".join(handshake.data_to_send()))
            if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
                self.hub.refused(response.status_code)
                self.transport.close()
                return
            self._open(handshake, query)
        if handshake.handshake_exc is not None:
            self.transport.close()

    def _refusal(self, request: Request, path: str) -> Response | None:
        """Why this upgrade is not even tried; None if it is."""
        if path != self.hub.settings.path:
            return self._problem(HTTPStatus.NOT_FOUND, "not_found", f"There is no {path[:128]}.")
        if not self.hub.has_room():
            return self._problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "service_unavailable",
                "This node takes no connections now.",
                retry_after_s=self.hub.retry_after_s(),
            )
        wait_s = self.hub.knock(self, _header(request.headers, "X-Forwarded-For"))
        if wait_s:
            return self._problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                "Too many connection attempts from this address.",
                retry_after_s=int(wait_s) + 1,
            )
        return None

    def _problem(
        self, status: HTTPStatus, error: str, message: str, *, retry_after_s: int = 0
    ) -> Response:
        timestamp = iso_us(self.hub.wall_us())
        body = msgspec.json.encode({"error": error, "message": message, "timestamp": timestamp})
        headers = Headers({"Content-Type": "application/json", "Connection": "close"})
        headers["Content-Length"] = str(len(body))
        if retry_after_s:
            headers["Retry-After"] = str(retry_after_s)
        return Response(status, status.phrase, headers, body)

    def _open(self, handshake: ServerProtocol, query: str) -> None:
        self._handshake = None
        self.packed = bool(handshake.extensions)
        settings = self.hub.settings
        self.transport.set_write_buffer_limits(high=settings.write_buffer_bytes_max)
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            # What the kernel has not sent yet is as stale as what we hold: keep it short.
            sock.setsockopt(IPPROTO_TCP, TCP_NOTSENT_LOWAT, settings.unsent_bytes_max)
            encrypted = self.transport.get_extra_info("sslcontext") is not None
            if settings.direct_send_allowed and not encrypted:
                self.direct_fd = sock.fileno()
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
