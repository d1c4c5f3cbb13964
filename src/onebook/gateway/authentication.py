"""Authentication of connections: keys are verified, and the connections of a key are limited.

Verifying queries the database, so it runs as a task; its result is applied at once, between two
messages. At a key's connection limit a connection that does not answer a ping is closed in favour
of the new one.
"""

import asyncio
import logging
import uuid
from typing import Protocol

from msgspec.structs import replace

from onebook.accounts import Accounts, Key
from onebook.accounts.keys import SHOWN_LENGTH
from onebook.clock import Clock
from onebook.config import GatewaySettings
from onebook.errors import (
    ApiKeyDisabled,
    DatabaseUnavailable,
    InvalidApiKey,
    RateLimitExceeded,
)
from onebook.gateway import effects, liveness, metrics
from onebook.gateway.charges import Charges
from onebook.gateway.codes import CloseCode
from onebook.gateway.commands import Id
from onebook.gateway.effects import Effects, KeyVerdict, MessageTime, VerifyKey
from onebook.gateway.reference import AuthenticationSuccess, success_of
from onebook.gateway.registry import ClientPort, ConnectionRegistry

log = logging.getLogger("onebook.gateway")


class KeyPeers(Protocol):
    """Counts the connections of keys on other gateways."""

    def elsewhere(self, key_id: str) -> int:
        """Connections of a key on the other gateways."""

    def allowed_here(self, key_id: str, connections_max: int) -> int:
        """How many of the key's connections this gateway may keep."""


class AloneWithKeys:
    """Key peers of a single gateway: there are no others."""

    def elsewhere(self, key_id: str) -> int:
        """None."""
        return 0

    def allowed_here(self, key_id: str, connections_max: int) -> int:
        """All of them."""
        return connections_max


