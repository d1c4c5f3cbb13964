"""The best split of an order over exchanges after their taker fees.

Pure and exact: prices and amounts are integers, and every figure except the averages is exact. A
route respects the lot, minimum amount and minimum notional of each exchange, if known. It fills as
much of the size as these rules allow, with the lowest cost (or highest proceeds) after fees among
all such splits; `exact` tells whether that is certain.

The search first uses only the levels that hold the size plus one largest lot of each exchange. If
the size cannot be placed in them, it uses all levels.

If taking the levels in order of net price violates no rule, that is the route. Otherwise lots are
treated as a chain in which each divides the next: the part of the size beyond a multiple of the
next lot is taken from the cheapest lots of this one, and the rest are grouped into lots of the
next. Minimums and `exchanges_max` are then searched by branch and bound.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from math import lcm
from operator import itemgetter
from typing import Final, NamedTuple

from onebook.fees import fee_factors
from onebook.fill import (
    AMOUNT,
    AVERAGE,
    BUY,
    DECIMALS_MAX,
    EXACT,
    NOTIONAL,
    BookEnds,
    Direction,
    FillSide,
    bits,
    decimal_of,
    units_of,
)

NOTIONAL_STEPS_MAX: Final = 8  # amounts that are tried for a notional
NODES_MAX: Final = 400  # branches of one search; a route found until then is not proven the best

Order = tuple[int, int, int]  # net price, amount, member


class Rules(NamedTuple):
    """The order rules of an exchange, in base and quote currency; None if unknown."""

    lot: Decimal | None = None
    least: Decimal | None = None
    least_notional: Decimal | None = None


UNKNOWN: Final = Rules()


class RouteSide(NamedTuple):
    """One side of a book in the order of net prices, best first, in integers.

    Args:
        orders: Net price x 10^-price_scale, amount x 10^-amount_scale and member; equal net prices
            are in the order to take them.
        factors: By member: net price = gross price x factor, at scales that differ by `fee_scale`.
    """

    orders: Iterable[Order]
    factors: Sequence[int]
    fee_scale: int
    price_scale: int
    amount_scale: int


class RoutePart(NamedTuple):
    """The order on one exchange: `limit` is the worst price, before fees, that it takes."""

    amount: Decimal
    notional: Decimal
    fee: Decimal
    limit: Decimal


class Route(NamedTuple):
    """The best split of an order after fees.

    `size` is the requested amount or, with `by` "notional", the quote currency to pay or receive
    after fees. `amount` and `notional` are the filled part and its cost or proceeds before fees,
    `fees` the fees in the quote currency (negative for rebates), and `net` the cost or proceeds
    after them. `average` and `net_average` are `notional` / `amount` and `net` / `amount`, rounded
    to 18 digits; `worst` is the last net price. They are None if nothing is filled. `complete` is
    whether the books suffice and the whole size is placed; `unplaced` is the amount that the books
    have but lots, minimums or `exchanges_max` do not allow. `extra` is the cost that these rules
    add to `net` for the same amount. `exact` is False if the search for the best split ended early,
    or lots do not divide each other. `unknown_rules` lists exchanges of the split with unknown lots
    or minimums. `uncovered` is as in a `Fill`. `split` is by exchange, the largest amount first.
    `oldest_ms` is the age of the oldest data in the split, if a service reports it.
    """

    direction: Direction
    by: str
    size: Decimal
    amount: Decimal
    notional: Decimal
    fees: Decimal
    net: Decimal
    average: Decimal | None
    net_average: Decimal | None
    worst: Decimal | None
    complete: bool
    unplaced: Decimal
    extra: Decimal
    exact: bool
    unknown_rules: tuple[str, ...]
    uncovered: tuple[str, ...]
    split: dict[str, RoutePart]
    oldest_ms: int | None = None


def routes(
    side: RouteSide,
    direction: Direction,
    amounts: Sequence[str],
    notionals: Sequence[str],
    names: Sequence[str],
    ends: Sequence[BookEnds],
    rules: Mapping[str, Rules],
    exchanges_max: int | None = None,
) -> list[Route]:
    """Route sizes through one side of a book.

    Args:
        side: The levels that the direction takes, in the order of net prices.
        direction: "buy" or "sell".
        amounts: Sizes in the base currency, as `fill.size_texts` returns them.
        notionals: Sizes in the quote currency, after fees.
        names: The exchanges by member.
        ends: The outermost known price of each exchange's book.
        rules: By exchange, if known.
        exchanges_max: Maximum number of exchanges in a split; None for no limit.

    Returns:
        One route for each size: amounts, then notionals.
    """
    router = _Router(side, direction, names, ends, rules, exchanges_max)
    return [
        *(router.route(AMOUNT, size) for size in amounts),
        *(router.route(NOTIONAL, size) for size in notionals),
    ]


def gross_side(
    side: FillSide,
    direction: Direction,
    names: Sequence[str],
    fees: Mapping[str, str],
    limit: Decimal | None = None,
) -> RouteSide:
    """Sort one side of a book by net price.

    Args:
        side: Levels by prices before fees, with the amount of each exchange.
        direction: "buy" or "sell".
        names: The exchanges by bit.
        fees: In percent; exchanges without one are left out.
        limit: The worst price before fees.
    """
    buys = direction == BUY
    scale, pairs = fee_factors(fees.get(name, "0") for name in names)
    factors = [pair[buys] for pair in pairs]
    end = None if limit is None else limit.scaleb(side.price_scale)
    amounts, orders = iter(side.parts), []
    for price, _, members in side.rows():
        for member in bits(members):
            amount = next(amounts)
            if names[member] in fees and (end is None or (price <= end if buys else price >= end)):
                orders.append((price * factors[member], amount, member))
    orders.sort(key=lambda order: (order[0] if buys else -order[0], -order[1], order[2]))
    return RouteSide(orders, factors, scale, side.price_scale + scale, side.amount_scale)


_Parts = tuple[tuple[int, int], ...]  # members and amounts
_Run = tuple[int, int, _Parts]  # signed cost of one lot, number of lots, the parts of one lot


class _Rule(NamedTuple):
    """The rules of a member in units."""

    lot: int = 1
    least: int = 0
    least_notional: int = 0  # at the scale of net prices


class _Found(NamedTuple):
    """A split: amounts by member, and the signed cost after fees (less is better)."""

    amount: int
    cost: int
    parts: dict[int, int]

    def better_than(self, other: "_Found | None") -> bool:
        return other is None or (-self.amount, self.cost) < (-other.amount, other.cost)


_NOTHING: Final = _Found(0, 0, {})


class _MemberBook:
    """What was read of one member: its orders, and running totals of them."""

    __slots__ = ("amounts", "gross", "grosses", "orders")

    def __init__(self) -> None:
        self.orders: list[tuple[int, int]] = []  # net price, amount
        self.gross: list[int] = []  # prices before fees
        self.amounts: list[int] = []  # running totals
        self.grosses: list[int] = []  # of amount x price before fees

    def add(self, price: int, amount: int, gross: int) -> None:
        """Add the next order."""
        before, cost = (self.amounts[-1], self.grosses[-1]) if self.orders else (0, 0)
        self.orders.append((price, amount))
        self.gross.append(gross)
        self.amounts.append(before + amount)
        self.grosses.append(cost + gross * amount)

    def cost(self, amount: int) -> tuple[int, int]:
        """Return the cost of an amount above 0 before the fee, and the worst price in it."""
        at = bisect_left(self.amounts, amount)
        return self.grosses[at] - (self.amounts[at] - amount) * self.gross[at], self.gross[at]


class _Router:
    """Routes sizes through one side.

    Amounts are integers at the scale `DECIMALS_MAX`. Net costs are integers at that scale plus the
    net-price scale, signed so that lower is better in both directions.
    """

    def __init__(
        self,
        side: RouteSide,
        direction: Direction,
        names: Sequence[str],
        ends: Sequence[BookEnds],
        rules: Mapping[str, Rules],
        exchanges_max: int | None,
    ) -> None:
        self._direction: Direction = direction
        self._sign = 1 if direction == BUY else -1
        self._names = names
        self._ends = ends
        self._factors = side.factors
        self._fee_scale = side.fee_scale
        self._price_scale = side.price_scale
        self._factor = 10 ** (DECIMALS_MAX - side.amount_scale)
        self._unread = iter(side.orders)
        self._orders: list[Order] = []
        self._amount_read = 0
        self._exchanges_max = exchanges_max or len(names)
        self._given = [rules.get(name, UNKNOWN) for name in names]
        self._rules = [self._rule_of(each) for each in self._given]
        self._lots = sorted({each.lot for each in self._rules})
        self._chained: dict[int, int] = {}
        chained = 1
        for lot in self._lots:
            chained = self._chained[lot] = lcm(chained, lot)
        self._divides = all(lot == chain for lot, chain in self._chained.items())
        self._runs: dict[int, tuple[int, list[_Run]]] = {}  # and the number of their orders
        self._books = [_MemberBook() for _ in names]

    def route(self, by: str, size: str) -> Route:
        """Route one size."""
        scale = DECIMALS_MAX + (self._price_scale if by == NOTIONAL else 0)
        wanted = units_of(size, scale)
        ideal, complete = self._walk(by, wanted)
        found, exact = ideal, True
        if not self._keeps_rules(ideal.parts):
            found, exact = self._within_rules(ideal, by, wanted)
        return self._written(by, size, found, ideal, complete=complete, exact=exact)

    def _read(self) -> Iterator[Order]:
        """The orders, best first; those that were not read before are added to their books."""
        yield from self._orders
        for price, amount, member in self._unread:
            order = price, amount * self._factor, member
            self._orders.append(order)
            self._amount_read += order[1]
            self._books[member].add(price, order[1], price // self._factors[member])
            yield order

    def _walk(self, by: str, wanted: int) -> tuple[_Found, bool]:
        """Take orders without rules; returns also whether they suffice."""
        parts: dict[int, int] = {}
        amount = cost = 0
        left = wanted
        for price, held, member in self._read():
            need = left if by == AMOUNT else left // price
            taken = held if held < need else need
            if taken:
                parts[member] = parts.get(member, 0) + taken
                amount += taken
                cost += price * taken
            if held >= need:
                return _Found(amount, self._sign * cost, parts), True
            left -= taken if by == AMOUNT else price * taken
        return _Found(amount, self._sign * cost, parts), False

    def _keeps_rules(self, parts: Mapping[int, int]) -> bool:
        if len(parts) > self._exchanges_max:
            return False
        for member, amount in parts.items():
            rule = self._rules[member]
            if amount % rule.lot or amount < rule.least:
                return False
            if rule.least_notional and self._books[member].cost(amount)[0] < rule.least_notional:
                return False
        return True

    def _within_rules(self, ideal: _Found, by: str, wanted: int) -> tuple[_Found, bool]:
        """Find the best split within the rules."""
        if by == AMOUNT:
            return self._search(wanted)
        # Estimate the amount of the notional: cut each part of the ideal split to its lot.
        amount = sum(part - part % self._rules[each].lot for each, part in ideal.parts.items())
        found, exact = self._search(amount)
        for _ in range(NOTIONAL_STEPS_MAX):
            if self._sign < 0 or found.cost <= wanted:
                return found, exact
            # Minimums make it dearer than the notional: place less of it.
            amount -= (found.cost - wanted) * found.amount // found.cost + 1
            found, exact = self._search(max(0, amount))[0], False
        return _NOTHING, False

    def _search(self, wanted: int) -> tuple[_Found, bool]:
        """Return the best split of an amount within the rules, and whether it is proven."""
        self._read_to(wanted + len(self._names) * self._chained[self._lots[-1]])
        near = self._split(wanted, frozenset(), {})
        assert near is not None  # nothing is forced
        if near.amount == wanted and self._violator(near.parts, {}) is None:
            return near, self._divides
        self._read_to(None)
        best: _Found | None = None
        nodes: list[tuple[frozenset[int], dict[int, int]]] = [(frozenset(), {})]
        for _ in range(NODES_MAX):
            if not nodes:
                break
            excluded, forced = nodes.pop()
            found = self._split(wanted, excluded, forced)
            if found is None or not found.better_than(best):
                continue
            member = self._violator(found.parts, forced)
            if member is None:
                best = found
                continue
            nodes.append((excluded | {member}, forced))
            least = self._least(member)
            if least is not None:
                more = {**forced, member: least}
                if len(more) == self._exchanges_max:
                    excluded = frozenset(range(len(self._names))) - more.keys()
                nodes.append((excluded, more))
        return best or _NOTHING, not nodes and self._divides

    def _violator(self, parts: Mapping[int, int], forced: Mapping[int, int]) -> int | None:
        """Return a member to decide about: below its minimum, or one too many."""
        free = [(amount, member) for member, amount in parts.items() if member not in forced]
        for amount, member in sorted(free):
            rule = self._rules[member]
            if amount < rule.least or (
                rule.least_notional and self._books[member].cost(amount)[0] < rule.least_notional
            ):
                return member
        # The largest first, so that the search begins with a good split.
        return max(free)[1] if free and len(parts) > self._exchanges_max else None

    def _least(self, member: int) -> int | None:
        """Return the least amount that a member accepts; None if its book has less."""
        rule, lot, book = self._rules[member], self._lot(member), self._books[member]
        least = max(rule.least, 1)
        if rule.least_notional:
            at = bisect_left(book.grosses, rule.least_notional)
            if at == len(book.orders):
                return None
            over = (book.grosses[at] - rule.least_notional) // book.gross[at]
            least = max(least, book.amounts[at] - over)
        least = -(-least // lot) * lot
        return least if book.orders and least <= book.amounts[-1] else None

    def _split(
        self, wanted: int, excluded: frozenset[int], forced: Mapping[int, int]
    ) -> _Found | None:
        """Return the best split of an amount in lots; None if the forced parts exceed it.

        Members that are excluded take no part; those that are forced take at least an amount.
        """
        lots: dict[int, list[_Run]] = {}
        parts: dict[int, int] = {}
        cost = total = 0
        for member in range(len(self._names)):
            if member in excluded:
                continue
            runs = self._lots_of(member)
            if member in forced:
                least = forced[member] // self._lot(member)
                taken, runs = _split(runs, least)
                cost += sum(each[0] * each[1] for each in taken)
                wanted -= forced[member]
                parts[member] = forced[member]
            if runs:
                lots.setdefault(self._lot(member), []).extend(runs)
        if wanted < 0:
            return None
        sizes = sorted(lots)
        total = sum(lot * sum(run[1] for run in runs) for lot, runs in lots.items())
        spent: list[_Run] = []
        if total <= wanted:
            spent = [run for runs in lots.values() for run in runs]
        else:
            items: list[_Run] = []
            for at, lot in enumerate(sizes):
                items = sorted([*items, *lots[lot]], key=itemgetter(0))
                following = sizes[at + 1] if at + 1 < len(sizes) else 0
                needed = (wanted % following if following else wanted) // lot
                taken, items = _split(items, needed)
                spent += taken
                wanted = wanted // lot * lot - needed * lot
                if following:
                    items = _grouped(items, following // lot, wanted // following)
        for price, count, each in spent:
            cost += price * count
            for member, amount in each:
                parts[member] = parts.get(member, 0) + amount * count
        return _Found(sum(parts.values()), cost, parts)

    def _lot(self, member: int) -> int:
        return self._chained[self._rules[member].lot]

    def _read_to(self, amount: int | None) -> None:
        """Read the orders that hold an amount, or all."""
        if amount is None or self._amount_read < amount:
            for _ in self._read():
                if amount is not None and self._amount_read >= amount:
                    return

    def _lots_of(self, member: int) -> list[_Run]:
        """The book of a member as lots, the best first; what remains of a lot is left out."""
        count, runs = self._runs.get(member, (0, []))
        if count != len(self._books[member].orders):
            runs = [*self._made_lots(member)]
            self._runs[member] = len(self._books[member].orders), runs
        return runs

    def _made_lots(self, member: int) -> Iterator[_Run]:
        lot = self._lot(member)
        parts = ((member, lot),)
        begun = cost = 0  # of a lot that goes over several levels
        for price, held in self._books[member].orders:
            amount, signed = held, self._sign * price
            if begun:
                taken = min(lot - begun, amount)
                begun, cost, amount = begun + taken, cost + signed * taken, amount - taken
                if begun < lot:
                    continue
                yield cost, 1, parts
            count, begun = divmod(amount, lot)
            cost = signed * begun
            if count:
                yield signed * lot, count, parts

    def _rule_of(self, rules: Rules) -> _Rule:
        scale = self._price_scale - self._fee_scale
        return _Rule(
            lot=_units(rules.lot, DECIMALS_MAX) or 1,
            least=_units(rules.least, DECIMALS_MAX),
            least_notional=_units(rules.least_notional, DECIMALS_MAX + scale),
        )

    def _written(
        self, by: str, size: str, found: _Found, ideal: _Found, *, complete: bool, exact: bool
    ) -> Route:
        scale = DECIMALS_MAX + self._price_scale
        gross_scale = scale - self._fee_scale
        split, notional, worst = [], 0, 0
        for member, amount in found.parts.items():
            cost, limit = self._books[member].cost(amount)
            notional += cost
            net_limit = limit * self._factors[member]
            if not worst or self._sign * (net_limit - worst) > 0:
                worst = net_limit
            fee = self._sign * (cost * self._factors[member] - cost * 10**self._fee_scale)
            part = RoutePart(
                decimal_of(amount, DECIMALS_MAX),
                decimal_of(cost, gross_scale),
                decimal_of(fee, scale),
                decimal_of(limit, self._price_scale - self._fee_scale),
            )
            split.append((self._names[member], part))
        split.sort(key=lambda each: (-each[1].amount, each[0]))
        net = self._sign * found.cost
        fees = self._sign * (net - notional * 10**self._fee_scale)
        bare = ideal if found is ideal else self._walk(AMOUNT, found.amount)[0]
        amount_filled, net_filled = decimal_of(found.amount, DECIMALS_MAX), decimal_of(net, scale)
        gross_filled = decimal_of(notional, gross_scale)
        worst_net = decimal_of(worst, self._price_scale) if found.parts else None
        return Route(
            direction=self._direction,
            by=by,
            size=Decimal(size),
            amount=amount_filled,
            notional=gross_filled,
            fees=decimal_of(fees, scale),
            net=net_filled,
            average=AVERAGE.divide(gross_filled, amount_filled) if found.parts else None,
            net_average=AVERAGE.divide(net_filled, amount_filled) if found.parts else None,
            worst=worst_net,
            complete=complete and found.amount == ideal.amount,
            unplaced=decimal_of(ideal.amount - found.amount, DECIMALS_MAX),
            extra=decimal_of(found.cost - bare.cost, scale),
            exact=exact,
            unknown_rules=tuple(
                sorted(self._names[each] for each in found.parts if None in self._given[each])
            ),
            uncovered=self._uncovered(worst_net if complete else None),
            split=dict(split),
        )

    def _uncovered(self, worst: Decimal | None) -> tuple[str, ...]:
        """The exchanges whose book is not known as far as a net price; None: to the end."""
        buys, found = self._direction == BUY, []
        for end in self._ends:
            price = end.ask if buys else end.bid
            if price is None or end.exchange not in self._names:
                continue
            factor = Decimal(self._factors[self._names.index(end.exchange)])
            net = EXACT.multiply(price, factor.scaleb(-self._fee_scale, EXACT))
            if worst is None or (worst > net if buys else worst < net):
                found.append(end.exchange)
        return tuple(found)


def _split(runs: Sequence[_Run], count: int) -> tuple[list[_Run], list[_Run]]:
    """Divide runs into the first `count` lots, or all, and the rest."""
    taken = []
    for at, (cost, held, parts) in enumerate(runs):
        if held >= count:
            if count:
                taken.append((cost, count, parts))
            rest = [(cost, held - count, parts)] if held > count else []
            return taken, [*rest, *runs[at + 1 :]]
        taken.append(runs[at])
        count -= held
    return taken, []


def _grouped(runs: Iterable[_Run], size: int, count_max: int) -> list[_Run]:
    """Join each `size` lots in a row to one, at most `count_max`; what remains is left out."""
    joined: list[_Run] = []
    begun = cost = 0
    parts: list[tuple[int, int]] = []
    for each, held, members in runs:
        if count_max <= 0:
            break
        count = held
        if begun:
            taken = min(size - begun, count)
            begun, cost, count = begun + taken, cost + each * taken, count - taken
            parts += [(member, amount * taken) for member, amount in members]
            if begun < size:
                continue
            joined.append((cost, 1, tuple(parts)))
            count_max -= 1
        whole, begun = divmod(count, size)
        if whole:
            group = tuple((member, amount * size) for member, amount in members)
            joined.append((each * size, whole, group))
            count_max -= whole
        cost = each * begun
        parts = [(member, amount * begun) for member, amount in members]
    return joined


def _units(value: Decimal | None, scale: int) -> int:
    return 0 if value is None else units_of(f"{value:f}", scale)
