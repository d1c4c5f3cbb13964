"""Reads sources from newest to oldest, and merges them: every record once, none skipped silently.

A walker cuts its range into windows (`Cutter`) and reads several side by side (`WindowStream`),
each along the exchange's cursor (`CursorChain`). It sorts and deduplicates records (`Sorter`) and
emits them once nothing newer can arrive. Its *watermark* says how far it has come: all records
with a later time have been emitted, so a merge of walkers need not wait for one without records.

Pages are no larger than the answer's limit, and a walker pauses while enough later records are
buffered (`Demand`). `merged` makes one sequence of all walkers, ties by id.

Bounds: `WINDOWS_AHEAD` windows, `PAGES_AHEAD` pages of each, `READY_MAX` records. Little is read
ahead for a short answer, because most of it would be thrown away.
"""

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from onebook.transactions.adapter import (
    NOT_ASKED,
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
from onebook.transactions.record import FIRST, Record, RecordKey, key_of

BATCH_MAX: Final = 200  # records between two turns of the event loop
UNPLACED_MAX: Final = 40  # ids in a cursor
UNPLACED_CHARS: Final = 18  # of an id: 64 bits
FLOOR_MARGIN_MS: Final = 5 * 60_000  # "two years ago" moves while we walk
SPLIT_MS_MIN: Final = 60 * 60_000
PAGES_LONG: Final = 24  # a window of more pages is cut in two: windows are read side by side
PAGES_SHORT: Final = 3
RECENT_MAX: Final = 2_000  # ids that a repeated row is known by
SMALL_ANSWER: Final = 100  # up to here nothing is read ahead before every source has begun
DEMAND_MAX: Final = 1_000  # records for which it is worth finding out how far back they reach
NOTHING_LEFT_MS: Final = -(1 << 61)
PAGES_AHEAD: Final = 2
PAGES_AHEAD_SHORT: Final = 1
PAGES_MAX: Final = 5_000  # of one window: half a million rows a week
PAGES_HELD_MAX: Final = 24  # of a window that is read oldest first
PAGE_ROWS_MIN: Final = 10
PAGE_ROWS_SPARE: Final = 5  # rows that are read and not needed: of the second of the window's end
SMALL_PAGE_LAG_MS: Final = 1_000  # beyond, the rows of a page do not say what is still to come
WINDOWS_AHEAD: Final = 6
PAGES_SPARSE: Final = 1  # windows with no more pages than this are read ahead in any case
READY_MAX: Final = 500
NOT_STARTED_MS: Final = 1 << 61

Keyed = tuple[RecordKey, Record]


class Cutter:
    """The windows of one walk, newest first; their length follows how full they are.

    Args:
        source: The source to read.
        from_ms: The oldest time to read, inclusive.
        to_ms: The newest time to read, exclusive: the origin of the grid.
        below_ms: Only windows below this are still to be read, exclusive.
    """

    def __init__(self, source: Source, *, from_ms: int, to_ms: int, below_ms: int) -> None:
        self._source = source
        grain = source.grain_ms
        self._from_ms = from_ms // grain * grain
        self._length_ms = source.window_ms
        # Up to the end of a grain: the exchange compares whole seconds.
        self._to_ms = _up(to_ms, grain)
        self._last_ms = to_ms - 1
        self._below_ms = min(self._to_ms, _up(below_ms, grain))

    def __iter__(self) -> Iterator[Window]:
        top = self._to_ms
        while top > self._from_ms:
            bottom = max(self._from_ms, top - self._length_ms)
            if bottom < self._below_ms:
                yield Window(bottom, min(top, self._below_ms), min(top - 1, self._last_ms))
            top = bottom

    def filled(self, pages: int) -> None:
        """Note how many pages a window had."""
        if self._source.untimed:
            return
        grain = self._source.grain_ms
        if pages > PAGES_LONG:
            half = self._length_ms // 2 // grain * grain
            self._length_ms = max(min(SPLIT_MS_MIN, self._source.window_ms), half)
        elif pages < PAGES_SHORT:
            self._length_ms = min(self._source.window_ms, self._length_ms * 2)


class CursorChain:
    """Follows pagination cursors.

    A repeated cursor is an error: the remaining rows are unreachable.

    Args:
        begin: The cursor of the first page; "" without one.
    """

    __slots__ = ("_seen", "cursor")

    def __init__(self, begin: str = "") -> None:
        self.cursor = begin
        self._seen = {begin}

    def follow(self, cursor: str) -> bool:
        """Advance to the cursor of the next page; False if there is none.

        Raises:
            SourceFailed: The cursor repeats.
        """
        if not cursor:
            return False
        if cursor in self._seen:
            raise SourceFailed(
                FailureReason.UNREADABLE,
                "The exchange repeated a cursor: what comes after this page cannot be read.",
                retryable=True,
            )
        self._seen.add(cursor)
        self.cursor = cursor
        return True


class Range:
    """Records a walker has to read.

    Args:
        from_ms: Oldest record time, inclusive.
        to_ms: Newest record time, inclusive.
        after: The place of the last record that was delivered before; only later ones count.
    """

    __slots__ = ("after", "from_ms", "to_ms")

    def __init__(self, from_ms: int, to_ms: int, *, after: RecordKey = FIRST) -> None:
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.after = after


class Sorter:
    """Sorts and deduplicates the records of one source as they arrive."""

    def __init__(self, wanted: Range) -> None:
        self._wanted = wanted
        self._held: list[Keyed] = []
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._last = FIRST
        self.disordered = 0
        self.duplicates = 0

    def push(self, records: list[Record], *, snapshot: bool) -> None:
        """Add records; those out of range or already delivered are dropped."""
        for record in records:
            key = key_of(record)
            if not (self._snapshot_wanted(key) if snapshot else self._in_range(key)):
                continue
            if record.transactionId in self._seen:
                self.duplicates += 1
                continue
            self._seen[record.transactionId] = None
            heapq.heappush(self._held, (key, record))

    def _in_range(self, key: RecordKey) -> bool:
        wanted = self._wanted
        return wanted.from_ms <= -key.negative_ms <= wanted.to_ms and key > wanted.after

    def _snapshot_wanted(self, key: RecordKey) -> bool:
        """Every page takes a snapshot of its own time, so delivered rows are known by id."""
        return key.record_id > self._wanted.after.record_id

    def release(self, watermark_ms: int) -> Iterator[Keyed]:
        """Every held record that is later than the watermark, in order."""
        while self._held and self._held[0][0].negative_ms < -watermark_ms:
            keyed = heapq.heappop(self._held)
            if keyed[0] < self._last:
                self.disordered += 1
            else:
                self._last = keyed[0]
            yield keyed
        while len(self._seen) - len(self._held) > RECENT_MAX:
            self._seen.popitem(last=False)


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

    def update(self, walkers: Sequence["Walker"], left: int | None) -> None:
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


class Bookmark(NamedTuple):
    """A page of the exchange: its window, and the exchange's cursor that leads to it."""

    from_ms: int
    to_ms: int
    seen_ms: int
    cursor: str = ""

    @property
    def window(self) -> Window:
        """The window that the cursor belongs to."""
        return Window(self.from_ms, self.to_ms, self.seen_ms)


class ReadPage(NamedTuple):
    """A page, and its position at the exchange."""

    page: Page
    bookmark: Bookmark


class WindowStream:
    """One window being read ahead, page after page.

    Args:
        begin: The window, and the exchange's cursor to begin at.
    """

    def __init__(self, walker: "Walker", begin: Bookmark, *, long: bool) -> None:
        self.window = begin.window
        self.pages_read = 0
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
        except Exception as error:  # raised again where the pages are taken
            await self.pages.put(error)
        else:
            await self.pages.put(None)

    async def _ask(self, window: Window, cursor: str) -> Page:
        page = await self._walker.read_page(window, cursor)
        self.pages_read += 1
        return page

    async def _read(self) -> None:
        source, window = self._walker.source, self.window
        chain, full_page, unread_ms = CursorChain(self._cursor), False, window.to_ms
        for _ in range(PAGES_MAX):
            try:
                page = await self._ask(_below(window, unread_ms, source), chain.cursor)
            except TooOld:
                # A cursor belongs to its window: begin again below what was read.
                cut = self._walker.cut(window._replace(to_ms=unread_ms))
                if cut is None:
                    return
                window, chain = cut, CursorChain()
                continue
            except CursorGone:
                if self.pages_read or not chain.cursor:
                    raise _refused_cursor() from None
                # It was that of an earlier answer: the window is read from its beginning.
                chain = CursorChain()
                continue
            await self.pages.put(ReadPage(page, Bookmark(*window, chain.cursor)))
            unread_ms = min([unread_ms, *(r.timestamp + 1 for r in page.records)])
            full_page = full_page or page.rows >= source.page_rows
            if is_last(source, page.rows, full_page=full_page):
                return
            if not source.ranged and unread_ms <= window.from_ms:
                return
            if not chain.follow(page.cursor):
                return
            await self._walker.wanted(unread_ms - 1)
        raise _endless()

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
                parts += self._halves(part)
                continue
            await self.pages.put(ReadPage(page, Bookmark(*part)))
            if parts:
                await self._walker.wanted(part.from_ms - 1)

    async def _whole(self, part: Window) -> Page | None:
        """A whole window as one page; None if it has more pages than may be held."""
        source = self._walker.source
        records: list[Record] = []
        rows, unreadable, kept_from_ms = 0, 0, None
        chain, full_page = CursorChain(), False
        for _ in range(PAGES_HELD_MAX if self._halves(part) else PAGES_MAX):
            page = await self._ask(part, chain.cursor)
            records += page.records
            rows, unreadable = rows + page.rows, unreadable + page.unreadable
            if page.kept_from_ms is not None:
                kept_from_ms = max(kept_from_ms or 0, page.kept_from_ms)
            full_page = full_page or page.rows >= source.page_rows
            last = is_last(source, page.rows, full_page=full_page)
            if last or not chain.follow(page.cursor):
                return replace(
                    page, records=records[::-1], rows=rows, cursor="", unreadable=unreadable,
                    kept_from_ms=kept_from_ms,
                )  # fmt: skip
        if not self._halves(part):
            raise _endless()
        return None

    def _halves(self, part: Window) -> list[Window]:
        """The older and the newer half; none where both bounds are one grain apart."""
        grain_ms = self._walker.source.grain_ms
        middle_ms = (part.from_ms + part.to_ms) // 2 // grain_ms * grain_ms
        if middle_ms <= part.from_ms:
            return []
        older = Window(part.from_ms, middle_ms, middle_ms - 1)
        return [older, part._replace(from_ms=middle_ms)]


class Walker:
    """Reads one source of one request, from newest to oldest. Owned: `close` it."""

    def __init__(
        self,
        source: Source,
        reader: PageReader,
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
        self.absent = False  # the account never used the product
        self.unreadable = 0
        self.pages = 0
        self.hidden_after_ms: int | None = None
        self._hidden_before_ms = NOTHING_LEFT_MS
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
        """Records that arrived after newer ones: the exchange did not keep its own order."""
        return self._sorter.disordered

    @property
    def exhausted(self) -> bool:
        """Whether the source was read to its end without a failure."""
        return self.finished and not self.ready and self.failure is None

    @property
    def kept_from_ms(self) -> int | None:
        """Time from which the exchange still has all records; None for the whole range."""
        # Before its beginning there was nothing that could be lost.
        lost = self.source.window_ms and self.floor_ms > self.source.begins_ms
        kept = max(
            self.floor_ms if lost else NOTHING_LEFT_MS, self._lost_before_ms, self._hidden_before_ms
        )
        return kept if kept > self._wanted.from_ms else None

    @property
    def hidden(self) -> bool:
        """Whether the key may not see a part of the range."""
        after_ms = self.hidden_after_ms
        return self._hidden_before_ms > self._wanted.from_ms or (
            after_ms is not None and after_ms < self._wanted.to_ms
        )

    @property
    def reached(self) -> RecordKey:
        """Position up to which all records of this source have been delivered."""
        if self.ready:
            return max(self.delivered, RecordKey(self.ready[0][0].negative_ms, ""))
        if self.watermark_ms == NOT_STARTED_MS:
            return self.delivered
        return max(self.delivered, RecordKey(-self.watermark_ms, ""))

    def bookmark(self, place: RecordKey) -> Bookmark | None:
        """The exchange's page to resume from after a position; None if the time is enough."""
        self._forget_pages(place)
        return self._bookmarks[0][1] if self._bookmarks else None

    def _forget_pages(self, place: RecordKey) -> None:
        while len(self._bookmarks) > 1 and self._bookmarks[0][0] <= place:
            self._bookmarks.popleft()

    def pop(self) -> Keyed:
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
            if failure.reason is FailureReason.NOT_OPENED and not self.pages:
                self.absent = True
            else:
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
        """The windows of this walk; None if the source has nothing in the range."""
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
        cutter.filled(stream.pages_read)
        ahead = self._long or stream.pages_read <= PAGES_SPARSE
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
        if page.hidden_before_ms is not None:
            self._hidden_before_ms = max(self._hidden_before_ms, page.hidden_before_ms)
        if page.hidden_after_ms is not None:
            self.hidden_after_ms = page.hidden_after_ms
        self._sorter.push(page.records, snapshot=snapshot)
        await self._emit(min(self.watermark_ms, watermark_ms))

    def _mark(self, read: ReadPage) -> None:
        """Remember the position of a page until all of its records have been delivered."""
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
        """One page from the reader."""
        return await self._reader.page(self.source, window, cursor)

    def cut(self, window: Window) -> Window | None:
        """A window without the time that the exchange no longer keeps; None if nothing is left.

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


def _below(window: Window, unread_ms: int, source: Source) -> Window:
    """A window, for a page of which all rows are older than `unread_ms`."""
    if source.untimed:
        return window
    return window._replace(seen_ms=min(window.seen_ms, unread_ms - 1))


def _endless() -> SourceFailed:
    return SourceFailed(FailureReason.EXCHANGE_ERROR, "A window has more pages than the limit.")


def _refused_cursor() -> SourceFailed:
    return SourceFailed(
        FailureReason.EXCHANGE_ERROR, "The exchange does not accept its own cursor.", retryable=True
    )


def floor_ms(source: Source, now_ms: int) -> int:
    """The oldest time that may be requested from a source."""
    kept_from = 0 if source.keeps_ms is None else now_ms - source.keeps_ms + FLOOR_MARGIN_MS
    return max(source.begins_ms, kept_from)


def fitted(source: Source, limit: int | None) -> Source:
    """A source with pages no larger than an answer of `limit` records can use."""
    if limit is None or not source.window_ms or source.untimed or source.oldest_first:
        return source
    rows = max(PAGE_ROWS_MIN, limit + PAGE_ROWS_SPARE)
    if rows >= source.page_rows or source.lag_ms > SMALL_PAGE_LAG_MS:
        return source
    return replace(source, page_rows=rows, page_rows_least=min(rows, source.page_rows_least))


def is_last(source: Source, rows: int, *, full_page: bool) -> bool:
    """Whether a page's size proves that it is the last.

    A cursor does not: the last page may still have one. A short page does, unless the exchange
    silently returns smaller pages than requested: so it must be shorter than any page size it could
    have fallen back to, or have a full page before it. Where the query is filtered
    (`page_rows_least` 0), only an empty page does.
    """
    if rows == 0:
        return True
    if not source.page_rows_least:
        return False
    return rows < source.page_rows_least or (full_page and rows < source.page_rows)


def _up(at_ms: int, grain_ms: int) -> int:
    return -(-at_ms // grain_ms) * grain_ms


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
