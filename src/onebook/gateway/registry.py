"""Registry of open connections: counts them and finds those of a key."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from onebook.signals import Signal

M = TypeVar("M", bound=Hashable)


class ConnectionRegistry(Generic[M]):
    """Every open connection of this node, and those of each key."""

    def __init__(self) -> None:
        self.on_counted: Signal[[str, int]] = Signal()  # how many a key has now
        self._members: set[M] = set()
        self._by_key: dict[str, set[M]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[M]:
        """Iterates over a copy: connections may be removed meanwhile."""
        return iter(tuple(self._members))

    def __contains__(self, member: M) -> bool:
        return member in self._members

    @property
    def by_key(self) -> Mapping[str, set[M]]:
        """The open connections by key."""
        return self._by_key

    def of_key(self, key_id: str) -> tuple[M, ...]:
        """The connections of a key."""
        return tuple(self._by_key.get(key_id, ()))

    def add(self, member: M) -> None:
        """A connection is open."""
        self._members.add(member)

    def remove(self, member: M) -> None:
        """A connection is closed."""
        self._members.discard(member)

    def join_key(self, key_id: str, member: M) -> None:
        """A connection has authenticated with a key."""
        group = self._by_key.setdefault(key_id, set())
        group.add(member)
        self.on_counted(key_id, len(group))

    def leave_key(self, key_id: str, member: M) -> None:
        """A connection does not count for a key any more."""
        group = self._by_key.get(key_id)
        if group is None:
            return
        group.discard(member)
        if not group:
            del self._by_key[key_id]
        self.on_counted(key_id, len(group))
