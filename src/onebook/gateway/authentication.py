"""API keys of connections: authentication, connection limit, metering, and key changes.

A task verifies the key with a database query; the result is applied between two messages. At the
connection limit of a key, an unresponsive connection is closed to make room for the new one.
"""

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from typing import Final, Protocol

from msgspec.structs import replace

from onebook.accounts import Accounts, Key, UsageReport
from onebook.accounts.keys import SHOWN_LENGTH
from onebook.accounts.usage import Meter, UsageMark, gib
from onebook.clock import Clock
from onebook.config import GatewaySettings
from onebook.errors import (
    ApiKeyDisabled,
    DatabaseUnavailable,
    InvalidApiKey,
    RateLimitExceeded,
)
from onebook.gateway import effects, metrics
from onebook.gateway.codes import CloseCode
from onebook.gateway.commands import Id
from onebook.gateway.effects import (
    Effects,
    KeyVerdict,
    MessageTime,
    SendText,
    VerifyKey,
    ending,
    key_refused,
)
from onebook.gateway.fanout import ClientOutput
from onebook.gateway.limits import LIMITS, GatewayLimits
from onebook.gateway.messages import encode
from onebook.gateway.reference import AuthenticationSuccess, success_of
from onebook.gateway.registry import ClientPort, ConnectionRegistry
from onebook.gateway.replies import DataLimitExceeded, DataLimitWarning, WarnedUsage
from onebook.streams import iso_us

VERIFY_TIMEOUT_S: Final = 5.0  # timeout of the database query for a key
# `DataLimitWarning.action_required`
USE_LESS: Final = "Request fewer levels or a longer interval_ms, or unsubscribe from some symbols."
USED_UP: Final = "Wait for the next period, or ask the operator for a larger allowance."

CHARGED_AT_ONCE: Final = 200  # connections per event loop turn: about 1 ms

log = logging.getLogger("onebook.gateway")


