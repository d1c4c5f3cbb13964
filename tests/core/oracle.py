"""A simple model of books and views: dicts of Decimal, recomputed each time."""

from binascii import crc32
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    Context,
    Decimal,
    localcontext,
)
from fractions import Fraction
from typing import Any

Side = dict[Decimal, Decimal]
EXACT = Context(prec=200)


def text_of(number: Decimal) -> str:
    """Format a decimal without exponent and trailing zeros."""
    text = format(number, "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def cut(amount: str, decimals: int | None) -> str:
    """Truncate an amount, but not to zero, as `LevelShape.amount_decimals` says."""
    if decimals is None:
        return amount
    unit = Decimal(1).scaleb(-decimals)
    kept = Decimal(amount).quantize(unit, ROUND_DOWN, EXACT)
    return str(unit if Decimal(amount) and not kept else kept)


def moved(number: str, scale: int) -> str:
    """Shift the decimal point to the left, as the scales of a `LevelShape` say."""
    return text_of(Decimal(number).scaleb(-scale, EXACT))


class OracleBook:
    """A book as two dicts."""

    def __init__(self, levels_max: int) -> None:
        self.levels_max = levels_max
        self.sides: tuple[Side, Side] = {}, {}

    def replace(self, bids: list[tuple[str, str]], asks: list[tuple[str, str]]) -> None:
        for side, rows in zip(self.sides, (bids, asks), strict=True):
            side.clear()
            side |= {Decimal(price): Decimal(amount) for price, amount in rows if Decimal(amount)}
        self._cut()

    def apply(self, bids: list[tuple[str, str]], asks: list[tuple[str, str]]) -> None:
        for side, rows in zip(self.sides, (bids, asks), strict=True):
            for price, amount in rows:
                side.pop(Decimal(price), None)
                if Decimal(amount):
                    side[Decimal(price)] = Decimal(amount)
        self._cut()

    def top(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        bids, asks = (
            [(text_of(price), text_of(side[price])) for price in sorted(side, reverse=not at)]
            for at, side in enumerate(self.sides)
        )
        return bids, asks

    def _cut(self) -> None:
        for at, side in enumerate(self.sides):
            for price in sorted(side, reverse=not at)[self.levels_max :]:
                del side[price]


def view_of(
    names: list[str],
    books: list[OracleBook | None],
    *,
    depth: int,
    group: str | None,
    within: str | None = None,
) -> dict[str, Any]:
    """Return bids, asks (price, amount, parts by name) and market_stats of a whole view."""
    with localcontext(EXACT):
        sides = [_side(names, books, side, depth, group) for side in (0, 1)]
        if within is not None:
            sides = _near(sides, Fraction(within) / 10_000)
        return {"bids": sides[0], "asks": sides[1], "market_stats": _stats(*sides)}


def _near(sides: list[Any], share: Fraction) -> list[Any]:
    """Return the levels that are at most this share of the mid on the far side of it."""
    best = [Fraction(side[0][0]) for side in sides if side]
    if not best:
        return sides
    mid = sum(best) / len(best)
    bids, asks = sides
    return [
        [level for level in bids if mid - Fraction(level[0]) <= mid * share],
        [level for level in asks if Fraction(level[0]) - mid <= mid * share],
    ]


def checksum_of(view: dict[str, Any]) -> int:
    """Return the checksum over 25 levels a side."""
    levels = view["bids"][:25] + view["asks"][:25]
    return crc32(":".join(f"{text_of(p)}:{text_of(a)}" for p, a, _ in levels).encode())


def shown(view: dict[str, Any], *, split: bool, arrays: bool) -> dict[str, Any]:
    """Return the document that a client sees."""
    return {
        side: [_level(*level, split=split, arrays=arrays) for level in view[side]]
        for side in ("bids", "asks")
    } | {"market_stats": view["market_stats"]}


def _level(
    price: Decimal, amount: Decimal, parts: dict[str, Decimal], *, split: bool, arrays: bool
) -> Any:
    if arrays:
        return [price, amount, [[*part] for part in parts.items()]] if split else [price, amount]
    with localcontext(EXACT):
        level = {
            "price": price,
            "amount": amount,
            "exchanges": [*parts],
            "exchange_count": len(parts),
            "value": (price * amount).quantize(Decimal("1e-10"), ROUND_DOWN),
        }
    return level | ({"amounts": [*parts.values()]} if split else {})


def _side(
    names: list[str], books: list[OracleBook | None], side: int, depth: int, group: str | None
) -> list[tuple[Decimal, Decimal, dict[str, Decimal]]]:
    levels: dict[Decimal, dict[str, Decimal]] = {}
    for name, book in zip(names, books, strict=True):
        for price, amount in book.sides[side].items() if book else ():
            if group is not None:
                rounding = ROUND_CEILING if side else ROUND_FLOOR
                step = Decimal(group)
                price = (price / step).to_integral_value(rounding) * step
            parts = levels.setdefault(price, {})
            parts[name] = parts.get(name, Decimal()) + amount
    levels.pop(Decimal(), None)  # bids below one step
    best = sorted(levels, reverse=not side)[:depth]
    return [(price, sum(levels[price].values(), Decimal()), levels[price]) for price in best]


def _stats(bids: list[Any], asks: list[Any]) -> dict[str, Any]:
    bid, ask = (side[0][0] if side else None for side in (bids, asks))
    spread = percent = mid = None
    if bid is not None and ask is not None:
        spread, mid = ask - bid, (ask + bid) / 2
        percent = (spread * 100 / mid).quantize(Decimal("0.0001"), ROUND_HALF_UP)
    return {
        "best_bid": bid,
        "best_ask": ask,
        "spread": spread,
        "spread_percent": percent,
        "mid_price": mid,
        "total_bid_volume": sum(amount for _, amount, _ in bids) if bids else None,
        "total_ask_volume": sum(amount for _, amount, _ in asks) if asks else None,
        "participating_exchanges": len({name for _, _, parts in bids + asks for name in parts}),
        "crossed": bid is not None and ask is not None and bid >= ask,
    }
