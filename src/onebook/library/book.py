"""Order books as asynchronous context managers: the public interface of the library."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, Self, TypedDict, TypeVar, Unpack

from pydantic import SecretStr

from onebook.config import FeedSettings, StreamSettings
from onebook.core import View
from onebook.fees import (
    OTHERS,
    PUBLISHED,
    Fees,
    TakerFees,
    fees_of,
    least_profit,
    named_table,
)
from onebook.fill import Direction, Fill
from onebook.library.engine import BookEngine, in_use, name_of, names_of
from onebook.library.errors import BookClosed
from onebook.library.recorders import require_recordable
from onebook.library.source import (
    BookCallbacks,
    BookOptions,
    BookSource,
    BookUpdates,
    ReaderQueue,
)
from onebook.library.update import BookUpdate
from onebook.orderbook import NO_PUBLISHED, Names, require_plain, sampled, symbols_of
from onebook.proxies import proxy_setting
from onebook.routes import Route, Rules
from onebook.streams.basket import QUOTES_MAX
from onebook.streams.fill import FILL_LEVELS_MAX
from onebook.streams.options import BEST, CROSSING

DEPTH: Final = 20
TIMEOUT_S: Final = 30.0
INTERVAL_MS_MAX: Final = 3_600_000
HINTS: Final = {  # for options that only a service has
    "fill": "; use update.fill, which prices any size",
}
NAMED_MAX: Final = 5  # symbols and exchanges listed in a repr

QueueT = TypeVar("QueueT", bound=ReaderQueue)


class ServiceOptions(TypedDict, total=False):
    """Options of a client's book without effect here, so that a strategy runs on either.

    The library has no connection to a service, and each of its updates has ages and horizons.
    """

    mode: Literal["full", "delta"]
    levels: Literal["object", "array"]
    ages: bool
    coverage: bool
    attempts_max: int | None
    silence_max_s: float


def order_book(
    symbol: str,
    *,
    exchanges: Names = None,
    depth: int = DEPTH,
    interval_ms: int = 0,
    group: str | None = None,
    split: bool = False,
    within: str | None = None,
    on: Literal["best", "crossing"] | None = None,
    times: bool = False,
    fees: Fees | None = None,
    net: bool = False,
    crossings: str | None = None,
    quotes: Iterable[str] = (),
    timeout_s: float = TIMEOUT_S,
    record: str | PathLike[str] | None = None,
    proxy: str | None = None,
    feeds: FeedSettings | None = None,
    streams: StreamSettings | None = None,
    **service: Unpack[ServiceOptions],
) -> "OrderBook":
    """Return the live order book of a symbol, merged over exchanges, to be used in `async with`.

    Args:
        symbol: The pair, such as `BTC/USDT`.
        exchanges: CCXT ids; one name or several. None or "all" for all exchanges of Onebook,
            of which "-name" excludes one: `["all", "-okx"]`.
        depth: Levels per side, 1 to 500.
        interval_ms: Minimum time between two updates of a book; 0 yields every change that is not
            superseded by the next. An exchange that stops being live is reported at once.
        group: Price step for binning levels, as decimal text such as "0.5"; bids below one step are
            omitted.
        split: Keep the amount of each exchange at each level.
        within: Only levels within this many basis points of the mid, as decimal text such as "25".
        on: "best" yields an update only when the best price of a side or its amount changes, or an
            exchange joins or leaves; "crossing" only when a crossing begins, changes or ends.
        times: Whether each update states, by exchange, when its prices were sent and received.
        fees: Taker fees in percent as text, by exchange, negative for a rebate; "*" for all others;
            or "published": the base fees that the exchanges state themselves, which
            `published_fees` of an update has with their dates. Exchanges without a fee are not
            merged; their reason in `exchanges` is `unknown_fee`.
        net: Order levels by the price after the fee; each is a `NetLevel` with `gross` prices.
            Implies `split`.
        crossings: Report the pairs of exchanges of which one bids more than the other asks, after
            both fees, with at least this profit in percent, such as "0.05".
        quotes: Quote currencies whose books are pooled into the symbol's own quote, such as
            ["USDC", "USD"]; each price is converted through the live book of the two currencies,
            with `fees` after the fee of that step. A converted book is named kraken:USD, and
            `conversions` of an update has the rates. A book that nothing converts is not live, for
            the reason `no_conversion`.
        timeout_s: Entering fails if no book is live after this many seconds.
        record: Folder for recordings, one new file per exchange; `replay` reads them.
        proxy: Proxy of all connections, such as socks5://USER:PASSWORD@HOST:PORT or http://...;
            "direct" for none. None: the proxy of the environment variables (HTTPS_PROXY, ALL_PROXY,
            NO_PROXY), or of `feeds`.
        feeds: Limits, waits and addresses of feeds.
        streams: The limits of the identity guard.

    Raises:
        UnknownExchange: A name is unknown.
        ValueError: An option is out of range.
        TypeError: An option is unknown or has the wrong type.
    """
    _require_known(service)
    if not isinstance(symbol, str):
        raise TypeError(f"symbol must be text such as BTC/USDT, not {symbol!r}; see order_books.")
    return OrderBook(
        [symbol],
        exchanges,
        options_of(
            depth,
            interval_ms,
            group,
            split=split,
            within=within,
            on=on,
            times=times,
            fees=fees,
            net=net,
            crossings=crossings,
            quotes=quotes,
        ),
        timeout_s=timeout_s,
        record=record,
        feeds=_through(proxy, feeds),
        streams=streams,
    )


def order_books(
    symbols: str | Iterable[str],
    *,
    exchanges: Names = None,
    merged: bool = True,
    depth: int = DEPTH,
    interval_ms: int = 0,
    group: str | None = None,
    split: bool = False,
    within: str | None = None,
    on: Literal["best", "crossing"] | None = None,
    times: bool = False,
    fees: Fees | None = None,
    net: bool = False,
    crossings: str | None = None,
    quotes: Iterable[str] = (),
    timeout_s: float = TIMEOUT_S,
    record: str | PathLike[str] | None = None,
    proxy: str | None = None,
    feeds: FeedSettings | None = None,
    streams: StreamSettings | None = None,
    **service: Unpack[ServiceOptions],
) -> "OrderBooks":
    """Return the live order books of several symbols, to be used in `async with`.

    With `merged=False` each exchange has a separate book, and `BookUpdate.exchange` names it. All
    other options are as for `order_book`.

    Raises:
        UnknownExchange: A name is unknown.
        ValueError: An option is out of range.
        TypeError: An option is unknown or has the wrong type.
        RecordingError: An exchange allows fewer symbols on one connection than are to be recorded.
    """
    _require_known(service)
    return OrderBooks(
        symbols,
        exchanges,
        options_of(
            depth,
            interval_ms,
            group,
            split=split,
            within=within,
            on=on,
            times=times,
            fees=fees,
            net=net,
            crossings=crossings,
            quotes=quotes,
        ),
        merged=merged,
        timeout_s=timeout_s,
        record=record,
        feeds=_through(proxy, feeds),
        streams=streams,
    )


def _through(proxy: str | None, feeds: FeedSettings | None) -> FeedSettings | None:
    """Return the settings of feeds with a proxy.

    Raises:
        TypeError: The proxy is not text.
        ValueError: It is not a proxy address.
    """
    if proxy is None:
        return feeds
    if not isinstance(proxy, str):
        raise TypeError("proxy must be text such as socks5://HOST:PORT.")
    try:
        proxy_setting(proxy)
    except ValueError as error:
        raise ValueError(f"proxy {error}.") from None
    chosen = FeedSettings() if feeds is None else feeds
    return chosen.model_copy(update={"proxy": SecretStr(proxy)})


def options_of(
    depth: int,
    interval_ms: int,
    group: str | None,
    *,
    split: bool,
    within: str | None = None,
    on: str | None = None,
    times: bool = False,
    fees: Fees | None = None,
    net: bool = False,
    crossings: str | None = None,
    quotes: Iterable[str] = (),
) -> BookOptions:
    """Check the options of a book.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of range, or needs another one.
        UnknownExchange: The fee table has an unknown name.
    """
    _require_number("interval_ms", interval_ms)
    if not 0 <= interval_ms <= INTERVAL_MS_MAX:
        raise ValueError(f"interval_ms must be 0 to {INTERVAL_MS_MAX}, not {interval_ms}.")
    if not isinstance(depth, int):
        raise TypeError(f"depth must be a whole number, not {depth!r}.")
    if not isinstance(group, str | None):
        raise TypeError(f'group must be decimal text such as "0.5", not {group!r}.')
    if not isinstance(within, str | None):
        raise TypeError(f'within must be decimal text such as "25", not {within!r}.')
    if on not in (None, BEST, CROSSING):
        raise ValueError(f'on must be "best", "crossing" or None, not {on!r}.')
    if fees is None and (net or crossings is not None):
        raise ValueError(f"{'net' if net else 'crossings'} needs fees.")
    if on == CROSSING and crossings is None:
        raise ValueError('on="crossing" needs the argument crossings.')
    View([], depth=depth, group=group, within=within)
    return BookOptions(
        depth,
        group,
        split or net,
        interval_ms / 1_000,
        within,
        on,
        times,
        None if fees is None else _charged(fees),
        net,
        None if crossings is None else _least(crossings),
        _currencies(quotes),
    )


def _currencies(quotes: Iterable[str]) -> tuple[str, ...]:
    """Check quote currencies; returns them sorted.

    Raises:
        TypeError: It is not a list of texts.
        ValueError: One is not a currency, or there are too many.
    """
    if isinstance(quotes, str) or not isinstance(quotes, Iterable):
        raise TypeError(f'quotes must be a list such as ["USDC", "USD"], not {quotes!r}.')
    given = [*quotes]
    for each in given:
        if not isinstance(each, str):
            raise TypeError(f'quotes must be a list such as ["USDC", "USD"], not {given!r}.')
        if not each.strip().isalnum():
            raise ValueError(f"quotes must be currencies such as USDC, not {each!r}.")
    found = {each.strip().upper() for each in given}
    if len(found) > QUOTES_MAX:
        raise ValueError(f"quotes has at most {QUOTES_MAX} currencies, not {len(found)}.")
    return tuple(sorted(found))


def _charged(fees: Fees) -> TakerFees | Literal["published"]:
    """Check the fees of a book.

    Raises:
        TypeError: It is neither a mapping nor "published".
        ValueError: A fee is invalid.
        UnknownExchange: A name is unknown.
    """
    if isinstance(fees, str) and fees == PUBLISHED:
        return PUBLISHED
    if not isinstance(fees, Mapping):
        raise TypeError(
            "fees must be a mapping of exchanges to percentages as text, or "
            f'"{PUBLISHED}", not {fees!r}.'
        )
    try:
        return named_table(fees, name_of)
    except ValueError as error:
        raise ValueError(f"fees: {error}") from None


def _least(percent: str) -> str:
    try:
        return least_profit(percent)
    except ValueError as error:
        raise ValueError(f"crossings: {error}") from None


def require_fee(options: BookOptions, names: Sequence[str]) -> None:
    """Check that a table has a fee of an exchange.

    Raises:
        ValueError: It has none for any of them.
    """
    if not isinstance(options.fees, TakerFees):
        return
    found = fees_of(options.fees, names, "")
    if not found.known:
        raise ValueError(
            f"fees: has no fee of any exchange of this book, which are {some(found.unknown)}; "
            f'name them, or give "{OTHERS}", the fee of all that are not named.'
        )


def _require_known(service: Mapping[str, Any]) -> None:
    """Refuse options that are not `ServiceOptions`.

    Raises:
        TypeError: There is such an option.
    """
    for name in service.keys() - ServiceOptions.__optional_keys__:
        hint = HINTS.get(name, "")
        raise TypeError(f"An order book of the library has no option {name}{hint}.")


def _require_number(name: str, value: object) -> None:
    if not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r}.")


def some(names: Sequence[str]) -> str:
    """Format the first names, and the number of further ones."""
    shown = ", ".join(names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"


class OrderBooks:
    """Live order books in this process; see `order_books`.

    Entering connects and waits for the first books, at most `timeout_s`. Then `async for` yields
    their updates, `run` calls a function for each, and `snapshots` returns the current
    books. Any number of tasks may iterate; each gets every book's newest state at its own pace.
    Leaving closes every connection and ends every iteration.

    Raises, when it is entered:
        UnknownSymbol: None of the exchanges lists a symbol.
        NoLiveBook: No book became live in time; the message has the reason by exchange.
        RecordingError: A recording cannot be written.
    """

    def __init__(
        self,
        symbols: str | Iterable[str],
        exchanges: Names,
        options: BookOptions,
        *,
        merged: bool = True,
        timeout_s: float = TIMEOUT_S,
        record: str | PathLike[str] | None = None,
        feeds: FeedSettings | None = None,
        streams: StreamSettings | None = None,
    ) -> None:
        _require_number("timeout_s", timeout_s)
        if not timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0, not {timeout_s}.")
        for name, given, kind in (
            ("feeds", feeds, FeedSettings),
            ("streams", streams, StreamSettings),
        ):
            if not isinstance(given, kind | None):
                raise TypeError(f"{name} must be a {kind.__name__}, not {given!r}.")
        self.symbols = symbols_of(symbols)
        self.exchanges = names_of(exchanges)
        self._options = options
        require_fee(options, self.exchanges)
        self._merged = merged
        self._timeout_s = timeout_s
        self._record = None if record is None else Path(record)
        self._feeds = feeds or FeedSettings()
        if record is not None:
            channels = in_use(self.exchanges, self._feeds)
            # With quotes: the books in each of them, and one that converts each.
            require_recordable(channels.values(), len(self.symbols) * (1 + 2 * len(options.quotes)))
        self._streams = streams or StreamSettings()
        self._stack = AsyncExitStack()
        self._engine: BookEngine | None = None
        self._sources: list[BookSource] = []

    def __repr__(self) -> str:
        state = "not open" if self._engine is None else "open"
        return f"<{type(self).__name__} {some(self.symbols)} ({some(self.exchanges)}): {state}>"

    async def __aenter__(self) -> Self:
        if self._engine is not None:
            raise RuntimeError("This order book is already open.")
        async with AsyncExitStack() as stack:
            engine = BookEngine(
                self.exchanges, feeds=self._feeds, streams=self._streams, record=self._record
            )
            await stack.enter_async_context(engine)
            groups = [self.exchanges] if self._merged else [(name,) for name in self.exchanges]
            sources = [
                engine.follow(engine.basket(symbol, names, self._options))
                if self._options.quotes
                else engine.source(symbol, names, self._options)
                for symbol in self.symbols
                for names in groups
            ]
            await engine.first_books(self._timeout_s)
            self._engine, self._sources = engine, sources
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._engine, self._sources = None, []
        await self._stack.aclose()

    def __aiter__(self) -> BookUpdates:
        """Iterate over updates: the current state of every book, then each change."""
        engine = self._opened_here()
        return self._kept(BookUpdates(self._sources, self._options, engine.clock))

    async def run(self, callback: Callable[[BookUpdate], object]) -> None:
        """Call a function for every update, from the event loop, until the book is closed.

        This path has the least work per frame. The function must not block, because it runs on the
        event loop.

        Raises:
            TypeError: The function is a coroutine function; use `async for`.
            Exception: The function's exception; it is not called again.
        """
        require_plain(callback)
        engine = self._opened_here()
        calls = self._kept(BookCallbacks(self._sources, self._options, engine.clock, callback))
        try:
            await calls.ended
        finally:
            calls.close()

    def sampled(self, every_s: float) -> AsyncIterator[BookUpdate]:
        """Iterate over the current books at regular times, changed or not, until closed."""
        self._opened_here()
        return sampled(lambda: self.snapshots() if self._engine is not None else None, every_s)

    def snapshots(self) -> list[BookUpdate]:
        """Return the current state of every book, in the order of symbols and exchanges."""
        return self._snapshots(self._options)

    def _snapshots(self, options: BookOptions) -> list[BookUpdate]:
        return ReaderQueue(self._sources, options, self._opened().clock).snapshots()

    def _whole(self, fees: TakerFees | Literal["published"] | None) -> BookUpdate:
        """Return the best 500 levels of the first book; prices are converted after these fees."""
        options = BookOptions(
            FILL_LEVELS_MAX, None, split=True, interval_s=0.0, quotes=self._options.quotes
        )
        if not options.quotes and fees != PUBLISHED:
            return self._snapshots(options)[0]
        engine, symbol = self._opened(), self.symbols[0]
        options = options._replace(fees=fees)
        require_fee(options, self.exchanges)
        source = engine.basket(symbol, self.exchanges, options)
        return ReaderQueue([source], options, engine.clock).snapshots()[0]

    def _opened(self) -> BookEngine:
        if self._engine is None:
            raise BookClosed("The order book is not open: use it inside of its `async with`.")
        return self._engine

    def _opened_here(self) -> BookEngine:
        engine = self._opened()
        if asyncio.get_running_loop() is not engine.loop:
            raise RuntimeError("The order book was opened on another event loop: read it there.")
        return engine

    def _kept(self, queue: QueueT) -> QueueT:
        self._opened().queues.add(queue)
        return queue


class OrderBook(OrderBooks):
    """The live order book of one symbol in this process; see `order_book` and `OrderBooks`."""

    @property
    def symbol(self) -> str:
        """The pair."""
        return self.symbols[0]

    def snapshot(self) -> BookUpdate:
        """Return the current book."""
        return self.snapshots()[0]

    def fill(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
    ) -> Fill:
        """Return what buying or selling a size would cost now, over the best 500 levels.

        It does not depend on depth and step of the book. `Fill.complete` is whether these
        levels cover the size, `Fill.uncovered` lists exchanges that may have more levels.

        Args:
            direction: "buy" takes the asks, "sell" the bids.
            amount: The size in the base currency; floats are refused, as they are not exact.
            notional: The size in the quote currency, instead of `amount`.

        Raises:
            ValueError: The size is not a positive decimal number.
        """
        book = self._whole(self._options.fees)
        return book.fill(direction, amount=amount, notional=notional)

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
        """Return the best split of an order after fees now, over the best 500 levels.

        It does not depend on depth, step and fees of the book. See `OrderBookState.route`.

        Args:
            direction: "buy" takes the asks, "sell" the bids.
            amount: The size in the base currency; floats are refused, as they are not exact.
            notional: What is paid or received after fees, instead of `amount`.
            fees: Taker fees in percent as text, by exchange; "*" for all others; or "published",
                the base fees that the exchanges state themselves.
            limit: The worst price, before fees, that any order may take.
            exclude: Exchanges that take no part.
            max_exchanges: The most exchanges of the split.
            rules: Lots and minimums by exchange; those not given are unknown.

        Raises:
            ValueError: A size, a fee or the limit is invalid, or no exchange has a published fee.
            UnknownExchange: The fee table has an unknown name.
        """
        charged = _charged(fees)
        book = self._whole(charged)
        if charged == PUBLISHED and not book.published_fees:
            raise ValueError(NO_PUBLISHED)
        return book.route(
            direction,
            amount=amount,
            notional=notional,
            fees=charged,
            limit=limit,
            exclude=exclude,
            max_exchanges=max_exchanges,
            rules=rules,
        )
