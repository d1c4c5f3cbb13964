"""Puts records in order as they become final: sorts, joins, deduplicates, merges newest first.

An `Outlet` takes the pages of one walker, or of several whose rows are joined, and emits a record
once nothing newer can arrive. Its *watermark* is its progress: all records with a later time have
been emitted, so a merge of outlets need not wait for one without records. `merged` merges all
outlets into one sequence, ties by id.

Rows of one event are *joined* first (`Joiner`): an event with several rows is complete once
everything that could still belong to its group has been read, in whatever page, window or source.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush, nsmallest
from operator import attrgetter
from typing import Final

from msgspec import Struct

from onebook.transactions.adapter import EventRow, Page, SourceFailed
from onebook.transactions.record import FIRST, Record, RecordKey, key_of

BATCH_MAX: Final = 200  # records between two yields to the event loop
UNPLACED_MAX: Final = 40  # ids in a cursor
UNPLACED_CHARS: Final = 18  # per id: 64 bits
RECENT_MAX: Final = 2_000  # ids by which a repeated row is recognised
SMALL_ANSWER: Final = 100  # up to this size nothing is read ahead before every source has begun
DEMAND_MAX: Final = 1_000  # up to here, computing how far back the answer reaches pays off
NOTHING_LEFT_MS: Final = -(1 << 61)
NOT_STARTED_MS: Final = 1 << 61
READY_MAX: Final = 500
HELD_MAX: Final = 5_000  # rows of several walkers that wait for the slowest one

_at_ms: Final = attrgetter("at_ms")

Keyed = tuple[RecordKey, Record]
Join = Callable[[list[list[EventRow]]], Awaitable[Page]]


class Range:
    """Records that a walker has to read.

    Args:
        from_ms: Oldest record time, inclusive.
        to_ms: Newest record time, inclusive.
        after: Position of the last delivered record; only records after it are read.
    """

    __slots__ = ("after", "from_ms", "to_ms")

    def __init__(self, from_ms: int, to_ms: int, *, after: RecordKey = FIRST) -> None:
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.after = after


class EventGroup(Struct, gc=False, eq=False):
    """The rows of one event that have been read so far."""

    key: str
    newest_ms: int
    oldest_ms: int
    rows: dict[str, EventRow]

    def takes(self, row: EventRow, span_ms: int) -> bool:
        """Add a row, unless that would make the group longer than the span."""
        at_ms = row.at_ms
        if not self.newest_ms - span_ms <= at_ms <= self.oldest_ms + span_ms:
            return False
        if at_ms > self.newest_ms:
            self.newest_ms = at_ms
        if at_ms < self.oldest_ms:
            self.oldest_ms = at_ms
        self.rows[row.row_id] = row
        return True

    def newest_first(self) -> list[EventRow]:
        """The rows in order of time."""
        rows = list(self.rows.values())
        if len(rows) > 1:
            rows.sort(key=_at_ms, reverse=True)
        return rows


class Joiner:
    """Groups rows of one event until every row that could belong to it has been read.

    Groups are completed from a heap, so that those which wait for a slower walker cost nothing.

    Args:
        span_ms: Maximum time between the rows of one event.
    """

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        self._groups: dict[str, list[EventGroup]] = {}
        # Newest first, ties in order of arrival. A group that a newer row has joined has another
        # entry for it; the older entry no longer has the time of the group, and is skipped.
        self._by_time: list[tuple[int, int, EventGroup]] = []
        self._entries = 0
        self._passed_on: OrderedDict[str, None] = OrderedDict()
        self.held = 0  # rows in incomplete groups

    @property
    def newest_ms(self) -> int:
        """The time of the newest row in an incomplete group."""
        return -self._by_time[0][0] if self._groups else NOTHING_LEFT_MS

    def add(self, row: EventRow) -> None:
        """Add a row, unless it was already passed on."""
        if row.row_id in self._passed_on:
            return
        groups = self._groups.get(row.key)
        if groups is None:
            groups = self._groups[row.key] = []
        for group in groups:
            newest_ms, count = group.newest_ms, len(group.rows)
            if group.takes(row, self._span_ms):
                self.held += len(group.rows) - count
                if group.newest_ms > newest_ms:
                    self._enter(group)
                return
        group = EventGroup(row.key, row.at_ms, row.at_ms, {row.row_id: row})
        groups.append(group)
        self.held += 1
        self._enter(group)

    def _enter(self, group: EventGroup) -> None:
        self._entries += 1
        heappush(self._by_time, (-group.newest_ms, self._entries, group))

    def complete(self, watermark_ms: int) -> list[list[EventRow]]:
        """Remove and return the groups that can no longer grow, newest first."""
        by_time, passed_on = self._by_time, self._passed_on
        first_ms = -(watermark_ms + self._span_ms)  # as in the heap
        done: list[list[EventRow]] = []
        while by_time:
            negative_ms, _, group = by_time[0]
            replaced = group.newest_ms != -negative_ms
            if negative_ms >= first_ms and not replaced:
                break
            heappop(by_time)
            if replaced:
                continue
            groups = self._groups[group.key]
            if len(groups) == 1:
                del self._groups[group.key]
            else:
                groups.remove(group)
            for row_id in group.rows:
                passed_on[row_id] = None
            self.held -= len(group.rows)
            done.append(group.newest_first())
        while len(passed_on) > RECENT_MAX:
            passed_on.popitem(last=False)
        return done


class Sorter:
    """Sorts and deduplicates the records of one source as they arrive."""

    def __init__(self, wanted: Range) -> None:
        self._wanted = wanted
        self._held: list[Keyed] = []
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._last = FIRST
        self.disordered = 0
        self.duplicates = 0

    @property
    def held(self) -> int:
        """Number of records that are not final."""
        return len(self._held)

    def push(self, records: list[Record], *, snapshot: bool) -> None:
        """Add records; drop those that are out of range or already delivered."""
        for record in records:
            key = key_of(record)
            if not (self._snapshot_wanted(key) if snapshot else self._in_range(key)):
                continue
            if record.transactionId in self._seen:
                self.duplicates += 1
                continue
            self._seen[record.transactionId] = None
            heappush(self._held, (key, record))

    def _in_range(self, key: RecordKey) -> bool:
        wanted = self._wanted
        return wanted.from_ms <= -key.negative_ms <= wanted.to_ms and key > wanted.after

    def _snapshot_wanted(self, key: RecordKey) -> bool:
        """Select undelivered rows of a snapshot by id, because its time differs between pages."""
        return key.record_id > self._wanted.after.record_id

    def release(self, watermark_ms: int) -> Iterator[Keyed]:
        """Remove and return the records that are later than the watermark, in order."""
        while self._held and self._held[0][0].negative_ms < -watermark_ms:
            keyed = heappop(self._held)
            if keyed[0] < self._last:
                self.disordered += 1
            else:
                self._last = keyed[0]
            yield keyed
        while len(self._seen) - len(self._held) > RECENT_MAX:
            self._seen.popitem(last=False)


class Outlet:
    """Records of one walker, or of several whose rows are joined, in order as they become final.

    Args:
        wanted: The range to read.
        progress: Set whenever records may have become available.
        join: Builds records from groups of rows.
        join_ms: See `Source`.
        dropped: Types of records that were not requested.
        held_max: Records and rows of several walkers that may wait for the slowest of them.
    """

    def __init__(
        self,
        wanted: Range,
        progress: asyncio.Event,
        *,
        join: Join | None = None,
        join_ms: int = 0,
        dropped: frozenset[str] = frozenset(),
        held_max: int = HELD_MAX,
    ) -> None:
        self.ready: deque[Keyed] = deque()
        self.watermark_ms = NOT_STARTED_MS
        self.failure: SourceFailed | None = None
        self.defect: Exception | None = None
        self.delivered = wanted.after
        self._progress = progress
        self._sorter = Sorter(wanted)
        self._joiner = Joiner(join_ms)
        self._join = join
        self._dropped = dropped
        self._held_max = held_max
        self._came: list[int] = []  # the watermark of each walker
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._moved = asyncio.Event()
        self._added: Outlet | None = None  # the outlet that adds to this one
        self._bottom: tuple[int, SourceFailed] | None = None

    def add_to(self, listed: "Outlet") -> None:
        """Add collected records to a list of the exchange, which may have some of them too."""
        listed._added = self

    def enter(self) -> int:
        """Add a walker; returns its number."""
        self._came.append(NOT_STARTED_MS)
        return len(self._came) - 1

    @property
    def shared(self) -> bool:
        """Whether it has several walkers."""
        return len(self._came) > 1

    @property
    def begun(self) -> bool:
        """Whether every walker has read a page."""
        return len(self._begun) == len(self._came)

    @property
    def finished(self) -> bool:
        """Whether nothing more will be added."""
        return len(self._ended) == len(self._came) or self.failure is not None

    @property
    def exhausted(self) -> bool:
        """Whether all records were read and delivered without a failure."""
        return self.finished and not self.ready and self.failure is None

    @property
    def disordered(self) -> int:
        """Number of records that arrived after newer ones: the exchange broke its own order."""
        return self._sorter.disordered

    @property
    def reached(self) -> RecordKey:
        """Position up to which all records have been delivered."""
        if self.ready:
            return max(self.delivered, RecordKey(self.ready[0][0].negative_ms, ""))
        if self.watermark_ms == NOT_STARTED_MS:
            return self.delivered
        return max(self.delivered, RecordKey(-self.watermark_ms, ""))

    async def accept(
        self, number: int, page: Page, watermark_ms: int, *, snapshot: bool = False
    ) -> int:
        """Add a page of a walker that has read all records later than a time.

        Returns:
            Number of rows that could not be joined.

        Raises:
            SourceFailed: Another walker of this outlet failed, or the join did.
        """
        await self.keep_pace(self._came[number])
        async with self._turn:
            self._raise_if_failed()
            self._begun.add(number)
            self._push(page.records, snapshot=snapshot)
            for part in page.parts:
                self._joiner.add(part)
            return await self._advance(number, watermark_ms)

    async def end(self, number: int) -> int:
        """End a walker that has read everything.

        Returns:
            Number of rows that could not be joined.
        """
        async with self._turn:
            self._raise_if_failed()
            unreadable = await self._advance(number, NOTHING_LEFT_MS)
            self._ended.add(number)
            self._begun.add(number)
            return unreadable

    def fail(self, failure: SourceFailed) -> SourceFailed:
        """Record a walker's failure; no further records are joined or emitted.

        Returns:
            The failure of the walker: the first one of the outlet, unless its own is fatal.
        """
        first = self.failure is None
        self.failure = self.failure or failure
        self._moved.set()
        if first and self._added is not None and (failure.retryable or self._ended):
            # A retry reads this list from here on, and returns what it has in common with the
            # collected records: none of those may have been delivered.
            self._added._end_at(self.watermark_ms, failure)
        return failure if failure.fatal else self.failure

    def _end_at(self, at_ms: int, why: SourceFailed) -> None:
        """Emit only records that are later than a time; the next page reads the others."""
        failure = SourceFailed(
            why.reason, why.message, exchange_code=why.exchange_code, retryable=True
        )
        self._bottom = (at_ms, failure)
        self._drop_older()
        self._room.set()
        self._progress.set()

    def _drop_older(self) -> None:
        """Remove what `_end_at` excludes, and fail once everything else is ready."""
        if self._bottom is None:
            return
        at_ms, failure = self._bottom
        while self.ready and self.ready[-1][0].negative_ms >= -at_ms:
            self.ready.pop()
        if self.watermark_ms <= at_ms:
            self.fail(failure)

    def _raise_if_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def keep_pace(self, came_ms: int) -> None:
        """Block while too much is held for walkers that have not reached a time."""
        while (
            self.shared
            and self.failure is None
            and came_ms < max(self._came)
            and self._joiner.held + self._sorter.held > self._held_max
        ):
            self._moved.clear()
            await self._moved.wait()

    def _push(self, records: list[Record], *, snapshot: bool = False) -> None:
        if self._dropped:
            records = [record for record in records if record.type not in self._dropped]
        self._sorter.push(records, snapshot=snapshot)

    async def _advance(self, number: int, watermark_ms: int) -> int:
        """Join complete groups and emit final records; block while the output buffer is full."""
        self._came[number] = min(self._came[number], watermark_ms)
        watermark_ms, unreadable = max(self._came), 0
        groups = self._joiner.complete(watermark_ms)
        if groups:
            assert self._join is not None
            joined = await self._join(groups)
            self._push(joined.records)
            unreadable = joined.unreadable
        watermark_ms = max(watermark_ms, self._joiner.newest_ms)
        self.ready.extend(self._sorter.release(watermark_ms))
        self.watermark_ms = watermark_ms
        self._drop_older()
        self._progress.set()
        self._moved.set()
        while len(self.ready) >= READY_MAX:
            self._room.clear()
            await self._room.wait()
        return unreadable

    def pop(self) -> Keyed:
        """Remove and return the next record and its place; `ready` must not be empty."""
        keyed = self.ready.popleft()
        self.delivered = keyed[0]
        if len(self.ready) < READY_MAX // 2:
            self._room.set()
        return keyed


class Demand:
    """Lower time bound of a limited answer, so that older pages are not requested.

    Args:
        limit: Records of the answer; None for all.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._horizon_ms = NOTHING_LEFT_MS
        self._bounded = limit is not None and limit <= DEMAND_MAX
        self._open = limit is None or limit > SMALL_ANSWER
        self._changed = asyncio.Event()

    def update(self, outlets: Sequence[Outlet], left: int | None) -> None:
        """Update from the buffered records; `left` more records are needed."""
        if not self._bounded or left is None:
            return
        begun = self._open or all(outlet.begun or outlet.finished for outlet in outlets)
        horizon_ms = self._horizon_ms
        if sum(len(outlet.ready) for outlet in outlets) >= left:
            # An event found in two sources counts once.
            keys = {keyed[0] for outlet in outlets for keyed in outlet.ready}
            if len(keys) >= left:
                horizon_ms = -nsmallest(left, keys)[-1].negative_ms
        if (begun, horizon_ms) != (self._open, self._horizon_ms):
            self._open, self._horizon_ms = begun, horizon_ms
            self._changed.set()

    def needs(self, newest_ms: int) -> bool:
        """Whether records of this time and older may still be part of the answer."""
        return self._open and newest_ms >= self._horizon_ms

    async def wanted(self, newest_ms: int) -> None:
        """Wait until records of this time and older are needed."""
        while not self.needs(newest_ms):
            self._changed.clear()
            await self._changed.wait()


