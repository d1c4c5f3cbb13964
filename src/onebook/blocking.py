"""Asynchronous iterators and order books for programs without asyncio.

An event loop in a background thread reads messages and answers pings; the caller always gets the
newest state. Shared by `onebook.sync` and `client.Onebook`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, wait
from decimal import Decimal
from typing import Any, Final, Generic, Protocol, Self, TypeVar, cast

from onebook.fees import Fees
from onebook.fill import Direction, Fill
from onebook.orderbook import OrderBookState, require_plain
from onebook.routes import Route, Rules

STOP_TIMEOUT_S = 5.0
CLOSED: Final = "The order book is not open: use it inside of its `with`."
_END: Final = object()

T = TypeVar("T")
Value = TypeVar("Value", covariant=True)
State = TypeVar("State", bound=OrderBookState)


class ClosableIterator(Protocol[Value]):
    """An asynchronous iterator that can be closed."""

    def __anext__(self) -> Coroutine[Any, Any, Value]:
        """Wait for the next value."""

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Close it."""


class AsyncBooks(Protocol[State]):
    """Order books of the library or of a service."""

    def __aenter__(self) -> Coroutine[Any, Any, object]:
        """Open the books."""

    def __aexit__(self, kind: None, error: None, trace: None, /) -> Coroutine[Any, Any, None]:
        """Close them."""

    def __aiter__(self) -> ClosableIterator[State]:
        """Iterate over changes."""

    def sampled(self, every_s: float) -> AsyncIterator[State]:
        """Iterate at even times."""

    def snapshots(self) -> list[State]:
        """Return the current states."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The pairs."""

    @property
    def exchanges(self) -> tuple[str, ...]:
        """The exchanges."""


class AsyncBook(AsyncBooks[State], Protocol[State]):
    """The order book of one symbol, of the library or of a service."""

    def fill(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
    ) -> Fill:
        """Return what a size would cost now."""

    def route(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
        fees: Fees,
        limit: Decimal | str | int | None = None,
        exclude: Iterable[str] = (),
        max_exchanges: int | None = None,
        rules: Mapping[str, Rules] | None = None,
    ) -> Route:
        """Return the best split of an order after fees now."""


class LoopThread:
    """An event loop in a background thread, for one calling thread at a time."""

    def __init__(self, closed: str) -> None:
        self.closed = False
        self._sentence = closed  # error message for every use after `close`
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name="onebook.client", daemon=True
        )
        self._thread.start()

    @property
    def in_thread(self) -> bool:
        """Whether this is the event loop's thread, which must not wait for the loop.

        The garbage collector may run `__del__` in any thread.
        """
        return threading.current_thread() is self._thread

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run a last coroutine, cancel all others and stop the thread."""
        if self.closed:
            return
        self.closed = True
        ended = asyncio.run_coroutine_threadsafe(_ended(last), self._loop)
        ended.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if not self.in_thread:
            self._thread.join(STOP_TIMEOUT_S)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; Ctrl-C cancels it."""
        future = self.begin(work)
        try:
            return self.result(future)
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop, without waiting for it."""
        if self.closed:
            work.close()
            raise RuntimeError(self._sentence)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def result(self, future: Future[T]) -> T:
        """Wait for a future returned by `begin`."""
        try:
            return future.result()
        except CancelledError:
            if self.closed:
                raise RuntimeError(self._sentence) from None
            raise


class BlockingIterator(Iterator[T]):
    """Iterates over an asynchronous iterator, and like it continues after an exception.

    Close it, or drop the last reference, as the end of a `for` does.
    """

    def __init__(self, thread: LoopThread, values: ClosableIterator[T]) -> None:
        self._thread = thread
        self._values = values
        self._step: Future[T | object] | None = None

    def __next__(self) -> T:
        if self._step is None:
            self._step = self._thread.begin(_following(self._values))
        wait([self._step])  # Ctrl-C leaves the step, and the next call takes it up
        step, self._step = self._step, None
        value = self._thread.result(step)
        if value is _END:
            raise StopIteration
        return cast("T", value)

    def close(self) -> None:
        """End the iteration."""
        closing = self._close()
        if closing is not None and not self._thread.in_thread:
            closing.result()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> Future[None] | None:
        if self._thread.closed:
            return None
        if self._step is not None:
            self._step.cancel()
        return self._thread.begin(self._values.aclose())


class BlockingBooks(Generic[State]):
    """Live order books for programs without asyncio, to be used in `with`.

    It has all methods of the asynchronous books.
    """

    def __init__(self, books: AsyncBooks[State], thread: LoopThread | None = None) -> None:
        self._books = books
        self._given = thread
        self._own: LoopThread | None = None

    def __enter__(self) -> Self:
        if self._given is None and self._own is None:
            self._own = LoopThread(CLOSED)
        try:
            self._thread.run(self._books.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._thread.run(self._books.__aexit__(None, None, None))
        finally:
            self._end()

    def __iter__(self) -> BlockingIterator[State]:
        """Iterate over the current state of every book, then each change."""
        return BlockingIterator(self._thread, self._called(self._books.__aiter__))

    def sampled(self, every_s: float) -> BlockingIterator[State]:
        """Iterate over the current books at even times, changed or not."""
        values = self._called(lambda: self._books.sampled(every_s))
        return BlockingIterator(self._thread, cast("ClosableIterator[State]", values))

    def snapshots(self) -> list[State]:
        """Return the current state of every book."""
        return self._called(self._books.snapshots)

    def run(self, callback: Callable[[State], object]) -> None:
        """Call a function for every update, until it raises an exception or Ctrl-C does.

        Raises:
            TypeError: The function is a coroutine function.
        """
        require_plain(callback)
        for state in self:
            callback(state)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The pairs."""
        return self._books.symbols

    @property
    def exchanges(self) -> tuple[str, ...]:
        """The exchanges."""
        return self._books.exchanges

    def _called(self, function: Callable[[], T]) -> T:
        """Call a function on the event loop."""

        async def call() -> T:
            return function()

        return self._thread.run(call())

    @property
    def _thread(self) -> LoopThread:
        thread = self._given or self._own
        if thread is None:
            raise RuntimeError(CLOSED)
        return thread

    def _end(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None


class BlockingBook(BlockingBooks[State]):
    """The live order book of one symbol; see `BlockingBooks`."""

    def __init__(self, book: AsyncBook[State], thread: LoopThread | None = None) -> None:
        super().__init__(book, thread)
        self._book = book

    @property
    def symbol(self) -> str:
        """The pair."""
        (symbol,) = self.symbols
        return symbol

    def snapshot(self) -> State:
        """Return the current book."""
        (book,) = self.snapshots()
        return book

    def fill(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
    ) -> Fill:
        """Return what buying or selling a size would cost now, over the best 500 levels."""
        return self._called(lambda: self._book.fill(direction, amount=amount, notional=notional))

    def route(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
        fees: Fees,
        limit: Decimal | str | int | None = None,
        exclude: Iterable[str] = (),
        max_exchanges: int | None = None,
        rules: Mapping[str, Rules] | None = None,
    ) -> Route:
        """Return the best split of an order after fees now, over the best 500 levels."""
        return self._called(
            lambda: self._book.route(
                direction,
                amount=amount,
                notional=notional,
                fees=fees,
                limit=limit,
                exclude=exclude,
                max_exchanges=max_exchanges,
                rules=rules,
            )
        )


async def _ended(last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    if last is not None:
        await last()
    ours = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not ours]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


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
