"""Fan-out of stream updates: one frame for all clients of a stream, one write each, no queue.

Publishing is synchronous. A frame is built once for all uncompressed and once for all compressed
clients of a stream; each client costs one attribute test and, at the end of the tick, one write.
Slow consumers are conflated: they are skipped and get the newest book when they read again, so that
no client delays another.
"""

from collections.abc import Callable

from onebook.gateway import direct, frames, metrics
from onebook.gateway.subscriber import Subscriber
from onebook.streams import Stream


class StreamSubscribers:
    """The clients of one stream, and its newest book as a frame for newcomers and slow ones."""

    __slots__ = ("_frames", "_number", "packed", "plain")

    def __init__(self) -> None:
        # In order of arrival, which is roughly the order of their sockets in kernel memory.
        self.plain: dict[Subscriber, None] = {}
        self.packed: dict[Subscriber, None] = {}
        self._number = 0
        self._frames: dict[bool, bytes] = {}

    def of(self, subscriber: Subscriber) -> dict[Subscriber, None]:
        """The clients that get the same frame as this one."""
        return self.packed if subscriber.packed else self.plain

    def whole(self, stream: Stream, *, packed: bool) -> bytes:
        """The newest book as one frame, built once for all that need it."""
        if self._number != stream.update_number:
            self._number = stream.update_number
            self._frames = {}
        frame = self._frames.get(packed)
        if frame is None:
            build = frames.deflated_frame if packed else frames.text_frame
            frame = self._frames[packed] = build(stream.full())
        return frame


class Fanout:
    """The subscribers of all streams; the publisher of `Streams`."""

    def __init__(
        self,
        *,
        join_bytes_max: int,
        monotonic: Callable[[], float],
        write_each: Callable[[list[Subscriber]], None],
    ) -> None:
        self.conflated_total = 0
        self._write_each = write_each
        self._join_bytes_max = join_bytes_max
        self._monotonic = monotonic
        self._subscribers: dict[Stream, StreamSubscribers] = {}
        self._missed: dict[Subscriber, set[Stream]] = {}  # updates of a client that is behind
        self._touched: list[Subscriber] = []
        self._published: list[Stream] = []

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        """Give an update to every subscriber of the stream (the hot path)."""
        self._broadcast(self._subscribers[stream], stream, payload)
        self._published.append(stream)

    def status(self, stream: Stream, payload: bytes) -> None:
        """Send an exchange's status to a stream; for slow consumers it is in their next book."""
        self._broadcast(self._subscribers[stream], None, payload)

    def flush(self) -> None:
        """Write this tick's frames: one write per client, however many streams."""
        touched, self._touched = self._touched, []
        self._write_each(touched)
        if self._published:
            published, self._published = self._published, []
            now = self._monotonic()
            for stream in published:
                metrics.LATENCY.observe(max(0.0, now - stream.newest_at))

    def _broadcast(
        self, subscribers: StreamSubscribers, missed: Stream | None, payload: bytes
    ) -> None:
        if subscribers.plain:
            self._spread(subscribers.plain, missed, frames.text_frame(payload))
        if subscribers.packed:
            self._spread(subscribers.packed, missed, frames.deflated_frame(payload))

    def _spread(self, peers: dict[Subscriber, None], missed: Stream | None, frame: bytes) -> None:
        size = frames.payload_length(frame)
        behind = direct.spread(peers, frame, size, self._touched, self._join_bytes_max)
        if missed is not None:
            for subscriber in behind:
                self._skip(subscriber, missed)

    def _skip(self, subscriber: Subscriber, stream: Stream) -> None:
        self.conflated_total += 1
        self._missed.setdefault(subscriber, set()).add(stream)

    # Subscribers

    def join(self, subscriber: Subscriber, stream: Stream) -> None:
        """A client subscribes; it gets the newest book if there is one."""
        subscribers = self._subscribers.get(stream)
        if subscribers is None:
            subscribers = self._subscribers[stream] = StreamSubscribers()
        subscribers.of(subscriber)[subscriber] = None
        if not stream.update_number:
            return
        if subscriber.behind:
            self._skip(subscriber, stream)
        else:
            subscriber.write(subscribers.whole(stream, packed=subscriber.packed))

    def leave(self, subscriber: Subscriber, stream: Stream) -> None:
        """A client unsubscribes."""
        subscribers = self._subscribers[stream]
        subscribers.of(subscriber).pop(subscriber, None)
        if not (subscribers.plain or subscribers.packed):
            del self._subscribers[stream]
        missed = self._missed.get(subscriber)
        if missed is not None:
            missed.discard(stream)
            if not missed:
                del self._missed[subscriber]

    def missed(self, subscriber: Subscriber) -> frozenset[Stream]:
        """The streams whose newest book a slow consumer gets when it reads again."""
        return frozenset(self._missed.get(subscriber, ()))

    def forget(self, subscriber: Subscriber) -> None:
        """Drop the list of streams that a closed client missed."""
        self._missed.pop(subscriber, None)

    def caught_up(self, subscriber: Subscriber) -> None:
        """Send a client that reads again the newest books it missed, while it keeps up."""
        missed = self._missed.get(subscriber)
        while missed and not subscriber.behind:
            stream = missed.pop()
            whole = self._subscribers[stream].whole(stream, packed=subscriber.packed)
            subscriber.write(whole)
        if not missed:
            self._missed.pop(subscriber, None)
