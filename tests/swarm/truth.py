"""The truth: the books of a swarm's exchanges as dicts of Decimal, with their history.

Nothing here asks the service. Each change is noted with its time, so that an update, which says
when it was made, is held against the books of that very moment.
"""

from bisect import bisect_left, bisect_right
from decimal import ROUND_DOWN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

from core.oracle import checksum_of, shown, view_of

EXACT = Context(prec=200)
UNIT = Decimal("1e-18")  # what an amount that follows from a notional is cut to

Rows = list[tuple[str, str]]


class Asked(NamedTuple):
    """A requested view, in the words of the replies."""

    symbol: str
    exchanges: tuple[str, ...]
    depth: int = 20
    interval_ms: int = 100
    mode: str = "full"
    levels: str = "object"
    split: bool = False
    group: str | None = None
    ages: bool = False
    coverage: bool = False
    fill: tuple[tuple[str, ...], tuple[str, ...]] | None = None


class TrueBook:
    """One live book: its levels and its horizons."""

    def __init__(self, bids: Rows, asks: Rows, levels_asked: int = 0) -> None:
        self.sides: tuple[dict, dict] = ({}, {})
        self.ends: list[Decimal | None] = [None, None]
        for side, rows in enumerate((bids, asks)):
            if 0 < levels_asked <= len(rows):
                worst = max if side else min
                self.ends[side] = worst(Decimal(price) for price, _ in rows)
        self._put(bids, asks)

    def changed(self, bids: Rows, asks: Rows) -> "TrueBook":
        """The book after a delta."""
        book = TrueBook([], [])
        book.sides = tuple(dict(side) for side in self.sides)
        book.ends = list(self.ends)
        book._put(bids, asks)
        return book

    def _put(self, bids: Rows, asks: Rows) -> None:
        for side, rows in enumerate((bids, asks)):
            levels, end = self.sides[side], self.ends[side]
            for price, amount in ((Decimal(price), Decimal(amount)) for price, amount in rows):
                if end is not None and (price > end if side else price < end):
                    continue
                levels.pop(price, None)
                if amount:
                    levels[price] = amount


class Moment(NamedTuple):
    """The live books of a symbol from a time on."""

    at_us: int
    books: dict[str, TrueBook]


class Truth:
    """The live books of every symbol, now and before."""

    def __init__(self) -> None:
        self._moments: dict[str, list[Moment]] = {}
        self._made: dict[tuple, dict[str, Any]] = {}

    def moments(self, symbol: str) -> list[Moment]:
        return self._moments.setdefault(symbol, [Moment(0, {})])

    def set(self, symbol: str, exchange: str, book: TrueBook | None, at_us: int) -> None:
        moments = self.moments(symbol)
        books = {name: each for name, each in moments[-1].books.items() if name != exchange}
        moments.append(Moment(at_us, books if book is None else books | {exchange: book}))

    def book(self, symbol: str, exchange: str) -> TrueBook | None:
        return self.moments(symbol)[-1].books.get(exchange)

    def at(self, symbol: str, at_us: int) -> range:
        """The states that an update of this time may show: the last one before it, and its own."""
        moments = self.moments(symbol)
        first = bisect_left(moments, at_us, key=lambda each: each.at_us) - 1
        return range(max(0, first), bisect_right(moments, at_us, key=lambda each: each.at_us))

    def since(self, symbol: str, at_us: int) -> int:
        """The oldest state that a view with this minimum time may show."""
        return self.at(symbol, at_us)[-1]

    def view(self, asked: Asked, number: int) -> dict[str, Any]:
        """The expected `data` of a full update, and its checksum."""
        made = self._made.get((asked, number))
        if made is None:
            made = self._made[asked, number] = _data(asked, self.moments(asked.symbol)[number])
        return made


def _data(asked: Asked, moment: Moment) -> dict[str, Any]:
    names = list(asked.exchanges)
    books = [moment.books.get(name) for name in names]
    view = view_of(names, books, depth=asked.depth, group=asked.group)
    data = shown(view, split=asked.split, arrays=asked.levels == "array")
    data["stale_exchanges"] = [name for name in names if name not in moment.books]
    live = [name for name in names if name in moment.books]
    data["checksum"] = checksum_of(view)
    if asked.ages:
        data["ages"] = live
    if asked.coverage:
        ends = {name: moment.books[name].ends for name in live}
        data["coverage"] = {name: {"bids": bid, "asks": ask} for name, (bid, ask) in ends.items()}
    if asked.fill is not None:
        held = {name: moment.books[name] for name in live}
        data["fill"] = {"buy": _fills(held, asked.fill, 1), "sell": _fills(held, asked.fill, 0)}
    return data


def _fills(books: dict[str, TrueBook], sizes, side: int) -> list[dict[str, Any]]:
    orders = [
        (price, amount, name)
        for name, book in books.items()
        for price, amount in book.sides[side].items()
    ]
    orders.sort(key=lambda order: (order[0] if side else -order[0], -order[1], order[2]))
    ends = [(name, book.ends[side]) for name, book in books.items()]
    with localcontext(EXACT):
        return [
            _fill(orders, ends, by, Decimal(size), side)
            for by, asked in zip(("amount", "notional"), sizes, strict=True)
            for size in sorted(asked, key=Decimal)
        ]


def _fill(orders: list, ends: list, by: str, size: Decimal, side: int) -> dict[str, Any]:
    """One size: single orders, the best price first, within a price the largest, then by name."""
    left, amount, cost, worst, prices = size, Decimal(), Decimal(), None, set()
    split: dict[str, list[Decimal]] = {}
    for price, held, name in orders:
        if not left:
            break
        taken, paid = held, price * held
        if (taken if by == "amount" else paid) >= left:
            last = by == "notional"
            taken = (left / price).quantize(UNIT, ROUND_DOWN) if last else left
            paid = left if last else price * left
        left -= taken if by == "amount" else paid
        amount, cost, worst = amount + taken, cost + paid, price
        prices.add(price)
        part = split.setdefault(name, [Decimal(), Decimal()])
        part[0], part[1] = part[0] + taken, part[1] + paid
    beyond = [
        name
        for name, end in ends
        if end is not None and (left or worst is None or (worst > end if side else worst < end))
    ]
    parts = [(name, *part) for name, part in split.items() if part[0]]
    return {
        "by": by,
        "size": size,
        "amount": amount,
        "notional": cost,
        "average": _average(cost, amount),
        "worst": worst,
        "levels": len(prices),
        "complete": not left,
        "uncovered": sorted(beyond),
        "split": [
            {"exchange": name, "amount": part, "notional": paid}
            for name, part, paid in sorted(parts, key=lambda each: (-each[1], each[0]))
        ],
    }


def _average(cost: Decimal, amount: Decimal) -> Decimal | None:
    """The quotient to 18 digits, half to even."""
    if not amount:
        return None
    exact = Fraction(cost) / Fraction(amount)
    return Context(prec=18).divide(Decimal(exact.numerator), Decimal(exact.denominator))
