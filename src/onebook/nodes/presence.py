"""Sends and receives heartbeats; drives `Members`."""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from os import getpid
from typing import Final, Self

from msgspec.structs import replace
from prometheus_client import Gauge

from onebook import __version__
from onebook.clock import SYSTEM_CLOCK, Clock, next_tick
from onebook.config import NodeSettings
from onebook.nodes import wire
from onebook.nodes.membership import (
    NODES_MAX,
    Members,
    NodeHeartbeat,
    NodeRole,
    NodeState,
    encode_heartbeat,
    heartbeat_of,
)
from onebook.nodes.nats import NatsBus
from onebook.nodes.payloads import WireError, sender_of
from onebook.nodes.refusals import Refusals
from onebook.nodes.subjects import Subjects
from onebook.signals import Signal

log = logging.getLogger("onebook.nodes")

TICK_S: Final = 0.05
HEARTBEAT_INTERVAL_S: Final = 0.2

NODES: Final = Gauge("onebook_nodes", "Live nodes seen by this node.", ["role"])
STRANGERS: Final = Gauge(
    "onebook_nodes_incompatible", "Live nodes with another version of the node protocol."
)


def new_node_id() -> int:
    """Return a random id for this run of a node."""
    return secrets.randbits(63)


async def listen(bus: NatsBus, settings: NodeSettings) -> list[NodeHeartbeat]:
    """Return the last heartbeat of each live node of a cluster, by role and name."""
    last: dict[int, NodeHeartbeat] = {}

    def received(payload: bytes, reply: str) -> None:
        try:
            heartbeat = heartbeat_of(payload)
        except WireError:
            return
        if heartbeat.node in last or len(last) < NODES_MAX:
            last[heartbeat.node] = heartbeat

    end = bus.subscribe(Subjects(settings.cluster).heartbeats, received)
    await asyncio.sleep(settings.heartbeat_timeout_s)
    end()
    return sorted(last.values(), key=lambda each: (each.role, each.name))


class Presence:
    """Sends heartbeats and tracks the other nodes, while entered.

    `on_changed` is called when the set of nodes or a node's state has changed, `on_heartbeat` with
    every heartbeat of a member, and `on_tick` frequently with the time.

    Args:
        node: This node.
        describe: Adds this node's books to its heartbeat.
    """

    def __init__(
        self,
        node: int,
        role: NodeRole,
        *,
        bus: NatsBus,
        settings: NodeSettings,
        describe: Callable[[NodeHeartbeat], NodeHeartbeat],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.node = node
        self.subjects = Subjects(settings.cluster)
        self.members = Members(node, timeout_s=settings.heartbeat_timeout_s, tick_s=TICK_S)
        self.on_changed: Signal[[]] = Signal()
        self.on_heartbeat: Signal[[NodeHeartbeat]] = Signal()
        self.on_tick: Signal[[float]] = Signal()
        self.refusals = Refusals(clock)
        self._bus = bus
        self._settings = settings
        self._describe = describe
        self._clock = clock
        self._state = NodeState.UP
        self._task: asyncio.Task[None] | None = None
        self._me = NodeHeartbeat(
            node=node,
            name=settings.name or f"{socket.gethostname()}-{getpid()}",
            role=role,
            wire=wire.VERSION,
            version=__version__,
            started_ms=clock.wall_ms(),
        )

    @property
    def name(self) -> str:
        """The name of this node for operators."""
        return self._me.name

    def problems(self) -> list[str]:
        """Return the reasons why this node receives no books, as sentences."""
        members = self.members
        if not members.connected:
            return ["NATS is unreachable."]
        if members.alive(NodeRole.FEEDS):
            return []
        for each in members.incompatible.values():
            if each.role is NodeRole.FEEDS:
                return [
                    f"No feeds node that this node can use is alive: {each.name} (Onebook "
                    f"{each.version}) speaks version {each.wire} of the node protocol, this node "
                    f"version {wire.VERSION}."
                ]
        late = [each.name for each in members.late.values() if each.role is NodeRole.FEEDS]
        if late:
            return [f"The messages of all feeds nodes arrive too late: {', '.join(sorted(late))}."]
        return ["No feeds node is alive."]

    def set_url(self, url: str) -> None:
        """Set the URL that this node announces."""
        self._me = replace(self._me, url=url)

    async def __aenter__(self) -> Self:
        self._bus.subscribe(self.subjects.heartbeats, self._received)
        self._task = asyncio.create_task(self._keep(), name="node heartbeats")
        return self

    async def __aexit__(self, *details: object) -> None:
        self.set_state(NodeState.GONE)
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        NODES.clear()
        STRANGERS.set(0)

    def set_state(self, state: NodeState) -> None:
        """Change the state of this node and publish it at once."""
        self._state = state
        self._send_heartbeat(self._clock.monotonic())

    def _send_heartbeat(self, now: float) -> None:
        clocks = self.members.clocks(now) if self._me.role is NodeRole.FEEDS else {}
        me = replace(self._me, state=self._state, sent_us=round(now * 1e6), clocks=clocks)
        self._bus.publish(self.subjects.heartbeats, encode_heartbeat(self._describe(me)))

    async def _keep(self) -> None:
        """Send heartbeats and expire nodes, even if a callback raises an exception."""
        heartbeat_at = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            try:
                if now >= heartbeat_at - TICK_S / 2:  # timers may be early
                    heartbeat_at = next_tick(now, HEARTBEAT_INTERVAL_S)
                    self._send_heartbeat(now)
                if self.members.tick(now):
                    self._changed()
                STRANGERS.set(len(self.members.incompatible))
                self.on_tick(now)
            except Exception:
                log.exception("A tick of the node's presence failed.")
            await self._clock.sleep(next_tick(now, TICK_S) - self._clock.monotonic())

    def _received(self, payload: bytes, reply: str) -> None:
        try:
            heartbeat = heartbeat_of(payload)
        except WireError as error:
            self.refusals.refused("heartbeat", error, sender_of(payload))
            return
        incompatible, late = self.members.incompatible, self.members.late
        if self.members.received(heartbeat, self._clock.monotonic()):
            self._changed()
        now_late = heartbeat.node in self.members.late.keys() - late.keys()
        if now_late and self.refusals.first("late", heartbeat.node):
            log.warning(
                "Messages of node %s take longer than %g s, so its books are stale. Check the "
                "network between it and NATS, and its CPU.",
                heartbeat.name,
                self._settings.heartbeat_timeout_s,
            )
        if heartbeat.wire == wire.VERSION:
            self.on_heartbeat(heartbeat)
            return
        new = heartbeat.node in self.members.incompatible.keys() - incompatible.keys()
        if new and self.refusals.first("incompatible", heartbeat.node):
            log.error(
                "Node %s (Onebook %s) speaks version %d of the node protocol, this node version "
                "%d, so they ignore each other. Keep feeds nodes and gateways of both versions "
                "until clients have moved to the new gateways, then stop the old nodes.",
                heartbeat.name,
                heartbeat.version,
                heartbeat.wire,
                wire.VERSION,
            )

    def _changed(self) -> None:
        for role in NodeRole:
            NODES.labels(role).set(len(self.members.alive(role)))
        self.on_changed()
