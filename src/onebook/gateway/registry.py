"""Registry of open connections, and the interface that other parts of the gateway use."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, Protocol

from onebook.gateway.effects import Effects, KeyVerdict
from onebook.gateway.fanout import ClientOutput
from onebook.gateway.keepalive import Keepalive
from onebook.gateway.processor import CommandProcessor
from onebook.signals import Signal


class ClientPort(Hashable, Protocol):
    """Interface of a client connection to authentication, metering, subscriptions and timers.

    It is a Protocol because `connection` imports all of these modules.
    """

    address: str
    output: ClientOutput
    processor: CommandProcessor
    keepalive: Keepalive
    fetches: set[Callable[[], None]] | None
    queued: bool

    @property
    def silent_since_s(self) -> float:
        """Time of the unanswered ping, or of a slow consumer's last read; 0 if there is none."""

    def execute(self, effects: Effects) -> None:
        """Execute the effects of commands: send, or end the connection."""

    def end(self, code: int, reason: str) -> None:
        """Send a close frame."""

    def ping(self, now_s: float) -> None:
        """Send a ping."""

    def verdict_received(self, verdict: KeyVerdict) -> None:
        """Apply the result of verifying the key."""

    def on_time(self, now_s: float) -> float | None:
        """Handle due timers; returns when to be called next, None for never."""

    def read(self, ends_at: float) -> bool:
        """Process at least one message until the turn ends; returns whether input is left."""

    def pace_reading(self) -> None:
        """Resume or pause reading from the socket, depending on the connection's state."""


GROWTH_STEP: Final = 500  # opened connections between two calls of `on_grown`


class ConnectionRegistry:
    """The open connections of this node, also by key."""

    def __init__(self) -> None:
        self.on_counted: Signal[[str, int]] = Signal()  # key, number of its connections
        self.on_grown: Signal[[]] = Signal()  # `GROWTH_STEP` connections were opened
        self._opened = 0
        self.uncharged: list[ClientOutput] = []  # clients with bytes not charged yet, each once
        self._members: set[ClientPort] = set()
        self._by_key: dict[str, set[ClientPort]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClientPort]:
        """Iterate over a copy, because connections may be removed meanwhile."""
        return iter(tuple(self._members))

    def __contains__(self, member: ClientPort) -> bool:
        return member in self._members

    @property
    def by_key(self) -> Mapping[str, set[ClientPort]]:
        """The open connections by key."""
        return self._by_key

    def of_key(self, key_id: str) -> tuple[ClientPort, ...]:
        """The connections of a key."""
        return tuple(self._by_key.get(key_id, ()))

    def add(self, member: ClientPort) -> None:
        """Add an open connection."""
        self._members.add(member)
        self._opened += 1
        if self._opened % GROWTH_STEP == 0:
            self.on_grown()

    def remove(self, member: ClientPort) -> None:
        """Remove a closed connection."""
        self._members.discard(member)

    def join_key(self, key_id: str, member: ClientPort) -> None:
        """Count a connection that authenticated with a key."""
        group = self._by_key.setdefault(key_id, set())
        group.add(member)
        self.on_counted(key_id, len(group))

    def leave_key(self, key_id: str, member: ClientPort) -> None:
        """Stop counting a connection against its key."""
        group = self._by_key.get(key_id)
        if group is None:
            return
        group.discard(member)
        if not group:
            del self._by_key[key_id]
        self.on_counted(key_id, len(group))
