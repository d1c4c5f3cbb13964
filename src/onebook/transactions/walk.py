"""Walking one source to its end: every record once, newest first, nothing passed over in silence.

A walker cuts its range into windows and reads several side by side, each page by page along the
exchange's cursor; it hands records on in order, and only when nothing newer can still come. What
it has reached is its *frontier*: all records with a later time have been handed on, so a merge of
many walkers need not wait for one that has nothing to say.

What an answer does not need is not asked for: pages are no larger than its limit wants, and a
walker stops where enough later records are at hand (`Demand`).

Bounds: `WINDOWS_AHEAD` windows, `PAGES_AHEAD` pages of each, `READY_MAX` records. For a short
answer little is read ahead, as most of it would be thrown away.
"""

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from onebook.transactions.adapter import NOT_ASKED, SNAPSHOT, Page, Reader, Source, Window
from onebook.transactions.failures import Reason, SourceFailed, TooOld
from onebook.transactions.record import FIRST, Key, Record, key_of
from onebook.transactions.windows import Cutter, floor_ms

WINDOWS_AHEAD: Final = 6
PAGES_AHEAD: Final = 2
PAGES_AHEAD_SHORT: Final = 1
PAGES_SPARSE: Final = 1  # windows with no more pages than this are read ahead in any case
READY_MAX: Final = 500
PAGES_MAX: Final = 5_000  # of one window: half a million rows a week
SMALL_ANSWER: Final = 100  # up to here nothing is read ahead before every source has spoken
DEMAND_MAX: Final = 1_000  # records for which it is worth finding out how far back they reach
PAGE_ROWS_MIN: Final = 10
PAGE_ROWS_SPARE: Final = 5  # rows that are read and not wanted: of the second of the window's end
SMALL_PAGE_LAG_MS: Final = 1_000  # beyond, the rows of a page do not say what is still to come
RECENT_MAX: Final = 2_000  # ids that a repeated row is known by
NOTHING_LEFT_MS: Final = -(1 << 61)
NOT_STARTED_MS: Final = 1 << 61

Keyed = tuple[Key, Record]


class Range:
    """What is asked of a walker.

    Args:
        from_ms: Oldest record time, inclusive.
        to_ms: Newest record time, inclusive.
        after: The place of the last record that was delivered before; only later ones count.
    """

    __slots__ = ("after", "from_ms", "to_ms")

    def __init__(self, from_ms: int, to_ms: int, *, after: Key = FIRST) -> None:
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.after = after


class Sorter:
    """Puts records into order while more are coming, and lets each id pass once."""

    def __init__(self, wanted: Range) -> None:
        self._wanted = wanted
        self._held: list[Keyed] = []
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._last = FIRST
        self.disordered = 0
        self.duplicates = 0

    def push(self, records: list[Record], *, snapshot: bool) -> None:
        """Take records in; those out of range or already delivered fall away."""
        for record in records:
            key = key_of(record)
            if not (self._snapshot_wanted(key) if snapshot else self._in_range(key)):
                continue
            if record.transactionId in self._seen:
                self.duplicates += 1
                continue
            self._seen[record.transactionId] = None
            heapq.heappush(self._held, (key, record))

    def _in_range(self, key: Key) -> bool:
        wanted = self._wanted
        return wanted.from_ms <= -key.negative_ms <= wanted.to_ms and key > wanted.after

    def _snapshot_wanted(self, key: Key) -> bool:
        """Every page takes a snapshot of its own time, so what was given out goes by id."""
        return key.record_id > self._wanted.after.record_id

    def release(self, frontier_ms: int) -> Iterator[Keyed]:
        """Every held record that is later than the frontier, in order."""
        while self._held and self._held[0][0].negative_ms < -frontier_ms:
            keyed = heapq.heappop(self._held)
            if keyed[0] < self._last:
                self.disordered += 1
            else:
                self._last = keyed[0]
            yield keyed
        while len(self._seen) - len(self._held) > RECENT_MAX:
            self._seen.popitem(last=False)


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

    def update(self, walkers: Sequence["Walker"], left: int | None) -> None:
        """Look at what is at hand; `left` more records are wanted."""
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

    def wants(self, newest_ms: int) -> bool:
        """Whether records of this time and older may still be in the answer."""
        return self._open and newest_ms >= self._horizon_ms

    async def wanted(self, newest_ms: int) -> None:
        """Wait until records of this time and older are wanted."""
        while not self.wants(newest_ms):
            self._changed.clear()
            await self._changed.wait()


