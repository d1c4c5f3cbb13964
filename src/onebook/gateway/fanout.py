"""Fan-out of stream updates: one frame for all clients of a stream, one write each, no queue.

Publishing is synchronous. A frame is built once for all clients of a stream that need the same
bytes: with the same compression and view name. A client costs one attribute test and, at the end of
the tick, one write. Slow consumers are conflated: they are skipped and get the newest book when
they read again, so that no client delays another.

A transport's write costs about as much as its system call, and reading an attribute of a Python
object a tenth of that. The compiled version (`_direct.pyx`) therefore keeps the fields in one
struct, `Peer`, and calls send(2) itself. Bytes that the socket does not accept go to the transport,
which buffers them and reports slow clients and broken sockets. Without the compiled version,
`PurePeer`, `spread_purely` and `write_each_by_transport` do the same.

Order: uvloop holds written bytes until the end of the loop's iteration, so a direct send is allowed
only while the transport's buffer is empty. Code that writes to the transport sets `buffered`, which
is cleared when `get_write_buffer_size()` is 0. Only sockets without TLS have a `direct_fd`; it is
valid until `connection_lost`, which sets `ended`.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from onebook import sockets
from onebook.gateway import frames, metrics
from onebook.gateway.limits import GatewayLimits
from onebook.gateway.messages import with_skipped, with_view
from onebook.gateway.processor import CommandProcessor
from onebook.streams import Stream, packed

IPPROTO_TCP: Final = 6
WRITES_AT_ONCE: Final = 32  # writes between two looks at the clock: about 0.5 ms
TAIL_BYTES_MAX: Final = 4 << 20  # of the live updates kept for a client that plays the past


class PurePeer:
    """The fields of a client that broadcasts and metering use.

    `out`: pending frames of this tick. `sent`: payload bytes since they were last charged. `total`:
    the delivered payload bytes before them. `undelivered`: set when the connection has ended, -1
    before. `last_bytes`: length of the close frame, the last frame sent. `uncharged`: the clients
    with bytes to charge, of all connections. `listed`: this client is in it. `behind`: a slow
    consumer. `ended`: a close frame was sent, or the socket is closed. `buffered`: the transport
    may hold bytes.
    """

    __slots__ = (
        "behind",
        "buffered",
        "direct_fd",
        "ended",
        "fd",
        "last_bytes",
        "listed",
        "out",
        "sent",
        "total",
        "transport",
        "uncharged",
        "undelivered",
    )

    def __init__(self, uncharged: list[Any]) -> None:
        self.transport: asyncio.Transport
        self.out: tuple[bytes, ...] | None = None
        self.sent = self.total = self.last_bytes = 0
        self.undelivered = -1
        self.uncharged = uncharged
        self.listed = False
        self.fd = self.direct_fd = -1
        self.behind = False
        self.ended = False
        self.buffered = False

    def unacknowledged(self) -> int:
        """Bytes that were written but not yet acknowledged by the peer."""
        if self.undelivered >= 0:
            return self.undelivered
        if self.fd < 0:
            return 0
        held = self.transport.get_write_buffer_size() if self.buffered else 0
        return max(0, held + sockets.unacknowledged(self.fd) - self.last_bytes)

    def take_delivered(self) -> int:
        """Return the payload bytes acknowledged by the peer since the last call."""
        if not self.sent:
            return 0
        delivered = max(0, self.sent - self.unacknowledged())
        self.sent -= delivered
        self.total += delivered
        if self.sent and self.undelivered < 0:
            self.await_charge()
        return delivered

    def await_charge(self) -> None:
        """Add this client to those whose delivered bytes are charged next."""
        if not self.listed:
            self.listed = True
            self.uncharged.append(self)


P = TypeVar("P", bound=PurePeer)


def spread_purely(
    listeners: dict[P, None], frame: bytes, size: int, touched: list[P], join_bytes_max: int
) -> list[P]:
    """Send a frame to each peer; return the slow ones that were skipped."""
    behind, full = [], []
    # Maps a client's pending frames to those including this frame, and whether they reach the
    # limit.
    longer: dict[tuple[bytes, ...], tuple[tuple[bytes, ...], bool]] = {}
    for peer in listeners:
        if peer.behind:
            behind.append(peer)
            continue
        if peer.ended:
            continue
        peer.sent += size
        peer.await_charge()
        out = peer.out
        if out is None:
            peer.out = (frame,)
            touched.append(peer)
            continue
        joined = longer.get(out)
        if joined is None:
            frames = (*out, frame)
            joined = longer[out] = frames, sum(map(len, frames)) > join_bytes_max
        peer.out, is_full = joined
        if is_full:
            full.append(peer)
    write_each_by_transport(full)
    return behind


def write_each_by_transport(peers: list[P]) -> None:
    """Write the pending frames (`out`) of each peer."""
    for peer in peers:
        frames, peer.out = peer.out, None
        if frames is not None and not peer.ended:
            peer.buffered = True
            peer.transport.write(b"".join(frames))


COMPILED: bool
if TYPE_CHECKING:
    Peer = PurePeer
    spread, write_each = spread_purely, write_each_by_transport
else:
    try:
        from onebook.gateway._direct import Peer, spread, write_each
    except ModuleNotFoundError as error:
        if error.name != "onebook.gateway._direct":
            raise
        Peer = PurePeer
        spread, write_each = spread_purely, write_each_by_transport
        COMPILED = False
    else:
        COMPILED = True


class ClientOutput(Peer):
    """The sending side of one client: writes frames and counts the delivered bytes.

    It extends `Peer` because the compiled fan-out reads its fields without Python. `packed`:
    permessage-deflate was negotiated. `processor` has the key that pays for the delivered bytes.
    """

    __slots__ = ("packed", "processor")

    def __init__(self, uncharged: "list[ClientOutput]", processor: CommandProcessor) -> None:
        super().__init__(uncharged)
        self.packed = False
        self.processor = processor

    def send_text(self, payload: bytes) -> None:
        """Send one text message."""
        self.write(frames.deflated_frame(payload) if self.packed else frames.text_frame(payload))

    def write(self, frame: bytes) -> None:
        """Send a frame after those of this tick, unless a close frame was sent."""
        if self.ended:
            return
        self.sent += frames.payload_length(frame)
        self.await_charge()
        if self.out is not None:
            frame, self.out = b"".join((*self.out, frame)), None
        self.transmit(frame)

    def transmit(self, data: bytes) -> None:
        """Write bytes to the transport."""
        self.buffered = True
        self.transport.write(data)

    def abort(self) -> None:
        """Abort the connection; undelivered bytes are not charged."""
        if self.undelivered < 0:
            self.undelivered = self.unacknowledged()
        self.transport.abort()

    def take_written(self) -> int:
        """Return the payload bytes written since the last call, acknowledged or not."""
        written, self.sent = self.sent, 0
        self.total += written
        return written

    def tune_socket(self, limits: GatewayLimits) -> None:
        """Configure an open socket: bound its buffers, and send directly if possible."""
        self.transport.set_write_buffer_limits(high=limits.write_buffer_bytes_max)
        sock = self.transport.get_extra_info("socket")
        if sock is None:
            return
        self.fd = sock.fileno()
        # Unsent bytes in the kernel become stale too, so keep its buffer small.
        sock.setsockopt(IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, limits.unsent_bytes_max)
        encrypted = self.transport.get_extra_info("sslcontext") is not None
        if limits.direct_send and not encrypted:
            self.direct_fd = self.fd

    def write_ended(self, *, failed: bool) -> None:
        """Record how many bytes did not reach the peer, after the socket was closed."""
        if self.undelivered < 0:
            # After a failed write, the size of the transport's buffer is unknown.
            self.undelivered = self.sent if failed and self.buffered else self.unacknowledged()

    def last_frame_written(self, last_bytes: int) -> None:
        """Send nothing after the close frame that was written."""
        self.ended = True
        self.last_bytes = last_bytes
        if self.out is not None:
            # Discard this tick's pending frames: nothing may follow a close frame.
            self.sent -= min(self.sent, sum(map(frames.payload_length, self.out)))
            self.out = None

    def half_close(self) -> None:
        """Shut down sending, but read until the peer closes, so that it gets our close frame."""
        if self.transport.can_write_eof():
            self.last_bytes += 1  # the kernel counts the end of the stream
            self.transport.write_eof()
        else:
            self.transport.close()


class FrameVariant(NamedTuple):
    """Properties by which a stream's frames differ between clients."""

    packed: bool
    view: str | None = None  # the client's name of the view
    number: int = 0  # of the subscription, if its updates are binary

    def message(self, payload: bytes) -> bytes:
        """Frame a JSON message of the stream."""
        named = with_view(payload, self.view)
        return frames.deflated_frame(named) if self.packed else frames.text_frame(named)

    def update(self, payload: bytes, skipped: int = 0) -> bytes:
        """Frame an update of the stream; `skipped` states were not sent before it."""
        if not self.number:
            return self.message(with_skipped(payload, skipped))
        numbered = packed.with_subscription(payload, self.number)
        return frames.binary_frame(packed.with_skipped(numbered, skipped))


