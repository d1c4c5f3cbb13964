"""Ownership of books on this node and their make-before-break handover. Sans-I/O.

A book that moves to another node is kept until that node reports it live, plus a grace period, but
at most `handover_max_s`. A book without subscribers is kept for `linger_s`, unless another node
ranks first for it.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from onebook.nodes.interest import GatewayInterest

HANDOVER_MAX_S: Final = 10.0


class Hold(Enum):
    """Why a book is still open here."""

    SERVING = "serving"
    LINGERING = "lingering"  # no gateway subscribes to it
    LEAVING = "leaving"  # another node takes it over
    TAKEN = "taken"  # it is live on the other node


class OwnedBook(NamedTuple):
    """State of an open book and since when it has it."""

    hold: Hold
    since: float


class OwnershipChanges(NamedTuple):
    """Books to open and books to close."""

    opened: list[str]
    closed: list[str]


class Ownership:
    """The open books of this node, and the decisions to open and close them.

    Args:
        node: This node.
        ranking: Returns the nodes that may serve a book now, best first.
        linger_s: Seconds a book without subscribers is kept.
        handover_max_s: Maximum seconds a book is kept until it is live on another node.
        grace_s: Seconds it is kept after it is live there.
    """

    def __init__(
        self,
        node: int,
        *,
        ranking: Callable[[str], Sequence[int]],
        linger_s: float,
        grace_s: float,
        handover_max_s: float = HANDOVER_MAX_S,
    ) -> None:
        self._node = node
        self._ranking = ranking
        self._linger_s = linger_s
        self._handover_max_s = handover_max_s
        self._grace_s = grace_s
        self._held: dict[str, OwnedBook] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def keys(self) -> Iterable[str]:
        """The open books."""
        return self._held.keys()

    def leaving(self) -> dict[str, int]:
        """The books that move to other nodes, each with its new node."""
        found = {}
        for key, owned in self._held.items():
            if owned.hold is Hold.LEAVING:
                nodes = self._ranking(key)
                if nodes:
                    found[key] = nodes[0]
        return found

    def live_elsewhere(self, keys: Iterable[str], now: float) -> None:
        """Record that the books' new node reports them live."""
        for key in keys:
            owned = self._held.get(key)
            if owned is not None and owned.hold is Hold.LEAVING:
                self._held[key] = OwnedBook(Hold.TAKEN, now)

    @property
    def moving(self) -> bool:
        """Return whether the timeout of any book is running."""
        return any(each.hold is not Hold.SERVING for each in self._held.values())

    def update(
        self, interest: GatewayInterest, now: float, keys: Iterable[str] | None = None
    ) -> OwnershipChanges:
        """Decide which of all books, or of `keys`, to open and close."""
        changes = OwnershipChanges([], [])
        for key in interest.keys() if keys is None else keys:
            if key not in self._held and key in interest and self._mine(key):
                self._held[key] = OwnedBook(Hold.SERVING, now)
                changes.opened.append(key)
        for key in list(self._held) if keys is None else keys:
            owned = self._held.get(key)
            if owned is None:
                continue
            hold = self._next_hold(key, owned, interest, now)
            if hold is None:
                del self._held[key]
                changes.closed.append(key)
            elif hold is not owned.hold:
                self._held[key] = OwnedBook(hold, now)
        return changes

    def abandon(self) -> list[str]:
        """Give up all books, because other nodes serve them by now; return them."""
        keys = [*self._held]
        self._held.clear()
        return keys

    def _mine(self, key: str) -> bool:
        nodes = self._ranking(key)
        return bool(nodes) and nodes[0] == self._node

    def _next_hold(
        self, key: str, owned: OwnedBook, interest: GatewayInterest, now: float
    ) -> Hold | None:
        """Return the next state of the book; None to close it."""
        waited_s = now - owned.since
        nodes = self._ranking(key)
        if key not in interest:
            if nodes and nodes[0] != self._node:
                return None
            lingers = owned.hold is Hold.LINGERING
            return None if lingers and waited_s >= self._linger_s else Hold.LINGERING
        if not nodes:
            return Hold.SERVING if owned.hold is Hold.LINGERING else owned.hold
        if nodes[0] == self._node:
            return Hold.SERVING
        if owned.hold is Hold.TAKEN:
            return None if waited_s >= self._grace_s else Hold.TAKEN
        if owned.hold is Hold.LEAVING:
            return None if waited_s >= self._handover_max_s else Hold.LEAVING
        return Hold.LEAVING
