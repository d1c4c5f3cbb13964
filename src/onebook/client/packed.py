"""Reads binary updates of a view (`onebook.proto`) into levels with exact numbers. No I/O."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from onebook.client.failures import Unavailable
from onebook.orderbook import EXACT, BookLevel, NetLevel

SCALE_MAX = 40  # decimals; a service sends at most 18, and those of a fee


class Scales(NamedTuple):
    """Decimals of the numbers of a view: of prices, amounts, and prices before fees."""

    price: int
    amount: int
    gross: int


def decode(frame: bytes) -> Any:
    """Parse a binary frame as an `Update`.

    Raises:
        Unavailable: It is none.
    """
    # Imported when needed: the library of protobuf takes longer than the rest of the client.
    from google.protobuf.message import DecodeError

    from onebook.updates import Update

    try:
        return Update.FromString(frame)
    except DecodeError:
        raise broken("is not an update") from None


def broken(fault: str) -> Unavailable:
    """The error of an invalid binary update."""
    return Unavailable("protocol_error", f"The service sent an invalid binary update: it {fault}.")


def scales_of(update: Any) -> Scales:
    """Return the scales of a whole book.

    Raises:
        Unavailable: They are out of range.
    """
    scales = Scales(update.price_scale, update.amount_scale, update.gross_scale)
    if max(scales) > SCALE_MAX:
        raise broken(f"has numbers of {max(scales)} decimals")
    return scales


class LevelReader:
    """Makes levels from the numbers of a side, for one subscription with its table of exchanges.

    `scales` are those of its last whole book, `time_us` is the time of its last update.
    """

    def __init__(self, table: Sequence[str]) -> None:
        self.scales = Scales(0, 0, 0)
        self.time_us = 0
        self._table = tuple(table)
        self._names: dict[int, tuple[str, ...]] = {0: ()}  # by bits; at most as many as seen

    def names(self, positions: Sequence[int]) -> list[str]:
        """Return the exchanges at these positions of the table.

        Raises:
            Unavailable: There is no such position.
        """
        try:
            return [self._table[at] for at in positions]
        except IndexError:
            raise broken("names an exchange that is not in its table") from None

    def ages(self, ages_ms: Sequence[int]) -> dict[str, int]:
        """Return the ages by exchange, of those that have one."""
        return {name: age for name, age in zip(self._table, ages_ms, strict=False) if age >= 0}

    def bids(self, update: Any) -> list[BookLevel]:
        """Return the bids of an update.

        Raises:
            Unavailable: Its lists do not belong together.
        """
        return self._levels(update.bids, update.bid_parts, update.bid_gross, -1)

    def asks(self, update: Any) -> list[BookLevel]:
        """Return the asks of an update.

        Raises:
            Unavailable: Its lists do not belong together.
        """
        return self._levels(update.asks, update.ask_parts, update.ask_gross, 1)

    def _levels(
        self, rows: Sequence[int], parts: Sequence[int], gross: Sequence[int], sign: int
    ) -> list[BookLevel]:
        prices, amounts, _ = self.scales
        found, price, at = list[BookLevel](), 0, 0
        numbers = iter(rows)
        for step in numbers:
            amount = next(numbers, None)
            bits = next(numbers, None) if amount else 0
            if amount is None or bits is None:
                raise broken("has a level that is cut off")
            price = price + sign * step if found else step
            names = self._names.get(bits)
            if names is None:
                names = self._names_of(bits)
            level = BookLevel(number_of(price, prices), number_of(amount, amounts), names)
            if parts or gross:
                level = self._with_parts(level, parts[at : at + len(names)], gross[at:])
                at += len(names)
            found.append(level)
        if any(len(each) not in (0, at) for each in (parts, gross)):
            raise broken("has more or fewer amounts than exchanges")
        return found

    def _with_parts(
        self, level: BookLevel, parts: Sequence[int], gross: Sequence[int]
    ) -> BookLevel:
        amounts = tuple(number_of(part, self.scales.amount) for part in parts)
        if not gross:
            return level._replace(amounts=amounts)
        net = NetLevel(level.price, level.amount, level.exchanges, amounts)
        own = gross[: len(level.exchanges)]
        net.gross = tuple(number_of(each, self.scales.gross) for each in own)
        return net

    def _names_of(self, bits: int) -> tuple[str, ...]:
        names = self.names([at for at in range(bits.bit_length()) if bits >> at & 1])
        if len(self._names) < NAMES_KEPT_MAX:
            self._names[bits] = tuple(names)
        return tuple(names)


NAMES_KEPT_MAX = 10_000  # combinations of exchanges of one view


def number_of(mantissa: int, scale: int) -> Decimal:
    """Return an integer at a scale as a decimal without trailing zeros."""
    while scale and not mantissa % 10:
        if not mantissa:
            return Decimal(0)
        mantissa //= 10
        scale -= 1
    return Decimal(mantissa).scaleb(-scale, EXACT) if scale else Decimal(mantissa)
