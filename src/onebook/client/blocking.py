"""`Onebook`: the client for programs without asyncio.

An event loop in a background thread reads messages and answers pings; the caller always gets the
newest view.
"""

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import Any, Final, Protocol, Self, TypeVar, Unpack, cast

from onebook.client.options import SubscribeOptions, Symbols
from onebook.client.pages import PAGE_RECORDS, Time, TransactionPage
from onebook.client.rest import ATTEMPTS_MAX
from onebook.client.service import AsyncOnebook
from onebook.client.session import SILENCE_MAX_S
from onebook.client.usage import KeyUsage
from onebook.client.view import BookView
from onebook.orderbook import ALL, Names

STOP_TIMEOUT_S = 5.0
CLOSED = "This client is closed."
_END: Final = object()

T = TypeVar("T")
Value = TypeVar("Value", covariant=True)


class ClosableIterator(Protocol[Value]):
    """An asynchronous iterator that can be closed."""

    def __anext__(self) -> Coroutine[Any, Any, Value]:
        """Wait for the next value."""

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Close it."""


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
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name="onebook.client", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and stop the thread."""
        if self._closed:
            return
        self._closed = True
        ended = asyncio.run_coroutine_threadsafe(self._ended(), self._loop)
        ended.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if not self._in_thread:
            self._thread.join(STOP_TIMEOUT_S)

    def watch(
        self,
        symbols: Symbols,
        *,
        exchanges: Names = ALL,
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Unpack[SubscribeOptions],
    ) -> "BlockingIterator[BookView]":
        """Yield the newest view of each symbol, across reconnects, until it is closed."""
        return BlockingIterator(
            self,
            self._client.watch(
                symbols,
                exchanges=exchanges,
                attempts_max=attempts_max,
                silence_max_s=silence_max_s,
                **options,
            ),
        )

    def snapshot(
        self, symbol: str, *, exchanges: Names = ALL, **options: Unpack[SubscribeOptions]
    ) -> BookView:
        """Request the merged book of one symbol once."""
        return self._run(self._client.snapshot(symbol, exchanges=exchanges, **options))

    def exchanges(self) -> dict[str, Any]:
        """List the exchanges and the state of their feeds."""
        return self._run(self._client.exchanges())

    def pairs(self, exchange: str | None = None) -> dict[str, Any]:
        """List the pairs of one exchange, or of all."""
        return self._run(self._client.pairs(exchange))

    def usage(self) -> KeyUsage:
        """Return usage and allowance of the key."""
        return self._run(self._client.usage())

    def health(self) -> dict[str, Any]:
        """Return the health of the service."""
        return self._run(self._client.health())

    def validate_credentials(self, exchange: str, *, testnet: bool = False) -> dict[str, Any]:
        """Verify the operator's credentials with the exchange."""
        return self._run(self._client.validate_credentials(exchange, testnet=testnet))

    def transactions(
        self,
        exchange: str,
        types: Sequence[str] | str = (),
        *,
        start: Time | None = None,
        end: Time | None = None,
        page_records: int = PAGE_RECORDS,
        partial_allowed: bool = False,
        **options: Any,
    ) -> "BlockingIterator[dict[str, Any]]":
        """Yield all records of an exchange account, newest first."""
        return BlockingIterator(
            self,
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
        exchange: str,
        types: Sequence[str] | str = (),
        *,
        start: Time | None = None,
        end: Time | None = None,
        page_records: int = PAGE_RECORDS,
        **options: Any,
    ) -> "BlockingIterator[TransactionPage]":
        """Yield transactions page by page, with coverage and errors."""
        return BlockingIterator(
            self,
            self._client.transaction_pages(
                exchange, types, start=start, end=end, page_records=page_records, **options
            ),
        )

    @property
    def _in_thread(self) -> bool:
        """Whether this is the event loop's thread, which must not wait for the loop.

        The garbage collector may run `__del__` in any thread.
        """
        return threading.current_thread() is self._thread

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; Ctrl-C cancels it."""
        future = self._begin(work)
        try:
            return self._result(future)
        except BaseException:
            future.cancel()
            raise

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._closed:
            work.close()
            raise RuntimeError(CLOSED)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            if self._closed:
                raise RuntimeError(CLOSED) from None
            raise

    async def _ended(self) -> None:
        await self._client.close()
        ours = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not ours]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_asyncgens()


class BlockingIterator(Iterator[T]):
    """The values of an asynchronous iterator of a client, which goes on after an exception like it.

    Close it, or drop the last reference, as the end of a `for` does.
    """

    def __init__(self, client: Onebook, values: ClosableIterator[T]) -> None:
        self._client = client
        self._values = values
        self._step: Future[T | object] | None = None

    def __next__(self) -> T:
        if self._step is None:
            self._step = self._client._begin(_following(self._values))
        wait([self._step])  # Ctrl-C leaves the step, and the next call takes it up
        step, self._step = self._step, None
        value = self._client._result(step)
        if value is _END:
            raise StopIteration
        return cast("T", value)

    def close(self) -> None:
        """End the iteration."""
        closing = self._close()
        if closing is not None and not self._client._in_thread:
            closing.result()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> Future[None] | None:
        if self._client._closed:
            return None
        if self._step is not None:
            self._step.cancel()
        return self._client._begin(self._values.aclose())


async def _following(values: ClosableIterator[T]) -> T | object:
    try:
        return await values.__anext__()
    except StopAsyncIteration:
        return _END


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, and close it."""
    try:
        loop.run_forever()
    finally:
        loop.close()
