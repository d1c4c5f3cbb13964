"""Windows, pagination cursors and pages of a source, and the bounds of a walk; pure."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from onebook.transactions.adapter import FailureReason, Page, Source, SourceFailed, Window

FLOOR_MARGIN_MS: Final = 5 * 60_000  # "two years ago" moves while we walk
SPLIT_MS_MIN: Final = 60 * 60_000
PAGES_LONG: Final = 24  # longer windows are halved, because windows are read concurrently
PAGES_SHORT: Final = 3
PAGE_ROWS_MIN: Final = 10
PAGE_ROWS_SPARE: Final = 5  # unneeded rows per page: those in the second in which the window ends
CURSORS_KEPT_MAX: Final = 1_000  # the last ones of a walk
SMALL_PAGE_LAG_MS: Final = 1_000  # above this, a page does not bound the times still to come


class Cutter:
    """The windows of one walk, newest first; their length adapts to their number of rows.

    Args:
        source: The source to read.
        from_ms: The oldest time to read, inclusive.
        to_ms: The newest time to read, exclusive: the origin of the grid.
        below_ms: Windows from this time on have been read already.
    """

    def __init__(self, source: Source, *, from_ms: int, to_ms: int, below_ms: int) -> None:
        self._source = source
        grain = source.grain_ms
        self._from_ms = from_ms // grain * grain
        self._length_ms = source.window_ms
        # Up to the end of a grain, because the exchange compares whole seconds.
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
        """Record the number of pages of a window."""
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

    A repeated cursor is an error: the remaining rows are unreachable. Of a long walk the last
    cursors are kept, and one older one, which is replaced whenever the number of pages has doubled:
    it finds a longer cycle in its second round, in constant memory (R. P. Brent, 1980).

    Args:
        begin: The cursor of the first page; "" without one.
    """

    __slots__ = ("_milestone", "_pages", "_recent", "cursor")

    def __init__(self, begin: str = "") -> None:
        self.cursor = begin
        self._recent = OrderedDict.fromkeys([begin])
        self._milestone = begin
        self._pages = 1

    def follow(self, cursor: str) -> bool:
        """Advance to the cursor of the next page; False if there is none.

        Raises:
            SourceFailed: The cursor repeats.
        """
        if not cursor:
            return False
        if cursor in self._recent or cursor == self._milestone:
            raise SourceFailed(
                FailureReason.UNREADABLE,
                "The exchange repeated a cursor, so later pages cannot be read.",
                retryable=True,
            )
        self._pages += 1
        if self._pages & (self._pages - 1) == 0:
            self._milestone = cursor
        self._recent[cursor] = None
        if len(self._recent) > CURSORS_KEPT_MAX:
            self._recent.popitem(last=False)
        self.cursor = cursor
        return True


class Bookmark(NamedTuple):
    """A page of the exchange: its window, and the exchange's cursor that leads to it."""

    from_ms: int
    to_ms: int
    seen_ms: int
    cursor: str = ""

    @property
    def window(self) -> Window:
        """The window to which the cursor belongs."""
        return Window(self.from_ms, self.to_ms, self.seen_ms)


class ReadPage(NamedTuple):
    """A page with its window and cursor."""

    page: Page
    bookmark: Bookmark


def halves(window: Window, source: Source) -> list[Window]:
    """The older and the newer half of a window; empty if its bounds are one grain apart."""
    middle_ms = (window.from_ms + window.to_ms) // 2 // source.grain_ms * source.grain_ms
    if middle_ms <= window.from_ms:
        return []
    older = Window(window.from_ms, middle_ms, middle_ms - 1)
    return [older, window._replace(from_ms=middle_ms)]


def below(window: Window, unread_ms: int, source: Source) -> Window:
    """Shrink a window to the part before `unread_ms`, which has the unread rows."""
    if source.untimed:
        return window
    return window._replace(seen_ms=min(window.seen_ms, unread_ms - 1))


def floor_ms(source: Source, now_ms: int) -> int:
    """The oldest time that may be requested from a source."""
    kept_from = 0 if source.keeps_ms is None else now_ms - source.keeps_ms + FLOOR_MARGIN_MS
    return max(source.begins_ms, kept_from)


def fitted(source: Source, limit: int | None) -> Source:
    """Limit the page size of a source to what an answer of `limit` records needs."""
    if limit is None or not source.window_ms or source.untimed or source.oldest_first:
        return source
    if not source.sized:
        return source
    rows = max(PAGE_ROWS_MIN, limit + PAGE_ROWS_SPARE)
    if rows >= source.page_rows or source.lag_ms > SMALL_PAGE_LAG_MS:
        return source
    return replace(source, page_rows=rows, page_rows_least=min(rows, source.page_rows_least))


def is_last(source: Source, rows: int, *, full_page: bool) -> bool:
    """Whether a page's size proves that it is the last.

    A missing cursor does not count, because the last page may still have one. A short page is the
    last one unless the exchange silently returns smaller pages than requested: it must therefore be
    shorter than any page size that the exchange may use, or follow a full page. If the query is
    filtered (`page_rows_least` 0), only an empty page is the last one.
    """
    if rows == 0:
        return True
    if not source.page_rows_least:
        return False
    return rows < source.page_rows_least or (full_page and rows < source.page_rows)


def _up(at_ms: int, grain_ms: int) -> int:
    return -(-at_ms // grain_ms) * grain_ms
