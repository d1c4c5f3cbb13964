"""Walking one source to its end: every record once, newest first, nothing skipped without notice.

A walker cuts its range into windows and reads several side by side, each page by page along the
exchange's cursor; it emits records in order, and only when nothing newer can still come. What
it has reached is its *watermark*: all records with a later time have been passed on, so a merge of
many walkers need not wait for one without records.

What an answer does not need is not requested: pages are no larger than its limit, and a
walker stops while enough later records are buffered (`Demand`).

Bounds: `WINDOWS_AHEAD` windows, `reading.PAGES_AHEAD` pages of each, `READY_MAX` records. For a
short answer little is read ahead, as most of it would be thrown away.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from onebook.transactions.adapter import NOT_ASKED, SNAPSHOT, AccountReader, Page, Source, Window
from onebook.transactions.demand import NOTHING_LEFT_MS, Demand
from onebook.transactions.failures import FailureReason, SourceFailed
from onebook.transactions.ordering import Keyed, Range, Sorter
from onebook.transactions.reading import Bookmark, ReadPage, WindowStream
from onebook.transactions.record import FIRST, RecordKey, key_of
from onebook.transactions.windows import Cutter, floor_ms

WINDOWS_AHEAD: Final = 6
PAGES_SPARSE: Final = 1  # windows with no more pages than this are read ahead in any case
READY_MAX: Final = 500
NOT_STARTED_MS: Final = 1 << 61


class Walker:
    """One source of one request on its way back in time. Owned: `close` it."""

    def __init__(
        self,
        source: Source,
        reader: AccountReader,
        wanted: Range,
        *,
        now_ms: Callable[[], int],
        progress: asyncio.Event,
        demand: Demand | None = None,
        long: bool = True,
        lost_before_ms: int | None = None,
        begin: Bookmark | None = None,
    ) -> None:
        self.source = source
        self.ready: deque[Keyed] = deque()
        self.watermark_ms = NOT_STARTED_MS
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
        self._streams: deque[WindowStream] = deque()
        self._demand = demand or Demand()
        self._next: Bookmark | None = None
        self._begin_at = begin
        self._bookmarks: deque[tuple[RecordKey, Bookmark]] = deque()
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
        # Before its beginning there was nothing that could be lost.
        lost = self.source.window_ms and self.floor_ms > self.source.begins_ms
        kept = max(self.floor_ms if lost else NOTHING_LEFT_MS, self._lost_before_ms)
        return kept if kept > self._wanted.from_ms else None

    @property
    def came_to(self) -> RecordKey:
        """The place before which this source has nothing that was not delivered."""
        if self.ready:
            return max(self.delivered, RecordKey(self.ready[0][0].negative_ms, ""))
        if self.watermark_ms == NOT_STARTED_MS:
            return self.delivered
        return max(self.delivered, RecordKey(-self.watermark_ms, ""))

    def bookmark(self, place: RecordKey) -> Bookmark | None:
        """The exchange's page from which records after a place start; None where time suffices."""
        self._forget_pages(place)
        return self._bookmarks[0][1] if self._bookmarks else None

    def _forget_pages(self, place: RecordKey) -> None:
        while len(self._bookmarks) > 1 and self._bookmarks[0][0] <= place:
            self._bookmarks.popleft()

    def take(self) -> Keyed:
        """The next record and its place; there must be one in `ready`."""
        keyed = self.ready.popleft()
        self.delivered = keyed[0]
        if len(self.ready) < READY_MAX // 2:
            self._room.set()
        return keyed

    async def close(self) -> None:
        """Stop the requests; wait until every task has ended."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._drop_streams()

    async def _run(self) -> None:
        try:
            await self._walk()
        except SourceFailed as failure:
            self.failure = failure
        except Exception as defect:  # ours: the merge raises it, nothing is passed over
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
        self._next = self._begin_at if cutter else None
        while await self._read_next(windows, cutter):
            pass
        await self._emit(NOTHING_LEFT_MS)

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
        if self._begin_at is not None:
            below_ms = self._begin_at.from_ms
        return Cutter(source, from_ms=from_ms, to_ms=to_ms, below_ms=below_ms)

    async def _read_next(self, windows: Iterator[Window], cutter: Cutter | None) -> bool:
        """Read the newest window that is left to its end; return whether there was one."""
        await self._begin(windows)
        if not self._streams:
            return False
        assert cutter is not None
        stream = self._streams[0]
        while (read := await stream.pages.get()) is not None:
            if isinstance(read, Exception):
                raise read
            self._mark(read)
            await self._accept(read.page, self._watermark_of(read.page, stream.window))
        self._streams.popleft()
        await stream.task
        cutter.filled(stream.asked)
        ahead = self._long or stream.asked <= PAGES_SPARSE
        self._ahead_max = min(WINDOWS_AHEAD, self._ahead_max * 2) if ahead else 1
        await self._emit(min(self.watermark_ms, self._oldest_ahead(stream.window)))
        return True

    async def _begin(self, windows: Iterator[Window]) -> None:
        """Begin as many windows as may be read side by side, if they are needed."""
        while len(self._streams) < self._ahead_max:
            if self._next is None and (window := next(windows, None)) is not None:
                self._next = Bookmark(*window)
            if self._next is None:
                return
            newest_ms = self._next.to_ms - 1 + self.source.lag_ms
            if self.begun and not self._demand.needs(newest_ms):
                if self._streams:
                    return
                await self._demand.wanted(newest_ms)
            self._streams.append(WindowStream(self, self._next, long=self._long))
            self._next = None

    async def wanted(self, newest_ms: int) -> None:
        """Wait until rows of this time and older are needed."""
        if not self.source.untimed:
            await self._demand.wanted(newest_ms + self.source.lag_ms)

    def _watermark_of(self, page: Page, window: Window) -> int:
        """Later pages hold what the exchange's filter puts before this page's oldest row; a
        record's time is at most `lag_ms` later than the time that is filtered by.
        """
        if not page.records or self.source.untimed:
            return self.watermark_ms
        oldest_ms = min(record.timestamp for record in page.records)
        return max(oldest_ms + self.source.lag_ms, self._oldest_ahead(window))

    def _oldest_ahead(self, window: Window) -> int:
        return window.from_ms - 1 + self.source.lag_ms

    async def _accept(self, page: Page, watermark_ms: int, *, snapshot: bool = False) -> None:
        self.begun = True
        self.pages += page is not NOT_ASKED
        self.unreadable += page.unreadable
        if page.kept_from_ms is not None:
            self._lost_before_ms = max(self._lost_before_ms, page.kept_from_ms)
        self._sorter.push(page.records, snapshot=snapshot)
        await self._emit(min(self.watermark_ms, watermark_ms))

    def _mark(self, read: ReadPage) -> None:
        """Remember where a page stands, until all of its records have been delivered."""
        if not self.source.cursor_lasts or not read.page.records:
            return
        last = max(key_of(record) for record in read.page.records)
        self._forget_pages(self.delivered)
        self._bookmarks.append((last, read.bookmark))

    async def _emit(self, watermark_ms: int) -> None:
        """Emit records whose order is final; block while the output buffer is full."""
        self.ready.extend(self._sorter.release(watermark_ms))
        self.watermark_ms = watermark_ms
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
            raise SourceFailed(
                FailureReason.EXCHANGE_ERROR, "The exchange keeps less than it documents."
            )
        self.cut_short_ms = self.floor_ms
        if window.to_ms <= self.floor_ms:
            return None
        return window._replace(from_ms=self.floor_ms)
