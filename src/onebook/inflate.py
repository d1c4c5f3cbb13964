"""Decompression of frames and HTTP bodies, which never makes more bytes than its caller accepts."""

import asyncio
import zlib
from collections.abc import AsyncIterable, Iterable
from typing import Final

GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32  # by the header of the data
ACCEPTED: Final = "gzip"  # the Accept-Encoding of our requests
INFLATED: Final = frozenset(("gzip", "x-gzip", "deflate"))
STEP_BYTES: Final = 1 << 20  # inflated at once: a few ms
PARTS_PER_TURN: Final = 64
ENCODING_CHARACTERS: Final = 60  # of an unknown Content-Encoding in an error


class Uninflatable(Exception):
    """The data is not compressed as announced, truncated, or too long."""


class TooLong(Uninflatable):
    """The data is longer than the bound."""


def inflated(frame: bytes, bytes_max: int) -> bytes:
    """Inflate one frame that an exchange compresses itself (not RFC 7692).

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


class BodyReader:
    """Collects an HTTP body as it arrives, and inflates it while it is within its bound.

    httpx inflates each part it receives without a limit, and as many times as Content-Encoding
    names codings: a few kilobytes become gigabytes. So bodies are read raw, into this.

    Args:
        encodings: The values of the Content-Encoding fields.
        bytes_max: Of the body, both as received and inflated.

    Raises:
        Uninflatable: The encoding is unknown, or there are several.
    """

    def __init__(self, encodings: Iterable[str], bytes_max: int) -> None:
        names = [name.strip().lower() for value in encodings for name in value.split(",")]
        names = [name for name in names if name not in ("", "identity")]
        if len(names) > 1 or not INFLATED.issuperset(names):
            named = ", ".join(names)[:ENCODING_CHARACTERS]
            raise Uninflatable(f"Content-Encoding {named!r} is not supported")
        self.pending = False  # call `add` again, with b"" or more
        self._inflater = zlib.decompressobj(GZIP_OR_ZLIB) if names else None
        self._bytes_max = bytes_max
        self._received = 0
        self._body = bytearray()

    def add(self, part: bytes) -> None:
        """Take the next part as it was received; inflates at most `STEP_BYTES` of it.

        Raises:
            Uninflatable: It is damaged.
            TooLong: The body is longer than `bytes_max`; at most `STEP_BYTES` more were made.
        """
        self._received += len(part)
        self._body += part if self._inflater is None else self._inflate(self._inflater, part)
        if max(len(self._body), self._received) > self._bytes_max:
            raise TooLong(f"more than {self._bytes_max} bytes")

    def end(self) -> bytes:
        """Return the whole body.

        Raises:
            Uninflatable: It is truncated.
        """
        if self._inflater is not None and self._received and not self._inflater.eof:
            raise Uninflatable("the compressed body is truncated")
        return bytes(self._body)

    def _inflate(self, inflater: "zlib._Decompress", part: bytes) -> bytes:
        try:
            made = inflater.decompress(inflater.unconsumed_tail + part, STEP_BYTES)
        except zlib.error as error:
            raise Uninflatable(f"the body cannot be inflated: {error}") from None
        if inflater.unused_data:
            raise Uninflatable("data follows the end of the compressed body")
        self.pending = not inflater.eof and len(made) == STEP_BYTES
        return made


async def read_body(
    parts: AsyncIterable[bytes], encodings: Iterable[str], *, bytes_max: int
) -> bytes:
    """Read the body of an HTTP answer from its raw parts; other tasks run meanwhile.

    Raises:
        Uninflatable: Its Content-Encoding is not supported, or it is damaged.
        TooLong: It is longer than `bytes_max`, as received or inflated.
    """
    body = BodyReader(encodings, bytes_max)
    steps = 0
    async for part in parts:
        body.add(part)
        steps += 1
        while body.pending:
            await asyncio.sleep(0)
            body.add(b"")
        if steps % PARTS_PER_TURN == 0:  # of a body in small chunks, whose read does not wait
            await asyncio.sleep(0)
    return body.end()
