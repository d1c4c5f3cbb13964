"""Python client of Onebook: live merged books, transactions and usage.

    async with AsyncOnebook("http://127.0.0.1:8000", key) as client:
        async for view in client.watch("BTC/USDT", depth=10):
            if view.bids and view.asks:
                print(view.bids[0].price, view.asks[0].price, view.bids[0].exchanges)
            else:
                print(view.problem or view.stale_exchanges)

`Onebook` is the same without asyncio; its `watch` streams only books. The package imports nothing
from the server. Code shared with the library is in `onebook.orderbook` and, for binary updates,
`onebook.core`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onebook.client.books import BookSession, ServiceBook
from onebook.client.failures import Refused, ServiceError, Unavailable
from onebook.client.link import ViewUpdates
from onebook.client.options import FillRequest, SubscribeOptions, SymbolOptions
from onebook.client.view import BookView, ViewSide
from onebook.client.watch import watch
from onebook.crossings import Crossing, CrossingReport
from onebook.fill import Fill, FillPart
from onebook.orderbook import (
    BookLevel,
    BookProblem,
    BookTimes,
    ConversionReport,
    ExchangeHealth,
    ExchangeTimes,
    Horizon,
    MissingPackage,
    NetLevel,
    OrderBookState,
)
from onebook.routes import Route, RoutePart, Rules

if TYPE_CHECKING:
    from onebook.client.blocking import Onebook
    from onebook.client.follow import LiveTransaction, TransactionEvents
    from onebook.client.pages import TransactionPage, TransactionPages, TransactionRecords
    from onebook.client.service import AsyncOnebook
    from onebook.client.usage import KeyUsage

# Imported on first use: httpx takes longer to import than everything else.
_LATER = {
    "AsyncOnebook": "service",
    "KeyUsage": "usage",
    "Onebook": "blocking",
    "LiveTransaction": "follow",
    "TransactionEvents": "follow",
    "TransactionPage": "pages",
    "TransactionPages": "pages",
    "TransactionRecords": "pages",
}

__all__ = [
    "AsyncOnebook",
    "BookLevel",
    "BookProblem",
    "BookSession",
    "BookTimes",
    "BookView",
    "ConversionReport",
    "Crossing",
    "CrossingReport",
    "ExchangeHealth",
    "ExchangeTimes",
    "Fill",
    "FillPart",
    "FillRequest",
    "Horizon",
    "KeyUsage",
    "LiveTransaction",
    "MissingPackage",
    "NetLevel",
    "Onebook",
    "OrderBookState",
    "Refused",
    "Route",
    "RoutePart",
    "Rules",
    "ServiceBook",
    "ServiceError",
    "SubscribeOptions",
    "SymbolOptions",
    "TransactionEvents",
    "TransactionPage",
    "TransactionPages",
    "TransactionRecords",
    "Unavailable",
    "ViewSide",
    "ViewUpdates",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"onebook.client.{_LATER[name]}"), name)
