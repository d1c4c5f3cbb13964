"""The levels of an update: names of exchanges, and the bids or asks as a sequence.

Levels are kept as they come from the core, packed integers at two scales, and are decoded when
they are read. Nothing is rounded but what is called a float.
"""

import struct
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Final, NamedTuple, overload

from onebook.core.types import LEVEL_FORM, PART_FORM, SCALE_MAX, LevelRow, Levels

# Wider than any sum of levels: what is made in it is exact, whatever the caller's context is.
EXACT: Final = Context(prec=100)
_LEVEL: Final = struct.Struct(LEVEL_FORM)
ROW_BYTES: Final = _LEVEL.size
_PART: Final = struct.Struct(PART_FORM)
NAMINGS_MAX: Final = 4_096  # of 64 exchanges there are more combinations than memory


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
