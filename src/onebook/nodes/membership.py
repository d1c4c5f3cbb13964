"""Membership: the live nodes, and which of them serves a book. Sans-I/O.

A node is alive while its heartbeats arrive in time. Late heartbeats do not count, because books
from that node are just as late. A node also receives its own heartbeats: if they stop arriving, it
is cut off from NATS and considers no node alive. Timeouts are counted in ticks of limited length,
so that a pause of this process does not expire the other nodes.

Books are assigned by rendezvous hashing (https://en.wikipedia.org/wiki/Rendezvous_hashing): every
node computes the same ranking from the same set of nodes, without a leader. If a node leaves, each
of its books moves to the next node in the book's ranking; no other book moves.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from msgspec import Struct, msgpack

from onebook.nodes import wire
from onebook.nodes.payloads import (
    Count,
    NodeId,
    PayloadReader,
    RelayedTime,
    Seq,
    Time,
    TimeSpan,
    WireVersion,
)

TICKS_MAX: Final = 3.0  # maximum length of a tick in planned intervals
NODES_MAX: Final = 1_000  # maximum nodes remembered; others are ignored
HEARTBEAT_BYTES_MAX: Final = 262_144  # enough for NODES_MAX clocks and all exchanges
CLOCKS_KEPT_S: Final = 60.0  # how long the clock of a silent node is remembered
# The wire version of a heartbeat that omits it. It must not be this build's version, or each side
# would take the other's omitted version for its own.
WIRE_OMITTED: Final = 1


class NodeRole(StrEnum):
    """The role of a node."""

    FEEDS = "feeds"
    GATEWAY = "gateway"
    RECORDER = "recorder"


class NodeState(StrEnum):
    """Whether a node accepts books or clients."""

    UP = "up"
    DRAINING = "draining"
    GONE = "gone"  # its last heartbeat: it has stopped


class NodeHeartbeat(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a node, published several times a second as a MessagePack map.

    Unknown members are ignored, so that releases can add members. `sent_us` is the sender's
    monotonic time. `clocks` returns to each node its own `sent_us` plus the time since it was
    received, so that a node can measure the round trip to the sender without comparing clocks.
    `exchange_clocks` are the clocks of exchanges at `sent_us` with their resolutions
    (`ClockSkew.reading`); only some heartbeats contain them.
    """

    node: NodeId
    name: str
    role: NodeRole
    state: NodeState = NodeState.UP
    wire: WireVersion = WIRE_OMITTED
    version: str = ""
    url: str = ""
    started_ms: Time = 0
    sent_us: Time = 0
    wants_seq: Seq = 0  # of a gateway: number of its last change of interest
    wanted: Count = 0  # of a gateway: number of books its clients subscribe to
    books: Count = 0  # number of open books
    live: Count = 0  # number of live books
    lists: Mapping[str, str] = {}  # of a feeds node: digest of each instrument list
    states: Mapping[str, str] = {}  # of a feeds node: state of each exchange
    problems: Mapping[str, str] = {}  # of a feeds node: why a list cannot be read
    clocks: Mapping[NodeId, RelayedTime] = {}  # of a feeds node: clocks of other nodes in us
    exchange_clocks: Mapping[str, tuple[Time, TimeSpan]] = {}  # of a feeds node


_heartbeat = PayloadReader(NodeHeartbeat, bytes_max=HEARTBEAT_BYTES_MAX)


def encode_heartbeat(heartbeat: NodeHeartbeat) -> bytes:
    """Encode a heartbeat."""
    return msgpack.encode(heartbeat)


def heartbeat_of(payload: bytes) -> NodeHeartbeat:
    """Decode a heartbeat.

    Raises:
        WireError: The payload is invalid.
    """
    return _heartbeat.read(payload)


class Member:
    """A node's last heartbeat and its age in seconds."""

    __slots__ = ("age_s", "heartbeat")

    def __init__(self, heartbeat: NodeHeartbeat) -> None:
        self.heartbeat = heartbeat
        self.age_s = 0.0


