"""`Onebook`: the same client for programs without asyncio.

An event loop in a background thread reads and answers pings while the caller computes; the caller
gets the newest view.
"""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol, Self, TypeVar

from onebook.client.pages import PAGE_RECORDS, Time, TransactionPage
from onebook.client.rest import ATTEMPTS_MAX
from onebook.client.service import AsyncOnebook
from onebook.client.session import SILENCE_MAX_S
from onebook.client.usage import KeyUsage
from onebook.client.view import BookView

STOP_TIMEOUT_S = 5.0
CLOSED = "This client is closed."

T = TypeVar("T")
Value = TypeVar("Value", covariant=True)


class ClosableIterator(Protocol[Value]):
    """An asynchronous iterator that can be closed."""

    def __anext__(self) -> Awaitable[Value]:
        """Wait for the next value."""

    async def aclose(self) -> None:
        """Close it."""


class Onebook:
    """A client of one service. Enter it, or close it; one thread at a time may use it.

    Methods, arguments and errors are those of `AsyncOnebook`.
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
        """Close every connection and end the thread."""
        if self._closed:
            return
        self._closed = True
        ended = asyncio.run_coroutine_threadsafe(self._ended(), self._loop)
        ended.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if not self._in_thread:
            self._thread.join(STOP_TIMEOUT_S)

    def watch(
        self,
        symbols: Sequence[str] | str,
        *,
        exchanges: Sequence[str] | str = "all",
        attempts_max: int | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        **options: Any,
    ) -> Iterator[BookView]:
        """Yield the newest view of each symbol, across reconnects; never ends by itself."""
        return self._iterated(
            lambda: self._client.watch(
                symbols,
                exchanges=exchanges,
                attempts_max=attempts_max,
                silence_max_s=silence_max_s,
                **options,
            )
        )

    def order_book(
        self, symbol: str, *, exchanges: Sequence[str] | str = "all", **options: Any
    ) -> BookView:
        """The merged book of one symbol, once."""
        return self._run(self._client.order_book(symbol, exchanges=exchanges, **options))

    def exchanges(self) -> dict[str, Any]:
        """The exchanges and whether their feeds are live."""
        return self._run(self._client.exchanges())

    def pairs(self, exchange: str | None = None) -> dict[str, Any]:
        """The pairs of one exchange, or of all."""
        return self._run(self._client.pairs(exchange))

    def usage(self) -> KeyUsage:
        """What the key has received of its monthly allowance."""
        return self._run(self._client.usage())

    def health(self) -> dict[str, Any]:
        """The health of the service."""
        return self._run(self._client.health())

    def validate_credentials(self, exchange: str, *, testnet: bool = False) -> dict[str, Any]:
        """Whether the exchange accepts the operator's credentials."""
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
    ) -> Iterator[dict[str, Any]]:
        """Yield every record of an exchange account, newest first."""
        return self._iterated(
            lambda: self._client.transactions(
                exchange,
                types,
                start=start,
                end=end,
                page_records=page_records,
                partial_allowed=partial_allowed,
                **options,
            )
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
    ) -> Iterator[TransactionPage]:
        """The same as pages, each with its coverage and its errors."""
        return self._iterated(
            lambda: self._client.transaction_pages(
                exchange, types, start=start, end=end, page_records=page_records, **options
            )
        )

    def _iterated(self, start: Callable[[], ClosableIterator[T]]) -> Iterator[T]:
        """Iterate over an asynchronous generator; leaving the loop closes it."""
        values = start()
        end = object()
        step: asyncio.Task[Any] | None = None

        async def following() -> Any:
            nonlocal step
            step = asyncio.current_task()
            try:
                return await values.__anext__()
            except StopAsyncIteration:
                return end

        async def closed() -> None:
            if step is not None and not step.done():  # Ctrl-C ended the wait for it
                if not step.cancelling():
                    step.cancel()
                await asyncio.wait([step])
            await values.aclose()

        try:
            while (value := self._run(following())) is not end:
                yield value
        finally:
            if not self._closed:
                closing = asyncio.run_coroutine_threadsafe(closed(), self._loop)
                if not self._in_thread:
                    closing.result()

    @property
    def _in_thread(self) -> bool:
        """Whether this is the thread of the loop, where nothing may wait for it.

        The garbage collector ends iterators, and calls a caller's `__del__`, in any thread.
        """
        return threading.current_thread() is self._thread

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work on the loop; Ctrl-C in the caller cancels it."""
        if self._closed:
            work.close()
            raise RuntimeError(CLOSED)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if isinstance(error, CancelledError) and self._closed:
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


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, and close it."""
    try:
        loop.run_forever()
    finally:
        loop.close()
