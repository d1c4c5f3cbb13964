"""Who listens to which stream: one frame for all of them, one write each, and no queue.

Publishing is synchronous. A frame is built once for all plain and once for all compressing
clients of a stream; per client it costs one attribute test and, at the end of the tick, one write.
A client that is behind is skipped and owed the newest book: no client waits for another.
"""

from collections.abc import Callable

from onebook.gateway import counters, direct, frames
from onebook.gateway.protocol import Connection
from onebook.streams import Stream


class Audience:
    """The clients of one stream, and its newest book as frames for those who come or catch up."""

    __slots__ = ("_frames", "_number", "packed", "plain")

    def __init__(self) -> None:
        # In the order of arrival, which is much as their sockets lie in the kernel's memory.
        self.plain: dict[Connection, None] = {}
        self.packed: dict[Connection, None] = {}
        self._number = 0
        self._frames: dict[bool, bytes] = {}

    def of(self, connection: Connection) -> dict[Connection, None]:
        """The half of the audience that a client belongs to."""
        return self.packed if connection.packed else self.plain

    def whole(self, stream: Stream, *, packed: bool) -> bytes:
        """The newest book as one frame, built once for all who are owed it."""
        if self._number != stream.update_number:
            self._number = stream.update_number
            self._frames = {}
        frame = self._frames.get(packed)
        if frame is None:
            build = frames.deflated_frame if packed else frames.text_frame
            frame = self._frames[packed] = build(stream.full())
        return frame


class Fanout:
    """The audiences of all streams; the publisher of `Streams`."""

    def __init__(
        self,
        *,
        join_bytes_max: int,
        monotonic: Callable[[], float],
        write_each: Callable[[list[Connection]], None],
    ) -> None:
        self.conflated_total = 0
        self._write_each = write_each
        self._join_bytes_max = join_bytes_max
        self._monotonic = monotonic
        self._audiences: dict[Stream, Audience] = {}
        self._touched: list[Connection] = []
        self._published: list[Stream] = []

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        """Hand an update to everyone who listens (the hot path)."""
        self._hand_on(self._audiences[stream], stream, payload)
        self._published.append(stream)

    def status(self, stream: Stream, payload: bytes) -> None:
        """Tell everyone of a stream about an exchange; who is behind learns it from the book."""
        self._hand_on(self._audiences[stream], None, payload)

    def flush(self) -> None:
        """Write what this tick brought: one write per client, however many streams."""
        touched, self._touched = self._touched, []
        self._write_each(touched)
        if self._published:
            published, self._published = self._published, []
            now = self._monotonic()
            for stream in published:
                counters.LATENCY.observe(max(0.0, now - stream.newest_at))

    def _hand_on(self, audience: Audience, owed: Stream | None, payload: bytes) -> None:
        if audience.plain:
            self._spread(audience.plain, owed, frames.text_frame(payload))
        if audience.packed:
            self._spread(audience.packed, owed, frames.deflated_frame(payload))

    def _spread(self, listeners: dict[Connection, None], owed: Stream | None, frame: bytes) -> None:
        size = frames.payload_length(frame)
        behind = direct.spread(listeners, frame, size, self._touched, self._join_bytes_max)
        if owed is not None:
            for connection in behind:
                self._skip(connection, owed)

    def _skip(self, connection: Connection, stream: Stream) -> None:
        self.conflated_total += 1
        if connection.wanted is None:
            connection.wanted = set()
        connection.wanted.add(stream)

    # Who listens

    def join(self, connection: Connection, stream: Stream) -> None:
        """A client listens from now on; it gets the newest book if there is one."""
        audience = self._audiences.get(stream)
        if audience is None:
            audience = self._audiences[stream] = Audience()
        audience.of(connection)[connection] = None
        if not stream.update_number:
            return
        if connection.behind:
            self._skip(connection, stream)
        else:
            connection.write(audience.whole(stream, packed=connection.packed))

    def leave(self, connection: Connection, stream: Stream) -> None:
        """A client listens no more."""
        audience = self._audiences[stream]
        audience.of(connection).pop(connection, None)
        if not (audience.plain or audience.packed):
            del self._audiences[stream]
        if connection.wanted is not None:
            connection.wanted.discard(stream)

    def caught_up(self, connection: Connection) -> None:
        """A client reads again: the newest book of each stream it missed, while it keeps up."""
        wanted = connection.wanted
        while wanted and not connection.behind:
            stream = wanted.pop()
            connection.write(self._audiences[stream].whole(stream, packed=connection.packed))
        if not wanted:
            connection.wanted = None
