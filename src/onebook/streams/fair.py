"""Fair queue: serves owners round-robin, so that one with many items does not delay the others."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First in, first out for each owner; owners take turns, one item each."""

    def __init__(self) -> None:
        # In round-robin order; none is empty.
        self._lanes: OrderedDict[str, deque[T]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, owner: str, item: T) -> None:
        """Add an item of an owner; an owner without items is queued after all others."""
        lane = self._lanes.get(owner)
        if lane is None:
            lane = self._lanes[owner] = deque()
        lane.append(item)
        self._size += 1

    def take(self) -> T:
        """Remove the next item of the owner whose turn it is.

        Raises:
            IndexError: The queue is empty.
        """
        if not self._lanes:
            raise IndexError("the queue is empty")
        owner, lane = self._lanes.popitem(last=False)
        item = lane.popleft()
        self._size -= 1
        if lane:
            self._lanes[owner] = lane
        return item

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop the cancelled items; the others keep their places."""
        lanes = ((owner, deque(filter(wanted, lane))) for owner, lane in self._lanes.items())
        self._lanes = OrderedDict((owner, lane) for owner, lane in lanes if lane)
        self._size = sum(map(len, self._lanes.values()))
