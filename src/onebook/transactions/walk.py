"""Reads sources from newest to oldest: every row once, none skipped silently.

A walker divides its range into windows (`Cutter`) and reads several concurrently (`WindowStream`),
each along the exchange's cursor (`CursorChain`). Its `Outlet` sorts, joins and deduplicates the
rows.

Pages are no larger than the answer's limit, and a walker pauses while enough later records are
buffered (`Demand`).

Bounds: `WINDOWS_AHEAD` windows, `PAGES_AHEAD` pages of each, and those of `merge`. For a short
answer little is read ahead, because most of it would be discarded.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from onebook.transactions.adapter import (
    SKIPPED_PAGE,
    SNAPSHOT,
    CursorGone,
    FailureReason,
    Page,
    PageReader,
    Source,
    SourceFailed,
    TooOld,
    Window,
)
from onebook.transactions.merge import NOT_STARTED_MS, NOTHING_LEFT_MS, Demand, Outlet, Range
from onebook.transactions.record import FIRST, RecordKey, key_of
from onebook.transactions.windows import (
    PAGES_LONG,
    Bookmark,
    CursorChain,
    Cutter,
    ReadPage,
    below,
    floor_ms,
    halves,
    is_last,
)

PAGES_AHEAD: Final = 2
PAGES_AHEAD_SHORT: Final = 1
PAGES_MAX: Final = 50_000  # per window: 2.5 million rows of the smallest pages
PAGES_HELD_MAX: Final = 24  # of a window that is read oldest first
WINDOWS_AHEAD: Final = 6
PAGES_SPARSE: Final = 1  # windows with at most this many pages are always read ahead


class WindowStream:
    """One window being read ahead page by page.

    Args:
        begin: The window, and the exchange's cursor of its first page.
    """

    def __init__(self, walker: "Walker", begin: Bookmark, *, long: bool) -> None:
        self.window = begin.window
        self.pages_read = 0
        self.was_cut = False
        self.pages: asyncio.Queue[ReadPage | Exception | None] = asyncio.Queue(
            PAGES_AHEAD if long else PAGES_AHEAD_SHORT
        )
        self._walker = walker
        self._cursor = begin.cursor
        self.task = asyncio.create_task(self._run(), name=f"window {walker.source.name}")

    async def _run(self) -> None:
        try:
            if self._walker.source.oldest_first:
                await self._read_oldest_first()
            else:
                await self._read()
        except Exception as error:  # raised again by the consumer of the pages
            await self.pages.put(error)
        else:
            await self.pages.put(None)

    async def _ask(self, window: Window, cursor: str) -> Page:
        page = await self._walker.read_page(window, cursor)
        self.pages_read += 1
        return page

    async def _read(self) -> None:
        parts = [Bookmark(*self.window, self._cursor)]  # the newest last
        while parts:
            part = parts.pop()
            if not await self._read_part(part):
                parts += [Bookmark(*half) for half in self._halved(part.window)]

    async def _read_part(self, begin: Bookmark) -> bool:
        """Read a window along its cursor; return False if not all of its rows are visible."""
        source, window = self._walker.source, begin.window
        chain, full_page, unread_ms = CursorChain(begin.cursor), False, window.to_ms
        for read in range(PAGES_MAX):
            try:
                page = await self._ask(below(window, unread_ms, source), chain.cursor)
            except TooOld:
                # A cursor belongs to its window: start a new one below what was read.
                cut = self._walker.cut(window._replace(to_ms=unread_ms))
                if cut is None:
                    return True
                window, chain = cut, CursorChain()
                continue
            except CursorGone:
                if read or not chain.cursor:
                    raise _refused_cursor() from None
                # The cursor was from an earlier answer: read the window from its beginning.
                chain = CursorChain()
                continue
            if page.cut:
                return False
            await self.pages.put(ReadPage(page, Bookmark(*window, chain.cursor)))
            if (oldest_ms := page.oldest_ms) is not None:
                unread_ms = min(unread_ms, oldest_ms + 1)
            full_page = full_page or page.rows >= source.page_rows
            if is_last(source, page.rows, full_page=full_page):
                return True
            if not source.ranged and unread_ms <= window.from_ms:
                return True
            if not chain.follow(page.cursor):
                return True
            await self._walker.wanted(unread_ms - 1)
        raise _endless()

    def _halved(self, window: Window) -> list[Window]:
        """The halves of a window that has more rows than it shows.

        Raises:
            SourceFailed: The window cannot be halved.
        """
        self.was_cut = True
        parts = halves(window, self._walker.source)
        if not parts:
            raise SourceFailed(
                FailureReason.EXCHANGE_ERROR,
                "More rows share one timestamp than the exchange can return.",
            )
        return parts

    async def _read_oldest_first(self) -> None:
        parts = [self.window]  # the newest last
        while parts:
            part = parts.pop()
            try:
                page = await self._whole(part)
            except TooOld:
                cut = self._walker.cut(part)
                parts += [] if cut is None else [cut]
                continue
            except CursorGone:
                raise _refused_cursor() from None
            if page is None:
                parts += self._halved(part)
                continue
            await self.pages.put(ReadPage(page, Bookmark(*part)))
            if parts:
                await self._walker.wanted(part.from_ms - 1)

    async def _whole(self, part: Window) -> Page | None:
        """Read a window as one page; None if it has more rows than it shows, or than may be
        held."""
        source = self._walker.source
        divisible = bool(halves(part, source))
        pages: list[Page] = []
        chain, full_page = CursorChain(), False
        for _ in range(PAGES_HELD_MAX if divisible else PAGES_MAX):
            page = await self._ask(part, chain.cursor)
            if page.cut:
                return None
            pages.append(page)
            full_page = full_page or page.rows >= source.page_rows
            last = is_last(source, page.rows, full_page=full_page)
            if last or not chain.follow(page.cursor):
                return _in_one(pages)
        if not divisible:
            raise _endless()
        return None


class Walker:
    """Reads one source for one request, from newest to oldest. Must be closed."""

    def __init__(
        self,
        source: Source,
        reader: PageReader,
        wanted: Range,
        *,
        now_ms: Callable[[], int],
        progress: asyncio.Event,
        outlet: Outlet | None = None,
        demand: Demand | None = None,
        long: bool = True,
        lost_before_ms: int | None = None,
        begin: Bookmark | None = None,
    ) -> None:
        self.source = source
        self.outlet = outlet or Outlet(wanted, progress)
        self.begun = False
        self.finished = False
        self.failure: SourceFailed | None = None
        self.absent = False  # the account never used the product
        self.lack: SourceFailed | None = None  # why some rows are missing
        self.unreadable = 0
        self.pages = 0
        self.oldest_ms: int | None = None  # the oldest row that was read
        self.hidden_after_ms: int | None = None
        self.floor_ms = floor_ms(source, now_ms())
        self.cut_short_ms: int | None = None
        self._hidden_before_ms = NOTHING_LEFT_MS
        self._lost_before_ms = NOTHING_LEFT_MS if lost_before_ms is None else lost_before_ms
        self._reader = reader
        self._wanted = wanted
        self._now_ms = now_ms
        self._progress = progress
        self._number = self.outlet.enter()
        self._watermark_ms = NOT_STARTED_MS
        self._streams: deque[WindowStream] = deque()
        self._demand = demand or Demand()
        self._next: Bookmark | None = None
        self._begin_at = begin
        self._bookmarks: deque[tuple[RecordKey, Bookmark]] = deque()
        self._ahead_max = 1
        self._long = long
        self._task = asyncio.create_task(self._run(), name=f"walk {source.name}")

    @property
    def delivered(self) -> RecordKey:
        """Position of the last record that was delivered."""
        return self.outlet.delivered

    @property
    def reached(self) -> RecordKey:
        """Position up to which all records have been delivered."""
        return self.outlet.reached

    @property
    def disordered(self) -> int:
        """Number of records that arrived after newer ones."""
        return self.outlet.disordered

    @property
    def exhausted(self) -> bool:
        """Whether all records of the source were read and delivered, without a failure."""
        if not self.finished or self.failure is not None:
            return False
        return self.outlet.exhausted or (self.outlet.shared and self._passed_on)

    @property
    def _passed_on(self) -> bool:
        """Whether every record that may contain a row of this source was delivered."""
        if self.oldest_ms is None:
            return True
        return -self.outlet.reached.negative_ms < self.oldest_ms - self.source.join_ms

    @property
    def kept_from_ms(self) -> int | None:
        """Time from which the exchange still has all records; None for the entire range."""
        # Before the beginning of the source, nothing could be lost.
        lost = self.source.window_ms and self.floor_ms > self.source.begins_ms
        kept = max(
            self.floor_ms if lost else NOTHING_LEFT_MS, self._lost_before_ms, self._hidden_before_ms
        )
        return kept if kept > self._wanted.from_ms else None

    @property
    def hidden(self) -> bool:
        """Whether the key cannot see a part of the range."""
        after_ms = self.hidden_after_ms
        return self._hidden_before_ms > self._wanted.from_ms or (
            after_ms is not None and after_ms < self._wanted.to_ms
        )

    def bookmark(self, place: RecordKey) -> Bookmark | None:
        """The exchange's page to resume from after a position; None if the time is enough."""
        self._forget_pages(place)
        return self._bookmarks[0][1] if self._bookmarks else None

    def _forget_pages(self, place: RecordKey) -> None:
        while len(self._bookmarks) > 1 and self._bookmarks[0][0] <= place:
            self._bookmarks.popleft()

    async def close(self) -> None:
        """Stop the requests and wait until every task has ended."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._drop_streams()

    async def _run(self) -> None:
        try:
            await self._read_all()
        except SourceFailed as failure:
            self.failure = self.outlet.fail(failure)
        except Exception as defect:  # our own bug: the merge raises it, so that nothing is skipped
            self.outlet.defect = defect
        finally:
            await self._drop_streams()
            self.finished = True
            self._progress.set()

    async def _read_all(self) -> None:
        try:
            await self._walk()
        except SourceFailed as failure:
            if failure.reason is not FailureReason.NOT_OPENED or self.pages:
                raise
            self.absent = True
        self.unreadable += await self.outlet.end(self._number)

    async def _drop_streams(self) -> None:
        tasks = [stream.task for stream in self._streams]
        self._streams.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _walk(self) -> None:
        if not self.source.window_ms:
            page = await self.read_page(SNAPSHOT, "")
            return await self._accept(page, NOTHING_LEFT_MS, snapshot=True)
        cutter = self._cutter()
        windows = iter(cutter) if cutter else iter(())
        self._next = self._begin_at if cutter else None
        while await self._read_next(windows, cutter):
            pass

    def _cutter(self) -> Cutter | None:
        """The windows of this walk; None if the source has nothing in the range."""
        source, wanted = self.source, self._wanted
        to_ms = wanted.to_ms + 1
        if source.join_ms:  # an event in the range needs its rows that are just outside
            to_ms = max(to_ms, min(to_ms + source.join_ms, self._now_ms() + 1))
        if source.ends_ms is not None:
            to_ms = min(to_ms, source.ends_ms)
        from_ms = max(wanted.from_ms - source.lag_ms - source.join_ms, self.floor_ms)
        if from_ms >= to_ms:
            return None
        below_ms = to_ms
        if wanted.after != FIRST:
            below_ms = min(to_ms, 1 - wanted.after.negative_ms + source.join_ms)
        if self._begin_at is not None:
            below_ms = self._begin_at.from_ms
        return Cutter(source, from_ms=from_ms, to_ms=to_ms, below_ms=below_ms)

    async def _read_next(self, windows: Iterator[Window], cutter: Cutter | None) -> bool:
        """Read the newest unread window completely; return whether there was one."""
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
        cutter.filled(PAGES_LONG + 1 if stream.was_cut else stream.pages_read)
        ahead = self._long or stream.pages_read <= PAGES_SPARSE
        self._ahead_max = min(WINDOWS_AHEAD, self._ahead_max * 2) if ahead else 1
        await self._accept(SKIPPED_PAGE, self._oldest_ahead(stream.window))
        return True

    async def _begin(self, windows: Iterator[Window]) -> None:
        """Start as many windows as may be read concurrently, if they are needed."""
        while len(self._streams) < self._ahead_max:
            if self._next is None and (window := next(windows, None)) is not None:
                self._next = Bookmark(*window)
            if self._next is None:
                return
            newest_ms = self._next.to_ms - 1 + self.source.lag_ms + self.source.join_ms
            if self.begun and not self._demand.needs(newest_ms):
                if self._streams:
                    return
                await self._demand.wanted(newest_ms)
            self._streams.append(WindowStream(self, self._next, long=self._long))
            self._next = None

    async def wanted(self, newest_ms: int) -> None:
        """Wait until rows of this time and older are needed."""
        if not self.source.untimed:
            newest_ms += self.source.lag_ms + self.source.join_ms
            await self._demand.wanted(newest_ms)
            await self.outlet.keep_pace(newest_ms)

    def _watermark_of(self, page: Page, window: Window) -> int:
        """The latest time that a record of later pages can have.

        Later pages contain rows that the exchange's filter sorts before this page's oldest row, and
        a record's time is at most `lag_ms` later than the time used by the filter. A page can be
        newer than its window if the window only determines where to stop.
        """
        oldest_ms = page.oldest_ms
        if oldest_ms is None or self.source.untimed:
            return self._watermark_ms
        oldest_ms = min(oldest_ms, window.to_ms - 1)
        return max(oldest_ms + self.source.lag_ms, self._oldest_ahead(window))

    def _oldest_ahead(self, window: Window) -> int:
        return window.from_ms - 1 + self.source.lag_ms

    async def _accept(self, page: Page, watermark_ms: int, *, snapshot: bool = False) -> None:
        self.unreadable += page.unreadable
        self.lack = self.lack or page.lack
        if page.kept_from_ms is not None:
            self._lost_before_ms = max(self._lost_before_ms, page.kept_from_ms)
        if page.hidden_before_ms is not None:
            self._hidden_before_ms = max(self._hidden_before_ms, page.hidden_before_ms)
        if page.hidden_after_ms is not None:
            self.hidden_after_ms = page.hidden_after_ms
        if (oldest_ms := page.oldest_ms) is not None:
            self.oldest_ms = oldest_ms if self.oldest_ms is None else min(self.oldest_ms, oldest_ms)
        self._watermark_ms = min(self._watermark_ms, watermark_ms)
        self.unreadable += await self.outlet.accept(
            self._number, page, self._watermark_ms, snapshot=snapshot
        )

    def _mark(self, read: ReadPage) -> None:
        """Remember the position of a page until all of its records have been delivered."""
        oldest_ms = read.page.oldest_ms
        if not self.source.cursor_lasts or oldest_ms is None:
            return
        if self.source.join_ms:
            last = RecordKey(self.source.join_ms - oldest_ms + 1, "")
        else:
            last = max(key_of(record) for record in read.page.records)
        self._forget_pages(self.delivered)
        self._bookmarks.append((last, read.bookmark))

    async def read_page(self, window: Window, cursor: str) -> Page:
        """Fetch one page from the reader."""
        page = await self._reader.page(self.source, window, cursor)
        self.begun = True
        self.pages += page is not SKIPPED_PAGE
        return page

    def cut(self, window: Window) -> Window | None:
        """Remove from a window the time that the exchange no longer keeps; None if nothing is left.

        "Two years ago" moves while we walk, and the exchange then answers with an error instead of
        an empty list.
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


def _endless() -> SourceFailed:
    return SourceFailed(FailureReason.EXCHANGE_ERROR, "A window has more pages than the limit.")


def _refused_cursor() -> SourceFailed:
    return SourceFailed(
        FailureReason.EXCHANGE_ERROR, "The exchange does not accept its own cursor.", retryable=True
    )


def _in_one(pages: list[Page]) -> Page:
    """Combine the pages of a window that was read oldest first into one page, newest row first."""
    kept = [page.kept_from_ms for page in pages if page.kept_from_ms is not None]
    return replace(
        pages[-1],
        records=[record for page in pages for record in page.records][::-1],
        parts=[part for page in pages for part in page.parts][::-1],
        rows=sum(page.rows for page in pages),
        unreadable=sum(page.unreadable for page in pages),
        kept_from_ms=max(kept, default=None),
        cursor="",
    )
