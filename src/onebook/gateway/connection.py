"""One client connection: an asyncio protocol around a state machine.

uvicorn passes a WebSocket upgrade to the protocol that `Gateway.protocol` creates: it calls
`connection_made`, then `data_received` with the upgrade request and everything after it.
`lifecycle` has the states; `processor` handles the client's commands; `output` sends.

Input is processed in turns of the event loop (`scheduler.Turns`). While input is pending, the
socket is not read, so that TCP flow control stops the client.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Protocol, cast

from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN as PARSER_OPEN
from websockets.protocol import SERVER
from websockets.protocol import Protocol as FrameParser

from onebook import logs
from onebook.clock import Clock
from onebook.config import GatewaySettings
from onebook.gateway import frames, metrics
from onebook.gateway.authentication import Authenticator
from onebook.gateway.codes import OFFENCES, CloseCode
from onebook.gateway.commands import CommandRefused
from onebook.gateway.effects import (
    CloseView,
    Effects,
    EndConnection,
    FetchBook,
    KeyVerdict,
    MessageTime,
    OpenView,
    PlayView,
    ResendBook,
    RunAction,
    SendText,
    VerifyKey,
    authentication_timeout,
)
from onebook.gateway.fanout import ClientOutput, Fanout
from onebook.gateway.keepalive import NEVER, Keepalive
from onebook.gateway.lifecycle import (
    BEFORE_OPEN,
    READING,
    Action,
    ConnectionEvent,
    ConnectionState,
    transition,
)
from onebook.gateway.limits import AUTHENTICATION_TIMEOUT_S, GatewayLimits
from onebook.gateway.messages import encode_action_refusal
from onebook.gateway.processor import CommandProcessor
from onebook.gateway.registry import ConnectionRegistry
from onebook.gateway.scheduler import TICK_S, Scheduler, Turns
from onebook.gateway.subscriptions import SubscriptionManager
from onebook.gateway.transactions import ActionRunner
from onebook.gateway.upgrade import Handshake, Offenders, UpgradeAnswer, Upgrader, library_log

# Bytes scanned for the peer's close frame after ours; then reading stops. Each frame counts as
# `CLOSING_FRAME_BYTES` more, because parsing it takes time.
CLOSING_BYTES_MAX: Final = 65_536
CLOSING_FRAME_BYTES: Final = 1_024
TURN_FRAMES_MAX: Final = 16  # frames of one connection processed per turn of the event loop,
TURN_BYTES_MAX: Final = 65_536  # and their bytes
CLOSED_S: Final = 0.00005  # in a later callback of the event loop, to close a socket
PIECES_MAX: Final = 16  # reads without a complete frame before reading is paced
PIECE_PAUSE_S: Final = 0.01
ABNORMAL: Final = 1006

log = logging.getLogger("onebook.gateway")
access = logging.getLogger(logs.ACCESS)


class HeldSlot(Protocol):
    """A slot of a connection limit."""

    def leave(self) -> None:
        """Release the slot when the socket is closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionParts:
    """Dependencies shared by all connections of a gateway."""

    settings: GatewaySettings
    limits: GatewayLimits
    clock: Clock
    connections: ConnectionRegistry
    turns: Turns
    scheduler: Scheduler
    upgrader: Upgrader
    offenders: Offenders
    authenticator: Authenticator
    subscriptions: SubscriptionManager
    actions: ActionRunner | None = None  # None: no transaction interface
    fanout: Fanout
    totals: metrics.GatewayTotals
    make_processor: Callable[[], CommandProcessor]
    parsers: "FrameParsers" = field(default_factory=lambda: FrameParsers())

    def now(self) -> MessageTime:
        """The current time of a message."""
        return MessageTime(self.clock.monotonic(), self.clock.wall_us())


