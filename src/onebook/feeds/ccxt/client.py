"""A ccxt client in the worker's loop: watches books and writes them as frames.

`CcxtClient` and `Watcher` run in the worker's thread; they send frames with `emit` and receive
commands through `command`. They also end the client if ccxt fails to process a message, because
ccxt then stops reading, and cancel all tasks that ccxt started.

ccxt is imported only where it is used, so exceptions are classified by class name, and two ccxt
functions that convert numbers are passed in.

Floats are rounded to ccxt's precision of the market (`decimal_to_precision`), which removes only
the noise of binary arithmetic if the precision is right. If a market has no precision, if a number
would become 0, or if two prices of a side would become equal, ccxt's `number_to_string` formats the
shortest text of the float.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec

from onebook.config import CcxtSettings
from onebook.exchanges.kit.codec import short
from onebook.exchanges.kit.listing import step_of
from onebook.exchanges.kit.through_ccxt import Command, Market
from onebook.feeds.ccxt.worker import Tasks
from onebook.feeds.outbox import End
from onebook.model import Reason

INTERVAL_S: Final = 0.1  # minimum between two updates of one book; the last state is always sent
STOP_S: Final = 5.0  # until connections that ccxt does not close are abandoned
TASKS_MAX: Final = 2_000
TEXTS_MAX: Final = 20_000  # cached numbers per column and book

Number = float | int | str
Write = Callable[[Number], str]
Rows = list[tuple[Number, Number]]  # price and amount, best first
# Values of ccxt's `precisionMode`: the unit of a market's precision.
DECIMAL_PLACES: Final = 2
TICK_SIZE: Final = 4
ROUND: Final = 1  # ccxt's rounding mode: half up

Round = Callable[..., str]  # ccxt's decimal_to_precision(number, mode, precision, counting)
log = logging.getLogger("onebook.feeds")

OPENED: Final = b'{"type":"open"}'
OPENING: Final = ""  # instead of a native name, in frames without a book
NAMELESS: Final = "?"
TOO_MANY_TASKS: Final = "ccxt started too many tasks"
STOPPED: Final = End(Reason.DISCONNECTED, "stopped")

Emit = Callable[[str, bytes], None]  # the native name of the instrument, and the newest frame

_json = msgspec.json.encode
_command = msgspec.json.Decoder(Command).decode


class ErrorScope(Enum):
    """Scope of an exception."""

    BOOK = auto()  # one book, which is resubscribed
    REFUSAL = auto()  # one book, which is resubscribed much later
    CONNECTION = auto()  # all books of the client, which is replaced


class ErrorClass(NamedTuple):
    """Scope of an exception, and the code for `exchange_status` if it ends the connection."""

    scope: ErrorScope
    reason: Reason = Reason.GAP


LOST: Final = ErrorClass(ErrorScope.BOOK)
REFUSED: Final = ErrorClass(ErrorScope.REFUSAL, Reason.REFUSED)

# https://docs.ccxt.com/#/README?id=exception-hierarchy
VERDICTS: Final[dict[str, ErrorClass]] = {
    "ChecksumError": ErrorClass(ErrorScope.BOOK, Reason.CHECKSUM),
    "InvalidNonce": LOST,
    "UnsubscribeError": LOST,
    "BadResponse": LOST,
    "OnMaintenance": ErrorClass(ErrorScope.CONNECTION, Reason.MAINTENANCE),
    "RateLimitExceeded": ErrorClass(ErrorScope.CONNECTION, Reason.RATE_LIMITED),
    "DDoSProtection": ErrorClass(ErrorScope.CONNECTION, Reason.RATE_LIMITED),
    "NetworkError": ErrorClass(ErrorScope.CONNECTION, Reason.DISCONNECTED),
    "ExchangeClosedByUser": ErrorClass(ErrorScope.CONNECTION, Reason.DISCONNECTED),
    "AuthenticationError": REFUSED,
    "ArgumentsRequired": REFUSED,
    "BadRequest": REFUSED,
    "OperationRejected": REFUSED,
    "NotSupported": REFUSED,
    # ccxt cancels tasks that wait for a connection it has closed.
    "CancelledError": ErrorClass(ErrorScope.CONNECTION, Reason.DISCONNECTED),
    "OSError": ErrorClass(ErrorScope.CONNECTION, Reason.DISCONNECTED),
    "ClientError": ErrorClass(ErrorScope.CONNECTION, Reason.DISCONNECTED),  # aiohttp's
}


def classify_error(error: BaseException) -> ErrorClass:
    """Classify an exception; unknown ones affect one book."""
    for kind in type(error).__mro__:
        if kind.__name__ in VERDICTS:
            return VERDICTS[kind.__name__]
    return LOST


def describe_error(error: BaseException) -> str:
    """Describe an exception in one short line."""
    text = " ".join(str(error).split())
    return short(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def rounding(round_to: Callable[[Number], str], plain: Write) -> Write:
    """Write a number at a precision, or unrounded if it would become 0."""

    def write(number: Number) -> str:
        text = round_to(number)
        return text if text.strip("0.") else plain(number)

    return write


class Texts:
    """Cache of number texts of one column: most of a book is unchanged between updates."""

    __slots__ = ("_texts", "_write")

    def __init__(self, write: Write) -> None:
        self._write = write
        self._texts: dict[Number, str] = {}

    def of(self, number: Number) -> str:
        """Return the text of a number."""
        text = self._texts.get(number)
        if text is None:
            if len(self._texts) >= TEXTS_MAX:
                self._texts.clear()
            text = self._texts[number] = self._write(number)
        return text


class SideWriter:
    """Writes sides of one market's book as JSON: `[["price","amount"],...]`.

    Args:
        price: Writes a price at the market's precision.
        amount: Writes an amount at the market's precision.
        plain: Writes any number without a precision.
    """

    def __init__(self, price: Write, amount: Write, plain: Write) -> None:
        self._prices = Texts(price)
        self._amounts = Texts(amount)
        self._plain = plain
        self.coarse = False  # whether ccxt's precision is coarser than the book's prices

    def write(self, rows: Rows) -> bytes:
        """Write one side."""
        prices = self._price_texts(rows)
        if not self.coarse and len(set(prices)) < len(prices):
            self.coarse = True
            self._prices = Texts(self._plain)
            prices = self._price_texts(rows)
        levels = (
            f'["{price}","{self._amounts.of(row[1])}"]'
            for price, row in zip(prices, rows, strict=True)
        )
        return f"[{','.join(levels)}]".encode()

    def _price_texts(self, rows: Rows) -> list[str]:
        return [self._prices.of(row[0]) for row in rows]


def best(side: Sequence[Sequence[Number]], depth: int) -> Rows:
    """Copy the best levels of a side, because ccxt keeps changing its book."""
    return [(row[0], row[1]) for row in side[:depth]]


def rows(markets: Iterable[Mapping[str, Any]], counting: int, plain: Write) -> list[Market]:
    """List the active spot markets; ccxt's `active` is None if unknown."""
    return [
        Market(
            native=market["id"],
            symbol=market["symbol"],
            base=market["base"],
            quote=market["quote"],
            tick=_step(market, "price", counting, plain),
            lot=_step(market, "amount", counting, plain),
            least_amount=_least(market, "amount", plain),
            least_notional=_least(market, "cost", plain),
        )
        for market in markets
        if market.get("spot") is True
        and not market.get("contract")
        and market.get("active") is not False
        and all(isinstance(market.get(name), str) for name in ("id", "symbol", "base", "quote"))
    ]


