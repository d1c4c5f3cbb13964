"""Decodes the levels of a view from protobuf, by `onebook.proto`, in pure Python."""

from bisect import bisect_left
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Final
from zlib import crc32

from onebook.core.reference.text import decimal_text
from onebook.core.types import CHECKSUM_LEVELS, NAMES_KEPT_MAX, UNPACKED_SCALE_MAX, LevelError
from onebook.orderbook import BookLevel, NetLevel

WORST: Final = (1 << 64) - 1  # the highest order

# What is wrong with an update: each continues "it ...".
CUT_OFF: Final = "has a level that is cut off"
NEGATIVE: Final = "has a negative price"
TOO_HIGH: Final = "has a price of more than 64 bits"
TWICE: Final = "has a price twice"
UNEVEN: Final = "has more or fewer amounts than exchanges"
UNKNOWN: Final = "names an exchange that is not in its table"


class PackedRow:
    """One level as integers, its text in the checksum, and the level for clients once it is read.

    `order` rises from the best level of a side: the price of an ask, the complement of a bid's.
    """

    __slots__ = ("amount", "gross", "level", "members", "order", "parts", "text")

    def __init__(
        self, order: int, amount: int, members: int, parts: Sequence[int], gross: Sequence[int]
    ) -> None:
        self.order = order
        self.amount = amount
        self.members = members
        self.parts = parts
        self.gross = gross
        self.level: BookLevel | None = None
        self.text = ""


class PackedSide:
    """The levels of one side, best first, and their orders."""

    __slots__ = ("orders", "rows", "worst")

    def __init__(self, worst: int, orders: list[int], rows: list[PackedRow]) -> None:
        self.worst = worst  # the order of price 0 of the bids; 0 of the asks
        self.orders = orders
        self.rows = rows


class PackedLevels:
    """The levels of a view at one moment, made by its binary updates.

    Args:
        names: The table of exchanges.
        price_scale: Decimals of prices.
        amount_scale: Decimals of amounts.
        gross_scale: Decimals of prices before fees.

    Raises:
        LevelError: A number has too many decimals; its text continues "it ...".
    """

    def __init__(
        self, names: Sequence[str], price_scale: int, amount_scale: int, gross_scale: int
    ) -> None:
        if (most := max(price_scale, amount_scale, gross_scale)) > UNPACKED_SCALE_MAX:
            raise LevelError(f"has numbers of {most} decimals")
        self.price_scale, self.amount_scale = price_scale, amount_scale
        self._gross_scale = gross_scale
        self._table = tuple(names)
        self._names: dict[int, tuple[str, ...]] = {}  # by bits; of all levels of one whole book
        self._bids, self._asks = PackedSide(WORST, [], []), PackedSide(0, [], [])

    def apply(
        self,
        bids: list[int],
        asks: list[int],
        bid_parts: list[int],
        ask_parts: list[int],
        bid_gross: list[int],
        ask_gross: list[int],
    ) -> "PackedLevels":
        """Return the levels after these changes, lists of an update.

        Raises:
            LevelError: They are invalid; its text continues "it ...".
        """
        after = object.__new__(PackedLevels)
        after.price_scale, after.amount_scale = self.price_scale, self.amount_scale
        after._gross_scale, after._table, after._names = self._gross_scale, self._table, self._names
        after._bids = self._changed(self._bids, bids, bid_parts, bid_gross)
        after._asks = self._changed(self._asks, asks, ask_parts, ask_gross)
        return after

    def checksum(self) -> int:
        """Return the CRC-32 of the best levels' `price:amount`, bids then asks."""
        texts = [
            row.text or self._text(row, side)
            for side in (self._bids, self._asks)
            for row in side.rows[:CHECKSUM_LEVELS]
        ]
        return crc32(":".join(texts).encode())

    def levels(self, side: int) -> list[BookLevel]:
        """Return the bids (0) or asks (1), each level made once."""
        found = self._asks if side else self._bids
        return [row.level or self._level(row, found) for row in found.rows]

    def best(self, side: int) -> BookLevel | None:
        """Return the first level of a side."""
        found = self._asks if side else self._bids
        return self._level(found.rows[0], found) if found.rows else None

    def summary(self) -> tuple[int | None, int | None, int, int, int]:
        """Return best bid and ask, the amounts of both sides, and the number of exchanges."""
        bids, asks = self._bids.rows, self._asks.rows
        members = 0
        for row in (*bids, *asks):
            members |= row.members
        return (
            bids[0].order ^ WORST if bids else None,
            asks[0].order if asks else None,
            sum([row.amount for row in bids]),
            sum([row.amount for row in asks]),
            members.bit_count(),
        )

    def _changed(
        self, side: PackedSide, numbers: list[int], parts: list[int], gross: list[int]
    ) -> PackedSide:
        """Return a side after changes of two or three numbers each."""
        if not numbers:
            return side
        orders, rows = side.orders[:], side.rows[:]
        known, split = 1 << len(self._table), bool(parts or gross)
        own: Sequence[int] = ()
        before: Sequence[int] = ()
        stops = at = place = 0
        # So that the first step leads to the first price.
        order, last = side.worst - 2 * numbers[0] if side.worst else 0, -1
        rest = iter(numbers)
        try:
            for step in rest:
                order += step
                if order > WORST:
                    raise LevelError(NEGATIVE if side.worst else TOO_HIGH)
                if order == last:
                    raise LevelError(TWICE)
                last = order
                place = bisect_left(orders, order, place)
                found = place < len(orders) and orders[place] == order
                amount = next(rest)
                if not amount:
                    if found:
                        del orders[place], rows[place]
                    continue
                members = next(rest)
                if members >= known:
                    raise LevelError(UNKNOWN)
                if split:
                    stops = at + members.bit_count()
                    own, before = parts[at:stops], gross[at:stops]
                    at = stops
                row = PackedRow(order, amount, members, own, before)
                if found:
                    rows[place] = row
                else:
                    orders.insert(place, order)
                    rows.insert(place, row)
        except StopIteration:
            raise LevelError(CUT_OFF) from None
        if any(len(each) not in (0, at) for each in (parts, gross)):
            raise LevelError(UNEVEN)
        return PackedSide(side.worst, orders, rows)

    def _text(self, row: PackedRow, side: PackedSide) -> str:
        price = decimal_text(row.order ^ side.worst, self.price_scale)
        row.text = f"{price}:{decimal_text(row.amount, self.amount_scale)}"
        return row.text

    def _level(self, row: PackedRow, side: PackedSide) -> BookLevel:
        """Return the level of a row, made once."""
        if row.level is not None:
            return row.level
        price, _, amount = (row.text or self._text(row, side)).partition(":")
        parts = tuple([_decimal(part, self.amount_scale) for part in row.parts])
        level = _level((Decimal(price), Decimal(amount), self._names_of(row.members), parts))
        if row.gross:
            level = NetLevel(*level)
            level.gross = tuple([_decimal(each, self._gross_scale) for each in row.gross])
        row.level = level
        return level

    def _names_of(self, members: int) -> tuple[str, ...]:
        names = self._names.get(members)
        if names is None:
            names = tuple([name for at, name in enumerate(self._table) if members >> at & 1])
            if len(self._names) < NAMES_KEPT_MAX:
                self._names[members] = names
        return names


def _decimal(mantissa: int, scale: int) -> Decimal:
    return Decimal(decimal_text(mantissa, scale))


_level = partial(tuple.__new__, BookLevel)  # half the time of BookLevel()
