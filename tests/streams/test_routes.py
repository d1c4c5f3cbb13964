"""Routes: the best split after fees, against all possible splits, in exact fractions."""

import random
import sys
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import lcm

import pytest

from onebook.fees import fee_factors
from onebook.fill import BookEnds, size_texts
from onebook.routes import RouteSide, Rules, routes

NAMES = ("kraken", "okx", "xt")
FEES = ("0", "0.1", "0.26", "-0.05", "1.5", "5")
CHAINS = (("1", "1", "1"), ("1", "2", "4"), ("5", "1", "10"), ("2", "10", "2"), (None, "5", "1"))
ODD = ("3", "2", "7")  # lots that do not divide each other
SEEDS = 150  # `PYTHONPATH=tests python tests/streams/test_routes.py 10000` runs more


def side_of(books, fees, direction):
    """Return a `RouteSide` of {name: [(price, amount)]}, with two decimals of price and none."""
    buys = direction == "buy"
    scale, pairs = fee_factors(fees)
    factors = [pair[buys] for pair in pairs]
    orders = [
        (price * factor, amount, member)
        for member, (name, factor) in enumerate(zip(NAMES, factors, strict=True))
        for price, amount in books.get(name, ())
    ]
    orders.sort(key=lambda order: (order[0] if buys else -order[0], -order[1], order[2]))
    return RouteSide(orders, factors, scale, 2 + scale, 0)


def cost_of(rows, amount, fee, *, buys):
    """Return what an amount costs after the fee and before it; None if there is less."""
    gross = Fraction(0)
    for price, held in rows:
        taken = min(held, amount)
        gross, amount = gross + taken * Fraction(price, 100), amount - taken
    if amount > 0:
        return None
    return gross * (1 + (1 if buys else -1) * Fraction(fee) / 100), gross


def every_split(books, fees, rules, size, most, *, buys):
    """Return (amount, net) of the best split, by trying all of them in whole units."""
    choices = []
    for name, fee in zip(NAMES, fees, strict=True):
        rows, rule = books.get(name, ()), rules.get(name, Rules())
        found = [(0, Fraction(0))]
        for amount in range(1, sum(held for _, held in rows) + 1):
            net, gross = cost_of(rows, amount, fee, buys=buys)
            if (
                amount % (rule.lot or 1) == 0
                and amount >= (rule.least or 0)
                and gross >= Fraction(rule.least_notional or 0)
            ):
                found.append((amount, net))
        choices.append(found)
    best = (0, Fraction(0))
    for split in product(*choices):
        amount = sum(part for part, _ in split)
        net = sum(cost for _, cost in split)
        if amount > size or sum(1 for part, _ in split if part) > most:
            continue
        sign = -1 if buys else 1
        best = max(best, (amount, sign * net), key=lambda each: (each[0], each[1]))
    return best[0], abs(best[1])


def near_books(books, fees, rules, size, *, buys):
    """Return the levels that cover a size, plus one largest lot on each exchange."""
    sign = 1 if buys else -1
    orders = sorted(
        (sign * price * (1 + sign * Fraction(fee) / 100), -held, at, price)
        for at, (name, fee) in enumerate(zip(NAMES, fees, strict=True))
        for price, held in books.get(name, ())
    )
    wanted = size + 3 * lcm(*(int(each.lot) for each in rules.values()))
    near, total = {name: [] for name in NAMES}, 0
    for _, held, at, price in orders:
        if total >= wanted:
            break
        near[NAMES[at]].append((price, -held))
        total -= held
    return near


def ideal(books, fees, amount, *, buys):
    """Return what an amount costs without rules: single orders by net price."""
    sign = 1 if buys else -1
    orders = sorted(
        (sign * Fraction(price, 100) * (1 + sign * Fraction(fee) / 100), held)
        for name, fee in zip(NAMES, fees, strict=True)
        for price, held in books.get(name, ())
    )
    cost = Fraction(0)
    for price, held in orders:
        taken = min(held, amount)
        cost, amount = cost + sign * price * taken, amount - taken
    return cost


def random_case(seed):
    random_ = random.Random(seed)
    direction = random_.choice(("buy", "sell"))
    buys = direction == "buy"
    books = {}
    for name in NAMES:
        prices = random_.sample(range(990, 1010), random_.randrange(0, 6))
        books[name] = [
            (price, random_.randrange(1, 7)) for price in sorted(prices, reverse=not buys)
        ]
    fees = [random_.choice(FEES) for _ in NAMES]
    lots = random_.choice((*CHAINS, *CHAINS, ODD))
    rules = {}
    for name, lot in zip(NAMES, lots, strict=True):
        least = Decimal(random_.randrange(1, 9)) if random_.random() < 0.4 else None
        notional = Decimal(random_.randrange(1, 90)) if random_.random() < 0.3 else None
        rules[name] = Rules(Decimal(lot) if lot else Decimal(1), least, notional)
    most = random_.choice((None, None, 1, 2))
    size = random_.randrange(1, 24)
    return direction, books, fees, rules, most, size, lots is ODD


