"""Merges all sources into one sequence, newest first, ties by id; each record once."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

from onebook.transactions.walk import NOTHING_LEFT_MS, Demand, Keyed, Walker

BATCH_MAX: Final = 200  # records between two turns of the event loop
UNPLACED_MAX: Final = 40  # ids in a cursor
UNPLACED_CHARS: Final = 18  # of an id: 64 bits


class Once:
    """Passes each event once, though two sources return it: a query and the same query filtered.

    One event has one place in both, unless its row has no time: its place is then that of its
    neighbours, which are others in another list, and in the next answer.

    Args:
        unplaced: What `unplaced` was at the end of the answer before.
    """

    def __init__(self, unplaced: Iterable[str] = ()) -> None:
        self._last_id = ""
        self._unplaced = dict.fromkeys(unplaced)

    @property
    def unplaced(self) -> tuple[str, ...]:
        """The newest ids without a place of their own, as the cursor carries them."""
        return tuple(self._unplaced)[-UNPLACED_MAX:]

    def passes(self, keyed: Keyed) -> bool:
        """Whether this is the first time."""
        record_id = keyed[0].record_id
        if record_id == self._last_id:
            return False
        self._last_id = record_id
        if "timestamp" not in keyed[1].incomplete:
            return True
        begin = record_id[:UNPLACED_CHARS]
        new = begin not in self._unplaced
        self._unplaced[begin] = None
        return new


async def merged(
    walkers: Sequence[Walker],
    progress: asyncio.Event,
    *,
    limit: int | None,
    demand: Demand | None = None,
    once: Once | None = None,
) -> AsyncGenerator[list[Keyed]]:
    """Every record of every walker in order, in small batches as they become certain.

    A record is emitted once no walker can still return a newer one: those with records ready
    are compared by their first, those without by their watermark.
    """
    left, once = limit, once or Once()
    while left is None or left > 0:
        progress.clear()
        batch = _certain(walkers, BATCH_MAX if left is None else min(left, BATCH_MAX), once)
        _raise_defects(walkers)
        if batch:
            left = None if left is None else left - len(batch)
            yield batch
            await asyncio.sleep(0)  # the caller has encoded them: others have their turn
        elif all(walker.finished and not walker.ready for walker in walkers):
            return
        else:
            if demand is not None:
                demand.update(walkers, left)
            await progress.wait()


def _certain(walkers: Sequence[Walker], left: int, once: Once) -> list[Keyed]:
    """Records whose order is final, at most `left`."""
    batch: list[Keyed] = []
    watermark_ms = max((_watermark(walker) for walker in walkers), default=NOTHING_LEFT_MS)
    while len(batch) < left and (walker := _next(walkers, watermark_ms)):
        keyed = walker.pop()
        if once.passes(keyed):
            batch.append(keyed)
        if not walker.ready:
            watermark_ms = max(watermark_ms, _watermark(walker))
    return batch


def _watermark(walker: Walker) -> int:
    """The newest time at which this walker could still return a record that is not ready."""
    return NOTHING_LEFT_MS if walker.ready or walker.finished else walker.watermark_ms


def _next(walkers: Sequence[Walker], watermark_ms: int) -> Walker | None:
    """The walker whose first record is the newest of all, if nothing newer can come."""
    first: Walker | None = None
    for walker in walkers:
        if walker.ready and (first is None or walker.ready[0][0] < first.ready[0][0]):
            first = walker
    return first if first and first.ready[0][0].negative_ms < -watermark_ms else None


def _raise_defects(walkers: Sequence[Walker]) -> None:
    for walker in walkers:
        if walker.defect is not None:
            raise walker.defect
