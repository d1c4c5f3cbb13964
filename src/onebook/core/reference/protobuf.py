"""Decodes protobuf fields in pure Python; `levels` selects the levels among them.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator
from typing import Final

from onebook.core.types import FIELD_NUMBER_MAX, LevelError

VARINT: Final = 0
DELIMITED: Final = 2
FIXED: Final = {1: 8, 5: 4}  # bytes of the value by wire type
VARINT_BYTES_MAX: Final = 10


def fields(message: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Yield the number of each field of a message, with the bytes of length-delimited ones.

    Raises:
        LevelError: The message is truncated, or has a number too long or an unknown wire type.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise LevelError(f"A protobuf field has the number {number}.")
        if wire == VARINT:
            _, at = _varint(message, at)
            yield number, None
            continue
        if wire == DELIMITED:
            length, at = _varint(message, at)
        elif wire in FIXED:
            length = FIXED[wire]
        else:
            raise LevelError(f"A protobuf field has the wire type {wire}.")
        end = at + length
        if end > len(message):
            raise LevelError("A protobuf field extends beyond its message.")
        yield number, message[at:end] if wire == DELIMITED else None
        at = end


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    value = 0
    for index, byte in enumerate(message[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, at + index + 1
    raise LevelError("A protobuf number is truncated or too long.")
