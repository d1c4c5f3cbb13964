"""Live order books of exchanges in the caller's own process: no server, no key, no database.

    async with onebook.order_book("BTC/USDT", exchanges=["binance", "okx"]) as book:
        async for update in book:
            print(update.best_bid, update.best_ask, update.stale)

The feeds, books, merge and rules are those of the service: a book is live or it is not shown, every
update lists the omitted exchanges with the reason, and numbers are exact. Runs on the event loop of
the caller, asyncio's or uvloop. Guide: docs/guides/library.md.
"""

import logging

from onebook.config import ExchangeSettings, FeedSettings, StreamSettings
from onebook.crossings import Crossing, CrossingReport
from onebook.feeds.recording import RecordingError
from onebook.fill import Fill, FillPart
from onebook.library.bars import bars
from onebook.library.book import OrderBook, OrderBooks, order_book, order_books
from onebook.library.errors import (
    BookClosed,
    NoLiveBook,
    UnknownExchange,
    UnknownSymbol,
)
from onebook.library.history import history
from onebook.library.replay import replay
from onebook.library.update import BookSide, BookUpdate
from onebook.model import Health, Reason
from onebook.orderbook import (
    BookLevel,
    BookProblem,
    BookTimes,
    ExchangeHealth,
    ExchangeTimes,
    HistoryMissing,
    Horizon,
    MissingPackage,
    NetLevel,
    OrderBookState,
)
from onebook.routes import Route, RoutePart, Rules

__all__ = [
    "BookClosed",
    "BookLevel",
    "BookProblem",
    "BookSide",
    "BookTimes",
    "BookUpdate",
    "Crossing",
    "CrossingReport",
    "ExchangeHealth",
    "ExchangeSettings",
    "ExchangeTimes",
    "FeedSettings",
    "Fill",
    "FillPart",
    "Health",
    "HistoryMissing",
    "Horizon",
    "MissingPackage",
    "NetLevel",
    "NoLiveBook",
    "OrderBook",
    "OrderBookState",
    "OrderBooks",
    "Reason",
    "RecordingError",
    "Route",
    "RoutePart",
    "Rules",
    "StreamSettings",
    "UnknownExchange",
    "UnknownSymbol",
    "bars",
    "history",
    "order_book",
    "order_books",
    "replay",
]

# In an application without logging, problems are in the updates and not on standard error.
logging.getLogger("onebook").addHandler(logging.NullHandler())
