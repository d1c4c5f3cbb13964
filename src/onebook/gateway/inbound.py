"""Frames of a client to messages, checked against RFC 6455 by the sans-I/O websockets library.

A parser lives only while a message is incomplete, so that an idle connection costs little.
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, cast

from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN as PARSER_OPEN
from websockets.protocol import SERVER, Protocol

from onebook.gateway.upgrade import library_log

NO_STATUS: Final = 1005
_DATA: Final = frozenset((Opcode.TEXT, Opcode.BINARY, Opcode.CONT))


class Incoming(Enum):
    """Result of parsing one frame."""

    TEXT = auto()  # a whole message
    BINARY = auto()
    FRAGMENT = auto()  # a part of a message; it costs as much as one, and may be empty
    PING = auto()
    PONG = auto()


class Inbound:
    """The parser of one connection, with the incomplete message."""

    __slots__ = ("_opcode", "_parser", "_payload", "begun")

    def __init__(self, *, packed: bool, message_bytes_max: int) -> None:
        self._parser = Protocol(
            SERVER, state=PARSER_OPEN, max_size=message_bytes_max, logger=library_log
        )
        if packed:
            self._parser.extensions = [PerMessageDeflate(True, True, 15, 15)]
        self._payload = bytearray()
        self._opcode = Opcode.TEXT
        self.begun = False  # a message has begun and is not complete

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
        """Frames that RFC 6455 requires in answer: pongs, the close after a close or an error."""
        return self._parser.data_to_send()

    @property
    def close_code(self) -> int | None:
        """The code of the close frame that is among `to_send`; None where there is none."""
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
            yield _kind(self._opcode), bytes(self._payload)


def _kind(opcode: Opcode) -> Incoming:
    return Incoming.TEXT if opcode is Opcode.TEXT else Incoming.BINARY


def is_close(frame: bytes) -> bool:
    """Whether a frame closes the connection; it may come in the middle of a message."""
    return frame[0] & 0x0F == Opcode.CLOSE