def writer(market: Mapping[str, Any], counting: int, round_to: Round, plain: Write) -> SideWriter:
    """Return the writer for the sides of a market's book."""
    price, amount = (
        _write(precision_of(market, column, counting), counting, round_to, plain)
        for column in ("price", "amount")
    )
    return SideWriter(price, amount, plain)


def _write(precision: Number | None, counting: int, round_to: Round, plain: Write) -> Write:
    if precision is None:
        return plain
    # Positional arguments, because the names of ccxt's parameters are not stable.
    return rounding(lambda number: round_to(number, ROUND, precision, counting), plain)


def precision_of(market: Mapping[str, Any], column: str, counting: int) -> Number | None:
    """Return the precision of a column for `decimal_to_precision`; None if it has none.

    A step must be positive, a number of digits whole.
    """
    precision = (market.get("precision") or {}).get(column)
    if isinstance(precision, bool) or not isinstance(precision, int | float):
        return None
    if not isfinite(precision):
        return None
    if counting == TICK_SIZE:
        return precision if precision > 0 else None
    return int(precision) if precision == int(precision) else None


def _step(market: Mapping[str, Any], column: str, counting: int, plain: Write) -> str:
    precision = precision_of(market, column, counting)
    if precision is None:
        return ""
    if counting == TICK_SIZE:
        return plain(precision)
    return step_of(int(precision)) if counting == DECIMAL_PLACES else ""