class Once:
    """Drops repeated events, such as one that was collected and is also fetched.

    An event has the same position in both, unless its row has no time: its position then depends on
    its neighbours, which differ between lists and between answers.

    Args:
        unplaced: The value of `unplaced` at the end of the previous answer.
    """

    def __init__(self, unplaced: Iterable[str] = ()) -> None:
        self._last_id = ""
        self._unplaced = dict.fromkeys(unplaced)

    @property
    def unplaced(self) -> tuple[str, ...]:
        """Ids of the newest records without their own time, for the cursor."""
        return tuple(self._unplaced)[-UNPLACED_MAX:]

    def passes(self, keyed: Keyed) -> bool:
        """Whether this event has not been seen before."""
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
    outlets: Sequence[Outlet],
    progress: asyncio.Event,
    *,
    limit: int | None,
    demand: Demand | None = None,
    once: Once | None = None,
) -> AsyncGenerator[list[Keyed]]:
    """Yield the records of all outlets in order, in small batches as their order becomes final.

    A record is emitted once no outlet can still return a newer one: outlets with ready records are
    compared by their first record, the others by their watermark.
    """
    left, once = limit, once or Once()
    while left is None or left > 0:
        progress.clear()
        batch = _certain(outlets, BATCH_MAX if left is None else min(left, BATCH_MAX), once)
        _raise_defects(outlets)
        if batch:
            left = None if left is None else left - len(batch)
            yield batch
            await asyncio.sleep(0)  # the caller has just encoded them: yield to other tasks
        elif all(outlet.finished and not outlet.ready for outlet in outlets):
            return
        else:
            if demand is not None:
                demand.update(outlets, left)
            await progress.wait()