class Authenticator:
    """Verifies the keys of connections and admits them.

    Args:
        settings: Time limits.
        accounts: Knows the keys and their tiers.
        connections: Of this node, by key.
        charges: Charges the delivered bytes before a connection changes its key.
        clock: Where time comes from.
        peers: The connections of other gateways.
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
    ) -> None:
        self._settings = settings
        self.peers = peers or AloneWithKeys()
        self._accounts = accounts
        self._connections = connections
        self._charges = charges
        self._clock = clock
        self._unavailable = False  # the last attempt to verify a key failed
        self._pong_awaited: set[asyncio.Event] = set()  # set by the next pong
        self.tasks: set[asyncio.Task[None]] = set()

    def verify(self, connection: ClientPort, command: VerifyKey) -> None:
        """Start verifying a key; the connection gets the verdict later."""
        opened_by = self._accounts.fingerprint(command.api_key)
        if connection.processor.key is not None and connection.processor.opened_by == opened_by:
            # No look-up: a suspension or replacement would have closed the connection.
            known = self._accepted(command, connection.processor.key)
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
        """The verdict for a key: shown by the text that was sent, which a rotation may outdate."""
        shown = replace(key, prefix=command.api_key[:SHOWN_LENGTH])
        return KeyVerdict(command.message_id, shown, self._accounts.fingerprint(command.api_key))

    def _refusal(self, error: Exception, message_id: Id) -> Effects:
        now = self._now()
        if isinstance(error, InvalidApiKey | ApiKeyDisabled):
            return effects.key_refused(error.code, error.message, now=now, message_id=message_id)
        if isinstance(error, RateLimitExceeded):
            wait_s = error.retry_after_s or 1.0
            return effects.attempts_limit(error.message, wait_s, now=now, message_id=message_id)
        # The store logs when an outage begins and ends.
        if not isinstance(error, DatabaseUnavailable | TimeoutError):
            if not self._unavailable:
                log.error("Cannot verify API keys: the store does not answer.", exc_info=error)
            self._unavailable = True
        return effects.keys_unavailable(now=now, message_id=message_id)

    async def _verified(self, connection: ClientPort, command: VerifyKey) -> Key:
        async with asyncio.timeout(self._settings.verify_timeout_s):
            return await self._accounts.verify_key(
                command.api_key, self._clock.wall_us() // 1_000, address=connection.address
            )

    # The connection limit of a key

    async def _replace_dead(self, connection: ClientPort, key: Key) -> bool:
        """At a key's connection limit, close a dead connection; whether that took a ping."""
        connections_max = self._connections_max(key)

        def full() -> bool:
            group = self._connections.of_key(key.key_id)
            taken = len(group) + self.peers.elsewhere(key.key_id)
            return taken >= connections_max and connection not in group

        started_s = self._clock.monotonic()
        wait_s = self._settings.liveness_wait_s
        if not full() or self._replace(key.key_id, silent_since_s=started_s - wait_s):
            return False
        probed = liveness.probe(self._connections.of_key(key.key_id), started_s)
        answer = asyncio.Event()
        self._pong_awaited.add(answer)
        try:
            async with asyncio.timeout(wait_s):
                while full() and liveness.unanswered(probed):
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
        """How many keys wait for a ping that finds a dead connection."""
        return len(self._pong_awaited)

    def answered(self) -> None:
        """A connection answered its ping or was closed: keys at their limit check again."""
        for answer in self._pong_awaited:
            answer.set()

    def _replace(self, key_id: str, *, silent_since_s: float) -> bool:
        """Close the connection of a key that has been silent for longest, if there is one."""
        dead = liveness.dead(self._connections.of_key(key_id), silent_since_s)
        if dead is None:
            return False
        dead.end(CloseCode.SLOW, "no pong")
        dead.output.abort()
        metrics.REPLACED.inc()
        self.leave(dead)
        return True

    # Applying a verdict

    def admit(self, connection: ClientPort, verdict: KeyVerdict) -> Effects | None:
        """Give a connection its key; None, or the last messages where the key is at its limit."""
        key, processor = verdict.key, connection.processor
        assert key is not None
        group = self._connections.of_key(key.key_id)
        if connection not in group:
            connections_max = self._connections_max(key)
            if len(group) + self.peers.elsewhere(key.key_id) >= connections_max:
                return effects.connection_limit(
                    connections_max, now=self._now(), message_id=verdict.message_id
                )
            self._charges.hand_over(connection)
            self.leave(connection)
            self._connections.join_key(key.key_id, connection)
            metrics.move_tier(_tier(processor.key), key.tier)
            processor.move_views(key)
        processor.opened_by = verdict.opened_by
        return None

    def trim(self, key_id: str) -> None:
        """Close connections over the limit after several gateways accepted some at once."""
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
        """The reply to an accepted key, with a warning or the close where its allowance is used."""
        assert verdict.key is not None
        processor = connection.processor
        session_id = processor.session_id or str(uuid.uuid4())
        welcome = processor.authenticated(
            verdict.key,
            session_id=session_id,
            message_id=verdict.message_id,
            success=self._success(verdict.key, session_id),
        )
        return (*welcome, *self._charges.standing(verdict.key.key_id))

    def _success(self, key: Key, session_id: str) -> AuthenticationSuccess | None:
        if not self._settings.reference_compatible:
            return None
        report = self._accounts.meter.report(key.key_id, self._clock.wall_us() // 1_000)
        limits = self._accounts.settings.tiers.of(key.tier)
        return success_of(key, session_id, limits, report)

    def leave(self, connection: ClientPort) -> None:
        """Detach a connection from its key, and charge the bytes delivered with it."""
        self._charges.settle(connection)
        key = connection.processor.key
        if key is not None:
            self._connections.leave_key(key.key_id, connection)

    def _connections_max(self, key: Key) -> int:
        return self._accounts.settings.tiers.of(key.tier).connections_max

    def _now(self) -> MessageTime:
        return MessageTime(self._clock.monotonic(), self._clock.wall_us())


def _tier(key: Key | None) -> str:
    return key.tier if key is not None else metrics.NO_TIER