def _least(market: Mapping[str, Any], column: str, plain: Write) -> str:
    """Return ccxt's minimum amount or cost of an order; "" if unknown."""
    least = market.get("limits", {}).get(column, {}).get("min")
    return "" if least is None else plain(least)


class CcxtHandle:
    """A ccxt client with its markets, and a writer for each market.

    `library` creates it; tests may create another.

    Args:
        ccxt: The ccxt.pro exchange, its markets set.
        close: Closes its connections.
        market: ccxt's symbol and the writer of a native name; KeyError if it is not listed.
    """

    def __init__(
        self,
        ccxt: Any,
        close: Callable[[], Any],
        market: Callable[[str], tuple[str, SideWriter]],
    ) -> None:
        self.ccxt = ccxt
        self.close = close
        self.market = market


class CcxtClient:
    """A ccxt client, from creation to close.

    Args:
        make: Creates the client, in the worker's loop.
        emit: Called with each frame, in the worker's thread; it must not block.
        ended: Called in the worker's thread with the reason, before the connections are closed,
        which takes a while. settings: The operator's settings. interval_s: Minimum seconds between
        two updates of one book. tasks_max: Maximum asyncio tasks; a client that exceeds it is
        ended.
    """

    def __init__(
        self,
        make: Callable[[], CcxtHandle],
        emit: Emit,
        ended: Callable[[End], object],
        settings: CcxtSettings,
        *,
        interval_s: float = INTERVAL_S,
        tasks_max: int = TASKS_MAX,
    ) -> None:
        self.settings = settings
        self.interval_s = interval_s
        self._tasks_max = tasks_max
        self.emit = emit
        self._ended = ended
        self._make = make
        self._books: CcxtHandle | None = None
        self._over: asyncio.Future[End] | None = None
        self._context: contextvars.Context | None = None
        self._early: list[bytes] = []  # commands received before the client was created
        self._watchers: dict[str, Watcher] = {}
        self._opened = False
        self._refusal: BaseException | None = None  # the last one reported

    async def run(self) -> None:
        """Watch books until the connection fails or `stop` is called, then close everything."""
        self._over = asyncio.get_running_loop().create_future()
        tasks = Tasks(self._tasks_max, self._broken)
        tasks.own()
        self._context = contextvars.copy_context()
        try:
            self._books = self._make()
            handle = self._books.ccxt.handle_message
            self._books.ccxt.handle_message = lambda *message: self._received(handle, message)
            early, self._early = self._early, []
            for frame in early:
                self.command(frame)
            await self._over
        except Exception as error:
            self.end(self._end_of(error))
        finally:
            await self._close(tasks)

    def stop(self) -> None:
        """End the client."""
        self.end(STOPPED)

    def end(self, end: End) -> None:
        """End the client for a reason, once."""
        if self._over is not None and not self._over.done():
            self._over.set_result(end)
            self._ended(end)

    def command(self, frame: bytes) -> None:
        """Execute a command of the connector."""
        if self._over is not None and self._over.done():
            return
        if self._books is None:
            self._early.append(frame)
            return
        command = _command(frame)
        for native in command.unwatch:
            self._leave(native)
        for native in command.watch:
            self._watch(native, self._books)

    def failed(self, native: str, error: BaseException) -> None:
        """Handle an exception raised while watching a book."""
        scope = classify_error(error).scope
        if scope is ErrorScope.CONNECTION:
            self.end(self._end_of(error))
        elif scope is ErrorScope.REFUSAL and self._waits(native):
            self._refused(native, error)
        else:
            self._emit_failure("lost", native, error)

    def _waits(self, native: str) -> bool:
        """Return whether a book is pending; one that has arrived was not refused."""
        watcher = self._watchers.get(native)
        return watcher is not None and not watcher.delivered

    def _refused(self, native: str, error: BaseException) -> None:
        """Report a refusal once, because ccxt raises an unnamed one for every pending book."""
        if error is self._refusal:
            return
        self._refusal = error
        if any(self._waits(other) for other in self._watchers if other != native):
            self.emit(NAMELESS, _json({"type": "unnamed", "words": describe_error(error)}))
        else:
            self._emit_failure("refused", native, error)

    def _emit_failure(self, kind: str, native: str, error: BaseException) -> None:
        self.emit(native, _json({"type": kind, "native": native, "words": describe_error(error)}))

    def begin(self, coroutine: Any) -> "asyncio.Task[None]":
        """Start a task that this client owns."""
        return asyncio.get_running_loop().create_task(coroutine, context=self._context)

    def _watch(self, native: str, books: CcxtHandle) -> None:
        former = self._watchers.pop(native, None)
        if former is not None:
            former.cancel()
        try:
            symbol, writer = books.market(native)
        except KeyError:
            words = "ccxt no longer lists it"
            self.emit(native, _json({"type": "refused", "native": native, "words": words}))
            return
        watcher = self._watchers[native] = Watcher(self, books.ccxt, native, symbol, writer)
        watcher.task = self.begin(watcher.follow(again=former is not None))

    def _leave(self, native: str) -> None:
        watcher = self._watchers.pop(native, None)
        if watcher is not None:
            watcher.cancel()
            self.begin(watcher.leave())

    def _received(self, handle: Callable[..., object], message: tuple[Any, ...]) -> None:
        """Let ccxt handle a message; if it fails, any book may miss the message."""
        if not self._opened:
            self._opened = True
            self.emit(OPENING, OPENED)
        try:
            handle(*message)
        except Exception as error:
            self._broken(error)

    def _end_of(self, error: BaseException) -> End:
        verdict = classify_error(error)
        reason = verdict.reason if verdict.scope is ErrorScope.CONNECTION else Reason.INTERNAL_ERROR
        return End(reason, describe_error(error))

    def _broken(self, error: Exception | None) -> None:
        """End the client, because ccxt stopped reading or (None) started too many tasks."""
        if error is None:
            self.end(End(Reason.INTERNAL_ERROR, TOO_MANY_TASKS))
        else:
            self.end(End(Reason.PROTOCOL_ERROR, describe_error(error)))

    async def _close(self, tasks: Tasks) -> None:
        for watcher in self._watchers.values():
            watcher.cancel()
        books, half_s = self._books, STOP_S / 2
        if books is not None:
            try:
                async with asyncio.timeout(half_s):
                    await books.close()
            except Exception as error:
                log.info("ccxt did not close a client: %s.", describe_error(error))
        left = await tasks.cancel(half_s)
        if left:
            log.warning("%d tasks of ccxt could not be cancelled.", left)


