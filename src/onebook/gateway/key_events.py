"""Applies changes of a key to its open connections: suspension, rotation, allowance."""

from collections.abc import Callable, Collection
from typing import Protocol

from onebook.accounts import Key, UsageReport
from onebook.errors import ApiKeyDisabled, InvalidApiKey
from onebook.gateway import metrics
from onebook.gateway.charges import Charged, Charges
from onebook.gateway.effects import Effects, MessageTime, SendText, key_refused
from onebook.gateway.registry import ConnectionRegistry


class Keyed(Charged, Protocol):
    """A connection with a key."""

    def execute(self, effects: Effects) -> None:
        """Send, or end the connection."""


class KeyEvents:
    """Applies events of accounts and usage to the connections of a key."""

    def __init__(
        self,
        *,
        connections: ConnectionRegistry[Keyed],
        charges: Charges,
        now: Callable[[], MessageTime],
    ) -> None:
        self._connections = connections
        self._charges = charges
        self._now = now

    def key_disabled(self, key_id: str) -> None:
        """A key was suspended or expired: its connections end."""
        for connection in self._connections.of_key(key_id):
            self._refuse(connection, ApiKeyDisabled.code, "This key is suspended or expired.")

    def key_changed(self, key: Key, opened_by: Collection[bytes]) -> None:
        """A key was changed and may be used.

        Connections from before a suspension are closed, also when it has been lifted, and those
        opened with a text that was replaced. The others get the new tier.
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
                metrics.CONNECTIONS.labels(known.tier).dec()
                metrics.CONNECTIONS.labels(key.tier).inc()
                connection.processor.key = key

    def allowance_exceeded(self, key_id: str) -> None:
        """A key used up its allowance: its connections end."""
        for connection in self._connections.of_key(key_id):
            connection.execute(self._charges.used_up(key_id))

    def allowance_warned(self, key_id: str, report: UsageReport) -> None:
        """A key used 80 % of its allowance: its connections get a warning."""
        warning = (SendText(self._charges.warning(report)),)
        for connection in self._connections.of_key(key_id):
            connection.execute(warning)

    def _refuse(self, connection: Keyed, error: str, message: str) -> None:
        connection.execute(key_refused(error, message, now=self._now()))