class Members:
    """The live nodes, including this one.

    `incompatible` are nodes of another wire version, `late` are nodes whose heartbeats arrive late.
    Neither are members; both are shown to operators.

    Args:
        node: The id of this node.
        timeout_s: Seconds without a heartbeat after which a node is dead.
        tick_s: Seconds between calls of `tick`.
    """

    def __init__(self, node: int, *, timeout_s: float, tick_s: float) -> None:
        self.node = node
        self._timeout_s = timeout_s
        self._tick_max_s = tick_s * TICKS_MAX
        self._members: dict[int, Member] = {}
        self._strangers: dict[int, Member] = {}
        self._late: dict[int, Member] = {}
        self._clocks: dict[int, tuple[int, float]] = {}  # sent_us, time of receipt
        self._ticked_at: float | None = None
        self._echo_age_s = 0.0  # since this node's own heartbeat last returned in time
        self._echoed = False

    @property
    def connected(self) -> bool:
        """Whether this node's own heartbeats return to it."""
        return self._echoed and self._echo_age_s < self._timeout_s

    @property
    def incompatible(self) -> dict[int, NodeHeartbeat]:
        """The nodes of another wire version."""
        return {node: member.heartbeat for node, member in self._strangers.items()}

    @property
    def late(self) -> dict[int, NodeHeartbeat]:
        """The nodes whose heartbeats arrive late."""
        return {node: member.heartbeat for node, member in self._late.items()}

    def clocks(self, now: float) -> dict[int, int]:
        """Return the `clocks` of a heartbeat sent now."""
        self._clocks = {
            node: clock for node, clock in self._clocks.items() if now - clock[1] < CLOCKS_KEPT_S
        }
        return {
            node: sent_us + round((now - received_at) * 1e6)
            for node, (sent_us, received_at) in self._clocks.items()
        }

    @property
    def isolated_s(self) -> float:
        """Seconds since a heartbeat of this node last returned in time."""
        return self._echo_age_s

    def received(self, heartbeat: NodeHeartbeat, now: float) -> bool:
        """Apply a heartbeat; return whether the live nodes or a node's state changed."""
        was_connected = self.connected
        return self._apply(heartbeat, now) or was_connected != self.connected

    def _apply(self, heartbeat: NodeHeartbeat, now: float) -> bool:
        node = heartbeat.node
        if node == self.node and now - heartbeat.sent_us / 1e6 <= self._timeout_s:
            self._echo_age_s, self._echoed = 0.0, True
        if heartbeat.wire != wire.VERSION:
            if heartbeat.state is NodeState.GONE:
                self._strangers.pop(node, None)
            elif node in self._strangers or len(self._strangers) < NODES_MAX:
                self._strangers[node] = Member(heartbeat)
            return False
        if heartbeat.state is NodeState.GONE:
            self._late.pop(node, None)
            self._clocks.pop(node, None)
            return self._members.pop(node, None) is not None
        if node != self.node and (node in self._clocks or len(self._clocks) < NODES_MAX):
            self._clocks[node] = heartbeat.sent_us, now
        if self._is_late(heartbeat, now):
            if node in self._late or len(self._late) < NODES_MAX:
                self._late[node] = Member(heartbeat)
            return False
        self._late.pop(node, None)
        member = self._members.get(node)
        if member is None:
            if len(self._members) >= NODES_MAX:
                return False
            self._members[node] = Member(heartbeat)
            return True
        before, member.heartbeat, member.age_s = member.heartbeat, heartbeat, 0.0
        return (
            before.state is not heartbeat.state or before.states.keys() != heartbeat.states.keys()
        )

    def _is_late(self, heartbeat: NodeHeartbeat, now: float) -> bool:
        """Whether the round trip from this node to the sender and back exceeds the timeout."""
        mine_us = heartbeat.clocks.get(self.node)  # missing from new nodes and earlier releases
        return mine_us is not None and now - mine_us / 1e6 > self._timeout_s

    def tick(self, now: float) -> bool:
        """Advance time; return whether a node died or this one lost or regained its connection."""
        was_connected = self.connected
        passed_s = 0.0 if self._ticked_at is None else min(now - self._ticked_at, self._tick_max_s)
        self._ticked_at = now
        self._echo_age_s += passed_s
        self._expire(self._strangers, passed_s)
        self._expire(self._late, passed_s)
        return self._expire(self._members, passed_s) or was_connected != self.connected

    def _expire(self, nodes: dict[int, Member], passed_s: float) -> bool:
        dead = []
        for node, member in nodes.items():
            member.age_s += passed_s
            if member.age_s >= self._timeout_s:
                dead.append(node)
        for node in dead:
            del nodes[node]
        return bool(dead)

    def alive(self, role: NodeRole) -> dict[int, NodeHeartbeat]:
        """The live nodes of a role; none while this node is disconnected."""
        if not self.connected:
            return {}
        return {
            node: member.heartbeat
            for node, member in self._members.items()
            if member.heartbeat.role is role
        }

    def followers(self) -> dict[int, NodeHeartbeat]:
        """The live nodes that follow books of feeds nodes: gateways and recorders."""
        return {**self.alive(NodeRole.GATEWAY), **self.alive(NodeRole.RECORDER)}

    def serving(self, exchange: str) -> list[int]:
        """The feeds nodes that accept books of an exchange."""
        return [
            node
            for node, each in self.alive(NodeRole.FEEDS).items()
            if each.state is NodeState.UP and exchange in each.states
        ]

    def draining(self) -> list[int]:
        """The feeds nodes that still serve books but accept no more."""
        feeds = self.alive(NodeRole.FEEDS)
        return [node for node, each in feeds.items() if each.state is NodeState.DRAINING]


def ranking(name: str, nodes: Iterable[int]) -> tuple[int, ...]:
    """Rank the nodes for a name, serving node first; every node gets the same ranking."""
    encoded = name.encode()
    return tuple(sorted(nodes, key=lambda node: (_weight(encoded, node), node), reverse=True))


def _weight(name: bytes, node: int) -> bytes:
    return blake2b(name, digest_size=8, key=node.to_bytes(8, "little")).digest()