class Watcher:
    """One book that ccxt watches.

    Each result is copied at once, because ccxt keeps changing the returned book. It is written at
    most once per `interval_s`; the last state is always written.
    """

    def __init__(
        self, client: CcxtClient, ccxt: Any, native: str, symbol: str, writer: SideWriter
    ) -> None:
        self.task: asyncio.Task[None] | None = None
        self.delivered = False  # whether a book has arrived since the subscription
        self._client = client
        self._ccxt = ccxt
        self._native = native
        self._symbol = symbol
        self._writer = writer
        self._bids: Rows = []
        self._asks: Rows = []
        self._at_ms = 0
        self._next_at = 0.0
        self._handle: asyncio.TimerHandle | None = None

    async def follow(self, *, again: bool) -> None:
        """Watch the book until it fails; `again` if ccxt is already subscribed."""
        try:
            if again:
                await self.leave()
            while True:
                self._received(await self._ccxt.watch_order_book(self._symbol))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._client.failed(self._native, error)  # ccxt has given up the connection
        except Exception as error:
            self._forget()
            self._client.failed(self._native, error)

    async def leave(self) -> None:
        """Unsubscribe if ccxt can; otherwise the exchange continues to send the book."""
        if not self._ccxt.has.get("unWatchOrderBook"):
            return
        with suppress(Exception):  # the connection is closed with the client anyway
            async with asyncio.timeout(STOP_S):
                await self._ccxt.un_watch_order_book(self._symbol)

    def cancel(self) -> None:
        """Stop watching and drop the pending frame."""
        self._forget()
        if self.task is not None:
            self.task.cancel()

    def _forget(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _received(self, book: Any) -> None:
        self.delivered = True
        depth = self._client.settings.depth
        self._bids, self._asks = best(book["bids"], depth), best(book["asks"], depth)
        at = book.get("timestamp")
        self._at_ms = int(at) if isinstance(at, int | float) and at > 0 else 0
        if self._handle is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._next_at:
                self._publish()
            else:
                self._handle = loop.call_at(self._next_at, self._publish)

    def _publish(self) -> None:
        self._handle = None
        self._next_at = asyncio.get_running_loop().time() + self._client.interval_s
        try:
            frame = b'{"type":"book","native":%b,"bids":%b,"asks":%b,"at":%d}' % (
                _json(self._native),
                self._writer.write(self._bids),
                self._writer.write(self._asks),
                self._at_ms,
            )
        except Exception as error:  # a row is not a pair of numbers
            self._client.failed(self._native, error)
        else:
            self._client.emit(self._native, frame)
