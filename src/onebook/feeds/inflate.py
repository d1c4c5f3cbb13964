"""Decompression of frames that an exchange compresses itself (not RFC 7692), with a size limit."""

import zlib
from typing import Final

GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32  # by the header of the frame


class Uninflatable(Exception):
    """The frame is not compressed, or truncated."""


class TooLong(Exception):
    """The frame is longer than the bound."""


def inflated(frame: bytes, bytes_max: int) -> bytes:
    """Inflate one frame.

    Raises:
        Uninflatable: It is damaged.
        TooLong: There would be more than `bytes_max` bytes of it; no more than that were made.
    """
    inflater = zlib.decompressobj(GZIP_OR_ZLIB)
    try:
        text = inflater.decompress(frame, bytes_max)
        if not inflater.eof and inflater.decompress(inflater.unconsumed_tail, 1):
            raise TooLong
    except zlib.error as error:
        raise Uninflatable(f"a frame cannot be inflated: {error}") from None
    if not inflater.eof:
        raise Uninflatable("a frame cannot be inflated: it is cut off")
    if inflater.unused_data:
        raise Uninflatable("a frame cannot be inflated: something follows its end")
    return text
