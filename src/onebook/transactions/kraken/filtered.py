"""The spot ledger of several types, read by one query for each and merged by time.

A query with Kraken's filter skips the rows of other types, which are most of a trader's ledger.
Each merged page reaches down to the newest of the queries' last rows, so that no later page has a
newer row. Its cursor has no other state: a time, and an offset for each query.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from onebook.transactions.adapter import EventRow, Page
from onebook.transactions.record import Record

SEPARATOR: Final = "_"
ENDED: Final = ""  # offset of a query without further rows
BEGUN: Final = "+"  # follows the offset of a page whose rows down to the time were returned
NOT_BEGUN_MS: Final = 1 << 62


class QueryPlace(Struct, frozen=True):
    """How far one query has been read.

    Args:
        offset: The offset of its next page; `ENDED` at the end.
        begun: Whether the rows of that page down to the cursor's time were returned.
    """

    offset: str
    begun: bool = False


class FilteredLedger:
    """The merged queries of one ledger.

    Args:
        filters: The filter of each query.
        fetch: Fetches the page of a filter at an offset, newest first.
        rows_min: Rows of a page, except the last one.
    """

    def __init__(
        self,
        filters: list[str],
        fetch: Callable[[str, str], Awaitable[Page]],
        *,
        rows_min: int,
    ) -> None:
        self._filters = filters
        self._fetch = fetch
        self._rows_min = rows_min
        self._held: dict[str, tuple[str, Page]] = {}  # the page that is partly returned

    async def page(self, cursor: str) -> Page:
        """Fetch a merged page."""
        at_ms, places = read_cursor(cursor, len(self._filters))
        records: list[Record] = []
        parts: list[EventRow] = []
        rows = unreadable = 0
        while rows < self._rows_min and any(each.offset != ENDED for each in places):
            pages = [
                await self._page(name, place.offset)
                for name, place in zip(self._filters, places, strict=True)
            ]
            down_to_ms = min(at_ms, max(_last_ms(page) for page in pages))
            after: list[QueryPlace] = []
            for page, place in zip(pages, places, strict=True):
                taken = [
                    part
                    for part in page.parts
                    if part.at_ms >= down_to_ms and (not place.begun or part.at_ms < at_ms)
                ]
                parts += taken
                rows += len(taken)
                if _last_ms(page) < down_to_ms and any(e.at_ms < down_to_ms for e in page.parts):
                    after.append(QueryPlace(place.offset, begun=True))
                    continue
                records += page.records  # unreadable rows, whose time is that of the last row
                rows += page.unreadable
                unreadable += page.unreadable
                after.append(QueryPlace(page.cursor))
            at_ms, places = down_to_ms, after
        parts.sort(key=lambda part: -part.at_ms)
        return Page(records, rows, written_cursor(at_ms, places), unreadable, parts=parts)

    async def _page(self, name: str, offset: str) -> Page:
        if offset == ENDED:
            return Page([], 0, "")
        held = self._held.get(name)
        if held is None or held[0] != offset:
            held = self._held[name] = offset, await self._fetch(name, offset)
        return held[1]


def _last_ms(page: Page) -> int:
    """The time above which all rows of a query are known; below any if the page is its last."""
    if not page.cursor:
        return -1
    return page.parts[-1].at_ms if page.parts else NOT_BEGUN_MS


def read_cursor(cursor: str, queries: int) -> tuple[int, list[QueryPlace]]:
    """The time and the place of each query."""
    if not cursor:
        return NOT_BEGUN_MS, [QueryPlace("0")] * queries
    at, *offsets = cursor.split(SEPARATOR)
    places = [QueryPlace(each.removesuffix(BEGUN), each.endswith(BEGUN)) for each in offsets]
    return int(at), places


def written_cursor(at_ms: int, places: list[QueryPlace]) -> str:
    """The cursor of the next page; "" if every query has ended."""
    if all(place.offset == ENDED for place in places):
        return ""
    offsets = (place.offset + BEGUN * place.begun for place in places)
    return SEPARATOR.join([str(at_ms), *offsets])
