"""Order books as the library and the client of a service both return them: levels, state, names.

`OrderBookState` is the interface of both `library.BookUpdate` and `client.BookView`, so that a
strategy runs on either. Imports neither feeds nor the server.
"""

import asyncio
import difflib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from onebook.clock import iso_ms
from onebook.fees import (
    PUBLISHED,
    Fees,
    PublishedFee,
    TakerFees,
    exchange_of,
    fee_of,
    fee_table,
    fees_of,
    stated_table,
    symbol_of,
)
from onebook.fill import (
    AMOUNT,
    NOTIONAL,
    BookEnds,
    Direction,
    Fill,
    FillSide,
    fills,
    size_of,
    size_texts,
)
from onebook.health import Health, Reason
from onebook.routes import Route, Rules, gross_side, routes

# Wider than any sum of levels, so that results are exact whatever the caller's context.
EXACT: Final = Context(prec=100)
HALF: Final = Decimal("0.5")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
POLARS_DIGITS_MAX: Final = 38  # of polars' Decimal: 128 bits
NEEDS_SPLIT: Final = "A fill needs the amount of each exchange: open the book with split."

NEEDS_SAME_FEES: Final = (
    "Converted prices are after the fees of the book: open it with the fees of the route."
)
NEEDS_PUBLISHED: Final = (
    f'This book has no published fees: open it with fees="{PUBLISHED}", or pass a table of fees.'
)
NO_PUBLISHED: Final = "No exchange of this book has a published fee: pass a table of fees."
NEEDS_GROSS: Final = "This needs prices before fees: open the book without net."


class HistoryMissing(LookupError):
    """The history does not have the requested moment; the message says when it was recorded."""


class MissingPackage(ImportError):
    """A conversion needs a package that is not installed; the message names it."""

    code = "missing_package"


class BookLevel(NamedTuple):
    """One price: total amount, the exchanges at this price, and with `split` the amount of each."""

    price: Decimal
    amount: Decimal
    exchanges: tuple[str, ...] = ()
    amounts: tuple[Decimal, ...] = ()


class NetLevel(BookLevel):
    """A level whose price is after fees; `gross` has the price of each exchange before its fee.

    Equal to a `BookLevel` of the same values.
    """

    gross: tuple[Decimal, ...] = ()


@dataclass(frozen=True, slots=True)
class BookProblem:
    """The reason why a book is not live: `code` for programs, `message` for people.

    A client's `code` is an error code of the service, a close code as text, gap, or a code of
    `client.Unavailable`; the library's is no_live_book or invalid_symbol. A client retries after
    `retry_in_s`.
    """

    code: str
    message: str
    retry_in_s: float = 0.0

    def __str__(self) -> str:
        return self.message


