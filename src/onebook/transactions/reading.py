"""Reading one window of a source, page after page along the exchange's cursor.

Pages come newest first, or oldest first. Oldest first, a window is read to its end before anything
of it is passed on, because its newest rows come last; one with more pages than may be held is read
in halves, the newer one first.
"""

import asyncio
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from onebook.transactions.adapter import Page, Source, Window
from onebook.transactions.failures import CursorGone, FailureReason, SourceFailed, TooOld
from onebook.transactions.record import Record
from onebook.transactions.trail import Trail

PAGES_AHEAD: Final = 2
PAGES_AHEAD_SHORT: Final = 1
PAGES_MAX: Final = 5_000  # of one window: half a million rows a week
PAGES_HELD_MAX: Final = 24  # of a window that is read oldest first
PAGE_ROWS_MIN: Final = 10
PAGE_ROWS_SPARE: Final = 5  # rows that are read and not needed: of the second of the window's end
SMALL_PAGE_LAG_MS: Final = 1_000  # beyond, the rows of a page do not say what is still to come


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
    """A page that was read, and where it stands at the exchange."""

    page: Page
    bookmark: Bookmark


class PageSource(Protocol):
    """What a window is read from: the walker of its source."""

    source: Source

    async def read_page(self, window: Window, cursor: str) -> Page:
        """One page, as the reader gives it."""
        ...

    async def wanted(self, newest_ms: int) -> None:
        """Wait until rows of this time and older are needed."""
        ...

    def cut(self, window: Window) -> Window | None:
        """A window without what the exchange no longer keeps; None where nothing is left."""
        ...


class WindowStream:
    """One window being read ahead, page after page.

    Args:
        begin: The window, and the exchange's cursor to begin at.
    """

    def __init__(self, walker: PageSource, begin: Bookmark, *, long: bool) -> None:
        self.window = begin.window
        self.asked = 0
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
        self.asked += 1
        return page

    async def _read(self) -> None:
        source, window = self._walker.source, self.window
        trail, full_page, unread_ms = Trail(self._cursor), False, window.to_ms
        for _ in range(PAGES_MAX):
            try:
                page = await self._ask(_below(window, unread_ms, source), trail.cursor)
            except TooOld:
                # A cursor belongs to its window: begin again below what was read.
                cut = self._walker.cut(window._replace(to_ms=unread_ms))
                if cut is None:
                    return
                window, trail = cut, Trail()
                continue
            except CursorGone:
                if self.asked or not trail.cursor:
                    raise _refused_cursor() from None
                # It was that of an earlier answer: the window is read from its beginning.
                trail = Trail()
                continue
            await self.pages.put(ReadPage(page, Bookmark(*window, trail.cursor)))
            unread_ms = min([unread_ms, *(r.timestamp + 1 for r in page.records)])
            full_page = full_page or page.rows >= source.page_rows
            if is_last(source, page.rows, full_page=full_page):
                return
            if not source.ranged and unread_ms <= window.from_ms:
                return
            if not trail.follow(page.cursor):
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
        """All of a window as one page; None where it has more pages than may be held."""
        source = self._walker.source
        records: list[Record] = []
        rows, unreadable, kept_from_ms = 0, 0, None
        trail, full_page = Trail(), False
        for _ in range(PAGES_HELD_MAX if self._halves(part) else PAGES_MAX):
            page = await self._ask(part, trail.cursor)
            records += page.records
            rows, unreadable = rows + page.rows, unreadable + page.unreadable
            if page.kept_from_ms is not None:
                kept_from_ms = max(kept_from_ms or 0, page.kept_from_ms)
            full_page = full_page or page.rows >= source.page_rows
            last = is_last(source, page.rows, full_page=full_page)
            if last or not trail.follow(page.cursor):
                return Page(records[::-1], rows, "", unreadable, kept_from_ms)
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
    silently gives smaller pages than asked for: so it must be shorter than any page size it could
    have fallen back to, or have a full page before it. Where the query is filtered
    (`page_rows_least` 0), only an empty page does.
    """
    if rows == 0:
        return True
    if not source.page_rows_least:
        return False
    return rows < source.page_rows_least or (full_page and rows < source.page_rows)
