"""Simulated exchanges for the library: where they are, what is true there, waits for conditions."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from decimal import Decimal
from typing import Any

from onebook.library import BookUpdate, ExchangeSettings, FeedSettings
from onebook.simulator import SimulatedExchanges

PATIENCE_S = 30.0
SYMBOL = "BTC/USDT"
Rows = list[tuple[Decimal, Decimal]]


def feeds(sim: SimulatedExchanges, **others: Any) -> FeedSettings:
    """Settings with the addresses of the simulator."""
    overrides = {
        name: ExchangeSettings(ws_url=urls.ws, rest_url=urls.rest)
        for name, urls in sim.urls.items()
    }
    return FeedSettings(**{"overrides": overrides, **others})


def shown(update: BookUpdate) -> tuple[Rows, Rows]:
    bids, asks = ([(price, amount) for price, amount in side.decimals()] for side in sides(update))
    return bids, asks


def sides(update: BookUpdate) -> tuple[Any, Any]:
    return update.bids, update.asks


def truth(
    sim: SimulatedExchanges, names: Iterable[str], depth: int, symbol: str = SYMBOL
) -> tuple[Rows, Rows]:
    """The published levels of the exchanges, summed by price in Decimal."""
    books = [sim[name].book(symbol) for name in names]
    bids, asks = Counter[Decimal](), Counter[Decimal]()
    for book in books:
        for total, side in ((bids, book.bids), (asks, book.asks)):
            for price, amount in side.items():
                total[Decimal(price)] += Decimal(amount)  # type: ignore[assignment]
    return (
        sorted(bids.items(), reverse=True)[:depth],  # type: ignore[return-value]
        sorted(asks.items())[:depth],
    )


async def until(
    updates: AsyncIterator[BookUpdate], true: Callable[[BookUpdate], bool]
) -> BookUpdate:
    """Read until an update satisfies a condition."""
    async with asyncio.timeout(PATIENCE_S):
        async for update in updates:
            if true(update):
                return update
    raise AssertionError("the updates ended")
