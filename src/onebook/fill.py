"""The cost of buying or selling a size against merged levels: average, worst price and split.

Pure and exact: levels are integers, and every figure is exact except the average, which is a
quotient. If only part of a level is needed, the exchange with the largest amount is used first;
equal amounts are ordered by name. Fees are not included; see `onebook.routes`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from itertools import accumulate, islice
from typing import Final, Literal, NamedTuple

AVERAGE_DIGITS: Final = 18  # significant digits that an average price is rounded to, half to even
WHOLE_DIGITS_MAX: Final = 18  # of a size, before the point
DECIMALS_MAX: Final = 18  # of a size, and of the levels that it is priced against

Direction = Literal["buy", "sell"]
BUY: Final[Direction] = "buy"
SELL: Final[Direction] = "sell"
AMOUNT: Final = "amount"
NOTIONAL: Final = "notional"

SETS_KEPT: Final = 4096  # sets of members whose bits are kept as numbers

EXACT: Final = Context(prec=200, rounding=ROUND_DOWN)
AVERAGE: Final = Context(prec=AVERAGE_DIGITS, rounding=ROUND_HALF_EVEN)

Row = tuple[int, int, int]  # price, amount, and a bit for each exchange that has a part


class FillSide(NamedTuple):
    """One side of a book, best level first, in integers: price x 10^-price_scale and so on.

    `parts` are the amounts of the exchanges of each level, in the order of the exchanges' bits.
    """

    rows: Callable[[], Iterator[Row]]
    parts: Sequence[int]
    price_scale: int
    amount_scale: int


class FillPart(NamedTuple):
    """The part of a fill on one exchange."""

    amount: Decimal
    notional: Decimal


class Fill(NamedTuple):
    """A simulated market order against the known levels.

    `size` is the requested amount or, with `by` "notional", the requested amount of quote currency.
    `amount` and `notional` are the filled part: all of the size if `complete`. An amount that
    follows from a notional is cut to 18 decimals. `average` is `notional` / `amount`, rounded to 18
    digits; `worst` is the last price; both are None if a side is empty. `levels` counts the prices
    in use, at most 500. `uncovered` lists exchanges whose known levels end before the worst price,
    or before the book's end if the fill is incomplete: they may have more levels, so the real cost
    can be lower. `split` is by exchange.
    """

    direction: Direction
    by: str
    size: Decimal
    amount: Decimal
    notional: Decimal
    average: Decimal | None
    worst: Decimal | None
    levels: int
    complete: bool
    uncovered: tuple[str, ...]
    split: dict[str, FillPart]


class BookEnds(NamedTuple):
    """Horizon of one exchange's book; None if all of a side is known."""

    exchange: str
    bid: Decimal | None
    ask: Decimal | None


def size_texts(kind: str, sizes: Iterable[str]) -> tuple[str, ...]:
    """Return sizes in canonical form: shortest decimal texts in ascending order, each once.

    Raises:
        ValueError: One is not a positive decimal number of at most 18 digits a side of the point.
    """
    found = {size_of(kind, size) for size in sizes}
    return tuple(decimal_text(size) for size in sorted(found))


def size_of(kind: str, size: str) -> Decimal:
    """Read one size.

    Raises:
        ValueError: The text is not a positive decimal of at most 18 digits a side of the point.
    """
    whole, _, fraction = size.partition(".")
    digits = whole + fraction
    if not (digits.isascii() and digits.isdigit()) or len(whole) > WHOLE_DIGITS_MAX:
        raise ValueError(
            f'{kind}s must be positive decimal text, such as "0.5", not "{size[:40]}".'
        )
    if len(fraction) > DECIMALS_MAX:
        raise ValueError(f"{kind}s have at most {DECIMALS_MAX} decimals.")
    value = Decimal(size)
    if not value:
        raise ValueError(f"{kind}s must be more than 0.")
    return value


def fills(
    side: FillSide,
    direction: Direction,
    amounts: Sequence[str],
    notionals: Sequence[str],
    names: Sequence[str],
    ends: Sequence[BookEnds],
) -> list[Fill]:
    """Price sizes against one side of a book that has the amount of each exchange.

    Args:
        side: The levels that the direction takes.
        direction: "buy" or "sell".
        amounts: Sizes in the base currency, as `size_texts` returns them.
        notionals: Sizes in the quote currency.
        names: The exchanges by bit.
        ends: The outermost known price of each exchange's book.

    Returns:
        One fill for each size: amounts, then notionals.
    """
    return _Walk(side, direction, names, ends).run(amounts, notionals)


Part = tuple[int, int]  # a member of a level, and its amount
_Level = tuple[int, list[Part]]  # its price and its parts


class _Taken:
    """Amounts and notionals taken so far by member, in the units of the view."""

    __slots__ = ("amounts", "levels", "notionals", "worst")

    def __init__(self, members: int) -> None:
        self.levels = self.worst = 0
        self.amounts = [0] * members
        self.notionals = [0] * members

    def add(self, price: int, parts: Iterable[Part]) -> None:
        """Take a whole level."""
        self.levels += 1
        self.worst = price
        for member, part in parts:
            self.amounts[member] += part
            self.notionals[member] += price * part

    def scaled(self, factor: int) -> "_Taken":
        """Return these totals in units that are smaller by a factor."""
        taken = _Taken(0)
        taken.levels, taken.worst = self.levels, self.worst
        taken.amounts = [each * factor for each in self.amounts]
        taken.notionals = [each * factor for each in self.notionals]
        return taken

    def add_part(self, price: int, parts: Iterable[Part], amount: int, notional: int) -> None:
        """Add an amount of a level for a notional, the largest parts first."""
        self.levels += 1
        self.worst = price
        for member, part in sorted(parts, key=lambda each: (-each[1], each[0])):
            taken = min(part, amount)
            # The last part gets the rounding difference, so that the parts add up.
            cost = notional if taken == amount else price * taken
            self.amounts[member] += taken
            self.notionals[member] += cost
            amount, notional = amount - taken, notional - cost
            if not amount:
                return


