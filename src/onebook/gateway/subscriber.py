"""The outgoing side of a client: writes frames and counts the delivered bytes."""

from collections.abc import Callable
from typing import Final

from onebook import sockets
from onebook.config import GatewaySettings
from onebook.gateway import frames
from onebook.gateway.direct import Peer
from onebook.gateway.processor import CommandProcessor

IPPROTO_TCP: Final = 6


class Subscriber(Peer):
    """One client that frames are written to.

    `packed`: permessage-deflate was negotiated. `processor` has what it subscribed to. `fetches`
    cancel its unanswered requests for books. `total` are the payload bytes that it got.
    """

    __slots__ = ("_fd", "_last_bytes", "_undelivered", "fetches", "packed", "processor", "total")

    def __init__(self, processor: CommandProcessor, *, packed: bool = False) -> None:
        super().__init__()
        self.processor = processor
        self.packed = packed
        self.fetches: set[Callable[[], None]] | None = None
        self.total = 0
        self._fd = -1
        self._last_bytes = 0  # of the close frame, the last thing that we send
        self._undelivered: int | None = None  # at the end

    def send_text(self, payload: bytes) -> None:
        """Send one text message."""
        self.write(frames.deflated_frame(payload) if self.packed else frames.text_frame(payload))

    def write(self, frame: bytes) -> None:
        """Send one built frame after those of this tick, unless a close frame was sent."""
        if self.ended:
            return
        self.sent += frames.payload_length(frame)
        if self.out is not None:
            frame, self.out = b"".join((*self.out, frame)), None
        self.transmit(frame)

    def transmit(self, data: bytes) -> None:
        """Write bytes to the transport."""
        self.buffered = True
        self.transport.write(data)

    def abort(self) -> None:
        """Abort the connection; bytes that were not delivered are not charged."""
        if self._undelivered is None:
            self._undelivered = self.unacknowledged()
        self.transport.abort()

    def unacknowledged(self) -> int:
        """Bytes that were written and that the peer has not acknowledged."""
        if self._undelivered is not None:
            return self._undelivered
        if self._fd < 0:
            return 0
        unsent = self.transport.get_write_buffer_size() + sockets.unacknowledged(self._fd)
        return max(0, unsent - self._last_bytes)

    def take_delivered(self) -> int:
        """Payload bytes that the peer has got since the last call."""
        if not self.sent:
            return 0
        delivered = max(0, self.sent - self.unacknowledged())
        self.sent -= delivered
        self.total += delivered
        return delivered

    def take_written(self) -> int:
        """Payload bytes since the last call, also those that the peer has not acknowledged."""
        written, self.sent = self.sent, 0
        self.total += written
        return written

    def _tune_socket(self, settings: GatewaySettings) -> None:
        """Set up an open socket: bound its buffers, and send directly where possible."""
        self.transport.set_write_buffer_limits(high=settings.write_buffer_bytes_max)
        sock = self.transport.get_extra_info("socket")
        if sock is None:
            return
        self._fd = sock.fileno()
        # Unsent bytes in the kernel become stale as ours do: keep the buffer small.
        sock.setsockopt(IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, settings.unsent_bytes_max)
        encrypted = self.transport.get_extra_info("sslcontext") is not None
        if settings.direct_send_allowed and not encrypted:
            self.direct_fd = self._fd

    def _write_ended(self, *, failed: bool) -> None:
        """The socket is closed: settle how many bytes did not reach the peer."""
        if self._undelivered is None:
            # After a failed write the size of the transport's buffer is unknown.
            self._undelivered = self.sent if failed and self.buffered else self.unacknowledged()

    def _last_frame_written(self, last_bytes: int) -> None:
        """A close frame was written: nothing may follow it."""
        self.ended = True
        self._last_bytes = last_bytes
        if self.out is not None:
            # Pending frames of this tick are not written after a close frame.
            self.sent -= min(self.sent, sum(map(frames.payload_length, self.out)))
            self.out = None

    def _half_close(self) -> None:
        """Shut down sending, but read until the peer closes, so that it gets our close frame."""
        if self.transport.can_write_eof():
            self._last_bytes += 1  # the kernel counts the end of the stream
            self.transport.write_eof()
        else:
            self.transport.close()
