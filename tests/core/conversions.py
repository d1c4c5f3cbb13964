"""Oracle of conversions: raw levels in exact fractions, and random books."""

import random
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from onebook.core.types import CONVERTED_DECIMALS_MAX, CONVERTED_DIGITS

Side = dict[str, str]
Book = tuple[Side, Side]
Level = tuple[Fraction, Fraction]


class World(NamedTuple):
    """Raw levels of some books and of their conversion book."""

    books: list[Book | None]
    fees: list[str]
    through: list[Book | None]
    through_fees: list[str]
    inverse: bool
    scales: list[int | None] = [None] * 64  # decimals of amounts; None: as many as there are


def taker(price: str, fee: str, side: int) -> Fraction:
    return Fraction(price) * (1 + (1 if side else -1) * Fraction(fee) / 100)


def rates(world: World, side: int) -> list[Level]:
    """Return (rate, how much of the other currency it converts), best first."""
    taken = side if not world.inverse else 1 - side
    found: dict[Fraction, Fraction] = {}
    for book, fee in zip(world.through, world.through_fees, strict=True):
        for price, amount in book[taken].items() if book else ():
            net = taker(price, fee, taken)
            found[net] = found.get(net, Fraction(0)) + Fraction(amount)
    levels = sorted(found.items(), reverse=taken == 0)
    if world.inverse:
        return [(1 / net, net * amount) for net, amount in levels]
    return levels


def decimals_of(world: World) -> int:
    """Return the decimals of converted prices."""
    whole = 0
    for side in (0, 1):
        ladder = rates(world, side)
        for book in world.books:
            if book and book[side] and ladder:
                best = (max if side == 0 else min)(map(Fraction, book[side]))
                whole = max(whole, floor(best * ladder[0][0]))
    digits = len(str(whole)) if whole else 0
    return min(CONVERTED_DECIMALS_MAX, max(0, CONVERTED_DIGITS - digits))


def orders(world: World, side: int) -> list[tuple[Fraction, int, Fraction, Fraction, int]]:
    """Return (net price, member, price, amount, decimals of the book's amounts), best first."""
    sign = 1 if side else -1
    found = []
    for index, (book, fee) in enumerate(zip(world.books, world.fees, strict=True)):
        if book is None:
            continue
        known = world.scales[index]
        texts = [text for levels in book for text in levels.values()]
        scale = max((len(text.partition(".")[2].rstrip("0")) for text in texts), default=0)
        for price, amount in book[side].items():
            net = taker(price, fee, side)
            shown_scale = scale if known is None else known
            found.append((net, index, Fraction(price), Fraction(amount), shown_scale))
    return sorted(found, key=lambda each: (sign * each[0], each[1]))


def expected(world: World, side: int, decimals: int) -> list[list[Level]]:
    """Convert level by level, completely, in whole units of each book's amounts."""
    ladder, at, unit = rates(world, side), 0, Fraction(1, 10**decimals)
    found: list[list[Level]] = [[] for _ in world.books]
    left = ladder[0][1] if ladder else Fraction(0)
    for net, index, price, amount, scale in orders(world, side):
        while amount:
            taken = min(amount, Fraction(floor(left / net * 10**scale), 10**scale))
            if not taken:
                at += 1
                if at >= len(ladder):
                    return found
                left = ladder[at][1]
                continue
            exact = price * ladder[at][0] / unit
            shown = (ceil(exact) if side else floor(exact)) * unit
            levels = found[index]
            if levels and levels[-1][0] == shown:
                levels[-1] = shown, levels[-1][1] + taken
            elif shown:
                levels.append((shown, taken))
            amount -= taken
            left -= taken * net
    return found


def pooled(
    levels: list[list[Level]], fees: list[str], side: int, *, net: bool
) -> list[tuple[Fraction, dict[int, Level]]]:
    """Merge converted levels by price, after fees if `net`: its price, and {member: level}."""
    found: dict[Fraction, dict[int, Level]] = {}
    for member, (own, fee) in enumerate(zip(levels, fees, strict=True)):
        for price, amount in own:
            shown = taker(str(price), fee, side) if net else price
            found.setdefault(shown, {})[member] = price, amount
    return sorted(found.items(), key=lambda each: each[0], reverse=side == 0)


def random_side(random_: random.Random, price: float, spread: float, amount: float) -> Side:
    side: Side = {}
    for _ in range(random_.randrange(0, 8)):
        decimals = random_.choice((0, 1, 2, 4))
        text = f"{price * (1 + spread * random_.random()):.{decimals}f}"
        size = f"{amount * random_.random():.{random_.choice((0, 1, 3))}f}"
        if Fraction(text) > 0 and Fraction(size) > 0:
            side[text] = size
    # One text for each price.
    return dict({Fraction(each): (each, size) for each, size in side.items()}.values())


def random_book(random_: random.Random, price: float, amount: float) -> Book | None:
    if random_.random() < 0.1:
        return None
    bids = random_side(random_, price, -0.05, amount)
    asks = random_side(random_, price * 1.001, 0.05, amount)
    best = max(map(Fraction, bids), default=Fraction(0))
    return bids, {price: size for price, size in asks.items() if Fraction(price) > best}
