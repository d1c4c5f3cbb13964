"""`Onebook`: the client for programs without asyncio."""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

from onebook.blocking import BlockingBook, BlockingBooks, BlockingIterator, LoopThread
from onebook.client.books import TIMEOUT_S, BookSession
from onebook.client.follow import LiveTransaction
from onebook.client.options import SubscribeOptions, Symbols
from onebook.client.pages import PAGE_RECORDS, Time, TransactionPage
from onebook.client.rest import ATTEMPTS_MAX
from onebook.client.service import AsyncOnebook
from onebook.client.session import SILENCE_MAX_S
from onebook.client.usage import KeyUsage
from onebook.client.view import BookView
from onebook.orderbook import ALL, Names

CLOSED = "This client is closed."


class Onebook:
    """A client of one service, for one thread at a time. Use it as a context manager or close it.

    Methods, arguments and errors are the same as in `AsyncOnebook`.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        attempts_max: int = ATTEMPTS_MAX,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._client = AsyncOnebook(
            url, api_key, attempts_max=attempts_max, ssl_context=ssl_context
        )
        self._thread = LoopThread(CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and stop the thread."""
        self._thread.close(self._client.close)

    def watch(
        self,
        symbols: Symbols,
        *,
        exchanges: Names = ALL,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Unpack[SubscribeOptions],
    ) -> BlockingIterator[BookView]:
        """Iterate over the newest view of each symbol, across reconnects, until closed."""
        return BlockingIterator(
            self._thread,
            self._client.watch(
                symbols,
                exchanges=exchanges,
                attempts_max=attempts_max,
                silence_max_s=silence_max_s,
                **options,
            ),
        )

    def order_book(
        self,
        symbol: str,
        *,
        exchanges: Names = ALL,
        timeout_s: float = TIMEOUT_S,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Unpack[SubscribeOptions],
    ) -> BlockingBook[BookView]:
        """Return the live order book of a symbol, to be used in `with`."""
        book = self._client.order_book(
            symbol,
            exchanges=exchanges,
            timeout_s=timeout_s,
            attempts_max=attempts_max,
            silence_max_s=silence_max_s,
            **options,
        )
        return BlockingBook(book, self._thread)

    def order_books(
        self,
        symbols: Symbols,
        *,
        exchanges: Names = ALL,
        merged: bool = True,
        timeout_s: float = TIMEOUT_S,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Unpack[SubscribeOptions],
    ) -> BlockingBooks[BookView]:
        """Return the live order books of several symbols, to be used in `with`."""
        books = self._client.order_books(
            symbols,
            exchanges=exchanges,
            merged=merged,
            timeout_s=timeout_s,
            attempts_max=attempts_max,
            silence_max_s=silence_max_s,
            **options,
        )
        return BlockingBooks(books, self._thread)

    def session(
        self,
        *,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
    ) -> "BlockingSession":
        """Return a connection without subscriptions, to be used in `with`."""
        books = self._client.session(attempts_max=attempts_max, silence_max_s=silence_max_s)
        return BlockingSession(books, self._thread)

    def snapshot(
        self,
        symbol: str,
        *,
        exchanges: Names = ALL,
        as_of: str | int | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> BookView:
        """Request the merged book of one symbol once, of the moment `as_of` if given."""
        return self._thread.run(
            self._client.snapshot(symbol, exchanges=exchanges, as_of=as_of, **options)
        )

    def exchanges(self) -> dict[str, Any]:
        """List the exchanges and the state of their feeds."""
        return self._thread.run(self._client.exchanges())

    def pairs(self, exchange: str | None = None) -> dict[str, Any]:
        """List the pairs of one exchange, or of all."""
        return self._thread.run(self._client.pairs(exchange))

    def usage(self) -> KeyUsage:
        """Return usage and allowance of the key."""
        return self._thread.run(self._client.usage())

    def fees(self) -> dict[str, str]:
        """Return the key's taker fees in percent by exchange; `"*"`: all others."""
        return self._thread.run(self._client.fees())

    def change_fees(self, fees: Mapping[str, str]) -> dict[str, str]:
        """Replace the key's whole fee table, and return it in canonical form."""
        return self._thread.run(self._client.change_fees(fees))

    def quality(
        self,
        *,
        start: str | int | None = None,
        end: str | int | None = None,
        exchanges: Sequence[str] = (),
        symbols: Sequence[str] = (),
        by: str = "exchange",
    ) -> dict[str, Any]:
        """Return the recorded quality of exchanges: uptime, failures, ages and crossings."""
        return self._thread.run(
            self._client.quality(start=start, end=end, exchanges=exchanges, symbols=symbols, by=by)
        )

    def recorded(
        self, symbol: str, *, start: str | int | None = None, end: str | int | None = None
    ) -> dict[str, Any]:
        """Return when books of a pair were recorded, and by which exchanges."""
        return self._thread.run(self._client.recorded(symbol, start=start, end=end))

    def health(self) -> dict[str, Any]:
        """Return the health of the service."""
        return self._thread.run(self._client.health())

    def validate_credentials(
        self, exchange: str, *, testnet: bool = False, demo: bool = False
    ) -> dict[str, Any]:
        """Verify the operator's credentials with the exchange."""
        return self._thread.run(
            self._client.validate_credentials(exchange, testnet=testnet, demo=demo)
        )

    def transactions(
        self,
        exchange: str | Sequence[str],
        types: Sequence[str] | str = (),
        *,
        start: Time | None = None,
        end: Time | None = None,
        page_records: int = PAGE_RECORDS,
        partial_allowed: bool = False,
        **options: Any,
    ) -> BlockingIterator[dict[str, Any]]:
        """Iterate over the records of an exchange account, newest first."""
        return BlockingIterator(
            self._thread,
            self._client.transactions(
                exchange,
                types,
                start=start,
                end=end,
                page_records=page_records,
                partial_allowed=partial_allowed,
                **options,
            ),
        )

    def transaction_pages(
        self,
        exchange: str | Sequence[str],
        types: Sequence[str] | str = (),
        *,
        start: Time | None = None,
        end: Time | None = None,
        page_records: int = PAGE_RECORDS,
        **options: Any,
    ) -> BlockingIterator[TransactionPage]:
        """Iterate over transactions page by page, with coverage and errors."""
        return BlockingIterator(
            self._thread,
            self._client.transaction_pages(
                exchange, types, start=start, end=end, page_records=page_records, **options
            ),
        )

    def follow_transactions(
        self,
        exchange: str | Sequence[str],
        types: Sequence[str] | str = (),
        *,
        start: Time | None = None,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Any,
    ) -> BlockingIterator[LiveTransaction]:
        """Iterate over new and changed records as they happen; see `AsyncOnebook`."""
        return BlockingIterator(
            self._thread,
            self._client.follow_transactions(
                exchange,
                types,
                start=start,
                attempts_max=attempts_max,
                silence_max_s=silence_max_s,
                **options,
            ),
        )


class BlockingSession(BlockingBooks[BookView]):
    """Books of a service that may change while they are read; see `BookSession`."""

    def __init__(self, session: BookSession, thread: LoopThread) -> None:
        super().__init__(session, thread)
        self._session = session

    def subscribe(
        self,
        symbol: str,
        *,
        view: str = "",
        exchanges: Names = ALL,
        **options: Unpack[SubscribeOptions],
    ) -> None:
        """Add a symbol, or change exchanges and options of a subscribed one."""
        wanted = self._session.subscribe(symbol, view=view, exchanges=exchanges, **options)
        self._thread.run(wanted)

    def unsubscribe(self, symbol: str, *, view: str = "") -> None:
        """End a subscription."""
        self._thread.run(self._session.unsubscribe(symbol, view=view))
