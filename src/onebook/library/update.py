"""One update of an order book as a value: levels, health of each exchange, conversions.

Levels are kept in the form of the core and decoded when read, so that an unread update costs almost
nothing.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, overload

from msgspec import Struct

from onebook.core.types import LEVEL_FORM, PART_FORM, SCALE_MAX, LevelRow, Levels
from onebook.crossings import CrossingReport
from onebook.fees import PublishedFee, TakerFees
from onebook.fill import BookEnds, Direction, FillSide, bits
from onebook.model import Health, Reason
from onebook.orderbook import (
    EXACT,
    NEEDS_GROSS,
    NEEDS_SPLIT,
    BookLevel,
    BookLevels,
    BookProblem,
    BookTimes,
    ConversionReport,
    ExchangeHealth,
    Horizon,
    NetLevel,
    OrderBookState,
    only_exchange,
)
from onebook.streams.fill import fill_side

_LEVEL: Final = struct.Struct(LEVEL_FORM)
ROW_BYTES: Final = _LEVEL.size
_PART: Final = struct.Struct(PART_FORM)
NAMINGS_MAX: Final = 4_096  # cached combinations: those of 64 exchanges would not fit in memory


class ExchangeCondition(NamedTuple):
    """The part of `ExchangeHealth` that changes rarely; shared by many updates."""

    exchange: str
    state: Health
    shown: bool
    reason: Reason | None
    detail: str

    def __str__(self) -> str:
        why = f", {self.reason}" if self.reason else ""
        return f"{self.exchange}: {self.state}{why}" + (f" ({self.detail})" if self.detail else "")


Observed = tuple[float, tuple[str | None, str | None]]  # when data last arrived, and the horizon
UNSEEN: Final[Observed] = (0.0, (None, None))


class NetTerms(NamedTuple):
    """How net prices of a view relate to gross prices: net = gross x factor x 10^-scale.

    `factors` has a pair for each member, for the bids and for the asks. With `binned`, levels are
    bins of several prices and have no gross price.
    """

    scale: int
    factors: Sequence[tuple[int, int]]
    binned: bool


# 10^-scale, by scale: multiplying by it takes half the time of `Decimal.scaleb`.
UNITS: Final = tuple(Decimal(1).scaleb(-scale, EXACT) for scale in range(SCALE_MAX + 1))
_times: Final = EXACT.multiply
_made: Final = tuple.__new__  # of a NamedTuple: skips its Python-level constructor


def decimal(mantissa: int, scale: int) -> Decimal:
    """Return mantissa x 10^-scale exactly, with all decimals of the scale."""
    return _times(mantissa, UNITS[scale])


class Naming:
    """A cache from bit sets to the names of exchanges at a level.

    Not a subclass of dict, because CPython looks up its method by name for each item.
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


class BookSide(BookLevels):
    """The bids or the asks of an update, best first: a sequence of `BookLevel`.

    `ints`, `floats` and `decimals` give all levels as pairs of price and amount; `ints` is the fast
    form.
    """

    __slots__ = ("_amount_scale", "_naming", "_parts", "_price_scale", "_rows")

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
        self._price_scale = price_scale
        self._amount_scale = amount_scale

    @property
    def price_scale(self) -> int:
        """Decimals of the integer prices of `ints`."""
        return self._price_scale

    @property
    def amount_scale(self) -> int:
        """Decimals of the integer amounts of `ints`."""
        return self._amount_scale

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
        return self._naming.level(row, self._price_scale, self._amount_scale)

    def __iter__(self) -> Iterator[BookLevel]:
        parts = self._amounts()
        for row in self._ints():
            level = self._naming.level(row, self._price_scale, self._amount_scale)
            if self._parts:
                amounts = tuple(decimal(next(parts), self._amount_scale) for _ in level.exchanges)
                level = level._replace(amounts=amounts)
            yield level

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BookSide) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} levels, best {self[0].price:f}>" if len(self) else "<no levels>"

    def ints(self) -> list[tuple[int, int]]:
        """Return (price, amount) as integers at `price_scale` and `amount_scale`."""
        return [(price, amount) for price, amount, _ in self._ints()]

    def decimals(self) -> list[list[Decimal]]:
        """Return `[[price, amount], ...]`, exact."""
        prices, amounts = self._price_scale, self._amount_scale
        return [[decimal(p, prices), decimal(a, amounts)] for p, a, _ in self._ints()]

    def floats(self) -> list[list[float]]:
        """Return `[[price, amount], ...]` in ccxt's form: the nearest floats."""
        prices, amounts = 10**self._price_scale, 10**self._amount_scale
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


