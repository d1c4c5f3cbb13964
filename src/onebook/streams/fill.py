"""The cost of buying or selling a size against merged levels: average, worst price and split.

Sans-I/O and exact: levels come in as the core's integers, and every figure but the average, which
is a quotient, is exact. A level that is only partly needed is taken from the exchange with the
largest amount first, by name where amounts are equal. Fees are not included.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context, Decimal
from struct import Struct
from typing import Final, Literal, NamedTuple

import msgspec

from onebook.core import (
    DEPTH_MAX,
    DIGITS_MAX,
    LEVEL_FORM,
    SCALE_MAX,
    Book,
    Levels,
    View,
)

FILL_SIZES_MAX: Final = 8  # amounts and notionals of one subscription
FILL_LEVELS_MAX: Final = DEPTH_MAX  # levels a side that a fill may use, whatever is delivered
AVERAGE_DIGITS: Final = 18  # significant digits that an average price is rounded to, half to even

Direction = Literal["buy", "sell"]
BUY: Final[Direction] = "buy"
SELL: Final[Direction] = "sell"
AMOUNT: Final = "amount"
NOTIONAL: Final = "notional"

_LEVEL: Final = Struct(LEVEL_FORM)
_PART: Final = "q"  # PART_FORM in native byte order
_EXACT: Final = Context(prec=200, rounding=ROUND_DOWN)
_AVERAGE: Final = Context(prec=AVERAGE_DIGITS, rounding=ROUND_HALF_EVEN)
_ZERO: Final = Decimal(0)
_json = msgspec.json.encode


class FillSizes(NamedTuple):
    """Sizes to price, as shortest decimal texts in ascending order, each once."""

    amounts: tuple[str, ...] = ()
    notionals: tuple[str, ...] = ()


class FillPart(NamedTuple):
    """What one exchange contributes to a fill."""

    amount: Decimal
    notional: Decimal


class Fill(NamedTuple):
    """What a market order of a size would trade against the levels that are known.

    `size` is the amount or, with `by` "notional", the amount of the quote currency that was asked
    for. `amount` and `notional` are what the levels give of it: all of it where `complete`. An
    amount that follows from a notional is cut to 18 decimals. `average` is `notional` / `amount`,
    rounded to 18 digits; `worst` is the last price; both are None where a side is empty. `levels`
    is how many prices were used: 500 is the most that are looked at. `uncovered` are the exchanges
    whose book is not known as far as the worst price, or, where the fill is not complete, to its
    end: they may have more, so that the real cost can be lower. `split` is by exchange.
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

    def after_fees(self, fees: Mapping[str, Decimal], others: Decimal = _ZERO) -> Decimal | None:
        """Return the average price after taker fees in percent; None where nothing is filled.

        Args:
            fees: The fee of each exchange, such as `Decimal("0.1")` for 0.1 %.
            others: The fee of all that `fees` does not name.
        """
        if not self.amount:
            return None
        charged = _ZERO
        for name, part in self.split.items():
            fee = _EXACT.multiply(part.notional, fees.get(name, others)).scaleb(-2, _EXACT)
            charged = _EXACT.add(charged, fee)
        paid = (_EXACT.add if self.direction == BUY else _EXACT.subtract)(self.notional, charged)
        return _AVERAGE.divide(paid, self.amount)


class BookEnds(NamedTuple):
    """Where the known part of one exchange's book ends; None where all of a side is known."""

    exchange: str
    bid: Decimal | None
    ask: Decimal | None


def fill_sizes(amounts: Iterable[str], notionals: Iterable[str]) -> FillSizes:
    """Check sizes and put them into canonical form.

    Raises:
        ValueError: There is none, there are too many, or one is not a positive decimal number.
    """
    sizes = FillSizes(_texts(AMOUNT, amounts), _texts(NOTIONAL, notionals))
    count = len(sizes.amounts) + len(sizes.notionals)
    if not 1 <= count <= FILL_SIZES_MAX:
        raise ValueError(f"name 1 to {FILL_SIZES_MAX} amounts and notionals, not {count}.")
    return sizes


def _texts(kind: str, sizes: Iterable[str]) -> tuple[str, ...]:
    found = {size_of(kind, size) for size in sizes}
    return tuple(_text(size) for size in sorted(found))


