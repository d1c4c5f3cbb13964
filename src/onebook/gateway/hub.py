"""The hub: who listens to which stream, and what follows from what clients say.

Publishing is a synchronous fan-out. A frame is built once for all plain and once for all
compressing clients of a stream; per client it costs one attribute test and, at the end of the
tick, one write. A client that is behind is skipped and owed the newest book: there is no queue of
books, and nobody waits for anybody.

What happens by the clock (pings, timeouts, metering) is in `keeper`.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

from websockets.server import ServerProtocol

from onebook.accounts import Accounts, UsageReport
from onebook.errors import ApiKeyDisabled, InvalidApiKey, RateLimitExceeded
from onebook.gateway import client as conversation
from onebook.gateway import counters, frames
from onebook.gateway.client import (
    Client,
    Directory,
    End,
    Key,
    Look,
    Now,
    Output,
    Resend,
    Say,
    State,
    Subscribe,
    Unsubscribe,
    Verify,
)
from onebook.gateway.door import Door
from onebook.gateway.messages import CloseCode, DataLimitExceeded, DataLimitWarning, encode
from onebook.gateway.protocol import Connection, library_log
from onebook.gateway.settings import GatewaySettings
from onebook.streams import Clock, Stream, Streams, iso_us

RETRY_AFTER_MIN_S: Final = 1
RETRY_AFTER_MAX_S: Final = 10  # spread, so that refused clients do not return together

log = logging.getLogger("onebook.gateway")


class Audience:
    """The clients of one stream, and its newest book as frames for those who come or catch up."""

    __slots__ = ("_frames", "_number", "packed", "plain")

    def __init__(self) -> None:
        self.plain: set[Connection] = set()
        self.packed: set[Connection] = set()
        self._number = 0
        self._frames: dict[bool, bytes] = {}

    def of(self, connection: Connection) -> set[Connection]:
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


class Hub:
    """Every connected client of this node; the publisher of its streams.

    `streams` is set once, by whoever builds both.
    """

    streams: Streams

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        accounts: Accounts,
        directory: Directory,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.accounts = accounts
        self.directory = directory
        self.clock = clock
        self.monotonic = clock.monotonic
        self.wall_us = clock.wall_us
        self.draining = False
        self.protocol = type("BoundConnection", (Connection,), {"hub": self, "__slots__": ()})
        self.connections: set[Connection] = set()
        self.groups: dict[str, set[Connection]] = {}  # by key
        self.unauthenticated: dict[Connection, float] = {}  # deadline; the oldest first
        self.closing: dict[Connection, float] = {}  # deadline; the oldest first
        self.lagging: set[Connection] = set()
        self.messages_total = 0
        self.conflated_total = 0
        self._audiences: dict[Stream, Audience] = {}
        self._touched: list[Connection] = []
        self._published: list[Stream] = []
        self._door = Door(settings.connects_per_minute, settings.forwarded_from)
        self._tasks: set[asyncio.Task[None]] = set()
        self._extensions = [frames.SharedDeflate()] if settings.compression_allowed else []
        # A browser says where it comes from; a program says nothing and is no browser's victim.
        self._origins: Any = [*settings.origins, None] if settings.origins else None
        self.on_opened: Callable[[Connection], None] = _ignore
        self.on_lost: Callable[[Connection], None] = _ignore
        accounts.on_disabled = self.disabled
        accounts.meter.on_over = self.over_allowance
        accounts.meter.on_warning = self.near_allowance

    # The publisher of streams

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        """Hand an update to everyone who listens (the hot path)."""
        audience = self._audiences.get(stream)
        if audience is None:
            return
        if audience.plain:
            self._spread(audience.plain, stream, frames.text_frame(payload))
        if audience.packed:
            self._spread(audience.packed, stream, frames.deflated_frame(payload))
        self._published.append(stream)

    def status(self, stream: Stream, payload: bytes) -> None:
        """Tell everyone of a stream about an exchange; who is behind learns it from the book."""
        audience = self._audiences.get(stream)
        if audience is not None:
            self._spread(audience.plain, None, frames.text_frame(payload))
            self._spread(audience.packed, None, frames.deflated_frame(payload))

    def flush(self) -> None:
        """Write what this tick brought: one write per client, however many streams."""
        touched, self._touched = self._touched, []
        for connection in touched:
            out = connection.out
            connection.out = None
            if connection.ended or out is None:
                continue
            connection.transport.write(b"".join(out) if type(out) is list else out)  # type: ignore[arg-type]
        if self._published:
            published, self._published = self._published, []
            now = self.monotonic()
            for stream in published:
                counters.LATENCY.observe(max(0.0, now - stream.newest_at))

    def _spread(self, listeners: Iterable[Connection], stream: Stream | None, frame: bytes) -> None:
        size = frames.payload_length(frame)
        touched = self._touched
        for connection in listeners:
            if connection.behind:
                self._skip(connection, stream)
                continue
            connection.sent += size
            if connection.out is None:
                connection.out = frame
                touched.append(connection)
            else:
                self._join(connection, frame)

    def _skip(self, connection: Connection, stream: Stream | None) -> None:
        if stream is None:
            return
        self.conflated_total += 1
        if connection.wanted is None:
            connection.wanted = set()
        connection.wanted.add(stream)

    def _join(self, connection: Connection, frame: bytes) -> None:
        """Several frames for one client in a tick become one write, up to the buffer's bound."""
        out = connection.out
        joined = [out] if type(out) is bytes else out
        assert type(joined) is list
        joined.append(frame)
        connection.out = joined
        if sum(map(len, joined)) > self.settings.write_buffer_bytes_max:
            connection.out = None
            connection.transport.write(b"".join(joined))

    # What connections tell

    def handshake(self) -> ServerProtocol:
        """The sans-I/O side of a new connection."""
        return ServerProtocol(
            origins=self._origins,
            extensions=self._extensions,
            max_size=self.settings.message_bytes_max,
            logger=library_log,
        )

    def client(self) -> Client:
        """The conversation of a new connection."""
        return Client(settings=self.settings, directory=self.directory, limits=self.accounts.limits)

    def has_room(self) -> bool:
        """Whether this node takes one more connection."""
        return not self.draining and len(self.connections) < self.settings.connections_max

    def retry_after_s(self) -> int:
        """When a refused client should return."""
        return random.randint(RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S)  # noqa: S311

    def knock(self, connection: Connection, forwarded_for: str | None) -> float:
        """Count a connection attempt; seconds to wait, 0 where it is welcome."""
        connection.address = self._door.address(connection.peer(), forwarded_for)
        return self._door.knock(connection.address, self.monotonic())

    def refused(self, status: int) -> None:
        """An upgrade ended in an HTTP answer."""
        counters.CONNECTS.labels(str(int(status))).inc()

    def opened(self, connection: Connection, api_key: str | None) -> None:
        """The handshake is done: welcome, and the key of the address if there was one."""
        now_s = self.monotonic()
        counters.CONNECTS.labels("opened").inc()
        counters.CONNECTIONS.labels(counters.NO_TIER).inc()
        self.connections.add(connection)
        connection.opened_at = now_s
        self.unauthenticated[connection] = now_s + self.settings.authentication_timeout_s
        self.on_opened(connection)
        self.carry(connection, connection.client.opened())
        connection.ping(now_s)
        if api_key is not None:
            self.carry(connection, (Verify(api_key),))

    def heard(self, connection: Connection, text: str) -> None:
        """A client sent a message."""
        self.messages_total += 1
        outputs = connection.client.received(text, now=self.now(), latency_ms=connection.latency_ms)
        self.carry(connection, outputs)

    def control_received(self, connection: Connection) -> None:
        """A client sent a ping, or a pong that nobody asked for."""
        client = connection.client
        if client.state is not State.CLOSING and client.flooded(self.monotonic()):
            self.carry(connection, client.end(CloseCode.FLOOD, "control frame flood"))

    def fell_behind(self, connection: Connection) -> None:
        """A client's buffer is full."""
        self.lagging.add(connection)
        connection.progress_at = self.monotonic()
        connection.unread = connection.transport.get_write_buffer_size()

    def caught_up(self, connection: Connection) -> None:
        """A client reads again: the newest book of each stream it missed, while it keeps up."""
        self.lagging.discard(connection)
        wanted = connection.wanted
        while wanted and not connection.behind:
            stream = wanted.pop()
            self._send_whole(connection, stream)
        if not wanted:
            connection.wanted = None

    def ending(self, connection: Connection) -> None:
        """A close frame was sent: nothing but the peer's answer is awaited."""
        connection.client.state = State.CLOSING
        self.closing[connection] = self.monotonic() + self.settings.close_timeout_s
        self._leave(connection)

    def lost(self, connection: Connection) -> None:
        """A socket is closed."""
        if connection not in self.connections:
            return  # it was refused before it was open
        self._leave(connection)
        self.connections.discard(connection)
        self.closing.pop(connection, None)
        self.on_lost(connection)
        key = connection.client.key
        self._ungroup(connection)
        counters.CONNECTIONS.labels(key.tier if key is not None else counters.NO_TIER).dec()
        counters.count_close(connection.code)
        log.info(
            "A connection ended with %d after %.1f s and %d bytes.",
            connection.code,
            self.monotonic() - connection.opened_at,
            connection.total,
        )

    # What follows from what clients say

    def carry(self, connection: Connection, outputs: Iterable[Output]) -> None:
        """Carry out what the conversation decided."""
        for output in outputs:
            CARRY[type(output)](self, connection, output)

    def now(self) -> Now:
        """The time of a message."""
        return Now(self.monotonic(), self.wall_us())

    def _say(self, connection: Connection, output: Say) -> None:
        connection.say(output.payload)

    def _end(self, connection: Connection, output: End) -> None:
        connection.end(output.code, output.reason)

    def _subscribe(self, connection: Connection, output: Subscribe) -> None:
        stream = self.streams.open(output.key)
        if output.previous is not None:
            self._stop(connection, output.previous)
        audience = self._audiences.get(stream)
        if audience is None:
            audience = self._audiences[stream] = Audience()
        audience.of(connection).add(connection)
        if stream.update_number:
            if connection.behind:
                self._skip(connection, stream)
            else:
                self._send_whole(connection, stream)

    def _unsubscribe(self, connection: Connection, output: Unsubscribe) -> None:
        self._stop(connection, output.key)

    def _look(self, connection: Connection, output: Look) -> None:
        waiting = connection.looks = connection.looks or set()
        client = connection.client
        client.looking += 1
        cancel: Callable[[], None] | None = None

        def answer(payload: bytes) -> None:
            client.looking -= 1
            if cancel is not None:
                waiting.discard(cancel)
            connection.say(payload)

        before = client.looking
        cancel = self.streams.look(output.key, answer, message_id=output.message_id)
        if client.looking == before:
            waiting.add(cancel)

    def _resend(self, connection: Connection, output: Resend) -> None:
        stream = self.streams.find(output.key)
        self.streams.publish_now(stream)
        connection.say(stream.full_for(output.message_id))

    def _send_whole(self, connection: Connection, stream: Stream) -> None:
        audience = self._audiences.get(stream)
        if audience is not None:
            connection.write(audience.whole(stream, packed=connection.packed))

    def _stop(self, connection: Connection, key: Any) -> None:
        """End one subscription of a client."""
        stream = self.streams.find(key)
        audience = self._audiences[stream]
        if stream.users == 1:
            del self._audiences[stream]
        else:
            # Two subscriptions of one client to one stream happen only while it replaces one by
            # the same: it must stay in the audience then.
            keeps = key in connection.client.subscriptions.values()
            if not keeps:
                audience.of(connection).discard(connection)
        if connection.wanted is not None:
            connection.wanted.discard(stream)
        self.streams.close(stream)

    def _leave(self, connection: Connection) -> None:
        """End all that a client listens to and waits for."""
        self.unauthenticated.pop(connection, None)
        self.lagging.discard(connection)
        connection.wanted = None
        client = connection.client
        subscriptions, client.subscriptions = client.subscriptions, conversation.NONE_SUBSCRIBED
        for key in subscriptions.values():
            self._stop(connection, key)
        looks, connection.looks = connection.looks, None
        for cancel in looks or ():
            cancel()

    # Keys

    def _verify(self, connection: Connection, output: Verify) -> None:
        connection.hold(True)
        task = asyncio.get_running_loop().create_task(self._verify_key(connection, output))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _verify_key(self, connection: Connection, output: Verify) -> None:
        outputs = await self._verdict(connection, output)
        if connection.lost:
            return
        if not connection.ended:
            self.carry(connection, outputs)
        connection.hold(False)

    async def _verdict(self, connection: Connection, output: Verify) -> conversation.Outputs:
        client, message_id = connection.client, output.message_id
        try:
            async with asyncio.timeout(self.settings.verify_timeout_s):
                key = await self.accounts.verify_key(
                    output.api_key, self.wall_us() // 1_000, address=connection.address
                )
        except (InvalidApiKey, ApiKeyDisabled) as error:
            return client.refused(error.code, error.message, now=self.now(), message_id=message_id)
        except RateLimitExceeded as error:
            wait_s = error.retry_after_s or 1.0
            return client.throttled(error.message, wait_s, now=self.now(), message_id=message_id)
        except Exception:
            # Whatever the store says is its own affair: the client can only come back.
            log.exception("A key could not be verified.")
            return client.unverifiable(now=self.now(), message_id=message_id)
        if connection.ended:
            return ()
        return self._admit(connection, key, output)

    def _admit(self, connection: Connection, key: Key, output: Verify) -> conversation.Outputs:
        client, message_id = connection.client, output.message_id
        group = self.groups.get(key.key_id, set())
        if connection not in group:
            connections_max = self.settings.tiers[key.tier].connections_max
            if len(group) >= connections_max:
                return client.crowded(connections_max, now=self.now(), message_id=message_id)
            self._ungroup(connection)
            self.groups.setdefault(key.key_id, set()).add(connection)
            self._count_tier(client.key, key)
        self.unauthenticated.pop(connection, None)
        welcome = client.verified(key, session_id=str(uuid.uuid4()), message_id=message_id)
        if self.accounts.meter.over(key.key_id):
            return (*welcome, *self._used_up(client))
        return welcome

    def _count_tier(self, before: Key | None, key: Key) -> None:
        counters.CONNECTIONS.labels(before.tier if before is not None else counters.NO_TIER).dec()
        counters.CONNECTIONS.labels(key.tier).inc()

    def _ungroup(self, connection: Connection) -> None:
        """A connection leaves its key: charge what it got with it."""
        self.settle(connection)
        key = connection.client.key
        group = self.groups.get(key.key_id) if key is not None else None
        if key is not None and group is not None:
            group.discard(connection)
            if not group:
                del self.groups[key.key_id]

    def settle(self, connection: Connection) -> None:
        """Charge what was delivered since the last time."""
        sent, connection.sent = connection.sent, 0
        connection.total += sent
        key = connection.client.key
        if key is not None and sent:
            self.accounts.meter.add(key.key_id, sent)
            counters.SENT_BYTES.labels(key.tier).inc(sent)

    def disabled(self, key_id: str) -> None:
        """A key was suspended or expired: its connections end."""
        for connection in tuple(self.groups.get(key_id, ())):
            outputs = connection.client.refused(
                ApiKeyDisabled.code, "This key is suspended or expired.", now=self.now()
            )
            self.carry(connection, outputs)

    def over_allowance(self, key_id: str) -> None:
        """A key used up its allowance: its connections end."""
        for connection in tuple(self.groups.get(key_id, ())):
            self.carry(connection, self._used_up(connection.client))

    def near_allowance(self, key_id: str, report: UsageReport) -> None:
        """A key used 80 % of its allowance: its connections are told."""
        payload = encode(
            DataLimitWarning(
                message="80 % of the monthly data allowance is used.",
                data_usage=report.data_usage,
                reset_date=report.billing_period.reset_date,
                timestamp=iso_us(self.wall_us()),
            )
        )
        for connection in self.groups.get(key_id, ()):
            connection.say(payload)

    def _used_up(self, client: Client) -> conversation.Outputs:
        assert client.key is not None
        report = self.accounts.meter.report(client.key.key_id, self.wall_us() // 1_000)
        limit_gb = report.data_usage.limit_gb
        notice = DataLimitExceeded(
            message=f"The monthly data allowance of {limit_gb:g} GB is used up.",
            data_usage=report.data_usage,
            reset_date=report.billing_period.reset_date,
            timestamp=iso_us(self.wall_us()),
        )
        return client.end(CloseCode.DATA_LIMIT, "data limit exceeded", encode(notice))

    async def stop(self) -> None:
        """End the tasks that verify keys."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _ignore(connection: Connection) -> None:
    """Stand in until the keeper listens."""


CARRY: Final[dict[type, Callable[[Hub, Connection, Any], None]]] = {
    Say: Hub._say,
    Verify: Hub._verify,
    Subscribe: Hub._subscribe,
    Unsubscribe: Hub._unsubscribe,
    Look: Hub._look,
    Resend: Hub._resend,
    End: Hub._end,
}