def check(seed):
    direction, books, fees, rules, most, size, odd = random_case(seed)
    buys = direction == "buy"
    side = side_of(books, fees, direction)
    (route,) = routes(side, direction, (str(size),), (), NAMES, [], rules, most)
    amount, net = every_split(books, fees, rules, size, most or 3, buys=buys)
    check_parts(route, books, fees, rules, most)
    if route.exact:
        near = near_books(books, fees, rules, size, buys=buys)
        assert (Fraction(route.amount), Fraction(route.net)) in (
            (amount, net),
            every_split(near, fees, rules, size, most or 3, buys=buys),
        ), seed
    else:
        assert odd, seed  # a book of three exchanges never has too many branches
        assert route.amount <= amount, seed
        assert route.amount < amount or (Fraction(route.net) - net) * (1 if buys else -1) >= 0, seed
    sign = 1 if buys else -1
    best = ideal(books, fees, Fraction(route.amount), buys=buys)
    assert Fraction(route.extra) == sign * (Fraction(route.net) - best) >= 0, seed
    held = sum(amount for rows in books.values() for _, amount in rows)
    assert Fraction(route.unplaced) == min(size, held) - Fraction(route.amount), seed
    assert route.complete == (route.amount == size), seed
    return route


def check_parts(route, books, fees, rules, most):
    """The parts are in the books, add up, and keep the rules."""
    buys = route.direction == "buy"
    assert len(route.split) <= (most or 3)
    for name, part in route.split.items():
        rule, fee = rules.get(name, Rules()), fees[NAMES.index(name)]
        assert part.amount % (rule.lot or 1) == 0
        assert part.amount >= (rule.least or 0)
        assert part.notional >= (rule.least_notional or 0)
        _, gross = cost_of(books[name], Fraction(part.amount), fee, buys=buys)
        assert Fraction(part.notional) == gross
        assert Fraction(part.fee) == gross * Fraction(fee) / 100
        better = [
            a for p, a in books[name] if (p < part.limit * 100) == buys or p == part.limit * 100
        ]
        assert sum(better) >= part.amount
    assert sum(part.amount for part in route.split.values()) == route.amount
    assert sum(part.notional for part in route.split.values()) == route.notional
    assert sum(part.fee for part in route.split.values()) == route.fees
    assert route.notional + (route.fees if buys else -route.fees) == route.net


def check_notional(seed):
    """The amount for a notional: never above it, and all of it without rules."""
    direction, books, fees, rules, most, size, _ = random_case(seed)
    buys, size = direction == "buy", size * 10
    side = side_of(books, fees, direction)
    free, kept = (
        routes(side, direction, (), (str(size),), NAMES, [], each, limit)[0]
        for each, limit in (({}, None), (rules, most))
    )
    assert free.net <= size
    if free.complete:
        assert size - free.net < Decimal("1e-16"), seed
    assert Fraction(free.extra) <= Fraction(1, 10**15)
    check_parts(kept, books, fees, rules, most)
    if buys:
        assert kept.net <= size, seed


def test_a_route_is_the_best_of_all_splits():
    found = [check(seed) for seed in range(SEEDS)]
    assert sum(each.extra > 0 for each in found) > SEEDS / 10  # rules did cost something
    assert sum(each.unplaced > 0 for each in found) > SEEDS / 10


def test_a_notional_is_never_exceeded():
    for seed in range(SEEDS):
        check_notional(seed)


def test_the_split_after_fees_is_not_the_gross_split():
    books = {"kraken": [(1000, 5)], "okx": [(1001, 5)]}
    side = side_of(books, ["0.26", "0.1", "0"], "buy")
    (route,) = routes(side, "buy", ("5",), (), NAMES, [], {})
    assert route.split == {
        "okx": (Decimal(5), Decimal("50.05"), Decimal("0.05005"), Decimal("10.01"))
    }
    assert (route.net, route.net_average) == (Decimal("50.10005"), Decimal("10.02001"))
    assert (route.worst, route.average) == (Decimal("10.02001"), Decimal("10.01"))
    assert route.unknown_rules == ("okx",)


def test_a_book_that_ends_before_the_worst_net_price_is_uncovered():
    books = {"kraken": [(1000, 5)], "okx": [(1001, 5)]}
    ends = [
        BookEnds("kraken", None, Decimal("10.00")),  # 10.02 net: beyond the worst, 10.02001
        BookEnds("okx", None, Decimal("10.01")),
        BookEnds("xt", None, Decimal("10.03")),
    ]
    side = side_of(books, ["0.2", "0.1", "0"], "buy")
    found = routes(side, "buy", ("5", "10", "11"), (), NAMES, ends, {})
    assert [each.uncovered for each in found] == [(), ("kraken",), ("kraken", "okx", "xt")]
    assert [each.complete for each in found] == [True, True, False]


def test_a_search_that_is_cut_short_says_so_and_keeps_the_rules():
    random_ = random.Random(7)
    names = tuple(f"exchange{number}" for number in range(30))
    orders = [
        (random_.randrange(1_000, 1_200), random_.randrange(10, 30), member) for member in range(30)
    ]
    orders.sort(key=lambda order: (order[0], -order[1], order[2]))
    side = RouteSide(orders, [1] * 30, 0, 2, 0)
    rules = {name: Rules(Decimal(1), Decimal(9), None) for name in names}
    (route,) = routes(side, "buy", ("260",), (), names, [], rules, 10)
    assert not route.exact
    assert len(route.split) <= 10
    assert all(part.amount >= 9 for part in route.split.values())
    assert 0 < route.amount <= 260


@pytest.mark.parametrize("direction", ["buy", "sell"])
def test_an_empty_book_gives_an_empty_route(direction):
    side = side_of({}, ["0", "0", "0"], direction)
    for found in routes(side, direction, ("1",), size_texts("notional", ["5"]), NAMES, [], {}):
        assert (found.amount, found.net, found.net_average) == (0, 0, None)
        assert (found.complete, found.split) == (False, {})


if __name__ == "__main__":
    for seed_ in range(int(sys.argv[1])):
        check(seed_)
        check_notional(seed_)
    print(f"{sys.argv[1]} seeds: equal")