class StreamSubscribers:
    """The clients of one stream, and its newest book as a frame for new and slow clients."""

    __slots__ = ("_frames", "_number", "by_form", "tails")

    def __init__(self) -> None:
        # In order of arrival, which is roughly the order of the sockets in kernel memory.
        self.by_form: dict[FrameVariant, dict[ClientOutput, None]] = {}
        self.tails: dict[StreamTail, None] = {}
        self._number = 0
        self._frames: dict[tuple[FrameVariant, int], bytes] = {}

    def whole(self, stream: Stream, form: FrameVariant, skipped: int = 0) -> bytes:
        """The newest book as one frame, built once for all clients with the same `skipped`."""
        if self._number != stream.update_number:
            self._number = stream.update_number
            self._frames = {}
        frame = self._frames.get((form, skipped))
        if frame is None:
            frame = form.update(stream.full(), skipped)
            self._frames[form, skipped] = frame
        return frame


class StreamTail:
    """The messages of a stream since a moment, for a client that subscribes later.

    `whole` is the book at `base_us`, and `messages` are the updates and statuses after it: (status,
    payload). Beyond `TAIL_BYTES_MAX` it begins again with a later book.
    """

    __slots__ = ("_size", "_wall_us", "base_us", "messages", "stream", "whole")

    def __init__(self, stream: Stream, wall_us: Callable[[], int]) -> None:
        self.stream = stream
        self._wall_us = wall_us
        self.base_us: int | None = None  # until it begins
        self.whole = b""
        self.messages: list[tuple[bool, bytes]] = []
        self._size = 0

    def begin(self) -> None:
        """Begin with the last update of the stream, which is the book of this moment."""
        self.base_us, self.whole = self._wall_us(), self.stream.full()
        self.messages, self._size = [], 0

    def update(self, payload: bytes) -> None:
        """Keep an update, or begin with it."""
        if self.base_us is None or self._size >= TAIL_BYTES_MAX:
            self.begin()
        else:
            self._add(payload, is_status=False)

    def status(self, payload: bytes) -> None:
        """Keep a changed health of an exchange."""
        if self.base_us is not None:
            self._add(payload, is_status=True)

    def _add(self, payload: bytes, *, is_status: bool) -> None:
        self.messages.append((is_status, payload))
        self._size += len(payload)


