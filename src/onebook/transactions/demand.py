"""How far back an answer reaches at most: what it does not need is not asked for."""

import asyncio
import heapq
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from onebook.transactions.ordering import Keyed

SMALL_ANSWER: Final = 100  # up to here nothing is read ahead before every source has begun
DEMAND_MAX: Final = 1_000  # records for which it is worth finding out how far back they reach
NOTHING_LEFT_MS: Final = -(1 << 61)


class Supply(Protocol):
    """The part of a walker that demand reads."""

    ready: deque[Keyed]
    begun: bool
    finished: bool


class Demand:
    """How far back an answer reaches at most: what is older is not read.

    Args:
        limit: Records of the answer; None for all.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._horizon_ms = NOTHING_LEFT_MS
        self._bounded = limit is not None and limit <= DEMAND_MAX
        self._open = limit is None or limit > SMALL_ANSWER
        self._changed = asyncio.Event()

    def update(self, walkers: Sequence[Supply], left: int | None) -> None:
        """Update from the buffered records; `left` more records are needed."""
        if not self._bounded or left is None:
            return
        begun = self._open or all(walker.begun or walker.finished for walker in walkers)
        horizon_ms = self._horizon_ms
        if sum(len(walker.ready) for walker in walkers) >= left:
            # Two sources of one event count once.
            keys = {keyed[0] for walker in walkers for keyed in walker.ready}
            if len(keys) >= left:
                horizon_ms = -heapq.nsmallest(left, keys)[-1].negative_ms
        if (begun, horizon_ms) != (self._open, self._horizon_ms):
            self._open, self._horizon_ms = begun, horizon_ms
            self._changed.set()

    def needs(self, newest_ms: int) -> bool:
        """Whether records of this time and older may still be in the answer."""
        return self._open and newest_ms >= self._horizon_ms

    async def wanted(self, newest_ms: int) -> None:
        """Wait until records of this time and older are needed."""
        while not self.needs(newest_ms):
            self._changed.clear()
            await self._changed.wait()
