"""Reading a source that an exchange answers for one symbol at a time.

The symbols are those that were traded around the window: from a margin before it to one after it,
because the filter of such a source can go by a time other than that of the trade.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Final

from onebook.transactions.adapter import Page, Window
from onebook.transactions.failures import FailureReason, SourceFailed
from onebook.transactions.record import Record
from onebook.transactions.walk import CursorChain

SYMBOL_PAGES_MAX: Final = 500  # of one window


async def pages_along(
    ask: Callable[[str], Awaitable[Page]], *, pages_max: int = SYMBOL_PAGES_MAX
) -> AsyncGenerator[Page]:
    """Every page of a query along the exchange's cursor.

    Raises:
        SourceFailed: There are more than can be, or a cursor came twice.
    """
    chain = CursorChain()
    for _ in range(pages_max):
        page = await ask(chain.cursor)
        yield page
        if not page.rows or not chain.follow(page.cursor):
            return
    raise SourceFailed(FailureReason.EXCHANGE_ERROR, "A window has more pages than the limit.")


class SymbolFanOut:
    """One account's symbols by category and window, and whole windows of sources by symbol.

    Args:
        traded: Asks which symbols of a category were traded in a window.
        margin_ms: How far before and after a window symbols are looked for.
    """

    def __init__(
        self, traded: Callable[[str, Window], Awaitable[set[str]]], *, margin_ms: int
    ) -> None:
        self._ask_traded = traded
        self._margin_ms = margin_ms
        self._traded: dict[tuple[str, Window], set[str]] = {}
        self._locks: defaultdict[tuple[str, Window], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def page(
        self, category: str, window: Window, ask: Callable[[str, str], Awaitable[Page]]
    ) -> Page:
        """A whole window as one page: every symbol, page by page.

        Args:
            ask: Asks for the page of a symbol at a cursor.
        """
        records: list[Record] = []
        unreadable = 0
        for symbol in sorted(await self._symbols(category, window)):
            async with aclosing(pages_along(partial(ask, symbol))) as pages:
                async for page in pages:
                    records += page.records
                    unreadable += page.unreadable
        return Page(records, len(records), "", unreadable)

    async def _symbols(self, category: str, window: Window) -> set[str]:
        before = Window(window.from_ms - self._margin_ms, window.from_ms, window.from_ms)
        after = Window(window.to_ms, window.to_ms + self._margin_ms, window.to_ms)
        found: set[str] = set()
        for part in (after, window, before):
            async with self._locks[category, part]:
                if (category, part) not in self._traded:
                    self._traded[category, part] = await self._ask_traded(category, part)
            found |= self._traded[category, part]
        return found
