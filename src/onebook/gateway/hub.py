"""The hub: every connected client, and what follows from what it says.

It carries out what the conversation decides: verifies keys, opens streams, counts connections of
a key, charges what was delivered. `fanout` knows who listens to which stream.
What happens by the clock (pings, timeouts, metering) is in `keeper`.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from websockets.server import ServerProtocol

from onebook import logs
from onebook.accounts import Accounts, Key, UsageReport
from onebook.config import GatewaySettings
from onebook.errors import (
    ApiKeyDisabled,
    DatabaseUnavailable,
    InvalidApiKey,
    RateLimitExceeded,
)
from onebook.gateway import counters, direct, frames, liveness
from onebook.gateway.client import NONE_SUBSCRIBED, Client, State
from onebook.gateway.codes import CloseCode
from onebook.gateway.directory import Directory
from onebook.gateway.door import Door
from onebook.gateway.fanout import Fanout
from onebook.gateway.messages import DataLimitExceeded, DataLimitWarning, encode
from onebook.gateway.offenders import Offenders
from onebook.gateway.outputs import (
    End,
    Look,
    Now,
    Output,
    Outputs,
    Resend,
    Say,
    Subscribe,
    Unsubscribe,
    Verify,
)
from onebook.gateway.protocol import Connection, library_log
from onebook.gateway.turns import Turns
from onebook.gateway.views import KeyViews
from onebook.streams import Clock, StreamKey, Streams, iso_us

RETRY_AFTER_MIN_S: Final = 1
RETRY_AFTER_MAX_S: Final = 10  # spread, so that refused clients do not return together

# Close codes that no client which follows the protocol gets.
OFFENCES: Final = frozenset(
    (
        CloseCode.PROTOCOL,
        CloseCode.NOT_TEXT,
        CloseCode.NOT_UTF8,
        CloseCode.TOO_BIG,
        CloseCode.FLOOD,
    )
)

log = logging.getLogger("onebook.gateway")
access = logging.getLogger(logs.ACCESS)


class Hub:
    """Every connected client of this node; `streams` is set once, by whoever builds both."""

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
        self.fanout = Fanout(
            join_bytes_max=settings.write_buffer_bytes_max,
            monotonic=clock.monotonic,
            write_each=direct.writer(io_uring_allowed=settings.io_uring_allowed),
        )
        self.door = Door(
            settings.connects_per_minute,
            settings.forwarded_from,
            sockets_per_address_max=settings.sockets_per_address_max,
        )
        self.offenders = Offenders(settings.offence_pause_s, settings.offence_pause_max_s)
        self.turns = Turns(
            turn_s=settings.turn_s,
            monotonic=clock.monotonic,
            call_soon=asyncio.get_running_loop().call_soon,
        )
        self.views = KeyViews()
        self._tasks: set[asyncio.Task[None]] = set()
        self._awaited: set[asyncio.Event] = set()  # set by the next pong
        self._unverifiable = False  # the last attempt to verify a key failed
        self._extensions = [frames.SharedDeflate()] if settings.compression_allowed else []
        # A browser says where it comes from; a program says nothing and is no browser's victim.
        self._origins: Any = [*settings.origins, None] if settings.origins else None
        self.on_opened: Callable[[Connection], None] = _ignore
        self.on_lost: Callable[[Connection], None] = _ignore
        accounts.on_disabled = self.disabled
        accounts.on_changed = self.changed
        accounts.meter.collect = self.settle_all
        accounts.meter.on_over = self.over_allowance
        accounts.meter.on_warning = self.near_allowance

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
        return Client(
            settings=self.settings,
            tiers=self.accounts.settings.tiers,
            directory=self.directory,
            limits=self.accounts.limits,
            views=self.views,
        )

    def has_room(self) -> bool:
        """Whether this node takes one more connection."""
        return not self.draining and len(self.connections) < self.settings.connections_max

    def retry_after_s(self) -> int:
        """When a refused client should return."""
        return random.randint(RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S)  # noqa: S311

    def pause_s(self, connection: Connection, forwarded_for: str | None) -> float:
        """Note the address that asks for an upgrade; seconds for which the answer waits."""
        connection.address = self.door.address(connection.peer(), forwarded_for)
        if self.door.trusts(connection.address):
            return 0.0
        return self.offenders.wait_s(connection.address, self.monotonic())

    def knock(self, connection: Connection) -> float:
        """Count a connection attempt; seconds to wait, 0 where it is welcome."""
        wait_s = self.door.knock(connection.address, self.monotonic())
        if wait_s or connection.address == connection.peer():
            return wait_s  # the sockets of a peer are counted when they are accepted
        seat = self.door.enter(connection.address)
        if seat is None:
            return float(self.retry_after_s())
        connection.seats += (seat,)
        return 0.0

    def rate_headers(self, connection: Connection) -> dict[str, str]:
        """The header fields of an answer to too many connection attempts."""
        return self.door.headers(connection.address, self.monotonic())

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

    def frame_received(self, connection: Connection) -> None:
        """A client sent a ping, an unsolicited pong, or a fragment of a message."""
        client = connection.client
        if client.state is not State.CLOSING and client.flooded(self.monotonic()):
            self.carry(connection, client.end(CloseCode.FLOOD, "frame flood"))

    def fell_behind(self, connection: Connection) -> None:
        """A client's buffer is full."""
        self.lagging.add(connection)
        connection.progress_at = self.monotonic()
        connection.unread = connection.transport.get_write_buffer_size()

    def caught_up(self, connection: Connection) -> None:
        """A client reads again."""
        self.lagging.discard(connection)
        connection.ping_at = 0.0  # it has shown that it lives, however late the answer is
        self.fanout.caught_up(connection)

    def ending(self, connection: Connection) -> None:
        """A close frame was sent: nothing but the peer's answer is awaited."""
        connection.client.state = State.CLOSING
        if connection.client.key is None and connection.code in OFFENCES:
            self.offenders.offended(connection.address, self.monotonic())
        self.closing[connection] = self.monotonic() + self.settings.close_timeout_s
        self._leave(connection)

    def lost(self, connection: Connection) -> None:
        """A socket is closed."""
        if connection not in self.connections:
            return  # it was refused before it was open
        self._leave(connection)
        self.answered()
        self.connections.discard(connection)
        self.closing.pop(connection, None)
        self.on_lost(connection)
        key = connection.client.key
        self._ungroup(connection)
        counters.CONNECTIONS.labels(key.tier if key is not None else counters.NO_TIER).dec()
        counters.count_close(connection.code)
        fields = logs.fields(
            client_address=connection.address,
            key_id=key.key_id if key is not None else None,
            close_code=connection.code,
            duration_ms=round((self.monotonic() - connection.opened_at) * 1e3, 1),
            sent_bytes=connection.total,
        )
        access.info("WebSocket ended with %d", connection.code, extra=fields)

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
        key = connection.client.key
        assert key is not None
        stream = self.streams.open(output.key, key.key_id)
        self.views.join(key.key_id, output.key)
        if output.previous is not None:
            self._stop(connection, output.previous)
        self.fanout.join(connection, stream)
        for status in self.streams.marks(stream):
            connection.say(status)
        self._pace(connection)

    def _unsubscribe(self, connection: Connection, output: Unsubscribe) -> None:
        self._stop(connection, output.key)
        self._pace(connection)

    def _pace(self, connection: Connection) -> None:
        """Count a change of subscriptions; after a burst of them the client has to wait."""
        step_s = 1 / self.settings.subscription_changes_per_s
        now_s = self.monotonic()
        connection.changes_until_s = max(connection.changes_until_s, now_s) + step_s
        burst_s = self.settings.subscription_changes_burst * step_s
        wait_s = connection.changes_until_s - now_s - burst_s
        if wait_s > 0 and not connection.resting:
            self.rest(connection, wait_s)

    def rest(self, connection: Connection, seconds: float) -> None:
        """Act on nothing that a client sends, and read nothing of it, for a while."""
        connection.rest(True)
        self.clock.call_at(self.monotonic() + seconds, lambda: connection.rest(False))

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

    def _stop(self, connection: Connection, key: StreamKey) -> None:
        """End one subscription of a client."""
        stream = self.streams.find(key)
        self.fanout.leave(connection, stream)
        self.streams.close(stream)
        owner = connection.client.key
        assert owner is not None
        self.views.leave(owner.key_id, key)

    def _leave(self, connection: Connection) -> None:
        """End all that a client listens to and waits for."""
        self.unauthenticated.pop(connection, None)
        self.lagging.discard(connection)
        connection.wanted = None
        client = connection.client
        subscriptions, client.subscriptions = client.subscriptions, NONE_SUBSCRIBED
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

    async def _verdict(self, connection: Connection, output: Verify) -> Outputs:
        client, message_id = connection.client, output.message_id
        try:
            key = await self._verified(connection, output)
            if await self._make_room(connection, key):
                key = await self._verified(connection, output)  # it may have changed meanwhile
        except (InvalidApiKey, ApiKeyDisabled) as error:
            return client.refused(error.code, error.message, now=self.now(), message_id=message_id)
        except RateLimitExceeded as error:
            wait_s = error.retry_after_s or 1.0
            return client.throttled(error.message, wait_s, now=self.now(), message_id=message_id)
        except (DatabaseUnavailable, TimeoutError):
            # The store logs when an outage begins and ends.
            return client.unverifiable(now=self.now(), message_id=message_id)
        except Exception:
            # Whatever the store says is its own affair: the client can only come back.
            if not self._unverifiable:
                log.exception("Keys cannot be verified.")
            self._unverifiable = True
            return client.unverifiable(now=self.now(), message_id=message_id)
        if self._unverifiable:
            log.info("Keys can be verified again.")
            self._unverifiable = False
        if connection.ended:
            return ()
        return self._admit(connection, key, output)

    async def _verified(self, connection: Connection, output: Verify) -> Key:
        async with asyncio.timeout(self.settings.verify_timeout_s):
            return await self.accounts.verify_key(
                output.api_key, self.wall_us() // 1_000, address=connection.address
            )

    async def _make_room(self, connection: Connection, key: Key) -> bool:
        """Where a key has all its connections, cut one that is dead; whether that took time."""
        connections_max = self.accounts.settings.tiers.of(key.tier).connections_max

        def full() -> bool:
            group = self.groups.get(key.key_id, set())
            return len(group) >= connections_max and connection not in group

        started_s = self.monotonic()
        wait_s = self.settings.liveness_wait_s
        if not full() or self._give_way(key.key_id, silent_since_s=started_s - wait_s):
            return False
        probed = liveness.probe(self.groups[key.key_id], started_s)
        answer = asyncio.Event()
        self._awaited.add(answer)
        try:
            async with asyncio.timeout(wait_s):
                while full() and liveness.unanswered(probed):
                    answer.clear()
                    await answer.wait()
        except TimeoutError:
            if full():
                self._give_way(key.key_id, silent_since_s=started_s)
        finally:
            self._awaited.discard(answer)
        return True

    def answered(self) -> None:
        """A client answered its ping, or is gone: who waits for that looks again."""
        for answer in self._awaited:
            answer.set()

    def _give_way(self, key_id: str, *, silent_since_s: float) -> bool:
        """Cut the connection of a key that has been silent for longest, if one has."""
        dead = liveness.dead(self.groups[key_id], silent_since_s)
        if dead is None:
            return False
        dead.end(CloseCode.SLOW, "no pong")
        dead.abort()
        counters.REPLACED.inc()
        self._ungroup(dead)
        return True

    def _admit(self, connection: Connection, key: Key, output: Verify) -> Outputs:
        client, message_id = connection.client, output.message_id
        group = self.groups.get(key.key_id, set())
        if connection not in group:
            connections_max = self.accounts.settings.tiers.of(key.tier).connections_max
            if len(group) >= connections_max:
                return client.crowded(connections_max, now=self.now(), message_id=message_id)
            self._ungroup(connection)
            self.groups.setdefault(key.key_id, set()).add(connection)
            self._count_tier(client.key, key)
            for view in client.subscriptions.values():
                assert client.key is not None
                self.views.leave(client.key.key_id, view)
                self.views.join(key.key_id, view)
        self.unauthenticated.pop(connection, None)
        client.opened_by = self.accounts.fingerprint(output.api_key)
        welcome = client.verified(key, session_id=str(uuid.uuid4()), message_id=message_id)
        if self.accounts.meter.over(key.key_id):
            return (*welcome, *self._used_up(client))
        report = self.accounts.meter.report(key.key_id, self.wall_us() // 1_000)
        if report.status.warning_threshold:
            return (*welcome, Say(self._warning(report)))
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
        """Charge what one client has got since the last time; before it has a key it is free."""
        self._charge(connection.client.key, (connection,))

    def settle_all(self) -> None:
        """Charge what all clients have got: once per key, however many its connections."""
        for group in self.groups.values():
            self._charge(next(iter(group)).client.key, group)

    def _charge(self, key: Key | None, connections: Iterable[Connection]) -> None:
        given = sum(connection.take_delivered() for connection in connections)
        if given and key is not None:
            self.accounts.meter.add(key.key_id, given)
            counters.SENT_BYTES.labels(key.tier).inc(given)

    def disabled(self, key_id: str) -> None:
        """A key was suspended or expired: its connections end."""
        for connection in tuple(self.groups.get(key_id, ())):
            outputs = connection.client.refused(
                ApiKeyDisabled.code, "This key is suspended or expired.", now=self.now()
            )
            self.carry(connection, outputs)

    def changed(self, key: Key, opened_by: Collection[bytes]) -> None:
        """A key was changed and may be used.

        Connections end that are from before a suspension, though it is over, and those that were
        opened with a text that the key no longer has. The others get its new tier.
        """
        for connection in tuple(self.groups.get(key.key_id, ())):
            known = connection.client.key
            if known is not None and known.suspensions != key.suspensions:
                outputs = connection.client.refused(
                    ApiKeyDisabled.code, "This key was suspended; connect again.", now=self.now()
                )
                self.carry(connection, outputs)
            elif connection.client.opened_by not in opened_by:
                outputs = connection.client.refused(
                    InvalidApiKey.code,
                    "This API key was replaced; use the new one.",
                    now=self.now(),
                )
                self.carry(connection, outputs)
            elif known is not None:
                counters.CONNECTIONS.labels(known.tier).dec()
                counters.CONNECTIONS.labels(key.tier).inc()
                connection.client.key = key

    def over_allowance(self, key_id: str) -> None:
        """A key used up its allowance: its connections end."""
        for connection in tuple(self.groups.get(key_id, ())):
            self.carry(connection, self._used_up(connection.client))

    def near_allowance(self, key_id: str, report: UsageReport) -> None:
        """A key used 80 % of its allowance: its connections are told."""
        payload = self._warning(report)
        for connection in self.groups.get(key_id, ()):
            connection.say(payload)

    def _warning(self, report: UsageReport) -> bytes:
        return encode(
            DataLimitWarning(
                message=f"{report.data_usage.usage_percentage:g} % of the monthly data allowance "
                "is used.",
                data_usage=report.data_usage,
                reset_date=report.billing_period.reset_date,
                timestamp=iso_us(self.wall_us()),
            )
        )

    def _used_up(self, client: Client) -> Outputs:
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