class NetSide(BookSide):
    """One side of a net view: each level is a `NetLevel`, unless it is a bin."""

    __slots__ = ("_factors", "_fee_scale")

    def __init__(
        self,
        rows: bytes | list[LevelRow],
        parts: bytes | list[int],
        price_scale: int,
        amount_scale: int,
        naming: Naming,
        *,
        factors: Sequence[int],
        fee_scale: int,
    ) -> None:
        super().__init__(rows, parts, price_scale, amount_scale, naming)
        self._factors = factors
        self._fee_scale = fee_scale

    def __iter__(self) -> Iterator[BookLevel]:
        scale = self._price_scale - self._fee_scale
        rows = zip(super().__iter__(), self._ints(), strict=True)
        for (price, amount, names, amounts), (net, _, members) in rows:
            level = NetLevel(price, amount, names, amounts)
            level.gross = tuple(
                decimal(net // self._factors[member], scale) for member in bits(members)
            )
            yield level


def side_of(levels: Levels, naming: Naming, net: NetTerms | None, *, asks: bool) -> BookSide:
    """Return one side of merged levels."""
    rows, parts = (levels.asks, levels.ask_parts) if asks else (levels.bids, levels.bid_parts)
    prices, amounts = levels.price_scale, levels.amount_scale
    if net is None or net.binned:
        return BookSide(rows, parts, prices, amounts, naming)
    factors = [pair[asks] for pair in net.factors]
    return NetSide(rows, parts, prices, amounts, naming, factors=factors, fee_scale=net.scale)


class BestLevels:
    """The best levels of one view, each decoded once, because they outlast many frames."""

    __slots__ = ("_ask", "_ask_row", "_bid", "_bid_row", "_naming", "_net")

    def __init__(self, naming: Naming, net: NetTerms | None = None) -> None:
        self._naming = naming
        self._net = net
        self._bid: BookLevel | None = None
        self._ask: BookLevel | None = None
        self._bid_row: LevelRow | None = None
        self._ask_row: LevelRow | None = None

    def of(self, levels: Levels) -> tuple[BookLevel | None, BookLevel | None]:
        """Return the best bid and ask, each None if absent (the hot path)."""
        bid, ask = levels.best_bid, levels.best_ask
        if bid is not self._bid_row:
            self._bid = self._decoded(bid, levels, asks=False)
            self._bid_row = bid
        if ask is not self._ask_row:
            self._ask = self._decoded(ask, levels, asks=True)
            self._ask_row = ask
        return self._bid, self._ask

    def _decoded(self, row: LevelRow | None, levels: Levels, *, asks: bool) -> BookLevel | None:
        if row is None:
            return None
        if levels.ask_parts if asks else levels.bid_parts:
            return side_of(levels, self._naming, self._net, asks=asks)[0]
        return self._naming.level(row, levels.price_scale, levels.amount_scale)


class BookUpdate(OrderBookState, Struct, frozen=True, eq=False, gc=False):
    """An order book at one moment: the live levels, and the health of each exchange.

    `symbol` is the pair. `number` counts the updates of one iteration, from 1; each is the entire
    book. `time_us` is when it was merged, in microseconds since 1970 by this machine's clock (in a
    replay: by the recording's). `skipped` is the number of states of the book between this update
    and the previous one, which the reader did not see. `times` is None unless requested.
    `best_bid` is the highest bid and `best_ask` the lowest ask; None if there are none.
    `crossings` are empty unless requested; in a snapshot, each has just begun. `conversions` are
    `ConversionReport`s, with the option `quotes`; `published_fees` the fees of the book, with the
    option `fees="published"`. `proof` is that of `history(..., proof=True)`.
    """

    symbol: str
    number: int
    time_us: int
    best_bid: BookLevel | None
    best_ask: BookLevel | None
    _levels: Levels
    _naming: Naming
    _conditions: tuple[ExchangeCondition, ...]
    _observed: list[Observed]  # of the exchanges that are shown, in their order
    _now: float
    skipped: int = 0
    times: BookTimes | None = None
    crossings: tuple[CrossingReport, ...] = ()
    _net: NetTerms | None = None
    conversions: tuple[ConversionReport, ...] = ()
    _fees: TakerFees | None = None
    published_fees: tuple[PublishedFee, ...] = ()
    proof: Mapping[str, Any] | None = None

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
        return side_of(self._levels, self._naming, self._net, asks=False)

    @property
    def asks(self) -> BookSide:
        """The asks, lowest price first."""
        return side_of(self._levels, self._naming, self._net, asks=True)

    @property
    def live(self) -> bool:
        """Whether any exchange is live; if not, both sides are empty."""
        return bool(self._observed)

    @property
    def problem(self) -> BookProblem | None:
        """Why no exchange is live; None while one is. `exchanges` has the details."""
        if self._observed:
            return None
        conditions = self._conditions
        if all(each.reason is Reason.NOT_LISTED for each in conditions):
            names = ", ".join(each.exchange for each in conditions)
            details = dict.fromkeys(each.detail for each in conditions if each.detail)
            return BookProblem(
                "invalid_symbol",
                " ".join([f"No exchange of {names} lists {self.symbol}.", *details]),
            )
        reasons = "; ".join(map(str, conditions))
        return BookProblem("no_live_book", f"No book of {self.symbol} is live. {reasons}.")

    @property
    def stale(self) -> tuple[str, ...]:
        """The exchanges whose levels are not in this update; `exchanges` says why."""
        return tuple(each.exchange for each in self._conditions if not each.shown)

    @property
    def exchange(self) -> str:
        """The exchange of an unmerged book.

        Raises:
            ValueError: The book is of several exchanges.
        """
        return only_exchange([each.exchange for each in self._conditions])

    @property
    def exchanges(self) -> Mapping[str, ExchangeHealth]:
        """The health of each exchange, by name."""
        observed = iter(self._observed)
        found = {}
        for each in self._conditions:
            updated_at, (bid, ask) = next(observed) if each.shown else UNSEEN
            age_s = max(0.0, self._now - updated_at) if each.shown else None
            found[each.exchange] = ExchangeHealth(*each, age_s, Horizon(_read(bid), _read(ask)))
        return found

    @property
    def horizon(self) -> Horizon:
        """The prices within which the levels of all shown exchanges are known.

        Beyond them amounts are lower bounds: an exchange may have levels that it did not send.
        """
        bids = [Decimal(bid) for _, (bid, _) in self._observed if bid is not None]
        asks = [Decimal(ask) for _, (_, ask) in self._observed if ask is not None]
        return Horizon(max(bids, default=None), min(asks, default=None))

    def _fill_side(self, direction: Direction) -> tuple[Sequence[str], FillSide]:
        levels = self._levels
        if (levels.asks and not levels.ask_parts) or (levels.bids and not levels.bid_parts):
            raise ValueError(NEEDS_SPLIT)
        if self._net is not None:
            raise ValueError(NEEDS_GROSS)
        return self._naming.names, fill_side(levels, direction)

    def _fill_ends(self) -> Iterable[BookEnds]:
        shown = (each.exchange for each in self._conditions if each.shown)
        for name, (_, (bid, ask)) in zip(shown, self._observed, strict=True):
            yield BookEnds(name, _read(bid), _read(ask))


def _read(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
