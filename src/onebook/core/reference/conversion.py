"""Converts books into another quote currency through a live book, in pure Python.

A buyer of BTC for USDC who pays in USDT first buys the USDC: each unit of BTC costs its price in
USDC, times the price of the USDC/USDT level that this unit reaches. Books that share a conversion
book use it up together, the cheapest first, so that no conversion level is counted twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from struct import iter_unpack
from typing import NamedTuple

from onebook.core.reference.book import Book
from onebook.core.reference.text import MANTISSA_END
from onebook.core.reference.view import BookLike, View, view_fees
from onebook.core.types import (
    CONVERTED_DECIMALS_MAX,
    CONVERTED_DIGITS,
    DEPTH_MAX,
    LEVEL_FORM,
    LEVELS_MAX,
    SCALE_MAX,
    LevelRow,
    Levels,
)

Level = tuple[int, int]


class Rates(NamedTuple):
    """One side of a conversion book, best first: (net price, amount, members) as integers.

    `inverse` if the book's base currency is the one converted into.
    """

    rows: Sequence[LevelRow]
    price_scale: int
    amount_scale: int
    inverse: bool


class ConvertedSide(NamedTuple):
    """Converted levels, best first, and whether worse levels exist that are not among them.

    `bound` is the outermost price within which no level is missing; None: the worst level.
    """

    levels: list[Level]
    is_cut: bool
    bound: int | None


class Conversion:
    """Converts the books of some members into another quote currency.

    Args:
        names: The members.
        through: The exchanges of the conversion book.
        inverse: Whether its base currency is the one converted into: USDT/USD for USD to USDT.
        fees: Taker fee of each member in percent: what a buyer pays for the conversion, too.
        through_fees: Taker fee of each exchange of the conversion book.
        net: Whether readers order converted levels by price after the members' fees.
    """

    def __init__(
        self,
        names: Sequence[str],
        through: Sequence[str],
        *,
        inverse: bool = False,
        fees: Sequence[str] | None = None,
        through_fees: Sequence[str] | None = None,
        net: bool = False,
    ) -> None:
        self._fees = view_fees(fees, names)
        sides = zip(*self._fees.factors, strict=True)
        self._ranked = [net or len({*each}) == 1 for each in sides]
        self._rates = View(through, depth=DEPTH_MAX, fees=through_fees)
        self._inverse = inverse
        self._books = [Book() for _ in names]

    def top(self) -> bytes:
        """Return the best bid and ask of the conversion book, after fees, as JSON members."""
        return self._rates.top()

    def convert(
        self,
        books: Sequence[BookLike | None],
        through: Sequence[BookLike | None],
        *,
        depth: int = LEVELS_MAX,
    ) -> list[Book | None]:
        """Convert these books, None for one that is not live, through the live books of `through`.

        Returns one book for each, the same object every time, which has every level that may be
        among the best `depth` of a merged view. Prices are rounded to `CONVERTED_DIGITS` digits of
        the best price and at most `CONVERTED_DECIMALS_MAX` decimals, bids down and asks up. Amounts
        keep the decimals of their book: a unit that two levels of the conversion book would share
        is charged at the worse one. A side that ends before its book does has a horizon.
        """
        if len(books) != len(self._books):
            raise ValueError(f"The conversion has {len(self._books)} books, not {len(books)}.")
        self._rates.merge(through)
        live = [each for each in books if each is not None]
        factors = [
            pair for pair, each in zip(self._fees.factors, books, strict=True) if each is not None
        ]
        scale = self._fees.scale
        sides = [rates_of(self._rates.levels(), side, self._inverse) for side in (0, 1)]
        decimals = converted_decimals(live, sides)
        bids, asks = (
            converted_side(
                live,
                [pair[side] for pair in factors],
                scale,
                sides[side],
                side,
                decimals,
                depth,
                self._ranked[side],
            )
            for side in (0, 1)
        )
        converted = iter(zip(bids, asks, strict=True))
        return [
            None if each is None else _filled(target, each, decimals, next(converted))
            for target, each in zip(self._books, books, strict=True)
        ]


def _filled(
    target: Book, source: BookLike, decimals: int, sides: tuple[ConvertedSide, ConvertedSide]
) -> Book:
    ends = [
        side.bound
        if side.bound is not None
        else side.levels[-1][0]
        if side.levels and (side.is_cut or end is not None)
        else None
        for side, end in zip(sides, source.horizon(), strict=True)
    ]
    target.fill(decimals, source.amount_scale, (sides[0].levels, sides[1].levels), ends)
    return target


def rates_of(levels: Levels, side: int, inverse: bool) -> Rates:
    """Return the side of a conversion book that a side of the converted books takes."""
    is_asks = side != inverse
    rows = levels.asks if is_asks else levels.bids
    if isinstance(rows, bytes):
        rows = [*iter_unpack(LEVEL_FORM, rows)]
    return Rates(rows, levels.price_scale, levels.amount_scale, inverse)


def converted_decimals(books: Iterable[BookLike], sides: Sequence[Rates]) -> int:
    """Return the decimals of converted prices, given the books and the rates of both sides."""
    whole = 0
    for book in books:
        for side, rates in enumerate(sides):
            best = book.bins(side, 0, 1)
            if best and rates.rows:
                price = _price(best[0][0], SCALE_MAX, rates.rows[0][0], rates, 0, 0)
                whole = max(whole, price)
    digits = len(str(whole)) if whole else 0
    return min(CONVERTED_DECIMALS_MAX, max(0, CONVERTED_DIGITS - digits))


def converted_side(
    books: Sequence[BookLike],
    factors: Sequence[int],
    fee_scale: int,
    rates: Rates,
    side: int,
    decimals: int,
    depth: int,
    ranked: bool,
) -> list[ConvertedSide]:
    """Convert one side of books that share a conversion book.

    Args:
        books: The live books.
        factors: The fee of each as a factor on its prices, at `fee_scale`.
        fee_scale: Decimals that fees add.
        rates: The side of the conversion book, after its fees.
        side: 0 for bids, 1 for asks.
        decimals: Those of converted prices.
        depth: Net prices that are converted, or levels of each book.
        ranked: Whether readers order levels by net price; if not, each book gets `depth` levels.
    """
    sign = 1 if side else -1

    def orders(index: int, book: BookLike) -> Iterator[tuple[int, int, int, int]]:
        for price, amount in book.bins(side, 0, LEVELS_MAX):
            yield sign * price * factors[index], index, price, amount

    # Costs and capacities are integers at the same scale.
    scale = max((book.amount_scale for book in books), default=0)
    costs = 10 ** (rates.amount_scale + (rates.price_scale if rates.inverse else 0))
    capacities = 10 ** (SCALE_MAX + fee_scale + scale)
    found: list[list[Level]] = [[] for _ in books]
    hidden = [False] * len(books)
    left = [book.bins(side, 0, LEVELS_MAX) for book in books]
    taken_of = [0] * len(books)  # the number of levels that are converted whole
    at, capacity = -1, 0
    worst, shown_count = 0, 0
    bounds: dict[int, int] = {}  # of books that need no further level
    needing = {index for index, own in enumerate(left) if own}
    is_ended = False
    for net, index, price, amount in merge(*map(orders, range(len(books)), books)):
        unit = abs(net) * 10 ** (scale - books[index].amount_scale) * costs
        levels = found[index]
        while amount and not is_ended:
            taken = min(amount, capacity // unit)
            if not taken:
                at += 1
                if at >= len(rates.rows):
                    is_ended = True
                else:
                    capacity = _capacity(rates, at) * capacities
                continue
            shown = _price(price, SCALE_MAX, rates.rows[at][0], rates, side, decimals)
            if index in bounds:
                pass  # its units still use up the conversion book
            elif not 0 < shown < MANTISSA_END:
                hidden[index] = True
            elif levels and levels[-1][0] == shown:
                levels[-1] = shown, min(levels[-1][1] + taken, MANTISSA_END - 1)
            else:
                shown_net = sign * shown * factors[index]
                # Rounding differs by less than a unit: no later order has a better net price.
                if ranked and shown_count >= depth and shown_net - factors[index] >= worst:
                    is_ended = True
                    continue
                if not ranked and len(levels) == depth:
                    bounds[index] = _known_to(shown, levels, sign)
                    needing.discard(index)
                    is_ended = not needing
                    continue
                levels.append((shown, taken))
                if not shown_count or shown_net > worst:
                    worst, shown_count = shown_net, shown_count + 1
            amount -= taken
            capacity -= taken * unit
        if is_ended:
            break
        taken_of[index] += 1
        if taken_of[index] == len(left[index]):
            needing.discard(index)
            if not needing:
                break
    sides = []
    for index, (levels, own, count) in enumerate(zip(found, left, taken_of, strict=True)):
        is_cut = hidden[index] or index in bounds or count < len(own)
        bound = bounds.get(index)
        if bound is None and count < len(own) and at < len(rates.rows):
            shown = _price(own[count][0], SCALE_MAX, rates.rows[at][0], rates, side, decimals)
            bound = _known_to(shown, levels, sign) if shown < MANTISSA_END else None
        sides.append(ConvertedSide(levels, is_cut, bound))
    return sides


def _known_to(following: int, levels: list[Level], sign: int) -> int:
    """Return how far levels are known: to one unit before the following one."""
    known = following - sign
    return sign * max(sign * known, sign * levels[-1][0]) if levels else known


def _capacity(rates: Rates, at: int) -> int:
    """Return how much of the other quote currency a level converts."""
    price, amount, _ = rates.rows[at]
    return price * amount if rates.inverse else amount


def _price(price: int, scale: int, rate: int, rates: Rates, side: int, decimals: int) -> int:
    """Convert a price, rounded away from the touch."""
    above: int
    below: int
    if rates.inverse:
        above, below = price * 10 ** (decimals + rates.price_scale), rate * 10**scale
    else:
        above, below = price * rate * 10**decimals, 10 ** (scale + rates.price_scale)
    return -(-above // below) if side else above // below
