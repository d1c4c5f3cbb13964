"""Which books this feeds node serves, takes and hands over: make before break. Sans-I/O.

A book that another node is to serve is kept until that node says that it is live there, and a
moment longer; or until `handover_max_s` is over. A book that nobody wants lingers, as long as this
node would be the one to serve it.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from onebook.nodes.demand import Demand


class Hold(Enum):
    """Why a book is open here."""

    SERVING = "serving"
    LINGERING = "lingering"  # nobody wants it
    LEAVING = "leaving"  # another node takes it over
    TAKEN = "taken"  # it is live there


class Tenancy(NamedTuple):
    """How a book is held, and since when."""

    hold: Hold
    since: float


class Changes(NamedTuple):
    """What to open and what to close now."""

    opened: list[str]
    closed: list[str]


class Tenure:
    """The books of this node.

    Args:
        node: This node.
        ranking: The nodes that may serve a book, best first, as of now.
        linger_s: How long a book that nobody wants is kept.
        handover_max_s: How long a book is kept for another node to take over.
        grace_s: How long it is kept once that node has it live.
    """

    def __init__(
        self,
        node: int,
        *,
        ranking: Callable[[str], Sequence[int]],
        linger_s: float,
        handover_max_s: float,
        grace_s: float,
    ) -> None:
        self._node = node
        self._ranking = ranking
        self._linger_s = linger_s
        self._handover_max_s = handover_max_s
        self._grace_s = grace_s
        self._held: dict[str, Tenancy] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def keys(self) -> Iterable[str]:
        """The books that are open here."""
        return self._held.keys()

    def leaving(self) -> dict[str, int]:
        """The books that other nodes are to take over, with the node of each."""
        found = {}
        for key, tenancy in self._held.items():
            if tenancy.hold is Hold.LEAVING:
                nodes = self._ranking(key)
                if nodes:
                    found[key] = nodes[0]
        return found

    def taken(self, keys: Iterable[str], now: float) -> None:
        """Another node has these books live."""
        for key in keys:
            tenancy = self._held.get(key)
            if tenancy is not None and tenancy.hold is Hold.LEAVING:
                self._held[key] = Tenancy(Hold.TAKEN, now)

    @property
    def moving(self) -> bool:
        """Whether a book waits for time to pass."""
        return any(each.hold is not Hold.SERVING for each in self._held.values())

    def update(self, demand: Demand, now: float, keys: Iterable[str] | None = None) -> Changes:
        """Decide by who is alive and what is wanted now, of all books or of `keys`."""
        changes = Changes([], [])
        for key in demand.keys() if keys is None else keys:
            if key not in self._held and key in demand and self._mine(key):
                self._held[key] = Tenancy(Hold.SERVING, now)
                changes.opened.append(key)
        for key in list(self._held) if keys is None else keys:
            tenancy = self._held.get(key)
            if tenancy is None:
                continue
            hold = self._hold(key, tenancy, demand, now)
            if hold is None:
                del self._held[key]
                changes.closed.append(key)
            elif hold is not tenancy.hold:
                self._held[key] = Tenancy(hold, now)
        return changes

    def abandon(self) -> list[str]:
        """Close everything: other nodes serve it by now."""
        keys = [*self._held]
        self._held.clear()
        return keys

    def _mine(self, key: str) -> bool:
        nodes = self._ranking(key)
        return bool(nodes) and nodes[0] == self._node

    def _hold(self, key: str, tenancy: Tenancy, demand: Demand, now: float) -> Hold | None:
        """How the book is to be held from now on; None: not any more."""
        waited_s = now - tenancy.since
        nodes = self._ranking(key)
        if key not in demand:
            if nodes and nodes[0] != self._node:
                return None
            lingers = tenancy.hold is Hold.LINGERING
            return None if lingers and waited_s >= self._linger_s else Hold.LINGERING
        if not nodes:
            return Hold.SERVING if tenancy.hold is Hold.LINGERING else tenancy.hold
        if nodes[0] == self._node:
            return Hold.SERVING
        if tenancy.hold is Hold.TAKEN:
            return None if waited_s >= self._grace_s else Hold.TAKEN
        if tenancy.hold is Hold.LEAVING:
            return None if waited_s >= self._handover_max_s else Hold.LEAVING
        return Hold.LEAVING