class Walker:
    """One source of one request on its way back in time. Owned: `close` it."""

    def __init__(
        self,
        source: Source,
        reader: Reader,
        wanted: Range,
        *,
        now_ms: Callable[[], int],
        progress: asyncio.Event,
        demand: Demand | None = None,
        long: bool = True,
        lost_before_ms: int | None = None,
    ) -> None:
        self.source = source
        self.ready: deque[Keyed] = deque()
        self.frontier_ms = NOT_STARTED_MS
        self.begun = False
        self.finished = False
        self.failure: SourceFailed | None = None
        self.defect: Exception | None = None
        self.unreadable = 0
        self.pages = 0
        self.floor_ms = floor_ms(source, now_ms())
        self.cut_short_ms: int | None = None
        self.delivered = wanted.after
        self._lost_before_ms = NOTHING_LEFT_MS if lost_before_ms is None else lost_before_ms
        self._reader = reader
        self._wanted = wanted
        self._now_ms = now_ms
        self._progress = progress
        self._room = asyncio.Event()
        self._sorter = Sorter(wanted)
        self._streams: deque[_WindowStream] = deque()
        self._demand = demand or Demand()
        self._next: Window | None = None
        self._ahead_max = 1
        self._long = long
        self._task = asyncio.create_task(self._run(), name=f"walk {source.name}")

    @property
    def disordered(self) -> int:
        """Records that came later than their place: the exchange did not keep its own order."""
        return self._sorter.disordered

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left, and nothing went wrong."""
        return self.finished and not self.ready and self.failure is None

    @property
    def kept_from_ms(self) -> int | None:
        """From when on the exchange shows all there was; None for the whole range."""
        floor = self.floor_ms if self.source.window_ms else NOTHING_LEFT_MS
        kept = max(floor, self._lost_before_ms)
        return kept if kept > self._wanted.from_ms else None

    @property
    def came_to(self) -> Key:
        """The place before which this source has nothing that was not delivered."""
        if self.ready:
            return max(self.delivered, Key(self.ready[0][0].negative_ms, ""))
        if self.frontier_ms == NOT_STARTED_MS:
            return self.delivered
        return max(self.delivered, Key(-self.frontier_ms, ""))

    def take(self) -> Keyed:
        """The next record and its place; there must be one in `ready`."""
        keyed = self.ready.popleft()
        self.delivered = keyed[0]
        if len(self.ready) < READY_MAX // 2:
            self._room.set()
        return keyed

    async def close(self) -> None:
        """Stop asking; wait until every task is gone."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._drop_streams()

    async def _run(self) -> None:
        try:
            await self._walk()
        except SourceFailed as failure:
            self.failure = failure
        except Exception as defect:  # ours: whoever merges raises it, nothing is passed over
            self.defect = defect
        finally:
            await self._drop_streams()
            self.finished = True
            self._progress.set()

    async def _drop_streams(self) -> None:
        tasks = [stream.task for stream in self._streams]
        self._streams.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _walk(self) -> None:
        if not self.source.window_ms:
            page = await self._reader.page(self.source, SNAPSHOT, "")
            return await self._accept(page, NOTHING_LEFT_MS, snapshot=True)
        cutter = self._cutter()
        windows = iter(cutter) if cutter else iter(())
        while await self._read_next(windows, cutter):
            pass
        await self._hand_on(NOTHING_LEFT_MS)

    def _cutter(self) -> Cutter | None:
        """The windows of this walk; None where the source has nothing in the range."""
        source, wanted = self.source, self._wanted
        to_ms = wanted.to_ms + 1
        if source.ends_ms is not None:
            to_ms = min(to_ms, source.ends_ms)
        from_ms = max(wanted.from_ms - source.lag_ms, self.floor_ms)
        if from_ms >= to_ms:
            return None
        below_ms = to_ms if wanted.after == FIRST else 1 - wanted.after.negative_ms
        return Cutter(source, from_ms=from_ms, to_ms=to_ms, below_ms=below_ms)

    async def _read_next(self, windows: Iterator[Window], cutter: Cutter | None) -> bool:
        """Read the newest window that is left to its end; say whether there was one."""
        await self._begin(windows)
        if not self._streams:
            return False
        assert cutter is not None
        stream = self._streams[0]
        pages = 0
        while (page := await stream.pages.get()) is not None:
            if isinstance(page, Exception):
                raise page
            pages += 1
            await self._accept(page, self._frontier_of(page, stream.window))
        self._streams.popleft()
        await stream.task
        cutter.filled(pages)
        ahead = self._long or pages <= PAGES_SPARSE
        self._ahead_max = min(WINDOWS_AHEAD, self._ahead_max * 2) if ahead else 1
        await self._hand_on(min(self.frontier_ms, self._oldest_ahead(stream.window)))
        return True

    async def _begin(self, windows: Iterator[Window]) -> None:
        """Begin as many windows as may be read side by side, if they are wanted."""
        while len(self._streams) < self._ahead_max:
            self._next = self._next or next(windows, None)
            if self._next is None:
                return
            newest_ms = self._next.to_ms - 1 + self.source.lag_ms
            if self.begun and not self._demand.wants(newest_ms):
                if self._streams:
                    return
                await self._demand.wanted(newest_ms)
            self._streams.append(_WindowStream(self, self._next, long=self._long))
            self._next = None

    async def wanted(self, newest_ms: int) -> None:
        """Wait until rows of this time and older are wanted."""
        if not self.source.untimed:
            await self._demand.wanted(newest_ms + self.source.lag_ms)

    def _frontier_of(self, page: Page, window: Window) -> int:
        """Later pages hold what Bybit's own time puts before this page's last row; a record's
        time is at most `lag_ms` later than that.
        """
        if not page.records or self.source.untimed:
            return self.frontier_ms
        oldest_ms = min(record.timestamp for record in page.records)
        return max(oldest_ms + self.source.lag_ms, self._oldest_ahead(window))

    def _oldest_ahead(self, window: Window) -> int:
        return window.from_ms - 1 + self.source.lag_ms

    async def _accept(self, page: Page, frontier_ms: int, *, snapshot: bool = False) -> None:
        self.begun = True
        self.pages += page is not NOT_ASKED
        self.unreadable += page.unreadable
        if page.kept_from_ms is not None:
            self._lost_before_ms = max(self._lost_before_ms, page.kept_from_ms)
        self._sorter.push(page.records, snapshot=snapshot)
        await self._hand_on(min(self.frontier_ms, frontier_ms))

    async def _hand_on(self, frontier_ms: int) -> None:
        """Let go of what is surely in order, and wait while nobody takes it."""
        self.ready.extend(self._sorter.release(frontier_ms))
        self.frontier_ms = frontier_ms
        self._progress.set()
        while len(self.ready) >= READY_MAX:
            self._room.clear()
            await self._room.wait()

    async def read_page(self, window: Window, cursor: str) -> Page:
        """One page, as the reader gives it."""
        return await self._reader.page(self.source, window, cursor)

    def cut(self, window: Window) -> Window | None:
        """A window without what the exchange no longer keeps; None where nothing is left.

        "Two years ago" moves while we walk: the exchange answers an error, not an empty list.
        """
        self.floor_ms = max(self.floor_ms, floor_ms(self.source, self._now_ms()))
        if window.from_ms >= self.floor_ms:
            raise SourceFailed(Reason.EXCHANGE_ERROR, "The exchange keeps less than it documents.")
        self.cut_short_ms = self.floor_ms
        if window.to_ms <= self.floor_ms:
            return None
        return window._replace(from_ms=self.floor_ms)


