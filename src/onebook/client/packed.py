"""The book of a view with binary updates (`onebook.proto`), with exact numbers. No I/O.

A book keeps integers. Decimals are made when a level is read, and decimal texts for the checksum.
"""

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from onebook.client.failures import PROTOCOL_ERROR, Unavailable
from onebook.client.shapes import exact, transferable_of
from onebook.crossings import Crossing, CrossingReport
from onebook.fill import AMOUNT, BUY, NOTIONAL, SELL, Direction, Fill, FillPart
from onebook.orderbook import (
    EXACT,
    BookLevel,
    BookTimes,
    ConversionReport,
    ExchangeTimes,
    LayerTimes,
    NetLevel,
)
from onebook.routes import Route, RoutePart

CHECKSUM_LEVELS = 25
NAMES_KEPT_MAX = 10_000  # combinations of exchanges of one view
TEXTS_KEPT_MAX = 10_000  # of prices of one view
PERCENT_DECIMALS = 4  # of the spread
SCALE_MAX = 40  # decimals; a service sends at most 18, and those of a fee
TIME_US_MAX = 253_402_300_799_999_999  # the end of the year 9999
FILL_FIGURES, ROUTE_FIGURES = 5, 10
PHASES = ("ended", "began", "changed", "lasts")


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
    return Unavailable(PROTOCOL_ERROR, f"The service sent an invalid binary update: it {fault}.")


class PackedRow:
    """One level as integers, and what was made of it: a level for clients, the checksum's text."""

    __slots__ = ("amount", "bits", "gross", "key", "level", "parts", "text")

    def __init__(
        self, key: int, amount: int, bits: int, parts: Sequence[int], gross: Sequence[int]
    ) -> None:
        self.key = key  # the price times the sign of its side
        self.amount = amount
        self.bits = bits
        self.parts = parts
        self.gross = gross
        self.level: BookLevel | None = None
        self.text = ""


class PackedSide:
    """The levels of one side, best first, by integer prices."""

    __slots__ = ("keys", "rows", "sign")

    def __init__(self, sign: int) -> None:
        self.sign = sign  # prices rise with 1, fall with -1
        self.keys: list[int] = []  # prices times the sign, sorted
        self.rows: list[PackedRow] = []

    def clear(self) -> None:
        """Remove all levels."""
        self.keys, self.rows = [], []


class PackedState(NamedTuple):
    """A book at one moment, which later updates do not change."""

    book: "PackedBook"
    bids: list[PackedRow]
    asks: list[PackedRow]
    scales: Scales
    time_us: int

    def levels(self, rows: Sequence[PackedRow]) -> list[BookLevel]:
        """The levels of a side as clients see them, each made once."""
        self._make_levels([row for row in rows if row.level is None])
        return [row.level for row in rows]  # type: ignore[misc]

    def best(self, rows: Sequence[PackedRow]) -> BookLevel | None:
        """The first level of a side."""
        return self.levels(rows[:1])[0] if rows else None

    def stats(self) -> dict[str, Any]:
        """Compute `market_stats`, as the service does."""
        price_scale, amount_scale, _ = self.scales
        bid = -self.bids[0].key if self.bids else None
        ask = self.asks[0].key if self.asks else None
        spread = percent = mid = None
        if bid is not None and ask is not None:
            spread = number_of(ask - bid, price_scale)
            percent = number_of(_percent(ask - bid, bid + ask), PERCENT_DECIMALS)
            mid = number_of((bid + ask) * 5, price_scale + 1)
        totals = [
            number_of(sum([row.amount for row in side]), amount_scale) if side else None
            for side in (self.bids, self.asks)
        ]
        members = 0
        for side in (self.bids, self.asks):
            for row in side:
                members |= row.bits
        return {
            "best_bid": None if bid is None else number_of(bid, price_scale),
            "best_ask": None if ask is None else number_of(ask, price_scale),
            "spread": spread,
            "spread_percent": percent,
            "mid_price": mid,
            "total_bid_volume": totals[0],
            "total_ask_volume": totals[1],
            "participating_exchanges": members.bit_count(),
            "crossed": bid is not None and ask is not None and bid >= ask,
        }

    def _make_levels(self, rows: Iterable[PackedRow]) -> None:
        """Make the levels of rows that have none."""
        price_scale, amount_scale, gross_scale = self.scales
        names_of = self.book.names_of
        for row in rows:
            if row.text:  # the checksum needed it; it is read faster than integers
                price, _, amount = row.text.partition(":")
                numbers = Decimal(price), Decimal(amount)
            else:
                numbers = number_of(abs(row.key), price_scale), number_of(row.amount, amount_scale)
            parts = (
                tuple([number_of(part, amount_scale) for part in row.parts]) if row.parts else ()
            )
            level = _level((*numbers, names_of(row.bits), parts))
            if row.gross:
                level = NetLevel(*level)
                level.gross = tuple([number_of(each, gross_scale) for each in row.gross])
            row.level = level


