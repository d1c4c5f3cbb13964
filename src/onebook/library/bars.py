"""Bars of a history: prices, depth and costs of the merged book at equal intervals, as Arrow."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from onebook.core import DEPTH_MAX, View
from onebook.core.types import Levels
from onebook.fill import size_of
from onebook.library.engine import names_of
from onebook.library.history import microseconds_of
from onebook.library.past import opened
from onebook.library.player import Pace
from onebook.library.update import BookSide, Naming
from onebook.orderbook import EXACT, Names
from onebook.streams.members import StreamMembers

if TYPE_CHECKING:
    import pyarrow as pa

    from onebook.archive.player import HistoryPlayer

UNITS_US: Final = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
EVERY_US_MAX: Final = 86_400_000_000
FIGURES_MAX: Final = 8  # distances, and sizes
BASIS_POINTS: Final = 10_000
ROWS: Final = 10_000  # that are kept as Python objects
DIGITS_MAX: Final = 38  # of Arrow's decimal128

NAMING: Final = Naming(())  # because the exchanges of a level are not read

Row = dict[str, object]
Scaled = tuple[int, int]  # a number x 10^scale, and the scale


def bars(
    folder: str | PathLike[str],
    symbol: str,
    *,
    every: str = "1s",
    start: datetime | str | int | None = None,
    end: datetime | str | int | None = None,
    exchanges: Names = None,
    within: Iterable[str] = ("10",),
    amounts: Iterable[str] = (),
) -> "pa.Table":
    """Return the merged book of a pair at the end of each interval, as a `pyarrow.Table`.

    A row has `time`, `recorded`, the number of live `exchanges`, `bid`, `ask`, `bid_amount`,
    `ask_amount`, `mid`, `spread` and `imbalance`; for each distance `bid_depth_10` and
    `ask_depth_10`, for each amount `buy_cost_0.5` and `sell_value_0.5`. Numbers are exact decimals,
    but for `imbalance`. docs/guides/history.md explains them.

    Args:
        folder: The folder or URL of the history, as in `history`.
        symbol: The pair.
        every: The interval, such as "100ms", "1s", "5m" or "1h": rows are at its multiples.
        start: The time after which rows begin, as in `replay`; by default that of the history.
        end: The time of the last row at most; by default the end of the history.
        exchanges: The exchanges to merge; all recorded ones by default.
        within: Distances from the mid in basis points, as decimal text.
        amounts: Sizes in the base currency, as decimal text.

    Raises:
        HistoryMissing: The start, or the pair, was not recorded.
        OSError: The folder or the store cannot be read.
        MissingPackage: `pip install "onebook[history]"` is required.
        ValueError: An argument is out of range.
    """
    figures = Figures(_texts("within", within), _texts("amounts", amounts))
    start_us = None if start is None else microseconds_of(start)
    pace = Pace(start_us, None if end is None else microseconds_of(end), 0)
    every_us = _microseconds(every)
    names = None if exchanges is None else names_of(exchanges)
    player = opened(folder, [symbol], (), pace, names)
    names = names or tuple(exchange for exchange, _ in player.instruments)
    members = StreamMembers(names, [player.instruments.get((each, symbol)) for each in names])
    return _table(_rows(player, members, figures, every_us), figures)


class Figures:
    """The columns that are computed from levels.

    Args:
        within: Distances from the mid in basis points.
        amounts: Sizes in the base currency.

    Raises:
        ValueError: A distance or size is invalid.
    """

    def __init__(self, within: Sequence[str], amounts: Sequence[str]) -> None:
        for each in within:
            View([], depth=1, within=each)  # checks it
        self._within = [(each, *_scaled(Decimal(each))) for each in within]
        self._amounts = [(each, *_scaled(size_of("amount", each))) for each in amounts]
        self.depth = DEPTH_MAX if within or amounts else 1
        self.prices = ["bid", "ask", "mid", "spread"]
        self.amounts = ["bid_amount", "ask_amount"]
        self.amounts += [f"{side}_depth_{each}" for each in within for side in ("bid", "ask")]
        self.values = [f"{side}_{each}" for each in amounts for side in ("buy_cost", "sell_value")]

    def of(self, levels: Levels) -> Row:
        """Return the columns of a merged book; those without a value are absent."""
        prices, amounts = levels.price_scale, levels.amount_scale
        sides = [
            BookSide(rows, b"", prices, amounts, NAMING).ints()
            for rows in (levels.bids, levels.asks)
        ]
        row: Row = {}
        for side, name in zip(sides, ("bid", "ask"), strict=True):
            if side:
                row[name] = side[0][0], prices
                row[f"{name}_amount"] = side[0][1], amounts
        for size, number, scale in self._amounts:
            for side, name in zip(reversed(sides), ("buy_cost", "sell_value"), strict=True):
                value = _value(side, number, scale, amounts)
                if value is not None:
                    row[f"{name}_{size}"] = value, prices + max(scale, amounts)
        if not all(sides):
            return row
        bid, ask = (side[0] for side in sides)
        row["mid"] = (bid[0] + ask[0]) * 5, prices + 1
        row["spread"] = ask[0] - bid[0], prices
        row["imbalance"] = (bid[1] - ask[1]) / (bid[1] + ask[1])
        for distance, number, scale in self._within:
            twice_mid, share = bid[0] + ask[0], BASIS_POINTS * 10**scale
            reach = twice_mid * number
            for side, name in zip(sides, ("bid", "ask"), strict=True):
                near = [
                    level[1] for level in side if abs(2 * level[0] - twice_mid) * share <= reach
                ]
                if len(near) < DEPTH_MAX:  # else the view may end before the distance
                    row[f"{name}_depth_{distance}"] = sum(near), amounts
        return row


def _value(
    side: Sequence[tuple[int, int]], number: int, scale: int, amount_scale: int
) -> int | None:
    """Return price x amount of a size at the best levels; None if they have less."""
    left: int = number * 10 ** max(0, amount_scale - scale)
    unit: int = 10 ** max(0, scale - amount_scale)
    value = 0
    for price, amount in side:
        taken = min(left, amount * unit)
        value += price * taken
        left -= taken
        if not left:
            return value
    return None


def _rows(
    player: "HistoryPlayer",
    members: StreamMembers,
    figures: Figures,
    every_us: int,
) -> Iterator[Row]:
    """Play the history, and yield a row at each multiple of the interval."""
    view = View(members.names, depth=figures.depth)
    members.refresh(player.books)
    player.books.subscribe(on_health=lambda *_: members.refresh(player.books))
    at_us = player.start_us // every_us * every_us + every_us

    def missing() -> Iterator[Row]:
        nonlocal at_us
        while at_us < player.at_us:
            yield {"time": at_us, "recorded": False, "exchanges": 0}
            at_us += every_us

    while player.load():
        if player.gap:
            player.play(player.at_us)
            continue
        yield from missing()
        while at_us <= player.until_us:
            player.play(at_us)
            view.merge(members.cores)
            found = figures.of(view.levels())
            yield {"time": at_us, "recorded": True, "exchanges": len(members.books)} | found
            at_us += every_us
        player.play(player.until_us)
    yield from missing()


def _table(rows: Iterable[Row], figures: Figures) -> "pa.Table":
    import pyarrow as pa

    fixed = {
        "time": pa.timestamp("us", "UTC"),
        "recorded": pa.bool_(),
        "exchanges": pa.int16(),
        "imbalance": pa.float64(),
    }
    decimals = [*figures.prices, *figures.amounts, *figures.values]
    names = ["time", "recorded", "exchanges", *figures.prices, "imbalance", *decimals[4:]]
    scales = dict.fromkeys(decimals, 0)
    parts: list[pa.Table] = []
    kept: list[Row] = []

    def fold() -> None:
        """Make the kept rows a table with the decimals known so far."""
        for row in kept:
            for name in decimals:
                value = row.get(name)
                if value is not None:
                    scales[name] = max(scales[name], value[1])  # type: ignore[index]
        columns = [
            pa.array([row.get(name) for row in kept], fixed[name])
            if name in fixed
            else pa.array([_decimal(row.get(name)) for row in kept],
                          pa.decimal128(DIGITS_MAX, scales[name]))
            for name in names
        ]  # fmt: skip
        parts.append(pa.table(columns, names=names))
        kept.clear()

    for row in rows:
        kept.append(row)
        if len(kept) == ROWS:
            fold()
    fold()
    schema = pa.schema(
        {name: fixed.get(name) or pa.decimal128(DIGITS_MAX, scales[name]) for name in names}
    )
    return pa.concat_tables([each.cast(schema) for each in parts])


def _decimal(value: Any) -> Decimal | None:
    return None if value is None else EXACT.scaleb(Decimal(value[0]), -value[1])


def _scaled(number: Decimal) -> Scaled:
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    mantissa = int("".join(map(str, digits)))
    return (mantissa * 10**exponent, 0) if exponent > 0 else (mantissa, -exponent)


def _texts(name: str, texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError(f'{name} must be a list such as ["10", "25"], not {texts!r}.')
    found = list(dict.fromkeys(texts))
    if len(found) > FIGURES_MAX or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{name} must be at most {FIGURES_MAX} decimal texts.")
    return found


def _microseconds(every: str) -> int:
    found = re.fullmatch(r"(\d{1,9})(ms|s|m|h)", every)
    every_us = int(found[1]) * UNITS_US[found[2]] if found else 0
    if not 0 < every_us <= EVERY_US_MAX:
        raise ValueError(f'every must be like "100ms", "1s", "5m" or "1h", not {every!r}.')
    return every_us