def _certain(outlets: Sequence[Outlet], left: int, once: Once) -> list[Keyed]:
    """Remove and return records whose order is final, at most `left`."""
    batch: list[Keyed] = []
    last: RecordKey | None = None
    watermark_ms = max((_watermark(outlet) for outlet in outlets), default=NOTHING_LEFT_MS)
    while len(batch) < left and (outlet := _next(outlets, watermark_ms)):
        keyed = outlet.pop()
        if once.passes(keyed):
            batch.append(keyed)
        last = keyed[0]
        if not outlet.ready:
            watermark_ms = max(watermark_ms, _watermark(outlet))
    # The next page may continue each outlet at its own position.
    for outlet in outlets:
        if outlet.ready and outlet.ready[0][0] == last:
            outlet.pop()
    return batch


def _watermark(outlet: Outlet) -> int:
    """The newest time of a record that this outlet could still return."""
    return NOTHING_LEFT_MS if outlet.ready or outlet.finished else outlet.watermark_ms


def _next(outlets: Sequence[Outlet], watermark_ms: int) -> Outlet | None:
    """The outlet with the newest first record, unless another could still return a newer one."""
    first: Outlet | None = None
    for outlet in outlets:
        if outlet.ready and (first is None or outlet.ready[0][0] < first.ready[0][0]):
            first = outlet
    return first if first and first.ready[0][0].negative_ms < -watermark_ms else None


def _raise_defects(outlets: Sequence[Outlet]) -> None:
    for outlet in outlets:
        if outlet.defect is not None:
            raise outlet.defect