class PackedBook:
    """The book of one subscription with binary updates, given its table of exchanges."""

    def __init__(self, table: Sequence[str] = ()) -> None:
        self._table = tuple(table)
        self._names: dict[int, tuple[str, ...]] = {}  # by bits
        self._prices: dict[int, str] = {}  # texts by keys, at the present scale
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
            self._rescale(Scales(update.price_scale, update.amount_scale, update.gross_scale))
            self._bids.clear()
            self._asks.clear()
        if not 0 <= self.time_us <= TIME_US_MAX:
            raise broken("has an impossible time")
        self._read(self._bids, update.bids, update.bid_parts, update.bid_gross)
        self._read(self._asks, update.asks, update.ask_parts, update.ask_gross)
        return not update.HasField("checksum") or update.checksum == self.checksum()

    def state(self) -> PackedState:
        """The present book."""
        return PackedState(self, self._bids.rows[:], self._asks.rows[:], self._scales, self.time_us)

    def checksum(self) -> int:
        """The checksum of `BookView.checksum`."""
        best = self._bids.rows[:CHECKSUM_LEVELS] + self._asks.rows[:CHECKSUM_LEVELS]
        return zlib.crc32(":".join([row.text or self._text(row) for row in best]).encode())

    def names(self, positions: Sequence[int]) -> list[str]:
        """Return the exchanges at these positions of the table.

        Raises:
            Unavailable: There is no such position.
        """
        try:
            return [self._table[at] for at in positions]
        except IndexError:
            raise broken("names an exchange that is not in its table") from None

    def names_of(self, bits: int) -> tuple[str, ...]:
        """Return the exchanges of a level."""
        names = self._names.get(bits)
        if names is None:
            names = tuple([name for at, name in enumerate(self._table) if bits >> at & 1])
            if len(self._names) < NAMES_KEPT_MAX:
                self._names[bits] = names
        return names

    def extras(self, update: Any) -> dict[str, Any]:
        """Read what was requested besides levels, by the names of `BookView`.

        Raises:
            Unavailable: The update is invalid.
        """
        found: dict[str, Any] = {"ages": {}, "coverage": {}, "fills": {}, "times": None}
        found |= {"crossings": (), "conversions": ()}
        try:
            if update.ages_ms:
                ages = zip(self._table, update.ages_ms, strict=True)
                found["ages"] = {name: age for name, age in ages if age >= 0}
            if update.coverage:
                found["coverage"] = self._coverage(update)
            if update.buys or update.sells:
                found["fills"] = {
                    BUY: [self._fill(BUY, each) for each in update.buys],
                    SELL: [self._fill(SELL, each) for each in update.sells],
                }
            if update.crossings:
                found["crossings"] = tuple(map(self._crossing, update.crossings))
            if update.HasField("times"):
                found["times"] = self._times(update.times)
            if update.conversions:
                found["conversions"] = tuple(map(self._conversion, update.conversions))
        except ValueError:
            raise broken("has lists of different lengths, or an invalid number") from None
        return found

    def _rescale(self, scales: Scales) -> None:
        if max(scales) > SCALE_MAX:
            raise broken(f"has numbers of {max(scales)} decimals")
        if scales != self._scales:
            self._scales = scales
            self._prices.clear()

    def _read(
        self,
        side: PackedSide,
        numbers: Sequence[int],
        parts: Sequence[int],
        gross: Sequence[int],
    ) -> None:
        """Apply the levels of a side, of two or three numbers each."""
        if not numbers:
            return
        keys, rows, known = side.keys, side.rows, 1 << len(self._table)
        split = bool(parts or gross)
        own: Sequence[int] = ()
        before: Sequence[int] = ()
        stops = at = place = 0
        key = -2 * numbers[0] if side.sign < 0 else 0  # so that its first step leads to the price
        rest = iter(numbers[:])  # a list, which iterates faster
        try:
            for step in rest:
                key += step
                place = bisect_left(keys, key, place)
                found = place < len(keys) and keys[place] == key
                amount = next(rest)
                if not amount:
                    if found:
                        del keys[place], rows[place]
                    continue
                bits = next(rest)
                if bits >= known:
                    raise broken("names an exchange that is not in its table")
                if split:
                    stops = at + bits.bit_count()
                    own, before = parts[at:stops], gross[at:stops]
                    at = stops
                row = PackedRow(key, amount, bits, own, before)
                if found:
                    rows[place] = row
                else:
                    keys.insert(place, key)
                    rows.insert(place, row)
        except StopIteration:
            raise broken("has a level that is cut off") from None
        if side.sign < 0 < key:
            raise broken("has a negative price")
        if any(len(each) not in (0, at) for each in (parts, gross)):
            raise broken("has more or fewer amounts than exchanges")

    def _text(self, row: PackedRow) -> str:
        price = self._prices.get(row.key)
        if price is None:
            price = text_of(abs(row.key), self._scales.price)
            if len(self._prices) < TEXTS_KEPT_MAX:
                self._prices[row.key] = price
        row.text = f"{price}:{text_of(row.amount, self._scales.amount)}"
        return row.text

    # What may be requested

    def _coverage(self, update: Any) -> dict[str, dict[str, Decimal | None]]:
        stale = set(update.stale)
        shown = [name for at, name in enumerate(self._table) if at not in stale]
        ends = _decimals(update.coverage)
        return {
            name: {"bids": bid, "asks": ask}
            for name, bid, ask in zip(shown, ends[::2], ends[1::2], strict=True)
        }

    def _fill(self, direction: Direction, fill: Any) -> Fill | Route:
        numbers = _decimals(fill.figures)
        route = len(numbers) == ROUTE_FIGURES
        if not route and len(numbers) != FILL_FIGURES:
            raise ValueError
        average, worst, *after = numbers[3:]
        size, amount, notional = _required(numbers[:3])
        names, parts = self.names(fill.exchanges), _required(_decimals(fill.parts))
        kind: Callable[..., Any] = RoutePart if route else FillPart
        each = [iter(parts)] * (4 if route else 2)
        shared: dict[str, Any] = {
            "direction": direction,
            "by": NOTIONAL if fill.by_notional else AMOUNT,
            "size": size,
            "amount": amount,
            "notional": notional,
            "average": average,
            "worst": worst,
            "complete": fill.complete,
            "uncovered": tuple(self.names(fill.uncovered)),
            "split": dict(zip(names, [kind(*row) for row in zip(*each, strict=True)], strict=True)),
        }
        if not route:
            return Fill(levels=fill.levels, **shared)
        net_average = after.pop(2)
        fees, net, extra, unplaced = _required(after)
        return Route(
            fees=fees,
            net=net,
            extra=extra,
            unplaced=unplaced,
            net_average=net_average,
            exact=fill.exact,
            unknown_rules=tuple(self.names(fill.unknown_rules)),
            oldest_ms=fill.oldest_ms if fill.HasField("oldest_ms") else None,
            **shared,
        )

    def _crossing(self, crossing: Any) -> CrossingReport:
        if not 0 <= crossing.phase < len(PHASES):
            raise ValueError
        buy, sell = self.names((crossing.buy, crossing.sell))
        head = PHASES[crossing.phase], buy, sell, crossing.lasted_ms
        if not crossing.phase:
            return CrossingReport(*head, None, None, None)
        numbers = _required(_decimals(crossing.figures))
        if len(numbers) != len(Crossing._fields) - 2:
            raise ValueError
        found = Crossing(buy, sell, *numbers)
        text = crossing.transferable
        moved = transferable_of(exact(text)) if text else None
        return CrossingReport(*head, found, crossing.buy_age_ms, crossing.sell_age_ms, moved)

    def _times(self, times: Any) -> BookTimes:
        merged_us = times.merged_us

        def layer(found: Any) -> LayerTimes:
            sent = merged_us - found.exchange_us if found.HasField("exchange_us") else None
            return LayerTimes(sent, merged_us - found.received_us)

        names = self.names([each.exchange for each in times.exchanges])
        exchanges = {
            name: ExchangeTimes(
                layer(each.top),
                layer(each.depth),
                each.offset_us if each.HasField("offset_us") else None,
                each.error_us if each.HasField("error_us") else None,
            )
            for name, each in zip(names, times.exchanges, strict=True)
        }
        return BookTimes(merged_us, times.sent_us, exchanges)

    def _conversion(self, conversion: Any) -> ConversionReport:
        bid, ask = (tuple(_required(_decimals(side))) for side in (conversion.bid, conversion.ask))
        if not {len(bid), len(ask)} <= {0, 2}:
            raise ValueError
        return ConversionReport(
            conversion.symbol,
            tuple(self.names(conversion.members)),
            tuple(conversion.exchanges),
            tuple(conversion.stale_exchanges),
            bid or None,  # type: ignore[arg-type]
            ask or None,  # type: ignore[arg-type]
            conversion.age_ms if conversion.HasField("age_ms") else None,
            conversion.reason or None,
        )