class Charges:
    """Charges keys for the bytes delivered to their connections; reports exhausted allowances."""

    def __init__(self, *, meter: Meter, connections: ConnectionRegistry, clock: Clock) -> None:
        self._meter = meter
        self._connections = connections
        self._clock = clock

    def charge_delivered(self, connection: ClientPort) -> None:
        """Charge the bytes delivered to a connection since the last call, if it has a key."""
        self._add(connection.processor.key, connection.output.take_delivered())

    def charge_written(self, connection: ClientPort) -> None:
        """Charge all bytes written to a connection, acknowledged or not, before its key changes.

        The new key is charged only for later bytes; bytes sent without a key are free.
        """
        self._add(connection.processor.key, connection.output.take_written())

    def portions(self, as_of_ms: int | None = None) -> Iterator[None]:
        """Charge the bytes delivered to all connections, in portions that fit in one turn.

        They count as of a time in Unix ms, by default that of each portion.
        Only the connections that were sent something are visited: most of many are idle.
        """
        uncharged = self._connections.uncharged
        left = len(uncharged)  # a connection with unacknowledged bytes is appended again
        while left > 0 and uncharged:
            outputs = uncharged[: min(left, CHARGED_AT_ONCE)]
            del uncharged[: len(outputs)]
            self._charge(outputs, as_of_ms)
            left -= len(outputs)
            if left > 0:
                yield

    def _charge(self, outputs: list[ClientOutput], as_of_ms: int | None) -> None:
        """Charge the bytes delivered to some connections, with one total per key and tier."""
        by_key: defaultdict[str, int] = defaultdict(int)
        by_tier: defaultdict[str, int] = defaultdict(int)
        for output in outputs:
            output.listed = False
            delivered_bytes, key = output.take_delivered(), output.processor.key
            if delivered_bytes and key is not None:
                by_key[key.key_id] += delivered_bytes
                by_tier[key.tier] += delivered_bytes
        for key_id, delivered_bytes in by_key.items():
            self._meter.add(key_id, delivered_bytes, as_of_ms)
        for tier, delivered_bytes in by_tier.items():
            metrics.SENT_BYTES.labels(tier).inc(delivered_bytes)

    def usage_messages(self, key_id: str) -> Effects:
        """Messages for a new connection: a warning, or a close if the allowance is used up."""
        mark = self._meter.mark(key_id)
        if mark is UsageMark.WITHIN:
            return ()
        if mark is UsageMark.OVER:
            return self.used_up(key_id)
        report = self._meter.report(key_id, self._clock.wall_us() // 1_000)
        return (SendText(self.warning(report)),)

    def warning(self, report: UsageReport) -> bytes:
        """Encode the warning that most of the allowance is used."""
        usage = report.data_usage
        exceeded_bytes = usage.bytes_used - usage.bytes_limit
        return encode(
            DataLimitWarning(
                message=f"{usage.usage_percentage:g} % of the monthly data allowance is used.",
                data_usage=WarnedUsage(**asdict(usage), exceeded_by_gb=gib(max(0, exceeded_bytes))),
                action_required=USE_LESS if exceeded_bytes < 0 else USED_UP,
                reset_date=report.billing_period.reset_date,
                timestamp=iso_us(self._clock.wall_us()),
            )
        )

    def used_up(self, key_id: str) -> Effects:
        """The last messages to a connection when the allowance of its key is used up."""
        report = self._meter.report(key_id, self._clock.wall_us() // 1_000)
        limit_gb = report.data_usage.limit_gb
        notice = DataLimitExceeded(
            message=f"The monthly data allowance of {limit_gb:g} GB is used up.",
            data_usage=report.data_usage,
            reset_date=report.billing_period.reset_date,
            timestamp=iso_us(self._clock.wall_us()),
        )
        return ending(CloseCode.DATA_LIMIT, "data limit exceeded", encode(notice))

    def _add(self, key: Key | None, sent_bytes: int) -> None:
        if sent_bytes and key is not None:
            self._meter.add(key.key_id, sent_bytes)
            metrics.SENT_BYTES.labels(key.tier).inc(sent_bytes)


class KeyPeers(Protocol):
    """Counts the connections of keys on other gateways."""

    def elsewhere(self, key_id: str) -> int:
        """Number of the key's connections on other gateways."""

    def allowed_here(self, key_id: str, connections_max: int) -> int:
        """Return the number of the key's connections that this gateway may keep."""


class AloneWithKeys:
    """`KeyPeers` of a single gateway: there are no connections elsewhere."""

    def elsewhere(self, key_id: str) -> int:
        """None."""
        return 0

    def allowed_here(self, key_id: str, connections_max: int) -> int:
        """All of them."""
        return connections_max


class Authenticator:
    """Verifies the keys of connections and admits them.

    Args:
        settings: Whether replies imitate the reference service.
        accounts: Verifies keys and returns their tiers.
        connections: The connections of this node, by key.
        charges: Charges the delivered bytes before a connection changes its key.
        clock: Returns the time.
        peers: The connections of other gateways.
        limits: How long a connection has to answer a ping.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        accounts: Accounts,
        connections: ConnectionRegistry,
        charges: Charges,
        clock: Clock,
        peers: KeyPeers | None = None,
        limits: GatewayLimits = LIMITS,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self.peers = peers or AloneWithKeys()
        self._accounts = accounts
        self._connections = connections
        self._charges = charges
        self._clock = clock
        self._unavailable = False  # the last attempt to verify a key failed
        self._pong_awaited: set[asyncio.Event] = set()  # each is set by the next pong
        self.tasks: set[asyncio.Task[None]] = set()

    def verify(self, connection: ClientPort, command: VerifyKey) -> None:
        """Start verifying a key; the connection receives the verdict later."""
        processor = connection.processor
        if (
            processor.key is not None
            and self._accounts.fingerprint(command.api_key) == processor.opened_by
        ):
            # No look-up: a suspended or replaced key would have closed the connection.
            known = self._accepted(command, processor.key)
            asyncio.get_running_loop().call_soon(connection.verdict_received, known)
            return
        task = asyncio.get_running_loop().create_task(self._verify(connection, command))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def stop(self) -> None:
        """End the tasks that verify keys."""
        for task in tuple(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _verify(self, connection: ClientPort, command: VerifyKey) -> None:
        connection.verdict_received(await self._verdict(connection, command))

    async def _verdict(self, connection: ClientPort, command: VerifyKey) -> KeyVerdict:
        try:
            key = await self._verified(connection, command)
            if await self._replace_dead(connection, key):
                key = await self._verified(connection, command)  # it may have changed meanwhile
        except Exception as error:
            return KeyVerdict(command.message_id, refusal=self._refusal(error, command.message_id))
        if self._unavailable:
            log.info("API keys can be verified again.")
            self._unavailable = False
        return self._accepted(command, key)

    def _accepted(self, command: VerifyKey, key: Key) -> KeyVerdict:
        """Accept a key; replies show the prefix that the client sent, even of a rotated key."""
        prefix = command.api_key[:SHOWN_LENGTH]
        if key.prefix != prefix:  # otherwise all connections share the object
            key = replace(key, prefix=prefix)
        return KeyVerdict(command.message_id, key, self._accounts.fingerprint(command.api_key))

    def _refusal(self, error: Exception, message_id: Id) -> Effects:
        now = self._now()
        if isinstance(error, InvalidApiKey | ApiKeyDisabled):
            return effects.key_refused(error.code, error.message, now=now, message_id=message_id)
        if isinstance(error, RateLimitExceeded):
            wait_s = error.retry_after_s or 1.0
            return effects.attempts_limit(error.message, wait_s, now=now, message_id=message_id)
        # The store logs the start and end of an outage.
        if not isinstance(error, DatabaseUnavailable | TimeoutError):
            if not self._unavailable:
                log.error("Cannot verify API keys: the store does not answer.", exc_info=error)
            self._unavailable = True
        return effects.keys_unavailable(now=now, message_id=message_id)

    async def _verified(self, connection: ClientPort, command: VerifyKey) -> Key:
        async with asyncio.timeout(VERIFY_TIMEOUT_S):
            return await self._accounts.verify_key(
                command.api_key, self._clock.wall_us() // 1_000, address=connection.address
            )

    # The connection limit of a key

    async def _replace_dead(self, connection: ClientPort, key: Key) -> bool:
        """At the key's limit, ping and close a dead connection; returns whether it pinged."""
        connections_max = self._connections_max(key)

        def full() -> bool:
            group = self._connections.of_key(key.key_id)
            taken = len(group) + self.peers.elsewhere(key.key_id)
            return taken >= connections_max and connection not in group

        started_s = self._clock.monotonic()
        wait_s = self._limits.liveness_wait_s
        if not full() or self._replace(key.key_id, silent_since_s=started_s - wait_s):
            return False
        probed = _probe(self._connections.of_key(key.key_id), started_s)
        answer = asyncio.Event()
        self._pong_awaited.add(answer)
        try:
            async with asyncio.timeout(wait_s):
                while full() and _unanswered(probed):
                    answer.clear()
                    await answer.wait()
        except TimeoutError:
            if full():
                self._replace(key.key_id, silent_since_s=started_s)
        finally:
            self._pong_awaited.discard(answer)
        return True

    @property
    def waiting(self) -> int:
        """Number of keys at their limit that wait for pongs."""
        return len(self._pong_awaited)

    def answered(self) -> None:
        """Let keys at their limit check again after a pong or a closed connection."""
        for answer in self._pong_awaited:
            answer.set()

    def _replace(self, key_id: str, *, silent_since_s: float) -> bool:
        """Close the dead connection of a key that has been silent longest, if any."""
        dead = _dead(self._connections.of_key(key_id), silent_since_s)
        if dead is None:
            return False
        dead.end(CloseCode.SLOW, "no pong")
        dead.output.abort()
        metrics.REPLACED.inc()
        self.leave(dead)
        return True

    # Applying a verdict

    def admit(self, connection: ClientPort, verdict: KeyVerdict) -> Effects | None:
        """Assign a key to a connection; at the connection limit, return the closing messages."""
        key, processor = verdict.key, connection.processor
        assert key is not None
        group = self._connections.of_key(key.key_id)
        if connection not in group:
            connections_max = self._connections_max(key)
            if len(group) + self.peers.elsewhere(key.key_id) >= connections_max:
                return effects.connection_limit(
                    connections_max, now=self._now(), message_id=verdict.message_id
                )
            self._charges.charge_written(connection)
            self.leave(connection)
            self._connections.join_key(key.key_id, connection)
            metrics.move_tier(_tier(processor.key), key.tier)
            processor.move_views(key)
        processor.opened_by = verdict.opened_by
        return None

    def trim(self, key_id: str) -> None:
        """Close connections over the limit, if several gateways accepted some at once."""
        group = self._connections.of_key(key_id)
        key = group[0].processor.key if group else None
        if key is None:
            return
        connections_max = self._connections_max(key)
        if len(group) + self.peers.elsewhere(key_id) <= connections_max:
            return
        for connection in group[self.peers.allowed_here(key_id, connections_max) :]:
            connection.execute(effects.connection_limit(connections_max, now=self._now()))

    def welcome(self, connection: ClientPort, verdict: KeyVerdict) -> Effects:
        """The reply to an accepted key, with a warning or a close if its allowance is used up."""
        assert verdict.key is not None
        processor = connection.processor
        session_id = processor.session_id or str(uuid.uuid4())
        welcome = processor.authenticated(
            verdict.key,
            session_id=session_id,
            message_id=verdict.message_id,
            success=self._success(verdict.key, session_id),
        )
        return (*welcome, *self._charges.usage_messages(verdict.key.key_id))

    def _success(self, key: Key, session_id: str) -> AuthenticationSuccess | None:
        if not self._settings.reference_compatible:
            return None
        report = self._accounts.meter.report(key.key_id, self._clock.wall_us() // 1_000)
        limits = self._accounts.settings.tiers.of(key.tier)
        return success_of(key, session_id, limits, report)

    def leave(self, connection: ClientPort) -> None:
        """Detach a connection from its key and charge the delivered bytes."""
        self._charges.charge_delivered(connection)
        key = connection.processor.key
        if key is not None:
            self._connections.leave_key(key.key_id, connection)

    def _connections_max(self, key: Key) -> int:
        return self._accounts.settings.tiers.of(key.tier).connections_max

    def _now(self) -> MessageTime:
        return MessageTime(self._clock.monotonic(), self._clock.wall_us())


def _tier(key: Key | None) -> str:
    return key.tier if key is not None else metrics.NO_TIER


def _dead(connections: Iterable[ClientPort], silent_since_s: float) -> ClientPort | None:
    """The connection that has been silent longest, if at least since `silent_since_s`.

    A closing connection counts as dead. A slow consumer is not pinged; its silence starts at its
    last read.
    """
    found = None
    for each in connections:
        if each.output.ended:
            return each
        since_s = each.silent_since_s
        if since_s and since_s <= silent_since_s:
            found, silent_since_s = each, since_s
    return found


def _probe(connections: Iterable[ClientPort], now_s: float) -> list[ClientPort]:
    """Ping connections without an unanswered ping; returns those that may be dead."""
    probed = [each for each in connections if not each.output.ended and not each.output.behind]
    for each in probed:
        if not each.keepalive.ping_at:
            each.ping(now_s)
    return probed


def _unanswered(connections: Collection[ClientPort]) -> bool:
    """Whether one of these connections has an unanswered ping."""
    return any(each.keepalive.ping_at and not each.output.ended for each in connections)


class KeyEvents:
    """Applies events of accounts and usage to the connections of a key."""

    def __init__(
        self,
        *,
        connections: ConnectionRegistry,
        charges: Charges,
        now: Callable[[], MessageTime],
    ) -> None:
        self._connections = connections
        self._charges = charges
        self._now = now

    def key_disabled(self, key_id: str) -> None:
        """Close the connections of a key that was suspended or expired."""
        for connection in self._connections.of_key(key_id):
            self._refuse(connection, ApiKeyDisabled.code, "This key is suspended or expired.")

    def key_changed(self, key: Key, opened_by: Collection[bytes]) -> None:
        """Apply a change of a key that is still usable.

        Closes connections opened before a suspension, even a lifted one, or with a replaced key
        text. The others get the new tier.
        """
        for connection in self._connections.of_key(key.key_id):
            known = connection.processor.key
            if known is not None and known.suspensions != key.suspensions:
                self._refuse(
                    connection, ApiKeyDisabled.code, "This key was suspended; connect again."
                )
            elif connection.processor.opened_by not in opened_by:
                self._refuse(
                    connection, InvalidApiKey.code, "This API key was replaced; use the new one."
                )
            elif known is not None:
                metrics.move_tier(known.tier, key.tier)
                connection.processor.key = key

    def allowance_exceeded(self, key_id: str) -> None:
        """Close the connections of a key that has used up its allowance."""
        for connection in self._connections.of_key(key_id):
            connection.execute(self._charges.used_up(key_id))

    def allowance_warned(self, key_id: str, report: UsageReport) -> None:
        """Warn the connections of a key that has used 80 % of its allowance."""
        warning = (SendText(self._charges.warning(report)),)
        for connection in self._connections.of_key(key_id):
            connection.execute(warning)

    def _refuse(self, connection: ClientPort, error: str, message: str) -> None:
        connection.execute(key_refused(error, message, now=self._now()))