class ClientConnection(asyncio.Protocol):
    """A connected client: its state, its input, its timers; `output` is the sending side.

    Only `_move` changes `state`. `fetches` holds the callbacks that cancel unanswered requests for
    books.
    """

    __slots__ = (
        "_clock",
        "_closing_bytes",
        "_deadline_s",
        "_handshake",
        "_inbound",
        "_parts",
        "_paused",
        "_peer_ended",
        "_pieces",
        "_rest",
        "_scheduler",
        "_server_connections",
        "_slots",
        "_socket_closed",
        "_turns",
        "address",
        "code",
        "fetches",
        "keepalive",
        "opened_at",
        "output",
        "processor",
        "queued",
        "state",
        "transport",
    )

    def __init__(
        self, parts: ConnectionParts, config: Any, server_state: Any, app_state: Any, **_: Any
    ) -> None:
        self.processor = parts.make_processor()
        self.output = ClientOutput(parts.connections.uncharged, self.processor)
        self.fetches: set[Callable[[], None]] | None = None
        self.state = ConnectionState.HANDSHAKE
        self._clock = parts.clock
        self._turns = parts.turns
        self._scheduler = parts.scheduler
        self._parts = parts
        self._server_connections = server_state.connections
        self._handshake: Handshake | None = parts.upgrader.begin()
        self._slots: tuple[HeldSlot, ...] = ()  # released when the socket is closed
        self._deadline_s = NEVER  # deadline of the present state
        self.address = ""
        self.code = ABNORMAL
        self.keepalive = Keepalive(parts.settings)
        self.opened_at = 0.0
        self.queued = False  # input waits for the next turns of the event loop; set by `Turns`
        self._paused = False  # input is delayed briefly after a burst
        self._rest = b""  # received bytes not yet processed
        self._pieces = 0  # reads since the last whole frame
        self._closing_bytes = 0  # received after our close frame
        self._peer_ended = False  # the peer sends no more; the socket is closed in the next turn
        self._socket_closed = False  # the rest is released in the next turn
        self._inbound: Inbound | None = None  # parser of an incomplete message

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket over from the HTTP protocol."""
        self.transport = self.output.transport = cast(asyncio.Transport, transport)
        self._server_connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed; release the connection in its turn: thousands may end at once."""
        self._server_connections.discard(self)
        self.output.write_ended(failed=exc is not None)
        self.output.ended = self._socket_closed = True
        self._parts.totals.behind.discard(self.output)
        self._turns.read(self)

    def data_received(self, data: bytes) -> None:
        """Process the complete frames in the receive buffer."""
        self._rest = self._rest + data if self._rest else data
        if self.output.ended:
            self._closing_bytes += len(data)
        elif self._pieces >= PIECES_MAX and not self._paused:
            # A read without a complete frame costs as much as one with: let bytes accumulate in the
            # kernel.
            self._pause(PIECE_PAUSE_S)
        self._pieces += 1
        self._turns.read(self)

    def eof_received(self) -> bool:
        """Close in this connection's turn, because the peer has shut down its sending side."""
        if self.transport.get_extra_info("sslcontext") is not None:
            return False  # asyncio keeps no TLS connection half open
        self._peer_ended = True
        self._turns.read(self)
        return True

    def pause_writing(self) -> None:
        """Stop reading from a slow consumer, so that no replies pile up."""
        self.output.behind = True
        if not self.output.ended:
            self._parts.totals.behind.add(self.output)
        now_s = self._clock.monotonic()
        self.keepalive.fell_behind(self.transport.get_write_buffer_size(), now_s)
        self._scheduler.call_by(self, now_s + TICK_S)
        self.pace_reading()

    def resume_writing(self) -> None:
        """Send the newest book of each stream that a slow consumer missed."""
        self.output.behind = False
        self._parts.totals.behind.discard(self.output)
        self.keepalive.caught_up()
        self._parts.fanout.caught_up(self.output)
        self._resume_input()

    def _release_socket(self) -> None:
        self._move(ConnectionEvent.SOCKET_CLOSED)
        for slot in self._slots:
            slot.leave()

    def shutdown(self) -> None:
        """Close the connection if it was not drained before the HTTP server stops."""
        if self.state is not ConnectionState.CLOSED:
            self._move(ConnectionEvent.STOPPED)

    def hold_slot(self, slot: HeldSlot) -> None:
        """Hold a slot of the address's limit until the socket is closed."""
        self._slots += (slot,)

    @property
    def silent_since_s(self) -> float:
        """Time of the unanswered ping, or of a slow consumer's last read; 0 if there is none."""
        return self.keepalive.progress_at if self.output.behind else self.keepalive.ping_at

    @property
    def lost(self) -> bool:
        """Whether the socket is closed and everything of the connection is released."""
        return self.state is ConnectionState.CLOSED

    # The state machine

    def _move(self, event: ConnectionEvent, detail: Any = None) -> None:
        row = transition(self.state, event)
        self.state = row.state
        for action in row.actions:
            ACTIONS[action](self, detail)

    def _register(self, answer: UpgradeAnswer) -> None:
        parts = self._parts
        now_s = self.opened_at = self._clock.monotonic()
        metrics.CONNECTS.labels("opened").inc()
        metrics.CONNECTIONS.labels(metrics.NO_TIER).inc()
        parts.connections.add(self)
        self._deadline_s = now_s + AUTHENTICATION_TIMEOUT_S
        self.keepalive.opened(now_s)
        self._scheduler.call_by(self, min(self._deadline_s, self.keepalive.due_s))
        self.execute(self.processor.opened())
        if parts.settings.reference_compatible:
            self._scheduler.after(parts.limits.welcome_delay_s, self._greet_late)
        self.ping(now_s)
        if answer.api_key is not None:
            self.execute((VerifyKey(answer.api_key),))

    def _greet_late(self) -> None:
        self.execute(self.processor.greeting_due())

    def _hold_input(self, _: object) -> None:
        self.pace_reading()

    def _apply_verdict(self, verdict: KeyVerdict) -> None:
        effects: Effects | None = verdict.refusal
        if verdict.key is not None:
            effects = self._parts.authenticator.admit(self, verdict)
            if effects is None:
                effects = self._parts.authenticator.welcome(self, verdict)
        self.execute(effects or ())
        if not self.output.ended:
            self._move(ConnectionEvent.KEY_ACCEPTED)

    def _drop_deadline(self, _: object) -> None:
        self._deadline_s = NEVER

    def _refuse_late(self, _: object) -> None:
        self._deadline_s = NEVER
        self.execute(authentication_timeout(now=self._parts.now()))

    def _send_draining(self, _: object) -> None:
        self.end(CloseCode.DRAINING, "the node stops")

    def _count_offence(self, _: object) -> None:
        if self.code in OFFENCES and self.processor.key is None:
            self._parts.offenders.offended(self.address, self._clock.monotonic())

    def _release(self, _: object) -> None:
        self._parts.subscriptions.release(self)
        if self._parts.actions is not None:
            self._parts.actions.cancel(self)

    def _start_close_timeout(self, _: object) -> None:
        self._deadline_s = self._clock.monotonic() + self._parts.limits.close_timeout_s
        self._scheduler.call_by(self, self._deadline_s)

    def _close_socket(self, _: object) -> None:
        self.transport.close()

    def _abort(self, _: object) -> None:
        self.output.abort()

    def _unregister(self, _: object) -> None:
        parts, key = self._parts, self.processor.key
        parts.authenticator.answered()
        parts.connections.remove(self)
        self._scheduler.forget(self)
        parts.authenticator.leave(self)
        metrics.CONNECTIONS.labels(key.tier if key is not None else metrics.NO_TIER).dec()
        metrics.count_close(self.code)
        fields = logs.fields(
            client_address=self.address,
            key_id=key.key_id if key is not None else None,
            close_code=self.code,
            duration_ms=round((self._clock.monotonic() - self.opened_at) * 1e3, 1),
            sent_bytes=self.output.total,
        )
        access.info("WebSocket ended with %d", self.code, extra=fields)

    def on_time(self, now_s: float) -> float | None:
        """Check the timers: the deadline of the state, stalled reading, pings."""
        if now_s >= self._deadline_s:
            self._move(ConnectionEvent.DEADLINE_PASSED)
        if self.output.ended:
            return self._deadline_s if self._deadline_s < NEVER else None
        keepalive = self.keepalive
        next_s = min(self._deadline_s, keepalive.due_s)
        if self.output.behind:
            self._check_progress(now_s)
            next_s = min(next_s, now_s + TICK_S, max(now_s, keepalive.stalled_at_s))
        if now_s >= keepalive.due_s and not self.output.ended:
            keepalive.ping_passed(now_s)
            self._ping_or_end(now_s)
            next_s = min(self._deadline_s, keepalive.due_s, next_s if self.output.behind else NEVER)
        return next_s

    def _check_progress(self, now_s: float) -> None:
        if not self.keepalive.stalled(self.transport.get_write_buffer_size(), now_s):
            return
        if self.state in BEFORE_OPEN:
            self.output.abort()  # the peer does not read the HTTP response either
        else:
            self.end(CloseCode.SLOW, "nothing was read")

    def _ping_or_end(self, now_s: float) -> None:
        # A slow consumer's pong is late; its reading progress is checked instead.
        if self.output.behind:
            return
        if not self.keepalive.ping_at:
            self.ping(now_s)
        elif self.keepalive.unanswered(now_s):
            self.end(CloseCode.SLOW, "no pong")

    # Pings and the close frame

    def ping(self, now_s: float) -> None:
        """Send a ping to measure the round trip; its pong is due before the next ping."""
        self.output.transmit(frames.ping_frame(self.keepalive.ping(now_s)))

    def end(self, code: int, reason: str) -> None:
        """Send a close frame; the socket closes on the peer's reply or at the close timeout."""
        if self.output.ended:
            return
        frame = frames.close_frame(code, reason)
        self.output.transmit(frame)
        self._close_sent(code, len(frame))

    def _close_sent(self, code: int, last_bytes: int) -> None:
        self.code = code
        self.output.last_frame_written(last_bytes)
        self._parts.totals.behind.discard(self.output)
        self._move(ConnectionEvent.CLOSE_SENT)

    # Effects of commands

    def execute(self, effects: Effects) -> None:
        """Execute effects of the processor."""
        for effect in effects:
            EFFECTS[type(effect)](self, effect)

    def _verify_key(self, effect: VerifyKey) -> None:
        self._move(ConnectionEvent.KEY_RECEIVED)
        self._parts.authenticator.verify(self, effect)

    def verdict_received(self, verdict: KeyVerdict) -> None:
        """Apply the result of verifying the key."""
        self._move(ConnectionEvent.VERDICT_RECEIVED, verdict)

    def _fetch_book(self, effect: FetchBook) -> None:
        self._parts.subscriptions.fetch(self, effect)

    def _resend_book(self, effect: ResendBook) -> None:
        self._parts.subscriptions.resend(self, effect)

    def _run_action(self, effect: RunAction) -> None:
        parts, key = self._parts, self.processor.key
        assert key is not None
        if parts.actions is not None:
            parts.actions.begin(self, self.output, key, effect.body)
            return
        refusal = CommandRefused("invalid_action", "This node has no transaction interface.")
        self.output.send_text(encode_action_refusal(refusal, effect.body.id, parts.clock.wall_us()))

    def _open_view(self, effect: OpenView) -> None:
        self._parts.subscriptions.open(self, effect)
        self._pace_changes()

    def _play_view(self, effect: PlayView) -> None:
        self._parts.subscriptions.play(self, effect)
        self._pace_changes()

    def _close_view(self, effect: CloseView) -> None:
        self._parts.subscriptions.close(self, effect)
        self._pace_changes()

    def _pace_changes(self) -> None:
        """Delay input after a burst of subscription changes."""
        wait_s = self.processor.limits.change_wait_s(self._clock.monotonic())
        if wait_s > 0 and not self._paused:
            self._pause(wait_s)

    # Messages

    def pong(self, data: bytes) -> bool:
        """Handle a pong; returns whether it answers our ping."""
        if not self.keepalive.pong(data, self._clock.monotonic()):
            return False
        self._parts.authenticator.answered()
        return True

    def useless_frame(self) -> None:
        """Count a useless frame against the flood limit."""
        if self.processor.limits.flooded(self._clock.monotonic()):
            self.end(CloseCode.FLOOD, "frame flood")

    def message(self, data: bytes, *, text: bool) -> None:
        """Handle a complete message: text is a command, binary is refused."""
        if not text:
            self.end(CloseCode.NOT_TEXT, "only text messages are accepted")
            return
        try:
            decoded = data.decode()
        except UnicodeDecodeError:
            self.end(CloseCode.NOT_UTF8, "the message is not UTF-8")
            return
        self.command(decoded)

    def command(self, text: str) -> None:
        """Execute one text message."""
        parts, latency_ms = self._parts, self.keepalive.latency_ms
        parts.totals.messages += 1
        self.execute(self.processor.received(text, now=parts.now(), latency_ms=latency_ms))

    # Input, in turns of the event loop

    def read(self, ends_at: float) -> bool:
        """Process received input within one turn's budget; returns whether any is left."""
        if self._socket_closed:
            self._release_socket()
            return False
        if self._peer_ended:
            self._turns.spend(CLOSED_S)
            self.transport.close()
            return False
        if self.state in BEFORE_OPEN:
            if not self._paused and self.state is ConnectionState.HANDSHAKE:
                data, self._rest = self._rest, b""
                self._rest = self._upgrade_received(data)
            self._turns.spend()
            return bool(self._rest) and self._may_act()
        output, buffer, start, more = self.output, self._rest, 0, False
        for _ in range(TURN_FRAMES_MAX):
            more = False
            if output.ended or not self._may_act():
                break
            end = frames.frame_end(buffer, start, self.processor.message_bytes_max)
            if not end:
                break
            frame = buffer[start:end]
            start = end
            self._pieces = 0
            more = start < len(buffer)
            self._frame_received(frame)
            if start >= TURN_BYTES_MAX or self._clock.monotonic() >= ends_at:
                break
        self._rest = buffer[start:] if start else buffer
        if self.output.ended:
            self._await_close()
            return False
        return more and self._may_act()

    def pace_reading(self) -> None:
        """Resume or pause reading from the socket, depending on the connection's state."""
        if self._peer_ended or self.lost or self.transport.is_closing():
            return
        if self.queued or not self._may_act():
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _may_act(self) -> bool:
        return not (self._paused or self.output.behind) and self.state in READING

    def _resume_input(self, _: object = None) -> None:
        self.pace_reading()
        if not self.lost and self._may_act():
            self._turns.read(self)

    def _pause(self, seconds: float) -> None:
        """Stop processing and reading the client's input for a while."""
        self._paused = True
        self.pace_reading()
        self._scheduler.after(seconds, self._unpause)

    def _unpause(self) -> None:
        self._paused = False
        self._resume_input()

    # Frames

    def _frame_received(self, frame: bytes) -> None:
        payload = frames.pong_payload(frame)
        if payload is not None:  # it may come between the fragments of a message
            self._incoming(Incoming.PONG, payload)
            return
        inbound = self._inbound
        if inbound is None or is_close(frame):
            parsers = self._parts.parsers
            inbound = parsers.borrow(self.output.packed, self.processor.message_bytes_max)
        for kind, data in inbound.received(frame):
            if self.output.ended:
                break
            self._incoming(kind, data)
        self._inbound = inbound if inbound.begun else None
        self._answer_frame(inbound)
        if inbound.between_messages and not self.output.ended:
            self._parts.parsers.give_back(inbound)

    def _incoming(self, kind: "Incoming", data: bytes) -> None:
        if kind is Incoming.TEXT or kind is Incoming.BINARY:
            self.message(data, text=kind is Incoming.TEXT)
        elif kind is not Incoming.PONG or not self.pong(data):
            self.useless_frame()

    def _answer_frame(self, inbound: "Inbound") -> None:
        """Send the frames that RFC 6455 requires: pongs, and a close after a close or error."""
        last = b""
        for data in inbound.to_send():
            if self.output.ended:
                return
            if data:
                self.output.transmit(data)
                last = data
        code = inbound.close_code
        if code is not None and not self.output.ended:
            self._close_sent(code, len(last))
            self.output.half_close()

    def _await_close(self) -> None:
        """Look for the peer's close frame after ours, in at most `CLOSING_BYTES_MAX` bytes."""
        if self.state is not ConnectionState.CLOSING:
            self._rest = b""
            return
        buffer, start = self._rest, 0
        while self._closing_bytes < CLOSING_BYTES_MAX:
            end = frames.frame_end(buffer, start, self.processor.message_bytes_max)
            if not end:
                self._rest = buffer[start:]
                return
            if is_close(buffer[start:end]):
                self._rest = b""
                self._turns.spend(CLOSED_S)
                self._move(ConnectionEvent.CLOSE_RECEIVED)
                return
            start = end
            self._closing_bytes += CLOSING_FRAME_BYTES
        self._rest = b""
        self._move(ConnectionEvent.INPUT_EXCEEDED)

    # The upgrade

    def _upgrade_received(self, data: bytes) -> bytes:
        handshake, upgrader = self._handshake, self._parts.upgrader
        assert handshake is not None
        rest = handshake.received(data)
        if handshake.request is not None:
            self.address = upgrader.address(handshake.request, self._peer())
            wait_s = upgrader.delay_s(self.address)
            if wait_s > 0:
                self._move(ConnectionEvent.UPGRADE_DELAYED)
                self._scheduler.after(wait_s, self._answer_late)
            else:
                self._answer_upgrade(handshake)
        if handshake.broken and self.state is ConnectionState.HANDSHAKE:
            self._upgrade_answered(upgrader.unreadable(data))
        return rest

    def _answer_late(self) -> None:
        if self.state is ConnectionState.DELAYED and self._handshake is not None:
            self._answer_upgrade(self._handshake)

    def _answer_upgrade(self, handshake: Handshake) -> None:
        answer = self._parts.upgrader.answer(handshake, address=self.address, peer=self._peer())
        self._upgrade_answered(answer)

    def _upgrade_answered(self, answer: UpgradeAnswer) -> None:
        self._handshake = None
        if answer.slot is not None:
            self.hold_slot(answer.slot)
        self.output.transmit(answer.data)
        if not answer.accepted:
            metrics.CONNECTS.labels(str(int(answer.status))).inc()
            self._move(ConnectionEvent.UPGRADE_REFUSED)
            return
        self.output.packed = answer.packed
        self.output.tune_socket(self._parts.limits)
        self._move(ConnectionEvent.UPGRADE_ACCEPTED, answer)

    def _peer(self) -> str:
        """The peer address of the socket."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""


ACTIONS: Final[dict[Action, Callable[[ClientConnection, Any], None]]] = {
    Action.REGISTER: ClientConnection._register,
    Action.HOLD_INPUT: ClientConnection._hold_input,
    Action.RESUME_INPUT: ClientConnection._resume_input,
    Action.APPLY_VERDICT: ClientConnection._apply_verdict,
    Action.DROP_DEADLINE: ClientConnection._drop_deadline,
    Action.REFUSE_LATE: ClientConnection._refuse_late,
    Action.SEND_DRAINING: ClientConnection._send_draining,
    Action.COUNT_OFFENCE: ClientConnection._count_offence,
    Action.RELEASE: ClientConnection._release,
    Action.AWAIT_CLOSE: ClientConnection._start_close_timeout,
    Action.CLOSE_SOCKET: ClientConnection._close_socket,
    Action.ABORT: ClientConnection._abort,
    Action.UNREGISTER: ClientConnection._unregister,
}

EFFECTS: Final[dict[type, Callable[[ClientConnection, Any], None]]] = {
    SendText: lambda connection, effect: connection.output.send_text(effect.payload),
    VerifyKey: ClientConnection._verify_key,
    OpenView: ClientConnection._open_view,
    PlayView: ClientConnection._play_view,
    CloseView: ClientConnection._close_view,
    FetchBook: ClientConnection._fetch_book,
    ResendBook: ClientConnection._resend_book,
    RunAction: ClientConnection._run_action,
    EndConnection: lambda connection, effect: connection.end(effect.code, effect.reason),
}


NO_STATUS: Final = 1005
_DATA: Final = frozenset((Opcode.TEXT, Opcode.BINARY, Opcode.CONT))


class Incoming(Enum):
    """Result of parsing one frame."""

    TEXT = auto()  # a complete message
    BINARY = auto()
    FRAGMENT = auto()  # costs as much as a message and may be empty
    PING = auto()
    PONG = auto()


class Inbound:
    """A frame parser; it holds the incomplete message of one connection."""

    __slots__ = ("_opcode", "_parser", "_payload", "begun", "kind")

    def __init__(self, *, packed: bool, message_bytes_max: int) -> None:
        self.kind = packed, message_bytes_max
        self._parser = FrameParser(
            SERVER, state=PARSER_OPEN, max_size=message_bytes_max, logger=library_log
        )
        if packed:
            self._parser.extensions = [PerMessageDeflate(True, True, 15, 15)]
        self._payload = bytearray()
        self._opcode = Opcode.TEXT
        self.begun = False  # whether a message is incomplete

    @property
    def between_messages(self) -> bool:
        """Whether the parser has no state of its connection: no data, no error, no close."""
        parser = self._parser
        return not self.begun and parser.state is PARSER_OPEN and not parser.reader.buffer

    @property
    def held_bytes(self) -> int:
        """Bytes of the incomplete message."""
        return len(self._payload)

    def received(self, data: bytes) -> Iterator[tuple[Incoming, bytes]]:
        """Parse a complete frame; a close frame or an error sets `close_code`."""
        self._parser.receive_data(data)
        for event in self._parser.events_received():
            frame = cast(Frame, event)
            if frame.opcode in _DATA:
                yield from self._data(frame)
            elif frame.opcode is Opcode.PONG:
                yield Incoming.PONG, bytes(frame.data)
            elif frame.opcode is not Opcode.CLOSE:
                yield Incoming.PING, b""

    def to_send(self) -> list[bytes]:
        """Frames that RFC 6455 requires in reply: pongs, and a close after a close or an error."""
        return self._parser.data_to_send()

    @property
    def close_code(self) -> int | None:
        """The code of the close frame in `to_send`; None without one."""
        if self._parser.state is PARSER_OPEN:
            return None
        sent = self._parser.close_sent
        return sent.code if sent is not None else NO_STATUS

    def _data(self, frame: Frame) -> Iterator[tuple[Incoming, bytes]]:
        if frame.opcode is not Opcode.CONT:
            if frame.fin:
                yield _kind(frame.opcode), bytes(frame.data)
                return
            self._opcode = frame.opcode
        self._payload += frame.data
        self.begun = not frame.fin
        yield Incoming.FRAGMENT, b""
        if frame.fin:
            payload, self._payload = bytes(self._payload), bytearray()
            yield _kind(self._opcode), payload


class FrameParsers:
    """The frame parsers of all connections that are between two messages: one of each kind.

    Making a parser takes longer than parsing a frame.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[bool, int], Inbound] = {}

    def borrow(self, packed: bool, message_bytes_max: int) -> Inbound:
        """Return a parser for a connection, until it is given back or discarded."""
        idle = self._idle.pop((packed, message_bytes_max), None)
        return idle or Inbound(packed=packed, message_bytes_max=message_bytes_max)

    def give_back(self, inbound: Inbound) -> None:
        """Keep a parser between two messages for the next frame of any connection."""
        self._idle[inbound.kind] = inbound


def _kind(opcode: Opcode) -> Incoming:
    return Incoming.TEXT if opcode is Opcode.TEXT else Incoming.BINARY


def is_close(frame: bytes) -> bool:
    """Whether a frame is a close frame, which may arrive in the middle of a message."""
    return frame[0] & 0x0F == Opcode.CLOSE
