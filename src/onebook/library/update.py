"""One update of an order book as a value: levels, health of each exchange, conversions.

Levels are kept as they come from the core, packed integers at two scales, and are decoded when
they are read: an update that is not read costs next to nothing. An update never changes, and
nothing in it is rounded but what is called a float.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple, overload

from onebook.core.types import LEVEL_FORM, PART_FORM, SCALE_MAX, Levels
from onebook.library import tables
from onebook.model import Health, Reason
from onebook.streams.fill import AMOUNT, NOTIONAL, BookEnds, Direction, Fill, fill_sizes, fills
from onebook.times import iso_ms

# Wider than any sum of levels: what is made in it is exact, whatever the caller's context is.
EXACT: Final = Context(prec=100)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEVEL: Final = struct.Struct(LEVEL_FORM)
_PART: Final = struct.Struct(PART_FORM)
LEVEL_BYTES: Final = _LEVEL.size
NAMINGS_MAX: Final = 4_096  # of 64 exchanges there are more combinations than memory


class BookLevel(NamedTuple):
    """One price: the whole amount, the exchanges that have a part, and with `split` their parts."""

    price: Decimal
    amount: Decimal
    exchanges: tuple[str, ...]
    amounts: tuple[Decimal, ...] = ()


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


PackedLevel = tuple[int, int, bytes]  # the scales of price and amount, and a packed level


class Naming:
    """What the updates of a source share: names of exchanges, and the best levels read last.

    Indexed by a bit set it gives the names of the exchanges, each combination made once. Best
    levels outlast many frames: one is decoded again only if it is another one. No subclass of dict:
    CPython looks the method up by name for each item of one.
    """

    __slots__ = ("_known", "best_ask", "best_bid", "names")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.best_bid: tuple[PackedLevel, BookLevel] | tuple[None, None] = (None, None)
        self.best_ask: tuple[PackedLevel, BookLevel] | tuple[None, None] = (None, None)
        self._known: dict[int, tuple[str, ...]] = {}

    def __getitem__(self, members: int) -> tuple[str, ...]:
        names = self._known.get(members)
        if names is None:
            names = tuple(name for at, name in enumerate(self.names) if members >> at & 1)
            if len(self._known) < NAMINGS_MAX:
                self._known[members] = names
        return names

    def level(self, packed: PackedLevel) -> BookLevel:
        """Decode a level without parts."""
        price_scale, amount_scale, row = packed
        price, amount, members = _LEVEL.unpack(row)
        price, amount = _times(price, UNITS[price_scale]), _times(amount, UNITS[amount_scale])
        return _made(BookLevel, (price, amount, self[members], ()))


# 10^-scale, by scale: multiplying by it takes half the time of `Decimal.scaleb`. A mid has one
# decimal more than its prices.
UNITS: Final = tuple(Decimal(1).scaleb(-scale, EXACT) for scale in range(SCALE_MAX + 2))
_times: Final = EXACT.multiply
_made: Final = tuple.__new__  # of a NamedTuple: without the Python function that takes its fields


def decimal(mantissa: int, scale: int) -> Decimal:
    """Return mantissa x 10^-scale exactly, with all decimals of the scale."""
    return _times(mantissa, UNITS[scale])


class BookSide(Sequence[BookLevel]):
    """The bids or the asks of an update, best first: a sequence of `BookLevel`.

    `ints`, `floats` and `decimals` give all levels as pairs of price and amount.
    """

    __slots__ = ("_naming", "_parts", "_rows", "amount_scale", "price_scale")

    def __init__(
        self,
        rows: bytes | list[tuple[int, int, int]],
        parts: bytes | list[int],
        *,
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
        return len(rows) // _LEVEL.size if isinstance(rows, bytes) else len(rows)

    @overload
    def __getitem__(self, at: int) -> BookLevel: ...
    @overload
    def __getitem__(self, at: slice) -> list[BookLevel]: ...
    def __getitem__(self, at: int | slice) -> BookLevel | list[BookLevel]:
        if isinstance(at, slice) or self._parts:
            return list(self)[at]
        rows, count = self._rows, len(self)
        if not -count <= at < count:
            raise IndexError(f"the side has {count} levels")
        if isinstance(rows, bytes):
            return self._level(*_LEVEL.unpack_from(rows, at % count * _LEVEL.size))
        return self._level(*rows[at])

    def __iter__(self) -> Iterator[BookLevel]:
        parts = self._amounts()
        for price, amount, members in self._ints():
            level = self._level(price, amount, members)
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

    def _ints(self) -> Iterator[tuple[int, int, int]]:
        rows = self._rows
        return _LEVEL.iter_unpack(rows) if isinstance(rows, bytes) else iter(rows)

    def _amounts(self) -> Iterator[int]:
        parts = self._parts
        if isinstance(parts, bytes):
            return (part for (part,) in _PART.iter_unpack(parts))
        return iter(parts)

    def _level(self, price: int, amount: int, members: int) -> BookLevel:
        return BookLevel(
            decimal(price, self.price_scale),
            decimal(amount, self.amount_scale),
            self._naming[members],
        )


class BookUpdate:
    """An order book at one moment: what is live, and the health of each exchange.

    `symbol` is the pair. `number` counts the updates of one iteration, from 1; each is the whole
    book. `time_us` is when it was merged, in microseconds since 1970 by this machine's clock (in a
    replay: by the recording's).
    """

    __slots__ = (
        "_levels",
        "_moments",
        "_naming",
        "_now",
        "_standings",
        "number",
        "symbol",
        "time_us",
    )

    def __init__(
        self,
        symbol: str,
        number: int,
        time_us: int,
        levels: Levels,
        naming: Naming,
        standings: tuple[ExchangeCondition, ...],
        moments: list[Moment],
        now: float,
    ) -> None:
        self.symbol = symbol
        self.number = number
        self.time_us = time_us
        self._levels = levels
        self._naming = naming
        self._standings = standings
        self._moments = moments  # of the exchanges that are shown, in their order
        self._now = now

    def __repr__(self) -> str:
        bid, ask = self.best_bid, self.best_ask
        best = " / ".join("-" if each is None else f"{each.price:f}" for each in (bid, ask))
        live = f"{len(self._moments)} of {len(self._standings)} live"
        return f"<BookUpdate {self.symbol} #{self.number}: {best}, {live}>"

    @property
    def bids(self) -> BookSide:
        """The bids, highest price first."""
        levels = self._levels
        return self._side(levels.bids, levels.bid_parts)

    @property
    def asks(self) -> BookSide:
        """The asks, lowest price first."""
        levels = self._levels
        return self._side(levels.asks, levels.ask_parts)

    def _side(self, rows: bytes | list[tuple[int, int, int]], parts: bytes | list[int]) -> BookSide:
        return BookSide(
            rows,
            parts,
            price_scale=self._levels.price_scale,
            amount_scale=self._levels.amount_scale,
            naming=self._naming,
        )

    @property
    def price_scale(self) -> int:
        """Decimals of the integer prices of `BookSide.ints`."""
        return self._levels.price_scale

    @property
    def amount_scale(self) -> int:
        """Decimals of the integer amounts of `BookSide.ints`."""
        return self._levels.amount_scale

    @property
    def best_bid(self) -> BookLevel | None:
        """The highest bid; None where there is none."""
        price_scale, amount_scale, rows, _, parts, _ = self._levels
        if not rows:
            return None
        if parts or type(rows) is not bytes:
            return self.bids[0]
        # What most callbacks read: without the objects in between.
        naming, packed = self._naming, (price_scale, amount_scale, rows[:LEVEL_BYTES])
        known, level = naming.best_bid
        if known != packed:
            level = naming.level(packed)
            naming.best_bid = packed, level
        return level

    @property
    def best_ask(self) -> BookLevel | None:
        """The lowest ask; None where there is none."""
        price_scale, amount_scale, _, rows, _, parts = self._levels
        if not rows:
            return None
        if parts or type(rows) is not bytes:
            return self.asks[0]
        naming, packed = self._naming, (price_scale, amount_scale, rows[:LEVEL_BYTES])
        known, level = naming.best_ask
        if known != packed:
            level = naming.level(packed)
            naming.best_ask = packed, level
        return level

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
        found = []
        for rows in (self._levels.bids, self._levels.asks):
            if not rows:
                return None
            found.append(_LEVEL.unpack_from(rows)[0] if isinstance(rows, bytes) else rows[0][0])
        return found[0], found[1]

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
        return tuple(each.exchange for each in self._standings if not each.shown)

    @property
    def exchange(self) -> str:
        """The exchange of a book of one exchange.

        Raises:
            ValueError: The book is of several.
        """
        if len(self._standings) != 1:
            raise ValueError(f"This book is of {len(self._standings)} exchanges, not of one.")
        return self._standings[0].exchange

    @property
    def exchanges(self) -> Mapping[str, ExchangeHealth]:
        """The health of each exchange, by name."""
        moments = iter(self._moments)
        found = {}
        for each in self._standings:
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
        shown = (each.exchange for each in self._standings if each.shown)
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
