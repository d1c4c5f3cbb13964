"""Markets of an exchange: cached instrument lists, and sources that are queried by symbol.

The market of a symbol that is no longer listed (delisted, expired) is derived from its name, where
the exchange's naming allows it.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from onebook.clock import Clock
from onebook.transactions.adapter import FailureReason, Page, SourceFailed, Window
from onebook.transactions.limits import Retries
from onebook.transactions.record import Record, TradedMarket
from onebook.transactions.windows import CursorChain

GUESSES_MAX: Final = 20_000  # symbols parsed from their names
MARKETS_MAX_AGE_S: Final = 3_600.0

InstrumentRow = Mapping[str, Any]
SYMBOL_PAGES_MAX: Final = 500  # per window


class Markets:
    """All symbols that an account may have traded.

    Args:
        listed: Maps a row of the exchange's instrument list to a market.
        guess: Derives a market from its category and symbol.
    """

    def __init__(
        self,
        listed: Callable[[str, InstrumentRow], TradedMarket],
        guess: Callable[[str, str], TradedMarket],
    ) -> None:
        self._listed = listed
        self._guess = guess
        self._known: dict[tuple[str, str], TradedMarket] = {}
        self._guessed: dict[tuple[str, str], TradedMarket] = {}

    def load(self, category: str, rows: Iterable[InstrumentRow]) -> None:
        """Add rows of an instrument list."""
        for row in rows:
            market = self._listed(category, row)
            self._known[category, market.symbol] = market

    def find(self, category: str, symbol: str) -> TradedMarket:
        """The market of a symbol; its coins are None if the name does not reveal them."""
        key = (category, symbol)
        market = self._known.get(key) or self._guessed.get(key)
        if market is None:
            market = self._guess(category, symbol)
            if len(self._guessed) < GUESSES_MAX:
                self._guessed[key] = market
        return market


def unknown_market(category: str, symbol: str) -> TradedMarket:
    """Return a market of which only the symbol is known."""
    return TradedMarket(symbol, category, None, None, None, None, None)


class MarketCache:
    """The markets of one environment, fetched on first use and then hourly.

    Args:
        markets: Filled from the lists.
        pages: Fetches the instrument list of a category, page by page.
        display: The exchange's name in the log.
    """

    def __init__(
        self,
        markets: Markets,
        pages: Callable[[str, Retries], AsyncGenerator[list[InstrumentRow]]],
        *,
        clock: Clock,
        display: str,
    ) -> None:
        self.markets = markets
        self._pages = pages
        self._clock = clock
        self._display = display
        self._log = logging.getLogger("onebook.transactions")
        self._loaded_s: dict[str, float] = {}
        self._loading = asyncio.Lock()

    async def load(self, category: str, retries: Retries) -> None:
        """Load the markets of a category unless they are known and less than an hour old."""
        async with self._loading:
            if self._stale(category):
                await self._load(category, retries)

    def _stale(self, category: str) -> bool:
        at_s = self._loaded_s.get(category)
        return at_s is None or self._clock.monotonic() - at_s > MARKETS_MAX_AGE_S

    async def _load(self, category: str, retries: Retries) -> None:
        try:
            async with aclosing(self._pages(category, retries)) as pages:
                async for rows in pages:
                    self.markets.load(category, rows)
        except (SourceFailed, LookupError, TypeError, ValueError) as error:
            # Names reveal nearly all coins: without the list, only a few delisted symbols lack
            # theirs.
            self._log.warning(
                "The %s markets of %s could not be loaded: %s", category, self._display, _why(error)
            )
        # Only at the end: a cancelled load has to be repeated.
        self._loaded_s[category] = self._clock.monotonic()


def _why(error: Exception) -> str:
    """The reason of a failure, for the log; text of a foreign exception may contain secrets."""
    if isinstance(error, SourceFailed):
        return f"{error.reason.value}: {error.message}"
    return f"{FailureReason.UNREADABLE.value}: the answer does not have the documented form."


async def pages_along(
    ask: Callable[[str], Awaitable[Page]], *, pages_max: int = SYMBOL_PAGES_MAX
) -> AsyncGenerator[Page]:
    """Yield every page of a query along the exchange's cursor.

    Raises:
        SourceFailed: The query has more pages than the limit, or a cursor repeats.
    """
    chain = CursorChain()
    for _ in range(pages_max):
        page = await ask(chain.cursor)
        yield page
        if not page.rows or not chain.follow(page.cursor):
            return
    raise SourceFailed(FailureReason.EXCHANGE_ERROR, "A window has more pages than the limit.")


class SymbolFanOut:
    """One account's symbols by category and window, and complete windows of sources by symbol.

    Args:
        traded: Fetches the symbols of a category that were traded in a window.
        margin_ms: Time before and after a window for which traded symbols are looked up.
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
        """Fetch an entire window as one page: all pages of every symbol.

        Args:
            ask: Fetches the page of a symbol at a cursor.
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
