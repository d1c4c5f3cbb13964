"""Bounded decompression: frames, permessage-deflate messages (RFC 7692) and HTTP bodies.

No function inflates more than its caller accepts. Only messages from exchanges are compressed. Ours
are small and are sent uncompressed, as RFC 7692 section 6 allows for each message.
"""

import asyncio
import zlib
from collections.abc import AsyncIterable, Iterable
from typing import Final

GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32  # by the header of the data
ACCEPTED: Final = "gzip"  # the Accept-Encoding of our requests
INFLATED: Final = frozenset(("gzip", "x-gzip", "deflate"))
STEP_BYTES: Final = 1 << 20  # inflated at once: a few ms
PARTS_PER_TURN: Final = 64
PERMESSAGE_DEFLATE: Final = "permessage-deflate"
RAW: Final = -zlib.MAX_WBITS  # no header, and any window that the server may choose
WINDOW_BITS: Final = frozenset(str(bits) for bits in range(8, 16))
END: Final = b"\x00\x00\xff\xff"  # left out behind each message (section 7.2.1)
ENCODING_CHARACTERS: Final = 60  # of an unknown Content-Encoding in an error


class Uninflatable(Exception):
    """The data is not compressed as announced, truncated, or too long."""


class TooLong(Uninflatable):
    """The data is longer than the bound."""


def inflated(frame: bytes, bytes_max: int) -> bytes:
    """Inflate one frame that an exchange compresses itself (not RFC 7692).

    Raises:
        Uninflatable: The data is damaged.
        TooLong: The result exceeds `bytes_max`; no more than that was inflated.
    """
    inflater = zlib.decompressobj(GZIP_OR_ZLIB)
    try:
        text = inflater.decompress(frame, bytes_max)
        if not inflater.eof and inflater.decompress(inflater.unconsumed_tail, 1):
            raise TooLong
    except zlib.error as error:
        raise Uninflatable(f"a frame cannot be inflated: {error}") from None
    if not inflater.eof:
        raise Uninflatable("a frame cannot be inflated: it is truncated")
    if inflater.unused_data:
        raise Uninflatable("a frame cannot be inflated: data follows its end")
    return text


class NotNegotiated(Exception):
    """The handshake's answer names an extension or a parameter that was not offered."""


class MessageInflater:
    """Inflates the compressed messages of one connection, in order.

    Args:
        fresh: Each message starts with an empty window (`server_no_context_takeover`); otherwise a
            message refers to earlier ones, so nothing can be read after a damaged message.
    """

    def __init__(self, *, fresh: bool) -> None:
        self._fresh = fresh
        self._stream = zlib.decompressobj(RAW)

    def inflated(self, message: bytes, bytes_max: int) -> bytes:
        """Inflate one message.

        Raises:
            Uninflatable: The message is damaged; the connection is no longer usable.
            TooLong: The result exceeds `bytes_max`; at most one byte more was inflated.
        """
        if self._fresh:
            self._stream = zlib.decompressobj(RAW)
        stream = self._stream
        try:
            text = stream.decompress(message + END, bytes_max + 1)
        except zlib.error as error:
            raise Uninflatable(f"a message cannot be inflated: {error}") from None
        if len(text) > bytes_max:
            raise TooLong
        if stream.eof:
            # A final block: the next message starts a new stream (allowed by section 7.2.3.4).
            self._stream = zlib.decompressobj(RAW)
        return text


def negotiated(answer: str | None) -> MessageInflater | None:
    """Return the inflater for the `Sec-WebSocket-Extensions` of a handshake response.

    None if the server declined the offer and sends plain messages.

    Raises:
        NotNegotiated: The response does not match the offer (RFC 6455 section 4.1 ends the
            connection).
    """
    if not answer:
        return None
    name, *parameters = (part.strip() for part in answer.split(";"))
    if name != PERMESSAGE_DEFLATE:
        raise NotNegotiated(f"the extension {name!r} was not offered")
    fresh = False
    for parameter in parameters:
        key, _, value = (part.strip() for part in parameter.partition("="))
        if key == "server_no_context_takeover" and not value:
            fresh = True
        elif key == "server_max_window_bits" and value.strip('"') in WINDOW_BITS:
            pass  # a smaller window is read by the largest
        elif key == "client_no_context_takeover" and not value:
            pass  # nothing is compressed by us
        else:
            raise NotNegotiated(f"the parameter {parameter!r} was not offered")
    return MessageInflater(fresh=fresh)


class BodyReader:
    """Collects an HTTP body as it arrives, and inflates it while it is within its bound.

    httpx inflates each received part without a limit, once for every coding in Content-Encoding, so
    a few kilobytes could become gigabytes. Bodies are therefore read raw and inflated here.

    Args:
        encodings: The values of the Content-Encoding fields.
        bytes_max: Maximum size of the body, both as received and inflated.

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
        """Add the next received part; inflates at most `STEP_BYTES` of it.

        Raises:
            Uninflatable: The data is damaged.
            TooLong: The body exceeds `bytes_max`; at most `STEP_BYTES` more were inflated.
        """
        self._received += len(part)
        self._body += part if self._inflater is None else self._inflate(self._inflater, part)
        if max(len(self._body), self._received) > self._bytes_max:
            raise TooLong(f"more than {self._bytes_max} bytes")

    def end(self) -> bytes:
        """Return the whole body.

        Raises:
            Uninflatable: The body is truncated.
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
