"""The book of a view with binary updates (`onebook.proto`), with exact numbers. No I/O."""

import zlib
from bisect import bisect_left
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from onebook.client.failures import Unavailable
from onebook.orderbook import EXACT, BookLevel, NetLevel

CHECKSUM_LEVELS = 25
NAMES_KEPT_MAX = 10_000  # combinations of exchanges of one view
PERCENT_DECIMALS = 4  # of the spread
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


class PackedRow(NamedTuple):
    """One level: as integers, as clients see it, and as text for the checksum."""

    amount: int
    bits: int
    level: BookLevel
    text: str


class PackedSide:
    """The levels of one side, best first, by integer prices."""

    def __init__(self, sign: int) -> None:
        self._sign = sign  # prices rise with 1, fall with -1
        self._keys: list[int] = []  # prices times the sign, sorted
        self.rows: list[PackedRow] = []

    @property
    def best(self) -> int | None:
        """The best price as an integer."""
        return self._sign * self._keys[0] if self._keys else None

    def clear(self) -> None:
        """Remove all levels."""
        self._keys, self.rows = [], []

    def take(self, key: int, row: PackedRow) -> None:
        """Set a level; an amount of 0 removes it."""
        keys = self._keys
        at = bisect_left(keys, key)
        known = at < len(keys) and keys[at] == key
        if not row.amount:
            if known:
                del keys[at], self.rows[at]
        elif known:
            self.rows[at] = row
        else:
            keys.insert(at, key)
            self.rows.insert(at, row)


class PackedBook:
    """The book of one subscription with binary updates, given its table of exchanges."""

    def __init__(self, table: Sequence[str] = ()) -> None:
        self._table = tuple(table)
        self._names: dict[int, tuple[str, ...]] = {0: ()}  # by bits
        self._scales = Scales(0, 0, 0)
        self._bids, self._asks = PackedSide(-1), PackedSide(1)
        self.time_us = 0  # of the last update, since 1970

    def apply(self, update: Any) -> bool:
        """Apply an update; return whether the book has its checksum.

        Raises:
            Unavailable: The update is invalid.
        """
        if update.HasField("elapsed_us"):
            self.time_us += update.elapsed_us
        else:
            self.time_us = update.time_us
            self._scales = Scales(update.price_scale, update.amount_scale, update.gross_scale)
            if max(self._scales) > SCALE_MAX:
                raise broken(f"has numbers of {max(self._scales)} decimals")
            self._bids.clear()
            self._asks.clear()
        self._read(self._bids, -1, update.bids, update.bid_parts, update.bid_gross)
        self._read(self._asks, 1, update.asks, update.ask_parts, update.ask_gross)
        return not update.HasField("checksum") or update.checksum == self.checksum()

    @property
    def bids(self) -> list[BookLevel]:
        """The bids, best first."""
        return [row.level for row in self._bids.rows]

    @property
    def asks(self) -> list[BookLevel]:
        """The asks, best first."""
        return [row.level for row in self._asks.rows]

    def checksum(self) -> int:
        """The checksum of `BookView.checksum`."""
        best = self._bids.rows[:CHECKSUM_LEVELS] + self._asks.rows[:CHECKSUM_LEVELS]
        return zlib.crc32(":".join([row.text for row in best]).encode())

    def stats(self) -> dict[str, Any]:
        """Compute `market_stats`, as the service does."""
        price_scale, amount_scale, _ = self._scales
        bid, ask = self._bids.best, self._asks.best
        spread = percent = mid = None
        if bid is not None and ask is not None:
            spread = number_of(ask - bid, price_scale)
            percent = number_of(_percent(ask - bid, bid + ask), PERCENT_DECIMALS)
            mid = number_of((bid + ask) * 5, price_scale + 1)
        rows = self._bids.rows, self._asks.rows
        totals = [number_of(sum([row.amount for row in side]), amount_scale) for side in rows]
        members = 0
        for side in rows:
            for row in side:
                members |= row.bits
        return {
            "best_bid": rows[0][0].level.price if rows[0] else None,
            "best_ask": rows[1][0].level.price if rows[1] else None,
            "spread": spread,
            "spread_percent": percent,
            "mid_price": mid,
            "total_bid_volume": totals[0] if rows[0] else None,
            "total_ask_volume": totals[1] if rows[1] else None,
            "participating_exchanges": members.bit_count(),
            "crossed": bid is not None and ask is not None and bid >= ask,
        }

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

    def _read(
        self,
        side: PackedSide,
        sign: int,
        numbers: Sequence[int],
        parts: Sequence[int],
        gross: Sequence[int],
    ) -> None:
        """Read the levels of a side, of two or three numbers each."""
        price_scale, amount_scale, _ = self._scales
        rows, key, at = iter(numbers), 0, 0
        first = True
        for step in rows:
            amount = next(rows, None)
            bits = next(rows, None) if amount else 0
            if amount is None or bits is None:
                raise broken("has a level that is cut off")
            key = sign * step if first else key + step
            first = False
            names = self._names.get(bits)
            if names is None:
                names = self._names_of(bits)
            price, total = number_of(sign * key, price_scale), number_of(amount, amount_scale)
            level = BookLevel(price, total, names)
            if parts or gross:
                level = self._with_parts(level, parts[at : at + len(names)], gross[at:])
                at += len(names)
            side.take(key, PackedRow(amount, bits, level, f"{price:f}:{total:f}"))
        if any(len(each) not in (0, at) for each in (parts, gross)):
            raise broken("has more or fewer amounts than exchanges")

    def _with_parts(
        self, level: BookLevel, parts: Sequence[int], gross: Sequence[int]
    ) -> BookLevel:
        amounts = tuple(number_of(part, self._scales.amount) for part in parts)
        if not gross:
            return level._replace(amounts=amounts)
        net = NetLevel(level.price, level.amount, level.exchanges, amounts)
        own = gross[: len(level.exchanges)]
        net.gross = tuple(number_of(each, self._scales.gross) for each in own)
        return net

    def _names_of(self, bits: int) -> tuple[str, ...]:
        names = self.names([at for at in range(bits.bit_length()) if bits >> at & 1])
        if len(self._names) < NAMES_KEPT_MAX:
            self._names[bits] = tuple(names)
        return tuple(names)


def number_of(mantissa: int, scale: int) -> Decimal:
    """Return an integer at a scale as a decimal without trailing zeros."""
    while scale and not mantissa % 10:
        if not mantissa:
            return _ZERO
        mantissa //= 10
        scale -= 1
    return Decimal(mantissa).scaleb(-scale, EXACT) if scale else Decimal(mantissa)


def _percent(spread: int, twice_mid: int) -> int:
    """Return the spread in percent of the mid, rounded half up away from zero."""
    scaled = abs(spread) * 2 * 100 * 10**PERCENT_DECIMALS
    rounded: int = (2 * scaled + twice_mid) // (2 * twice_mid)
    return -rounded if spread < 0 else rounded


_ZERO = Decimal(0)
