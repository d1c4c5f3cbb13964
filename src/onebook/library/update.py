"""One update of an order book as a value: levels, health of each exchange, conversions.

Levels are kept as they come from the core and decoded when they are read: an update that is not
read costs next to nothing.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from msgspec import Struct

from onebook.clock import iso_ms
from onebook.core.types import Levels
from onebook.library import tables
from onebook.library.health import UNSEEN, ExchangeCondition, ExchangeHealth, Horizon, Moment
from onebook.library.sides import BookLevel, BookSide, Naming, decimal
from onebook.streams.fill import AMOUNT, NOTIONAL, BookEnds, Direction, Fill, fill_sizes, fills

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class BookUpdate(Struct, frozen=True, eq=False, gc=False):
    """An order book at one moment: what is live, and the health of each exchange.

    `symbol` is the pair. `number` counts the updates of one iteration, from 1; each is the whole
    book. `time_us` is when it was merged, in microseconds since 1970 by this machine's clock (in a
    replay: by the recording's). `best_bid` is the highest bid and `best_ask` the lowest ask; None
    where there is none.
    """

    symbol: str
    number: int
    time_us: int
    best_bid: BookLevel | None
    best_ask: BookLevel | None
    _levels: Levels
    _naming: Naming
    _conditions: tuple[ExchangeCondition, ...]
    _moments: list[Moment]  # of the exchanges that are shown, in their order
    _now: float

    def __repr__(self) -> str:
        best = " / ".join(
            "-" if each is None else f"{each.price:f}" for each in (self.best_bid, self.best_ask)
        )
        exchanges = ", ".join(
            each.exchange if each.shown else f"{each.exchange} {each.state}"
            for each in self._conditions
        )
        return f"<BookUpdate {self.symbol} #{self.number}: {best} ({exchanges})>"

    @property
    def bids(self) -> BookSide:
        """The bids, highest price first."""
        levels = self._levels
        scales = levels.price_scale, levels.amount_scale
        return BookSide(levels.bids, levels.bid_parts, *scales, self._naming)

    @property
    def asks(self) -> BookSide:
        """The asks, lowest price first."""
        levels = self._levels
        scales = levels.price_scale, levels.amount_scale
        return BookSide(levels.asks, levels.ask_parts, *scales, self._naming)

    @property
    def price_scale(self) -> int:
        """Decimals of the integer prices of `BookSide.ints`."""
        return self._levels.price_scale

    @property
    def amount_scale(self) -> int:
        """Decimals of the integer amounts of `BookSide.ints`."""
        return self._levels.amount_scale

    @property
    def mid(self) -> Decimal | None:
        """The middle of the best prices, exact; None where a side is empty."""
        best = self._best()
        return decimal((best[0] + best[1]) * 5, self.price_scale + 1) if best else None

    @property
    def spread(self) -> Decimal | None:
        """Best ask minus best bid; below zero where exchanges cross; None where a side is empty."""
        best = self._best()
        return decimal(best[1] - best[0], self.price_scale) if best else None

    @property
    def crossed(self) -> bool:
        """Whether a bid of one exchange is at or above an ask of another."""
        best = self._best()
        return best is not None and best[0] >= best[1]

    def _best(self) -> tuple[int, int] | None:
        bid, ask = self._levels.best_bid, self._levels.best_ask
        return None if bid is None or ask is None else (bid[0], ask[0])

    @property
    def time(self) -> datetime:
        """`time_us` as a datetime in UTC."""
        return EPOCH + timedelta(microseconds=self.time_us)

    @property
    def live(self) -> bool:
        """Whether any exchange is live; where none is, both sides are empty."""
        return bool(self._moments)

    @property
    def stale(self) -> tuple[str, ...]:
        """The exchanges whose levels are not in this update; `exchanges` says why."""
        return tuple(each.exchange for each in self._conditions if not each.shown)

    @property
    def exchange(self) -> str:
        """The exchange of a book of one exchange.

        Raises:
            ValueError: The book is of several.
        """
        if len(self._conditions) != 1:
            raise ValueError(f"This book is of {len(self._conditions)} exchanges, not of one.")
        return self._conditions[0].exchange

    @property
    def exchanges(self) -> Mapping[str, ExchangeHealth]:
        """The health of each exchange, by name."""
        moments = iter(self._moments)
        found = {}
        for each in self._conditions:
            updated_at, (bid, ask) = next(moments) if each.shown else UNSEEN
            age_s = max(0.0, self._now - updated_at) if each.shown else None
            found[each.exchange] = ExchangeHealth(*each, age_s, Horizon(_read(bid), _read(ask)))
        return found

    @property
    def horizon(self) -> Horizon:
        """The prices within which the levels of all shown exchanges are known.

        Beyond them amounts are lower bounds: an exchange may have levels that it did not send.
        """
        bids = [Decimal(bid) for _, (bid, _) in self._moments if bid is not None]
        asks = [Decimal(ask) for _, (_, ask) in self._moments if ask is not None]
        return Horizon(max(bids, default=None), min(asks, default=None))

    def fill(
        self,
        direction: Direction,
        *,
        amount: Decimal | str | int | None = None,
        notional: Decimal | str | int | None = None,
    ) -> Fill:
        """Return what buying or selling a size would cost against the levels of this update.

        The book must have `split`. `OrderBook.fill` looks at more levels than an update has.

        Args:
            direction: "buy" takes the asks, "sell" the bids.
            amount: The size in the base currency; floats are refused, as they are not exact.
            notional: The size in the quote currency, instead of `amount`.

        Raises:
            ValueError: The size is not a positive decimal number, or the book has no `split`.
        """
        if direction not in ("buy", "sell"):
            raise ValueError(f'direction is "buy" or "sell", not {direction!r}.')
        if (amount is None) == (notional is None):
            raise ValueError("Name either amount or notional.")
        levels = self._levels
        if (levels.asks and not levels.ask_parts) or (levels.bids and not levels.bid_parts):
            raise ValueError("A fill needs the amount of each exchange: open the book with split.")
        by, size = (AMOUNT, amount) if amount is not None else (NOTIONAL, notional)
        texts = [_size_text(size)]
        sizes = fill_sizes(texts, []) if by == AMOUNT else fill_sizes([], texts)
        shown = (each.exchange for each in self._conditions if each.shown)
        ends = [
            BookEnds(name, _read(bid), _read(ask))
            for name, (_, (bid, ask)) in zip(shown, self._moments, strict=True)
        ]
        return fills(levels, direction, sizes, self._naming.names, ends)[0]

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

        Args:
            exact: Prices and amounts as `Decimal` objects; by default the nearest floats.

        Raises:
            MissingPackage: pandas is not installed.
        """
        return tables.pandas_frame(self._columns(exact), self.symbol, self.time_us)

    def to_polars(self, *, exact: bool = False) -> Any:
        """Return a `polars.DataFrame` with columns side, price, amount and exchanges.

        Args:
            exact: Prices and amounts as polars' Decimal; by default the nearest floats.

        Raises:
            MissingPackage: polars is not installed.
            ValueError: `exact`, and a number has more than the 38 digits of polars' Decimal.
        """
        scales = (self.price_scale, self.amount_scale) if exact else None
        return tables.polars_frame(self._columns(exact), scales)

    def _columns(self, exact: bool) -> tables.BookColumns:
        columns = tables.BookColumns([], [], [], [])
        for name, side in (("bid", self.bids), ("ask", self.asks)):
            pairs: list[Any] = [*(side.decimals() if exact else side.floats())]
            columns.side.extend([name] * len(pairs))
            columns.price.extend(price for price, _ in pairs)
            columns.amount.extend(amount for _, amount in pairs)
            columns.exchanges.extend([*names] for names in side.attributions())
        return columns


def _size_text(size: Decimal | str | int | None) -> str:
    if isinstance(size, float):
        raise ValueError(f"A size is text, a whole number or a Decimal, not the float {size!r}.")
    return f"{size:f}" if isinstance(size, Decimal) else str(size)


def _read(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
