"""The library for programs without asyncio: `order_book`, `order_books` and `replay`.

    with onebook.sync.order_book("BTC/USDT", exchanges=["binance", "okx"]) as book:
        for update in book:
            print(update.best_bid, update.best_ask)

Options, updates and errors are those of `onebook.order_book`; feeds run in a background thread.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from onebook import library
from onebook.blocking import BlockingBook, BlockingBooks
from onebook.library import BookUpdate, OrderBook, OrderBooks, replay

__all__ = ["order_book", "order_books", "replay"]

P = ParamSpec("P")


def _book(opened: Callable[P, OrderBook]) -> Callable[P, BlockingBook[BookUpdate]]:
    @wraps(opened)
    def blocking(*args: P.args, **options: P.kwargs) -> BlockingBook[BookUpdate]:
        return BlockingBook(opened(*args, **options))

    return blocking


def _books(opened: Callable[P, OrderBooks]) -> Callable[P, BlockingBooks[BookUpdate]]:
    @wraps(opened)
    def blocking(*args: P.args, **options: P.kwargs) -> BlockingBooks[BookUpdate]:
        return BlockingBooks(opened(*args, **options))

    return blocking


order_book = _book(library.order_book)
order_books = _books(library.order_books)