class Fanout:
    """The subscribers of all streams; the publisher of `Streams`."""

    def __init__(
        self,
        *,
        join_bytes_max: int,
        monotonic: Callable[[], float],
    ) -> None:
        self.conflated_total = 0
        self._join_bytes_max = join_bytes_max
        self._monotonic = monotonic
        self._subscribers: dict[Stream, StreamSubscribers] = {}
        # The first update that a slow client missed, by stream and form of the frames.
        self._missed: dict[ClientOutput, dict[tuple[Stream, FrameVariant], int]] = {}
        self._touched: list[ClientOutput] = []
        self._published: list[Stream] = []

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        """Send an update to every client of the stream (the hot path)."""
        subscribers = self._subscribers[stream]
        self._broadcast(subscribers, stream, payload)
        self._published.append(stream)
        for tail in subscribers.tails:
            tail.update(payload)

    def status(self, stream: Stream, payload: bytes) -> None:
        """Send an exchange's status to a stream's clients; slow ones get it with the next book."""
        subscribers = self._subscribers[stream]
        self._broadcast(subscribers, None, payload)
        for tail in subscribers.tails:
            tail.status(payload)

    def flush(self, ends_at: float) -> bool:
        """Write this tick's frames with one write per client, whatever the number of streams.

        Returns whether frames are left, because the time was over.
        """
        touched = self._touched
        while touched:
            peers = touched[:WRITES_AT_ONCE]
            del touched[:WRITES_AT_ONCE]
            write_each(peers)
            if touched and self._monotonic() >= ends_at:
                return True
        if self._published:
            published, self._published = self._published, []
            now = self._monotonic()
            for stream in published:
                metrics.LATENCY.observe(max(0.0, now - stream.newest_at))
        return False

    def _broadcast(
        self, subscribers: StreamSubscribers, missed: Stream | None, payload: bytes
    ) -> None:
        for form, peers in subscribers.by_form.items():
            frame = form.message(payload) if missed is None else form.update(payload)
            size = frames.payload_length(frame)
            behind = spread(peers, frame, size, self._touched, self._join_bytes_max)
            if missed is not None:
                for client in behind:
                    self._skip(client, missed, form)

    def _skip(self, client: ClientOutput, stream: Stream, form: FrameVariant) -> None:
        self.conflated_total += 1
        missed = self._missed.setdefault(client, {})
        missed.setdefault((stream, form), stream.update_number)

    # Subscribers

    def join(self, client: ClientOutput, stream: Stream, form: FrameVariant) -> None:
        """Subscribe a client and send it the newest book, if there is one."""
        subscribers = self._subscribers_of(stream)
        subscribers.by_form.setdefault(form, {})[client] = None
        if not stream.update_number:
            return
        if client.behind:
            self._skip(client, stream, form)
        else:
            client.write(subscribers.whole(stream, form))

    def tail(self, stream: Stream, wall_us: Callable[[], int]) -> StreamTail:
        """Keep the messages of a stream from its next update on."""
        tail = StreamTail(stream, wall_us)
        self._subscribers_of(stream).tails[tail] = None
        return tail

    def end_tail(self, tail: StreamTail) -> None:
        """Keep no more messages."""
        subscribers = self._subscribers[tail.stream]
        del subscribers.tails[tail]
        self._drop_unused(tail.stream, subscribers)

    def join_tail(self, client: ClientOutput, tail: StreamTail, form: FrameVariant) -> None:
        """Subscribe a client that gets the messages of a tail first."""
        self._subscribers[tail.stream].by_form.setdefault(form, {})[client] = None
        client.write(form.update(tail.whole))
        for is_status, payload in tail.messages:
            client.write(form.message(payload) if is_status else form.update(payload))

    def _subscribers_of(self, stream: Stream) -> StreamSubscribers:
        subscribers = self._subscribers.get(stream)
        if subscribers is None:
            subscribers = self._subscribers[stream] = StreamSubscribers()
        return subscribers

    def _drop_unused(self, stream: Stream, subscribers: StreamSubscribers) -> None:
        if not subscribers.by_form and not subscribers.tails:
            del self._subscribers[stream]

    def leave(self, client: ClientOutput, stream: Stream, form: FrameVariant) -> None:
        """Unsubscribe a client."""
        subscribers = self._subscribers[stream]
        by_form = subscribers.by_form
        peers = by_form.get(form, {})
        peers.pop(client, None)
        if not peers:
            by_form.pop(form, None)
        self._drop_unused(stream, subscribers)
        missed = self._missed.get(client)
        if missed is not None:
            missed.pop((stream, form), None)
            if not missed:
                del self._missed[client]

    def missed(self, client: ClientOutput) -> frozenset[tuple[Stream, FrameVariant]]:
        """Streams whose updates a slow consumer has missed, each with the form of its frames."""
        return frozenset(self._missed.get(client, ()))

    def take_skipped(self, client: ClientOutput, stream: Stream, form: FrameVariant) -> int:
        """Record that a client gets the newest book; return the number of states it skipped."""
        missed = self._missed.get(client)
        if missed is None or (stream, form) not in missed:
            return 0
        first, missed[stream, form] = missed[stream, form], stream.update_number + 1
        return max(0, stream.update_number - first)

    def forget(self, client: ClientOutput) -> None:
        """Drop the missed streams of a closed client."""
        self._missed.pop(client, None)

    def caught_up(self, client: ClientOutput) -> None:
        """Send the newest books to a client that reads again, as long as it keeps up."""
        missed = self._missed.get(client)
        while missed and not client.behind:
            (stream, form), first = missed.popitem()
            skipped = max(0, stream.update_number - first)
            client.write(self._subscribers[stream].whole(stream, form, skipped))
        if not missed:
            self._missed.pop(client, None)
