"""One update of an order book as a value: levels, health of each exchange, conversions.

Levels are kept as they come from the core and decoded when they are read: an update that is not
read costs next to nothing.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from importlib import import_module
from typing import Any, Final, NamedTuple, overload

from msgspec import Struct

from onebook.clock import iso_ms
from onebook.core.types import LEVEL_FORM, PART_FORM, SCALE_MAX, LevelRow, Levels
from onebook.library.errors import MissingPackage
from onebook.model import Health, Reason
from onebook.streams.fill import AMOUNT, NOTIONAL, BookEnds, Direction, Fill, fill_sizes, fills

# Wider than any sum of levels: what is made in it is exact, whatever the caller's context is.
EXACT: Final = Context(prec=100)
_LEVEL: Final = struct.Struct(LEVEL_FORM)
ROW_BYTES: Final = _LEVEL.size
_PART: Final = struct.Struct(PART_FORM)
NAMINGS_MAX: Final = 4_096  # of 64 exchanges there are more combinations than memory

POLARS_DIGITS_MAX: Final = 38  # of polars' Decimal: 128 bits

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Horizon(NamedTuple):
    """The outermost prices up to which a book is known; None where every level is known."""

    bid: Decimal | None
    ask: Decimal | None


class ExchangeHealth(NamedTuple):
    """How the book of one exchange is.

    `shown` says whether its levels are in the update. `reason` says why it is not live or not
    shown, None while it is; `detail` is text for people. `age_s` is how long ago its data last
    arrived, None where it is not shown. Beyond `horizon` its levels are not known.
    """

    exchange: str
    state: Health
    shown: bool
    reason: Reason | None
    detail: str
    age_s: float | None
    horizon: Horizon


class ExchangeCondition(NamedTuple):
    """The part of `ExchangeHealth` that changes rarely; shared by many updates."""

    exchange: str
    state: Health
    shown: bool
    reason: Reason | None
    detail: str


Moment = tuple[float, tuple[str | None, str | None]]  # when data last arrived, and the horizon
UNSEEN: Final[Moment] = (0.0, (None, None))


class BookLevel(NamedTuple):
    """One price: the whole amount, the exchanges that have a part, and with `split` their parts."""

    price: Decimal
    amount: Decimal
    exchanges: tuple[str, ...]
    amounts: tuple[Decimal, ...] = ()


# 10^-scale, by scale: multiplying by it takes half the time of `Decimal.scaleb`. A mid has one
# decimal more than its prices.
UNITS: Final = tuple(Decimal(1).scaleb(-scale, EXACT) for scale in range(SCALE_MAX + 2))
_times: Final = EXACT.multiply
_made: Final = tuple.__new__  # of a NamedTuple: without the Python function that takes its fields


def decimal(mantissa: int, scale: int) -> Decimal:
    """Return mantissa x 10^-scale exactly, with all decimals of the scale."""
    return _times(mantissa, UNITS[scale])


class Naming:
    """The exchanges at a level by its bit set: each combination of names is made once.

    No subclass of dict: CPython looks the method up by name for each item of one.
    """

    __slots__ = ("_known", "names")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._known: dict[int, tuple[str, ...]] = {}

    def __getitem__(self, members: int) -> tuple[str, ...]:
        names = self._known.get(members)
        if names is None:
            names = tuple(name for at, name in enumerate(self.names) if members >> at & 1)
            if len(self._known) < NAMINGS_MAX:
                self._known[members] = names
        return names

    def level(self, row: LevelRow, price_scale: int, amount_scale: int) -> BookLevel:
        """Decode a level without parts."""
        price, amount, members = row
        try:  # a subscript is cheaper than a call of `get`
            names = self._known[members]
        except KeyError:
            names = self[members]
        exact = _times(price, UNITS[price_scale])
        return _made(BookLevel, (exact, _times(amount, UNITS[amount_scale]), names, ()))


class BookSide(Sequence[BookLevel]):
    """The bids or the asks of an update, best first: a sequence of `BookLevel`.

    `ints`, `floats` and `decimals` give all levels as pairs of price and amount.
    """

    __slots__ = ("_naming", "_parts", "_rows", "amount_scale", "price_scale")

    def __init__(
        self,
        rows: bytes | list[LevelRow],
        parts: bytes | list[int],
        price_scale: int,
        amount_scale: int,
        naming: Naming,
    ) -> None:
        self._rows = rows
        self._parts = parts
        self._naming = naming
        self.price_scale = price_scale
        self.amount_scale = amount_scale

    def __len__(self) -> int:
        rows = self._rows
        return len(rows) // ROW_BYTES if isinstance(rows, bytes) else len(rows)

    @overload
    def __getitem__(self, at: int) -> BookLevel: ...
    @overload
    def __getitem__(self, at: slice) -> list[BookLevel]: ...
    def __getitem__(self, at: int | slice) -> BookLevel | list[BookLevel]:
        if isinstance(at, slice) or self._parts:
            return next(iter(self)) if at == 0 and self._rows else list(self)[at]
        rows, count = self._rows, len(self)
        if not -count <= at < count:
            raise IndexError(f"the side has {count} levels")
        row = (
            rows[at] if isinstance(rows, list) else _LEVEL.unpack_from(rows, at % count * ROW_BYTES)
        )
        return self._naming.level(row, self.price_scale, self.amount_scale)

    def __iter__(self) -> Iterator[BookLevel]:
        parts = self._amounts()
        for row in self._ints():
            level = self._naming.level(row, self.price_scale, self.amount_scale)
            if self._parts:
                amounts = tuple(decimal(next(parts), self.amount_scale) for _ in level.exchanges)
                level = level._replace(amounts=amounts)
            yield level

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BookSide) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} levels, best {self[0].price:f}>" if len(self) else "<no levels>"

    def ints(self) -> list[tuple[int, int]]:
        """Return (price, amount) as integers at `price_scale` and `amount_scale`: the fast form."""
        return [(price, amount) for price, amount, _ in self._ints()]

    def decimals(self) -> list[list[Decimal]]:
        """Return `[[price, amount], ...]`, exact."""
        prices, amounts = self.price_scale, self.amount_scale
        return [[decimal(p, prices), decimal(a, amounts)] for p, a, _ in self._ints()]

    def floats(self) -> list[list[float]]:
        """Return `[[price, amount], ...]` as ccxt gives it: the nearest floats."""
        prices, amounts = 10**self.price_scale, 10**self.amount_scale
        return [[price / prices, amount / amounts] for price, amount, _ in self._ints()]

    def attributions(self) -> list[tuple[str, ...]]:
        """Return the exchanges at each level."""
        return [self._naming[members] for _, _, members in self._ints()]

    def _ints(self) -> Iterator[LevelRow]:
        rows = self._rows
        return _LEVEL.iter_unpack(rows) if isinstance(rows, bytes) else iter(rows)

    def _amounts(self) -> Iterator[int]:
        parts = self._parts
        if isinstance(parts, bytes):
            return (part for (part,) in _PART.iter_unpack(parts))
        return iter(parts)


class BestLevels:
    """The best levels of one view. They outlast many frames, so each is decoded once."""

    __slots__ = ("_ask", "_ask_row", "_bid", "_bid_row", "_naming")

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._bid: BookLevel | None = None
        self._ask: BookLevel | None = None
        self._bid_row: LevelRow | None = None
        self._ask_row: LevelRow | None = None

    def of(self, levels: Levels) -> tuple[BookLevel | None, BookLevel | None]:
        """Return the best bid and ask, None where there is none (the hot path)."""
        bid, ask = levels.best_bid, levels.best_ask
        if bid is not self._bid_row:
            self._bid = self._decoded(bid, levels, levels.bids, levels.bid_parts)
            self._bid_row = bid
        if ask is not self._ask_row:
            self._ask = self._decoded(ask, levels, levels.asks, levels.ask_parts)
            self._ask_row = ask
        return self._bid, self._ask

    def _decoded(
        self,
        row: LevelRow | None,
        levels: Levels,
        rows: bytes | list[LevelRow],
        parts: bytes | list[int],
    ) -> BookLevel | None:
        if row is None:
            return None
        prices, amounts = levels.price_scale, levels.amount_scale
        if parts:
            return BookSide(rows, parts, prices, amounts, self._naming)[0]
        return self._naming.level(row, prices, amounts)


class BookColumns(NamedTuple):
    """The rows of both sides, bids first, by column."""

    side: list[str]
    price: list[float | Decimal]
    amount: list[float | Decimal]
    exchanges: list[list[str]]


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


def pandas_frame(columns: BookColumns, symbol: str, time_us: int) -> Any:
    """Return a `pandas.DataFrame`; `attrs` has the symbol and the time."""
    frame = package("pandas").DataFrame(columns._asdict())
    frame.attrs.update(symbol=symbol, time_us=time_us)
    return frame


def polars_frame(columns: BookColumns, scales: tuple[int, int] | None) -> Any:
    """Return a `polars.DataFrame`; with `scales` the numbers are of polars' Decimal.

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
        return pandas_frame(self._columns(exact), self.symbol, self.time_us)

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

    def _columns(self, exact: bool) -> BookColumns:
        columns = BookColumns([], [], [], [])
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