def size_of(kind: str, size: str) -> Decimal:
    """Read one size.

    Raises:
        ValueError: It is not a positive decimal number of at most 18 digits a side of the point.
    """
    whole, _, fraction = size.partition(".")
    digits = whole + fraction
    if not (digits.isascii() and digits.isdigit()) or len(whole) > DIGITS_MAX:
        raise ValueError(
            f'{kind}s must be positive decimal text, such as "0.5", not "{size[:40]}".'
        )
    if len(fraction) > SCALE_MAX:
        raise ValueError(f"{kind}s have at most {SCALE_MAX} decimals.")
    value = Decimal(size)
    if not value:
        raise ValueError(f"{kind}s must be more than 0.")
    return value


class FillView:
    """The fills of one stream: its own merge of whole books, priced when it is read.

    Its levels are neither cut to the depth nor binned to the step of the stream.
    """

    __slots__ = ("_json", "_names", "_sizes", "_view")

    def __init__(self, names: Sequence[str], sizes: FillSizes) -> None:
        self._names = names
        self._sizes = sizes
        self._view = View(names, depth=FILL_LEVELS_MAX, split=True)
        self._json = b""

    @property
    def json(self) -> bytes:
        """The fills of the last merge, as the member `fill` of an update."""
        return self._json

    def merge(self, books: Sequence[Book | None], ends: Sequence[BookEnds]) -> bool:
        """Price the sizes against these books; whether any fill changed."""
        self._view.merge(books)
        levels = self._view.levels()
        sides = (
            (name, fills(levels, name, self._sizes, self._names, ends)) for name in (BUY, SELL)
        )
        written = b"{%b}" % b",".join(
            b'"%b":[%b]' % (name.encode(), b",".join(map(_fill_json, found)))
            for name, found in sides
        )
        changed, self._json = written != self._json, written
        return changed


def fills(
    levels: Levels,
    direction: Direction,
    sizes: FillSizes,
    names: Sequence[str],
    ends: Sequence[BookEnds],
) -> list[Fill]:
    """Price sizes against one side of a view that was merged with `split`.

    Returns:
        One fill for each size: amounts, then notionals, each in ascending order.
    """
    walk = _Walk(levels, direction, names, ends)
    return walk.run(AMOUNT, sizes.amounts) + walk.run(NOTIONAL, sizes.notionals)


Parts = Sequence[tuple[int, int]]  # of one level: members and their amounts


class _Taken:
    """Whole levels taken so far, in the units of the view: totals, and by member."""

    __slots__ = ("amount", "amounts", "levels", "notional", "notionals", "worst")

    def __init__(self, members: int) -> None:
        self.amount = self.notional = self.levels = self.worst = 0
        self.amounts = [0] * members
        self.notionals = [0] * members

    def add(self, price: int, level: int, parts: Parts) -> None:
        """Take a whole level."""
        self.levels += 1
        self.worst = price
        self.amount += level
        self.notional += price * level
        for member, part in parts:
            self.amounts[member] += part
            self.notionals[member] += price * part

    def scaled(self, factor: int) -> "_Taken":
        """Return the same in units that are so much smaller."""
        taken = _Taken(0)
        taken.levels, taken.worst = self.levels, self.worst
        taken.amount, taken.notional = self.amount * factor, self.notional * factor
        taken.amounts = [each * factor for each in self.amounts]
        taken.notionals = [each * factor for each in self.notionals]
        return taken

    def take(self, price: int, parts: Parts, amount: int, notional: int) -> None:
        """Take an amount of a level for a notional, the largest parts first."""
        self.levels += 1
        self.worst = price
        self.amount += amount
        self.notional += notional
        for member, part in sorted(parts, key=lambda each: (-each[1], each[0])):
            taken = min(part, amount)
            # The last part gets the rounding difference, so that the parts add up.
            cost = notional if taken == amount else price * taken
            self.amounts[member] += taken
            self.notionals[member] += cost
            amount, notional = amount - taken, notional - cost
            if not amount:
                return


