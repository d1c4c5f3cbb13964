"""The incoming side of a client: bytes to frames to messages, paced and bounded.

Input is processed in turns of the event loop (`turns`). While it waits, the socket is not read, so
that TCP flow control stops the client.
"""

import asyncio
from abc import abstractmethod
from typing import Final

from onebook.config import GatewaySettings
from onebook.gateway import frames
from onebook.gateway.inbound import Inbound, Incoming, is_close
from onebook.gateway.lifecycle import BEFORE_OPEN, READING, ConnectionEvent, ConnectionState
from onebook.gateway.processor import CommandProcessor
from onebook.gateway.scheduler import Scheduler, Turns
from onebook.gateway.subscriber import Subscriber
from onebook.streams import Clock

# Bytes scanned for the peer's close frame after ours; then reading stops. Each frame counts as at
# least so many bytes, because it costs time.
CLOSING_BYTES_MAX: Final = 65_536
CLOSING_FRAME_BYTES: Final = 1_024
PIECES_MAX: Final = 16  # reads without a whole frame; after them a pause between two reads
PIECE_PAUSE_S: Final = 0.01


class FrameReader(Subscriber, asyncio.Protocol):
    """Reads the frames of one client; the subclass owns the state and acts on them."""

    __slots__ = (
        "_clock",
        "_closing_bytes",
        "_inbound",
        "_paused",
        "_pieces",
        "_rest",
        "_scheduler",
        "_settings",
        "_turns",
        "queued",
        "state",
    )

    def __init__(
        self,
        processor: CommandProcessor,
        *,
        settings: GatewaySettings,
        clock: Clock,
        turns: Turns,
        scheduler: Scheduler,
    ) -> None:
        super().__init__(processor)
        self._settings = settings
        self._clock = clock
        self._turns = turns
        self._scheduler = scheduler
        self.state = ConnectionState.HANDSHAKE
        self.queued = False  # there is input for the next turns of the event loop; set by `Turns`
        self._paused = False  # input waits for a short time, because too much came
        self._rest = b""  # bytes that came in and are not yet acted on
        self._pieces = 0  # reads since the last whole frame
        self._closing_bytes = 0  # that came in after our close frame
        self._inbound: Inbound | None = None  # of a message that is not complete

    @abstractmethod
    def _move(self, event: ConnectionEvent, detail: object = None) -> None:
        """Follow the table of the state machine."""

    @abstractmethod
    def _upgrade_received(self, data: bytes) -> bytes:
        """Bytes of the upgrade request; return those that come after it."""

    @abstractmethod
    def _close_sent(self, code: int, last_bytes: int) -> None:
        """A close frame was written."""

    @abstractmethod
    def message(self, data: bytes, *, text: bool) -> None:
        """One whole message."""

    @abstractmethod
    def pong(self, data: bytes) -> bool:
        """A pong; whether it answers our ping."""

    @abstractmethod
    def useless_frame(self) -> None:
        """A ping, an unsolicited pong or a fragment: it costs as much as a message."""

    @property
    def lost(self) -> bool:
        """Whether the socket is closed."""
        return self.state is ConnectionState.CLOSED

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """Process the complete frames in the receive buffer."""
        self._rest = self._rest + data if self._rest else data
        if self.ended:
            self._await_close(len(data))
            return
        if self._pieces >= PIECES_MAX and not self._paused:
            # A read without a complete frame costs as much as one with: let bytes gather in the
            # kernel.
            self._pause(PIECE_PAUSE_S)
        self._pieces += 1
        self._turns.read(self)

    def eof_received(self) -> bool:
        """The peer sends no more: close."""
        return False

    # Turns

    def read(self, ends_at: float) -> bool:
        """Process received input within the budget of one turn; whether there is more."""
        if self.state in BEFORE_OPEN:
            if not self._paused and self.state is ConnectionState.HANDSHAKE:
                data, self._rest = self._rest, b""
                self._rest = self._upgrade_received(data)
            self._turns.spend()
            return bool(self._rest) and self._may_act()
        buffer, start, more = self._rest, 0, False
        for _ in range(self._settings.turn_frames_max):
            more = False
            if self.ended or not self._may_act():
                break
            end = frames.frame_end(buffer, start, self.processor.message_bytes_max)
            if not end:
                break
            frame = buffer[start:end]
            start = end
            self._pieces = 0
            more = start < len(buffer)
            self._frame_received(frame)
            if start >= self._settings.turn_bytes_max or self._clock.monotonic() >= ends_at:
                break
        self._rest = buffer[start:] if start else buffer
        if self.ended:
            self._await_close(0)
            return False
        return more and self._may_act()

    def pace_reading(self) -> None:
        """Read from the socket, or pause, by the state of the connection."""
        if self.lost or self.transport.is_closing():
            return
        if self.queued or not self._may_act():
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _may_act(self) -> bool:
        return not (self._paused or self.behind) and self.state in READING

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
        inbound = self._inbound
        if inbound is None or is_close(frame):
            inbound = Inbound(
                packed=self.packed, message_bytes_max=self.processor.message_bytes_max
            )
        for kind, data in inbound.received(frame):
            if self.ended:
                break
            self._incoming(kind, data)
        self._inbound = inbound if inbound.begun else None
        self._answer_frame(inbound)

    def _incoming(self, kind: Incoming, data: bytes) -> None:
        if kind is Incoming.TEXT or kind is Incoming.BINARY:
            self.message(data, text=kind is Incoming.TEXT)
        elif kind is not Incoming.PONG or not self.pong(data):
            self.useless_frame()

    def _answer_frame(self, inbound: Inbound) -> None:
        """Send what RFC 6455 requires: pongs, and the close after a close or an error."""
        last = b""
        for data in inbound.to_send():
            if self.ended:
                return
            if data:
                self.transmit(data)
                last = data
        code = inbound.close_code
        if code is not None and not self.ended:
            self._close_sent(code, len(last))
            self._half_close()

    def _await_close(self, came: int) -> None:
        """Look for the peer's close frame after ours; end reading at `CLOSING_BYTES_MAX`."""
        if self.state is not ConnectionState.CLOSING:
            self._rest = b""
            return
        self._closing_bytes += came
        buffer, start = self._rest, 0
        while self._closing_bytes < CLOSING_BYTES_MAX:
            end = frames.frame_end(buffer, start, self.processor.message_bytes_max)
            if not end:
                self._rest = buffer[start:]
                return
            if is_close(buffer[start:end]):
                self._rest = b""
                self._move(ConnectionEvent.CLOSE_RECEIVED)
                return
            start = end
            self._closing_bytes += CLOSING_FRAME_BYTES
        self._rest = b""
        self._move(ConnectionEvent.INPUT_EXCEEDED)
