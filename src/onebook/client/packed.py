"""The book of a view with binary updates (`onebook.proto`), with exact numbers. No I/O.

`onebook.core` keeps its levels; what else can be requested is read here.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from onebook.client.failures import PROTOCOL_ERROR, Unavailable
from onebook.client.shapes import exact, transferable_of
from onebook.crossings import Crossing, CrossingReport
from onebook.fill import AMOUNT, BUY, NOTIONAL, SELL, Direction, Fill, FillPart
from onebook.orderbook import (
    EXACT,
    BookTimes,
    ConversionReport,
    ExchangeTimes,
    LayerTimes,
)
from onebook.routes import Route, RoutePart

if TYPE_CHECKING:
    from onebook.core import PackedLevels

PERCENT_DECIMALS = 4  # of the spread
TIME_US_MAX = 253_402_300_799_999_999  # the end of the year 9999
FILL_FIGURES, ROUTE_FIGURES = 5, 10
PHASES = ("ended", "began", "changed", "lasts")


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


class PackedState(NamedTuple):
    """A book at one moment, which later updates do not change."""

    levels: "PackedLevels"
    time_us: int  # since 1970

    def stats(self) -> dict[str, Any]:
        """Compute `market_stats`, as the service does."""
        price_scale, amount_scale = self.levels.price_scale, self.levels.amount_scale
        bid, ask, bid_amount, ask_amount, members = self.levels.summary()
        spread = percent = mid = None
        if bid is not None and ask is not None:
            spread = number_of(ask - bid, price_scale)
            percent = number_of(_percent(ask - bid, bid + ask), PERCENT_DECIMALS)
            mid = number_of((bid + ask) * 5, price_scale + 1)
        return {
            "best_bid": None if bid is None else number_of(bid, price_scale),
            "best_ask": None if ask is None else number_of(ask, price_scale),
            "spread": spread,
            "spread_percent": percent,
            "mid_price": mid,
            "total_bid_volume": None if bid is None else number_of(bid_amount, amount_scale),
            "total_ask_volume": None if ask is None else number_of(ask_amount, amount_scale),
            "participating_exchanges": members,
            "crossed": bid is not None and ask is not None and bid >= ask,
        }


class PackedBook:
    """The book of one subscription with binary updates, given its table of exchanges."""

    def __init__(self, table: Sequence[str] = ()) -> None:
        self._table = tuple(table)
        self._levels: PackedLevels | None = None
        self._time_us = 0  # of the last update, since 1970

    def apply(self, update: Any) -> PackedState:
        """Apply an update; return the book.

        Raises:
            Unavailable: The update is invalid.
        """
        from onebook.core import LevelError, PackedLevels  # when needed, as in `decode`

        changed = update.HasField("elapsed_us")
        self._time_us = self._time_us + update.elapsed_us if changed else update.time_us
        if not 0 <= self._time_us <= TIME_US_MAX:
            raise broken("has an impossible time")
        levels = self._levels if changed else None
        try:
            if levels is None:
                scales = update.price_scale, update.amount_scale, update.gross_scale
                levels = PackedLevels(self._table, *scales)
            self._levels = levels.apply(
                update.bids[:],
                update.asks[:],
                update.bid_parts[:],
                update.ask_parts[:],
                update.bid_gross[:],
                update.ask_gross[:],
            )
        except LevelError as error:
            raise broken(str(error)) from None
        return PackedState(self._levels, self._time_us)

    def names(self, positions: Sequence[int]) -> list[str]:
        """Return the exchanges at these positions of the table.

        Raises:
            Unavailable: There is no such position.
        """
        try:
            return [self._table[at] for at in positions]
        except IndexError:
            raise broken("names an exchange that is not in its table") from None

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


def _percent(spread: int, twice_mid: int) -> int:
    """Return the spread in percent of the mid, rounded half up away from zero."""
    scaled = abs(spread) * 2 * 100 * 10**PERCENT_DECIMALS
    rounded: int = (2 * scaled + twice_mid) // (2 * twice_mid) if twice_mid else 0
    return -rounded if spread < 0 else rounded


_ZERO = Decimal(0)