def _decimals(numbers: Iterable[int]) -> list[Decimal | None]:
    from onebook.updates import decimals

    return list(decimals(numbers))


def _required(numbers: Iterable[Decimal | None]) -> list[Decimal]:
    """Numbers that exist.

    Raises:
        ValueError: One does not.
    """
    found = list(numbers)
    if None in found:
        raise ValueError
    return found  # type: ignore[return-value]


def number_of(mantissa: int, scale: int) -> Decimal:
    """Return an integer at a scale as a decimal without trailing zeros."""
    while scale and not mantissa % 10:
        if not mantissa:
            return _ZERO
        mantissa //= 10
        scale -= 1
    return Decimal(mantissa).scaleb(-scale, EXACT) if scale else Decimal(mantissa)


def text_of(mantissa: int, scale: int) -> str:
    """Return a positive integer at a scale as decimal text without trailing zeros."""
    if not scale:
        return str(mantissa)
    digits = str(mantissa).zfill(scale + 1)
    fraction = digits[-scale:].rstrip("0")
    return f"{digits[:-scale]}.{fraction}" if fraction else digits[:-scale]


def _percent(spread: int, twice_mid: int) -> int:
    """Return the spread in percent of the mid, rounded half up away from zero."""
    scaled = abs(spread) * 2 * 100 * 10**PERCENT_DECIMALS
    rounded: int = (2 * scaled + twice_mid) // (2 * twice_mid) if twice_mid else 0
    return -rounded if spread < 0 else rounded


_ZERO = Decimal(0)
_level = partial(tuple.__new__, BookLevel)  # half the time of BookLevel()
