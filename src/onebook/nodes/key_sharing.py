"""Shares counts per key between gateways over NATS: tokens taken and open connections.

The connection limit of a key includes its connections on all gateways. If two gateways accept a
connection at the same moment, every gateway computes which one exceeds the limit, and its gateway
closes it. While NATS is unreachable, a gateway counts only its own connections.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, Final, Self, TypeVar

from msgspec import Meta, Struct, msgpack

from onebook.clock import SYSTEM_CLOCK, Clock, next_tick
from onebook.config import TierSettings
from onebook.nodes.key_rates import ROUND_S, TAKEN_S_MAX, SharedRateLimiter
from onebook.nodes.membership import NodeRole
from onebook.nodes.nats import NatsBus
from onebook.nodes.payloads import Count, NodeId, PayloadReader, WireError, sender_of
from onebook.nodes.presence import Presence
from onebook.signals import Signal

T = TypeVar("T")

log = logging.getLogger("onebook.nodes")

KEYS_PER_MESSAGE: Final = 5_000
REFRESH_S: Final = 1.0  # interval of sending all counts, for gateways that missed some


TakenSeconds = Annotated[float, Meta(ge=0, le=TAKEN_S_MAX)]


class KeyTally(Struct, frozen=True, kw_only=True):
    """Tokens that a gateway took since its last message, and its open connections, by key.

    `taken` is in seconds of the key's bucket (`key_rates`), so that it needs no tier.
    """

    gateway: NodeId
    taken: dict[str, TakenSeconds] = {}
    connections: dict[str, Count] = {}
    whole: bool = False  # the first page of all connections: keys on no page have none


_tally = PayloadReader(KeyTally)


class PeerConnections:
    """Number of each key's connections on other gateways. Sans-I/O."""

    def __init__(self, node: int) -> None:
        self._node = node
        self._of: dict[int, dict[str, int]] = {}

    def received(self, tally: KeyTally) -> None:
        """Apply the counts of a gateway."""
        if tally.whole:
            self._of[tally.gateway] = {}
        counts = self._of.setdefault(tally.gateway, {})
        for key_id, count in tally.connections.items():
            if count > 0:
                counts[key_id] = count
            else:
                counts.pop(key_id, None)

    def keep(self, gateways: Mapping[int, object]) -> None:
        """Forget the gateways that have left."""
        for gateway in [each for each in self._of if each not in gateways]:
            del self._of[gateway]

    def elsewhere(self, key_id: str) -> int:
        """Connections of a key on the other gateways."""
        return sum(counts.get(key_id, 0) for counts in self._of.values())

    def allowed_here(self, key_id: str, connections_max: int) -> int:
        """Connections that this node may keep; nodes with lower ids take precedence."""
        before = sum(
            counts.get(key_id, 0) for gateway, counts in self._of.items() if gateway < self._node
        )
        return max(0, connections_max - before)


class KeySharing:
    """Publishes this gateway's counts and applies those of the others, while entered.

    `on_counted` is called with a key that is connected here when its count elsewhere has changed.
    """

    def __init__(
        self,
        presence: Presence,
        *,
        bus: NatsBus,
        tiers: TierSettings,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.rates = SharedRateLimiter(tiers, gateways=lambda: len(self._gateways()))
        self.peers = PeerConnections(presence.node)
        self.on_counted: Signal[[str]] = Signal()
        self._presence = presence
        self._bus = bus
        self._clock = clock
        self._subject = f"{presence.subjects.interest}.keys"
        self._counts: dict[str, int] = {}
        self._changed: dict[str, int] = {}
        self._telling = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._bus.subscribe(self._subject, self._received)
        self._task = asyncio.create_task(self._keep(), name="keys of other gateways")
        return self

    async def __aexit__(self, *details: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def elsewhere(self, key_id: str) -> int:
        """Connections of a key on other live gateways."""
        return self.peers.elsewhere(key_id) if self._presence.members.connected else 0

    def allowed_here(self, key_id: str, connections_max: int) -> int:
        """Connections of the key that this gateway may keep."""
        return self.peers.allowed_here(key_id, connections_max)

    def counted(self, key_id: str, count: int) -> None:
        """Publish the changed number of a key's connections here."""
        if count:
            self._counts[key_id] = count
        else:
            self._counts.pop(key_id, None)
        self._changed[key_id] = count
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _gateways(self) -> Mapping[int, object]:
        return self._presence.members.alive(NodeRole.GATEWAY)

    def _tell(self) -> None:
        self._telling = False
        changed, self._changed = self._changed, {}
        for page in _pages(changed):
            self._publish(KeyTally(gateway=self._presence.node, connections=page))

    def _publish(self, tally: KeyTally) -> None:
        self._bus.publish(self._subject, msgpack.encode(tally))

    def _received(self, payload: bytes, reply: str) -> None:
        refusals, members = self._presence.refusals, self._presence.members
        try:
            tally = _tally.read(payload)
        except WireError as error:
            refusals.refused("keys", error, sender_of(payload))
            return
        if tally.gateway == self._presence.node or not members.connected:
            return
        if tally.gateway not in self._gateways():
            refusals.unknown("keys")
            return
        self.rates.received(tally.gateway, tally.taken, self._clock.monotonic())
        self.peers.received(tally)
        for key_id in tally.connections:
            if key_id in self._counts:
                self.on_counted(key_id)

    async def _keep(self) -> None:
        """Publish the taken tokens each round, and all counts every `REFRESH_S`."""
        refreshed_at = float("-inf")
        while True:
            now = self._clock.monotonic()
            await self._clock.sleep(next_tick(now, ROUND_S) - now)
            try:
                for page in _pages(self.rates.round()):
                    self._publish(KeyTally(gateway=self._presence.node, taken=page))
                if self._clock.monotonic() - refreshed_at >= REFRESH_S:
                    refreshed_at = self._clock.monotonic()
                    self._refresh()
            except Exception:
                log.exception("Publishing counts of keys failed.")

    def _refresh(self) -> None:
        if self._presence.members.connected:
            self.peers.keep(self._gateways())
        for number, page in enumerate(_pages(self._counts) or [{}]):
            self._publish(
                KeyTally(gateway=self._presence.node, connections=page, whole=number == 0)
            )


def _pages(counts: Mapping[str, T]) -> list[dict[str, T]]:
    """Split counts into parts that each fit into one message."""
    items = [*counts.items()]
    return [
        dict(items[begin : begin + KEYS_PER_MESSAGE])
        for begin in range(0, len(items), KEYS_PER_MESSAGE)
    ]
