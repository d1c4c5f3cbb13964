"""permessage-deflate of what an exchange sends (RFC 7692): agreed on, inflated, within a bound.

Only messages from the exchange are compressed: those to it are small, and may stay plain
(section 6: an endpoint decides for each message).
"""

import zlib
from typing import Final

from onebook.inflate import TooLong, Uninflatable

OFFER: Final = "permessage-deflate"
RAW: Final = -zlib.MAX_WBITS  # no header, and any window that the server may choose
WINDOW_BITS: Final = frozenset(str(bits) for bits in range(8, 16))
END: Final = b"\x00\x00\xff\xff"  # left out behind each message (section 7.2.1)


class NotAgreed(Exception):
    """The handshake's answer names an extension or a parameter that was not offered."""


class MessageInflater:
    """Inflates the compressed messages of one connection, in their order.

    Args:
        fresh: Each message starts with an empty window (`server_no_context_takeover`); else one
            refers to those before it, so that nothing can be read after a damaged one.
    """

    def __init__(self, *, fresh: bool) -> None:
        self._fresh = fresh
        self._stream = zlib.decompressobj(RAW)

    def inflated(self, message: bytes, bytes_max: int) -> bytes:
        """Inflate one message.

        Raises:
            Uninflatable: It is damaged; the connection is of no use any more.
            TooLong: There would be more than `bytes_max` bytes of it; no more than one beyond
                that were made.
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
            # A last block: what follows starts anew (section 7.2.3.4 allows one).
            self._stream = zlib.decompressobj(RAW)
        return text


def agreed(answer: str | None) -> MessageInflater | None:
    """Return what inflates messages, by `Sec-WebSocket-Extensions` of the handshake's answer.

    None where the server has not taken the offer: its messages are plain then.

    Raises:
        NotAgreed: The answer is none to `OFFER` (RFC 6455 section 4.1 ends the connection).
    """
    if not answer:
        return None
    name, *parameters = (part.strip() for part in answer.split(";"))
    if name != OFFER:
        raise NotAgreed(f"the extension {name!r} was not offered")
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
            raise NotAgreed(f"the parameter {parameter!r} was not offered")
    return MessageInflater(fresh=fresh)
