"""The distinct views of each key, over all of its connections: what its tier limits."""

from onebook.streams import StreamKey


class KeyViews:
    """How many connections of a key subscribe to each view."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[StreamKey, int]] = {}

    def count(self, key_id: str) -> int:
        """How many distinct views a key has."""
        return len(self._counts.get(key_id, ()))

    def has_room(
        self, key_id: str, view: StreamKey, views_max: int, *, instead_of: StreamKey | None = None
    ) -> bool:
        """Whether a key may subscribe to a view, in place of `instead_of`."""
        counts = self._counts.get(key_id, {})
        freed = instead_of is not None and counts.get(instead_of) == 1
        return view in counts or len(counts) - freed < views_max

    def join(self, key_id: str, view: StreamKey) -> None:
        """A connection of the key subscribes to the view."""
        counts = self._counts.setdefault(key_id, {})
        counts[view] = counts.get(view, 0) + 1

    def leave(self, key_id: str, view: StreamKey) -> None:
        """A connection of the key unsubscribes from the view."""
        counts = self._counts[key_id]
        counts[view] -= 1
        if not counts[view]:
            del counts[view]
            if not counts:
                del self._counts[key_id]