class _Walk:
    """Iterates over one side from its best price, as far as the largest size needs."""

    def __init__(
        self, levels: Levels, direction: Direction, names: Sequence[str], ends: Sequence[BookEnds]
    ) -> None:
        buys = direction == BUY
        self._direction = direction
        self._rows = levels.asks if buys else levels.bids
        self._parts = levels.ask_parts if buys else levels.bid_parts
        self._price_scale = levels.price_scale
        self._factor = 10 ** (SCALE_MAX - levels.amount_scale)
        self._names = names
        self._ends = [
            (end.exchange, price, -1 if buys else 1)
            for end in ends
            if (price := end.ask if buys else end.bid) is not None
        ]

    def run(self, by: str, sizes: Sequence[str]) -> list[Fill]:
        """Price sizes of one kind, given in ascending order, in one walk."""
        scale = SCALE_MAX if by == AMOUNT else SCALE_MAX + self._price_scale
        pending = [(Decimal(size), _units(size, scale)) for size in reversed(sizes)]
        found: list[Fill] = []
        taken = _Taken(len(self._names))
        factor = self._factor
        for price, parts in self._levels() if pending else ():
            level = sum([part for _, part in parts])
            while pending:
                size, wanted = pending[-1]
                rest = wanted - factor * (taken.amount if by == AMOUNT else taken.notional)
                if rest > factor * (level if by == AMOUNT else price * level):
                    break
                amount, notional = (rest, price * rest) if by == AMOUNT else (rest // price, rest)
                priced = taken.scaled(factor)
                scaled = [(member, part * factor) for member, part in parts]
                priced.take(price, scaled, amount, notional)
                found.append(self._fill(by, size, priced, complete=True))
                pending.pop()
            if not pending:
                return found
            taken.add(price, level, parts)
        if pending:
            whole = taken.scaled(factor)
            found += [self._fill(by, size, whole, complete=False) for size, _ in reversed(pending)]
        return found

    def _levels(self) -> Iterator[tuple[int, Parts]]:
        """Each level: its price, and the amount of each member."""
        rows, parts = self._rows, self._parts
        unpacked = _LEVEL.iter_unpack(rows) if isinstance(rows, bytes) else iter(rows)
        amounts = memoryview(parts).cast(_PART) if isinstance(parts, bytes) else parts
        start = 0
        for price, _, members in unpacked:
            found = []
            while members:
                lowest = members & -members
                found.append((lowest.bit_length() - 1, amounts[start]))
                start += 1
                members ^= lowest
            yield price, found

    def _fill(self, by: str, size: Decimal, taken: _Taken, *, complete: bool) -> Fill:
        amount = _decimal(taken.amount, SCALE_MAX)
        notional = _decimal(taken.notional, SCALE_MAX + self._price_scale)
        worst = _decimal(taken.worst, self._price_scale) if taken.levels else None
        parts = [
            (name, _decimal(part, SCALE_MAX), _decimal(cost, SCALE_MAX + self._price_scale))
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
            average=_AVERAGE.divide(notional, amount) if amount else None,
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


def _units(size: str, scale: int) -> int:
    """A decimal text as an integer of 10^-scale."""
    return int(_EXACT.scaleb(Decimal(size), scale))


def _decimal(mantissa: int, scale: int) -> Decimal:
    """mantissa x 10^-scale, exactly, without zeros at its end."""
    while scale and mantissa % 10 == 0:
        if not mantissa:
            return _ZERO
        mantissa, scale = mantissa // 10, scale - 1
    return Decimal(mantissa).scaleb(-scale, _EXACT)


def _text(value: Decimal | None) -> str:
    """Shortest decimal text, without exponent and without trailing zeros."""
    if value is None:
        return "null"
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _fill_json(fill: Fill) -> bytes:
    """One fill as it is in updates; numbers are printed from exact decimals."""
    split = ",".join(
        f'{{"exchange":{_json(name).decode()},"amount":{_text(part.amount)},'
        f'"notional":{_text(part.notional)}}}'
        for name, part in fill.split.items()
    )
    return (
        f'{{"by":"{fill.by}","size":{_text(fill.size)},"amount":{_text(fill.amount)},'
        f'"notional":{_text(fill.notional)},"average":{_text(fill.average)},'
        f'"worst":{_text(fill.worst)},"levels":{fill.levels},'
        f'"complete":{"true" if fill.complete else "false"},'
        f'"uncovered":{_json(fill.uncovered).decode()},"split":[{split}]}}'
    ).encode()
