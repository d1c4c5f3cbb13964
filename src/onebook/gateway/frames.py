"""WebSocket frames that the server sends, built once and written to many (RFC 6455, RFC 7692).

A compressed frame holds one message, has no context takeover and needs a window of 4 KiB, so the
same bytes suit every client that negotiated permessage-deflate. Incoming frames are parsed by the
websockets library, except plain pongs, which are all that an idle client sends; this module finds
where a frame ends.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from isal import isal_zlib
from websockets.exceptions import NegotiationError
from websockets.extensions.base import Extension
from websockets.extensions.permessage_deflate import (
    PerMessageDeflate,
    ServerPerMessageDeflateFactory,
)
from websockets.typing import ExtensionParameter

WINDOW_BITS: Final = 12
DEFLATE_LEVEL: Final = 1  # 13 us for 11 KB, 4.7 x smaller
DEFLATE_BYTES_MIN: Final = 256  # shorter messages gain too little
EMPTY_BLOCK: Final = b"\x00\x00\xff\xff"  # RFC 7692 7.2.1: removed from the end of a message
REASON_BYTES_MAX: Final = 123
HEADER_BYTES_MIN: Final = 2
MASK_BYTES: Final = 4

TEXT: Final = 0x81  # FIN and the opcode
BINARY: Final = 0x82
TEXT_DEFLATED: Final = 0xC1  # FIN, RSV1 and the opcode
CLOSE: Final = 0x88
PING: Final = 0x89
PONG: Final = 0x8A
CONTROL_BYTES_MAX: Final = 125  # payload of a control frame


def text_frame(payload: bytes) -> bytes:
    """Frame a text message uncompressed."""
    return _header(TEXT, len(payload)) + payload


def binary_frame(payload: bytes) -> bytes:
    """Frame a binary message: it is dense, so compressing it would gain nothing."""
    return _header(BINARY, len(payload)) + payload


def deflated_frame(payload: bytes) -> bytes:
    """Frame a text message compressed, unless it is too short to benefit."""
    if len(payload) < DEFLATE_BYTES_MIN:
        return text_frame(payload)
    deflate = isal_zlib.compressobj(DEFLATE_LEVEL, isal_zlib.DEFLATED, -WINDOW_BITS)
    packed = deflate.compress(payload) + deflate.flush(zlib.Z_SYNC_FLUSH)
    assert packed.endswith(EMPTY_BLOCK)
    packed = packed[:-4]
    return _header(TEXT_DEFLATED, len(packed)) + packed


def close_frame(code: int, reason: str) -> bytes:
    """Build a close frame."""
    body = struct.pack("!H", code) + reason.encode()[:REASON_BYTES_MAX]
    return _header(CLOSE, len(body)) + body


def ping_frame(payload: bytes) -> bytes:
    """Build a ping frame."""
    return _header(PING, len(payload)) + payload


def payload_length(frame: bytes) -> int:
    """Return the number of payload bytes, as sent, in one of our frames."""
    short = frame[1]
    return len(frame) - (2 if short < 126 else 4 if short == 126 else 10)


def frame_end(buffer: bytes, start: int, payload_max: int) -> int:
    """Return the end of the client's frame at `start`; 0 while it is incomplete.

    A frame whose length exceeds `payload_max` ends with the buffer, so that the parser refuses it
    without waiting for the rest.
    """
    there = len(buffer) - start
    if there < HEADER_BYTES_MIN:
        return 0
    length = buffer[start + 1] & 0x7F
    size = HEADER_BYTES_MIN + (MASK_BYTES if buffer[start + 1] & 0x80 else 0)
    if length >= 126:
        wide = 2 if length == 126 else 8
        if there < HEADER_BYTES_MIN + wide:
            return 0
        length = int.from_bytes(buffer[start + 2 : start + 2 + wide])
        size += wide
    if length > payload_max:
        return len(buffer)
    return start + size + length if there >= size + length else 0


def pong_payload(frame: bytes) -> bytes | None:
    """Return the payload of a valid pong of a client; None for any other complete frame.

    The library needs 10 us for a pong.
    """
    length = len(frame) - HEADER_BYTES_MIN - MASK_BYTES
    if frame[0] != PONG or length > CONTROL_BYTES_MAX or frame[1] != 0x80 | length:
        return None
    mask = frame[HEADER_BYTES_MIN : HEADER_BYTES_MIN + MASK_BYTES]
    masks = (mask * (length // MASK_BYTES + 1))[:length]
    masked = int.from_bytes(frame[HEADER_BYTES_MIN + MASK_BYTES :])
    return (masked ^ int.from_bytes(masks)).to_bytes(length)


class SharedDeflate(ServerPerMessageDeflateFactory):
    """Accepts permessage-deflate only if one compressed frame can serve all clients."""

    def __init__(self) -> None:
        super().__init__(server_no_context_takeover=True, client_no_context_takeover=True)

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """Refuse clients whose window is smaller than that of our frames."""
        answer, extension = super().process_request_params(params, accepted_extensions)
        if extension.local_max_window_bits < WINDOW_BITS:
            raise NegotiationError(f"a window of {WINDOW_BITS} bits is required")
        return answer, extension


def _header(first: int, length: int) -> bytes:
    if length < 126:
        return bytes((first, length))
    if length < 65_536:
        return struct.pack("!BBH", first, 126, length)
    return struct.pack("!BBQ", first, 127, length)