class _Order(NamedTuple):
    """A size, the level in which it ends, and its part of that level; sorted as levels are read."""

    level: int  # the number of levels if they do not suffice
    rest: int
    by: str
    size: str
    complete: bool


class _Walk:
    """Prices sizes against one side, from its best price as far as the largest size needs.

    Running totals find the level in which each size ends, so that the members are added up once
    for all sizes of both kinds.
    """

    def __init__(
        self, side: FillSide, direction: Direction, names: Sequence[str], ends: Sequence[BookEnds]
    ) -> None:
        buys = direction == BUY
        self._each = side.rows
        self._direction = direction
        self._parts = side.parts
        self._price_scale = side.price_scale
        self._factor = 10 ** (DECIMALS_MAX - side.amount_scale)
        self._names = names
        self._ends = [
            (end.exchange, price, -1 if buys else 1)
            for end in ends
            if (price := end.ask if buys else end.bid) is not None
        ]

    def run(self, amounts: Sequence[str], notionals: Sequence[str]) -> list[Fill]:
        """Price sizes: amounts, then notionals, each given in ascending order."""
        orders = [*self._orders(AMOUNT, amounts), *self._orders(NOTIONAL, notionals)]
        walked = sorted(orders)
        levels = list(islice(self._levels(), walked[-1].level + 1)) if walked else []
        taken = _Taken(len(self._names))
        found: dict[_Order, Fill] = {}
        for order in walked:
            for price, parts in levels[taken.levels : order.level]:
                taken.add(price, parts)
            found[order] = self._priced(order, taken, levels)
        return [found[order] for order in orders]

    def _orders(self, by: str, sizes: Sequence[str]) -> Iterator[_Order]:
        """Find where each size ends, by running totals."""
        scale, values = DECIMALS_MAX, (amount for _, amount, _ in self._each())
        if by == NOTIONAL:
            scale += self._price_scale
            values = (price * amount for price, amount, _ in self._each())
        totals = accumulate(values)
        level, before, after = 0, 0, next(totals, None)
        for size in sizes:
            wanted = units_of(size, scale)
            while after is not None and after * self._factor < wanted:
                level, before, after = level + 1, after, next(totals, None)
            yield _Order(level, wanted - before * self._factor, by, size, after is not None)

    def _levels(self) -> Iterator[_Level]:
        """The levels with the parts of their members."""
        amounts = iter(self._parts)
        for price, _, members in self._each():
            yield price, list(zip(bits(members), amounts, strict=False))

    def _priced(self, order: _Order, whole: _Taken, levels: Sequence[_Level]) -> Fill:
        """The fill of a size for which the levels before its last are taken."""
        factor = self._factor
        taken = whole.scaled(factor)
        if order.complete:
            price, parts = levels[order.level]
            amount, notional = order.rest, price * order.rest
            if order.by == NOTIONAL:
                amount, notional = order.rest // price, order.rest
            scaled = [(member, part * factor) for member, part in parts]
            taken.add_part(price, scaled, amount, notional)
        return self._fill(order.by, Decimal(order.size), taken, complete=order.complete)

    def _fill(self, by: str, size: Decimal, taken: _Taken, *, complete: bool) -> Fill:
        amount = decimal_of(sum(taken.amounts), DECIMALS_MAX)
        notional = decimal_of(sum(taken.notionals), DECIMALS_MAX + self._price_scale)
        worst = decimal_of(taken.worst, self._price_scale) if taken.levels else None
        parts = [
            (
                name,
                decimal_of(part, DECIMALS_MAX),
                decimal_of(cost, DECIMALS_MAX + self._price_scale),
            )
            for name, part, cost in zip(self._names, taken.amounts, taken.notionals, strict=True)
            if part
        ]
        parts.sort(key=lambda each: (-each[1], each[0]))
        return Fill(
            direction=self._direction,
            by=by,
            size=size,
            amount=amount,
            notional=notional,
            average=AVERAGE.divide(notional, amount) if amount else None,
            worst=worst,
            levels=taken.levels,
            complete=complete,
            uncovered=tuple(
                exchange
                for exchange, end, sign in self._ends
                if not complete or worst is None or (end - worst) * sign > 0
            ),
            split={name: FillPart(part, cost) for name, part, cost in parts},
        )


@lru_cache(maxsize=SETS_KEPT)
def bits(members: int) -> tuple[int, ...]:
    """The numbers of the bits that are set, ascending."""
    return tuple(bit for bit in range(members.bit_length()) if members >> bit & 1)


def units_of(size: str, scale: int) -> int:
    """Convert decimal text to an integer number of units of 10^-scale."""
    return int(EXACT.scaleb(Decimal(size), scale))


def decimal_of(mantissa: int, scale: int) -> Decimal:
    """mantissa x 10^-scale, exactly, without zeros at its end."""
    whole, rest = divmod(mantissa, 10**scale)
    if not rest:
        return Decimal(whole)
    return Decimal(mantissa).scaleb(-scale, EXACT).normalize(EXACT)


def decimal_text(value: Decimal | None) -> str:
    """Shortest decimal text, without exponent and without trailing zeros."""
    if value is None:
        return "null"
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