class _WindowStream:
    """One window being read ahead, page after page."""

    def __init__(self, walker: Walker, window: Window, *, long: bool) -> None:
        self.window = window
        self.pages: asyncio.Queue[Page | Exception | None] = asyncio.Queue(
            PAGES_AHEAD if long else PAGES_AHEAD_SHORT
        )
        self._walker = walker
        self.task = asyncio.create_task(self._run(), name=f"window {walker.source.name}")

    async def _run(self) -> None:
        try:
            await self._read()
        except Exception as error:  # raised again where the pages are taken
            await self.pages.put(error)
        else:
            await self.pages.put(None)

    async def _read(self) -> None:
        source, window = self._walker.source, self.window
        cursor, seen, full_page, unread_ms = "", {""}, False, window.to_ms
        for _ in range(PAGES_MAX):
            try:
                page = await self._walker.read_page(window, cursor)
            except TooOld:
                # A cursor belongs to its window: begin again below what was read.
                cut = self._walker.cut(window._replace(to_ms=unread_ms))
                if cut is None:
                    return
                window, cursor, seen = cut, "", {""}
                continue
            await self.pages.put(page)
            unread_ms = min([unread_ms, *(r.timestamp + 1 for r in page.records)])
            full_page = full_page or page.rows >= source.page_rows
            cursor = page.cursor
            # A cursor that repeats would go round for ever.
            if cursor in seen or is_last(source, page.rows, full_page=full_page):
                return
            seen.add(cursor)
            await self._walker.wanted(unread_ms - 1)
        raise SourceFailed(Reason.EXCHANGE_ERROR, "A window has more pages than believable.")


def fitted(source: Source, limit: int | None) -> Source:
    """A source with pages no larger than an answer of `limit` records can use."""
    if limit is None or not source.window_ms or source.untimed:
        return source
    rows = max(PAGE_ROWS_MIN, limit + PAGE_ROWS_SPARE)
    if rows >= source.page_rows or source.lag_ms > SMALL_PAGE_LAG_MS:
        return source
    return replace(source, page_rows=rows, page_rows_least=min(rows, source.page_rows_least))


def is_last(source: Source, rows: int, *, full_page: bool) -> bool:
    """Whether a page's size proves that it is the last.

    A cursor does not: Bybit's last page still carries one. A short page does, unless the exchange
    silently gives smaller pages than asked for: so it must be shorter than any page size it could
    have fallen back to, or have a full page before it. Where the query is filtered
    (`page_rows_least` 0), only an empty page does.
    """
    if rows == 0:
        return True
    if not source.page_rows_least:
        return False
    return rows < source.page_rows_least or (full_page and rows < source.page_rows)