class BookLevels(Sequence[BookLevel]):
    """The bids or the asks of a book, best first."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def price_scale(self) -> int:
            """Decimals of the integer prices of `ints`, the same on both sides."""
            raise NotImplementedError

        @property
        def amount_scale(self) -> int:
            """Decimals of the integer amounts of `ints`, the same on both sides."""
            raise NotImplementedError

        def ints(self) -> list[tuple[int, int]]:
            """Return (price, amount) as integers at `price_scale` and `amount_scale`."""
            raise NotImplementedError

        def decimals(self) -> list[list[Decimal]]:
            """Return `[[price, amount], ...]`, exact."""
            raise NotImplementedError

        def floats(self) -> list[list[float]]:
            """Return `[[price, amount], ...]` as ccxt gives it: the nearest floats."""
            raise NotImplementedError

        def attributions(self) -> list[tuple[str, ...]]:
            """Return the exchanges at each level."""
            raise NotImplementedError


class Horizon(NamedTuple):
    """The outermost known prices of a book; None for a side known in full."""

    bid: Decimal | None
    ask: Decimal | None


class ExchangeHealth(NamedTuple):
    """The health of one exchange's book.

    `shown` is whether its levels are in the merged book. `reason` is why it is not live or not
    shown, else None; `detail` explains it for people. `age_s` is the number of seconds since its
    data last arrived; None while it is not shown. Its levels beyond `horizon` are unknown.
    """

    exchange: str
    state: Health
    shown: bool
    reason: Reason | None
    detail: str
    age_s: float | None
    horizon: Horizon


class LayerTimes(NamedTuple):
    """When the prices of one channel were sent and received, in microseconds since 1970.

    `exchange_us` is by the exchange's clock, None if the exchange sends no time; `received_us` is
    by our clock.
    """

    exchange_us: int | None
    received_us: int


class ExchangeTimes(NamedTuple):
    """Times of one exchange's best price and other levels.

    `offset_us` is our clock minus the exchange's, accurate to `error_us`; both are None while
    unknown. If only `error_us` is None, the offset includes the minimum delay of a message.
    """

    top: LayerTimes
    depth: LayerTimes
    offset_us: int | None
    error_us: int | None


class ConversionReport(NamedTuple):
    """How some books of a view with `quotes` are converted, as of an update.

    `symbol` is the pair, `members` the books that it converts, such as kraken:USDC, `exchanges`
    whose books of the pair are used and `stale_exchanges` whose are not live. `bid` and `ask` are
    its best (price, amount), after the fee with `fees`; `age_ms` is the age of the oldest book.
    While the conversion is not live, `reason` says why, and the three are None.
    """

    symbol: str
    members: tuple[str, ...]
    exchanges: tuple[str, ...]
    stale_exchanges: tuple[str, ...]
    bid: tuple[Decimal, Decimal] | None
    ask: tuple[Decimal, Decimal] | None
    age_ms: int | None
    reason: str | None


class BookTimes(NamedTuple):
    """Times of an update and of its exchanges, in microseconds since 1970.

    `merged_us` is when the books were merged, `sent_us` when a service sent the update; None in the
    library.
    """

    merged_us: int
    sent_us: int | None
    exchanges: Mapping[str, ExchangeTimes]


class OrderBookState:
    """A merged order book at one moment, from the library or from a service.

    A live book may have one or two empty sides. All prices and amounts are `Decimal` and exact.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # fields or properties of the subclasses

        @property
        def symbol(self) -> str:
            """The pair, such as BTC/USDT."""
            raise NotImplementedError

        @property
        def number(self) -> int:
            """The number of the update: each state of a book has a higher one."""
            raise NotImplementedError

        @property
        def time_us(self) -> int:
            """When the book was merged, or lost, in microseconds since 1970."""
            raise NotImplementedError

        @property
        def bids(self) -> BookLevels:
            """The bids, highest price first."""
            raise NotImplementedError

        @property
        def asks(self) -> BookLevels:
            """The asks, lowest price first."""
            raise NotImplementedError

        @property
        def best_bid(self) -> BookLevel | None:
            """The highest bid; None if there are no bids."""
            raise NotImplementedError

        @property
        def best_ask(self) -> BookLevel | None:
            """The lowest ask; None if there are no asks."""
            raise NotImplementedError

        @property
        def live(self) -> bool:
            """Whether the book may be shown; otherwise it is empty and `problem` has the reason."""
            raise NotImplementedError

        @property
        def stale(self) -> tuple[str, ...]:
            """The exchanges whose levels are not in the book."""
            raise NotImplementedError

        @property
        def problem(self) -> BookProblem | None:
            """Why the book is not live; None while it is."""
            raise NotImplementedError

        @property
        def exchanges(self) -> Mapping[str, ExchangeHealth]:
            """The health of each exchange, by name."""
            raise NotImplementedError

        @property
        def published_fees(self) -> tuple[PublishedFee, ...]:
            """The fees of a book with `fees="published"`, and their dates; empty without."""
            raise NotImplementedError

        @property
        def conversions(self) -> tuple[ConversionReport, ...]:
            """How books in other quotes are converted; empty without the option `quotes`."""
            raise NotImplementedError

        @property
        def _fees(self) -> Mapping[str, str] | None:
            """The fees that converted prices contain; None without."""
            raise NotImplementedError

        @property
        def horizon(self) -> Horizon:
            """The prices within which the levels of all shown exchanges are known.

            Beyond them amounts are lower bounds: an exchange may have levels that it did not send.
            """
            raise NotImplementedError

        @property
        def exchange(self) -> str:
            """The exchange of a book of one exchange.

            Raises:
                ValueError: The book has several exchanges.
            """
            raise NotImplementedError

    @property
    def price_scale(self) -> int:
        """Decimals of the integer prices of `BookLevels.ints`."""
        return self.bids.price_scale

    @property
    def amount_scale(self) -> int:
        """Decimals of the integer amounts of `BookLevels.ints`."""
        return self.bids.amount_scale

    @property
    def mid(self) -> Decimal | None:
        """The middle of the best prices, exact; None if a side is empty."""
        bid, ask = self.best_bid, self.best_ask
        if bid is None or ask is None:
            return None
        return EXACT.multiply(EXACT.add(bid.price, ask.price), HALF)

    @property
    def spread(self) -> Decimal | None:
        """Best ask minus best bid; negative if exchanges cross; None if a side is empty."""
        bid, ask = self.best_bid, self.best_ask
        return None if bid is None or ask is None else EXACT.subtract(ask.price, bid.price)

    @property
    def crossed(self) -> bool:
        """Whether a bid of one exchange is at or above an ask of another."""
        bid, ask = self.best_bid, self.best_ask
        return bid is not None and ask is not None and bid.price >= ask.price

    @property
    def time(self) -> datetime:
        """`time_us` as a datetime in UTC."""
        return EPOCH + timedelta(microseconds=self.time_us)

    def fill(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
    ) -> Fill:
        """Return what buying or selling a size would cost against these levels.

        The book must have `split`.

        Args:
            direction: "buy" takes the asks, "sell" the bids.
            amount: The size in the base currency; floats are refused, as they are not exact.
            notional: The size in the quote currency, instead of `amount`.

        Raises:
            ValueError: The size is not a positive decimal number, or the book has no `split`.
        """
        amounts, notionals = _sizes(direction, amount, notional)
        names, side = self._fill_side(direction)
        ends = sorted(self._fill_ends())
        return fills(side, direction, amounts, notionals, names, ends)[0]

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
        """Return the best split of an order over the exchanges of these levels, after fees.

        The book must have `split` and no `group`. If it ends before the size is filled, open it
        with a larger `depth`.

        Args:
            direction: "buy" takes the asks, "sell" the bids.
            amount: The size in the base currency.
            notional: What is paid or received after fees, instead of `amount`.
            fees: Taker fees in percent as text, by exchange; "*" for all others; or "published",
                those of a book opened with them. Exchanges without a fee are left out.
            limit: The worst price, before fees, that any order may take.
            exclude: Exchanges to leave out.
            max_exchanges: Maximum number of exchanges in the split.
            rules: Lots and minimums by exchange; without a row they are unknown.

        Raises:
            ValueError: A size, a fee or the limit is invalid, or the book has no `split`.
        """
        amounts, notionals = _sizes(direction, amount, notional)
        names, side = self._fill_side(direction)
        table = self.route_fees(fees)
        self._require_conversion_fees(table)
        known = member_fees(table, names, self.symbol, exclude)
        price = None if limit is None else size_of("limit", _size_text(limit))
        return routes(
            gross_side(side, direction, names, known, price),
            direction,
            amounts,
            notionals,
            names,
            [end for end in sorted(self._fill_ends()) if end.exchange in known],
            rules or {},
            max_exchanges,
        )[0]

    def to_ccxt(self) -> dict[str, Any]:
        """Return the dict that ccxt's `fetch_order_book` returns; numbers are floats."""
        return {
            "symbol": self.symbol,
            "bids": self.bids.floats(),
            "asks": self.asks.floats(),
            "timestamp": self.time_us // 1_000,
            "datetime": iso_ms(self.time_us // 1_000),
            "nonce": None,
        }

    def to_pandas(self, *, exact: bool = False) -> Any:
        """Return a `pandas.DataFrame` with columns side, price, amount and exchanges.

        `attrs` has `symbol` and `time_us`.

        Args:
            exact: Prices and amounts as `Decimal` objects; by default the nearest floats.

        Raises:
            MissingPackage: pandas is not installed.
        """
        frame = package("pandas").DataFrame(self._columns(exact)._asdict())
        frame.attrs.update(symbol=self.symbol, time_us=self.time_us)
        return frame

    def to_polars(self, *, exact: bool = False) -> Any:
        """Return a `polars.DataFrame` with columns side, price, amount and exchanges.

        Args:
            exact: Prices and amounts as polars' Decimal; by default the nearest floats.

        Raises:
            MissingPackage: polars is not installed.
            ValueError: `exact`, and a number has more than the 38 digits of polars' Decimal.
        """
        scales = (self.price_scale, self.amount_scale) if exact else None
        return polars_frame(self._columns(exact), scales)

    def route_fees(self, fees: Fees) -> TakerFees:
        """Check the fees of a route.

        Raises:
            ValueError: A fee is invalid, or the book was opened without published fees.
        """
        if not isinstance(fees, str) or fees != PUBLISHED:
            return fee_table(fees)
        if not self.published_fees:
            raise ValueError(NEEDS_PUBLISHED)
        return stated_table(self.published_fees)

    def _require_conversion_fees(self, fees: TakerFees) -> None:
        """Check that converted prices are after the same fees as a route.

        Raises:
            ValueError: They are after others.
        """
        contained = self._fees or {}
        for each in self.conversions:
            books = [(exchange_of(name), symbol_of(name, self.symbol)) for name in each.members]
            used = [pair for pair in books if fee_of(fees, *pair) is not None]
            if not used:  # the route leaves its members out
                continue
            for pair in (*used, *((name, each.symbol) for name in each.exchanges)):
                charged = fee_of(fees, *pair)
                if charged is None or Decimal(charged) != Decimal(fee_of(contained, *pair) or 0):
                    raise ValueError(NEEDS_SAME_FEES)

    # For subclasses to override

    def _fill_side(self, direction: Direction) -> tuple[Sequence[str], FillSide]:
        """The exchanges by bit, and the side that a direction takes.

        Raises:
            ValueError: The book has no `split`.
        """
        raise NotImplementedError

    def _fill_ends(self) -> Iterable[BookEnds]:
        """The horizon of each exchange that is shown."""
        raise NotImplementedError

    def _columns(self, exact: bool) -> "BookColumns":
        columns = BookColumns([], [], [], [])
        for name, side in (("bid", self.bids), ("ask", self.asks)):
            pairs: Sequence[Sequence[Any]] = side.decimals() if exact else side.floats()
            columns.side.extend([name] * len(pairs))
            columns.price.extend(price for price, _ in pairs)
            columns.amount.extend(amount for _, amount in pairs)
            columns.exchanges.extend(map(list, side.attributions()))
        return columns


Size = Decimal | str | int | None


def _sizes(
    direction: Direction, amount: Size, notional: Size
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the amounts and notionals of one size.

    Raises:
        ValueError: Not exactly one size, or an invalid one, or no direction.
    """
    if direction not in ("buy", "sell"):
        raise ValueError(f'direction must be "buy" or "sell", not {direction!r}.')
    if (amount is None) == (notional is None):
        raise ValueError("Give either amount or notional.")
    amounts = () if amount is None else size_texts(AMOUNT, [_size_text(amount)])
    return amounts, () if notional is None else size_texts(NOTIONAL, [_size_text(notional)])


def member_fees(
    table: TakerFees, names: Iterable[str], symbol: str, exclude: Iterable[str]
) -> TakerFees:
    """Return the fees of the members of a route; an excluded exchange excludes all of its books."""
    without = {*exclude}
    taken = [name for name in names if without.isdisjoint((name, exchange_of(name)))]
    return fees_of(table, taken, symbol).known


def only_exchange(names: Sequence[str]) -> str:
    """Return the only exchange of a book.

    Raises:
        ValueError: The book has several exchanges.
    """
    if len(names) != 1:
        raise ValueError(f"This book is of {len(names)} exchanges, not of one.")
    return names[0]


# Conversions


class BookColumns(NamedTuple):
    """The rows of both sides, bids first, by column."""

    side: list[str]
    price: list[float | Decimal]
    amount: list[float | Decimal]
    exchanges: list[list[str]]


def decimals_of(number: Decimal) -> int:
    """Return the number of decimals in the text of a finite number."""
    exponent = number.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def package(name: str) -> Any:
    """Import a package that is not a dependency.

    Raises:
        MissingPackage: It is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackage(
            f"This conversion needs {name}, which cannot be imported ({error}): pip install {name}"
        ) from error


def polars_frame(columns: BookColumns, scales: tuple[int, int] | None) -> Any:
    """Return a `polars.DataFrame`; with `scales`, numbers are polars' Decimal.

    Raises:
        ValueError: A number has too many digits for it.
    """
    polars = package("polars")
    number: list[Any] = [polars.Float64] * 2
    if scales is not None:
        for values, scale in zip((columns.price, columns.amount), scales, strict=True):
            for value in values:
                if value >= 10 ** (POLARS_DIGITS_MAX - scale):
                    raise ValueError(
                        f"{value} has more digits than polars' Decimal at {scale} decimals."
                    )
        number = [polars.Decimal(POLARS_DIGITS_MAX, scale) for scale in scales]
    return polars.DataFrame(
        columns._asdict(),
        schema={
            "side": polars.String,
            "price": number[0],
            "amount": number[1],
            "exchanges": polars.List(polars.String),
        },
    )


def _size_text(size: Decimal | str | int) -> str:
    if isinstance(size, float):
        raise ValueError(
            f"A size must be text, a whole number or a Decimal, not the float {size!r}."
        )
    return f"{size:f}" if isinstance(size, Decimal) else str(size)


# Reading

State = TypeVar("State", bound=OrderBookState)


async def sampled(
    snapshots: Callable[[], list[State] | None], every_s: float
) -> AsyncIterator[State]:
    """Yield the current books at regular times; a late caller misses some.

    Args:
        snapshots: Returns the current books; None ends the iteration.
        every_s: Seconds between two times.

    Raises:
        ValueError: `every_s` is not above 0.
    """
    if not every_s > 0:
        raise ValueError(f"every_s must be above 0, not {every_s}.")
    now_s = asyncio.get_running_loop().time
    due_s = now_s()
    while (books := snapshots()) is not None:
        for book in books:
            yield book
        due_s += every_s * max(1, -(-(now_s() - due_s) // every_s))
        await asyncio.sleep(due_s - now_s())


def require_plain(callback: Callable[..., object]) -> None:
    """Check that a callback is not a coroutine function.

    Raises:
        TypeError: It is one.
    """
    called = getattr(callback, "__call__", None)  # noqa: B004 - of an object, its method
    if any(map(inspect.iscoroutinefunction, (callback, called))):
        raise TypeError("The callback is a coroutine function; use `async for` over the book.")


# Names

ALL: Final = "all"
NEAR: Final = 0.55  # minimum similarity of a suggested name

Names = str | Iterable[str] | None  # exchanges: one, several, "all", "-name"; None is all


def exchange_texts(exchanges: Names) -> list[str]:
    """Return a choice of exchanges as a list of texts; their names are not looked up.

    Raises:
        TypeError: A name is not text.
    """
    return [ALL] if exchanges is None else _texts("exchanges", exchanges, "okx")


def near_exchanges(asked: str, known: Iterable[str]) -> list[str]:
    """Return the names that are most similar to a misspelt one, or none."""
    name = asked.strip().lower().removeprefix("-")
    return difflib.get_close_matches(name, [*known], n=3, cutoff=NEAR)


def meant(asked: str, known: Iterable[str]) -> str:
    """Return a suggestion to append to the error about a misspelt exchange; "" without one."""
    near = near_exchanges(asked, known)
    return f" Did you mean {', '.join(near)}?" if near else ""


def symbols_of(symbols: str | Iterable[str]) -> tuple[str, ...]:
    """Return symbols in Onebook's spelling, each once.

    Raises:
        ValueError: The list is empty, or one symbol is.
        TypeError: A symbol is not text.
    """
    asked = [each.strip().upper() for each in _texts("symbols", symbols, "BTC/USDT")]
    if not asked or not all(asked):
        raise ValueError("symbols is empty: give at least one, such as BTC/USDT.")
    return tuple(dict.fromkeys(asked))


def _texts(what: str, given: str | Iterable[str], example: str) -> list[str]:
    """Return one text or several as a list."""
    texts = [given] if isinstance(given, str) or not isinstance(given, Iterable) else [*given]
    for each in texts:
        if not isinstance(each, str):
            raise TypeError(
                f"{what} must be text such as {example}, or a list of them, not {each!r}."
            )
    return texts
