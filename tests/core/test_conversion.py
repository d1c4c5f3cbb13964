"""Conversion into another currency: both implementations against raw levels in exact fractions."""

import random
from fractions import Fraction
from typing import Any

import pytest

from core.both import COMPILED, EACH, apply, book_of, needs_compiled, pairs
from core.conversions import (
    Book,
    Level,
    World,
    decimals_of,
    expected,
    orders,
    pooled,
    random_book,
    rates,
    taker,
)
from onebook.core import LEVELS_MAX, reference

NAMES = ("bitstamp:USD", "kraken:USD", "okx:USD")
THROUGH = ("bitstamp", "kraken")
PERCENTS = ("0", "0.1", "0.075", "-0.02", "0.25", "10", "-10")
SEEDS = 60  # `PYTHONPATH=tests python tests/core/test_conversion.py 10000` runs more


def true_cost(world: World, side: int, size: Fraction) -> Fraction | None:
    """Return what a size costs, or yields, if each order and each conversion is at its best."""
    other = Fraction(0)
    for net, _, _, amount, _ in orders(world, side):
        taken = min(amount, size)
        other += taken * net
        size -= taken
    if size:
        return None
    cost = Fraction(0)
    for rate, capacity in rates(world, side):
        taken = min(capacity, other)
        cost += taken * rate
        other -= taken
    return cost if not other else None


def shown(book: Any, side: int) -> list[Level]:
    return [
        (Fraction(price, 10**book.price_scale), Fraction(amount, 10**book.amount_scale))
        for price, amount in book.ladder(side)
    ]


def random_world(random_: random.Random) -> World:
    price = random_.choice((0.5, 100, 97_000, 150_000_000))
    amount = random_.choice((3, 500, 80_000))
    rate = random_.choice((0.9998, 1.0, 6.5, 1_400, 0.00071))
    inverse = random_.random() < 0.5
    total = price * amount * random_.choice((0.2, 1, 5)) / (rate if inverse else 1)
    return World(
        [random_book(random_, price, amount) for _ in NAMES],
        [random_.choice(PERCENTS) for _ in NAMES],
        [random_book(random_, rate, total) for _ in THROUGH],
        [random_.choice(PERCENTS) for _ in THROUGH],
        inverse,
    )


def opened(core: Any, book: Book | None) -> Any:
    return None if book is None else book_of(core, *(side.items() for side in book))


def check(core: Any, seed: int) -> None:
    """Convert one random world, and compare it with fractions and with the true cost."""
    random_ = random.Random(seed)
    world = random_world(random_)
    depth = random_.choice((1, 2, 9, LEVELS_MAX))
    net = random_.random() < 0.5
    if random_.random() < 0.3:
        world = world._replace(fees=["0.1"] * len(NAMES))
    conversion = core.Conversion(
        NAMES,
        THROUGH,
        inverse=world.inverse,
        fees=world.fees,
        through_fees=world.through_fees,
        net=net,
    )
    books = [opened(core, book) for book in world.books]
    found = conversion.convert(books, [opened(core, book) for book in world.through], depth=depth)
    decimals = decimals_of(world)
    assert [book is None for book in found] == [book is None for book in world.books], seed
    for side in (0, 1):
        levels = [[] if book is None else shown(book, side) for book in found]
        whole = expected(world, side, decimals)
        assert [all_[: len(own)] for own, all_ in zip(levels, whole, strict=True)] == levels, seed
        best, all_best = (pooled(each, world.fees, side, net=net) for each in (levels, whole))
        assert best[:depth] == all_best[:depth], (seed, side)
        check_cost(world, side, levels, decimals, seed)
        unit, sign = Fraction(1, 10**decimals), 1 if side else -1
        for at, book in enumerate(found):
            if book is None:
                continue
            raw, own = world.books[at], levels[at]
            check_end(side, own, whole[at], book, raw and raw[side], unit, seed)
            end = book.horizon()[side]
            if net and end is not None and len(own) < len(whole[at]):
                beyond = taker(str(Fraction(end) + sign * unit), world.fees[at], side)
                assert sign * beyond >= sign * best[:depth][-1][0], (seed, side)


def check_end(
    side: int, own: list[Level], whole: list[Level], book: Any, raw: Any, unit: Fraction, seed: int
) -> None:
    """Check the horizon of a converted book: no level within it is missing."""
    end, sign = book.horizon()[side], 1 if side else -1
    if sum(amount for _, amount in own) == sum(map(Fraction, raw.values())):
        assert end is None, (seed, side)
    elif end is None:
        assert not own, (seed, side)
        assert own == whole, (seed, side)
    else:
        assert not own or sign * Fraction(end) >= sign * own[-1][0], (seed, side)
        if len(own) < len(whole):
            missing = sign * (whole[len(own)][0] - Fraction(end))
            assert missing >= unit, (seed, side)


def check_cost(
    world: World, side: int, levels: list[list[Level]], decimals: int, seed: int
) -> None:
    """Check that the converted books together promise no better price than the truth."""
    sign = 1 if side else -1
    merged = sorted(
        (price * (1 + sign * Fraction(fee) / 100), amount)
        for own, fee in zip(levels, world.fees, strict=True)
        for price, amount in own
    )
    if side == 0:
        merged.reverse()
    size = cost = Fraction(0)
    for price, amount in merged:
        size += amount
        cost += amount * price
        truth = true_cost(world, side, size)
        assert truth is not None, seed
        assert sign * cost >= sign * truth, (seed, side)


@pytest.mark.parametrize("core", EACH)
def test_converted_books_are_what_exact_fractions_say(core: Any) -> None:
    for seed in range(SEEDS):
        check(core, seed)


@pytest.mark.parametrize("core", EACH)
def test_each_unit_costs_what_it_costs_at_the_conversion_level_that_it_reaches(core: Any) -> None:
    conversion = core.Conversion(("kraken:USDC",), ("kraken",))
    book = book_of(core, [("99.98", "3")], [("100", "2"), ("101", "1.5")])
    through = book_of(core, [("0.9997", "100000")], [("1.0001", "150"), ("1.0003", "100000")])
    (found,) = conversion.convert([book], [through])
    assert found.top(9) == (
        [("99.950006", "3")],
        [("100.01", "1.5"), ("100.03", "0.5"), ("101.0303", "1.5")],
    )
    assert found.horizon() == (None, None)


@pytest.mark.parametrize("core", EACH)
def test_an_inverse_book_is_taken_from_its_other_side_and_rounded_to_the_worse(core: Any) -> None:
    conversion = core.Conversion(("kraken:USD",), ("kraken",), inverse=True)
    book = book_of(core, [("99", "1")], [("100", "1")])
    through = book_of(core, [("0.9997", "100000")], [("0.9998", "100000")])
    (found,) = conversion.convert([book], [through])
    assert found.top(9) == ([("99.01980396", "1")], [("100.030009003", "1")])
    assert 99 / Fraction("0.9998") > Fraction("99.01980396")
    assert 100 / Fraction("0.9997") < Fraction("100.030009003")


@pytest.mark.parametrize("core", EACH)
def test_books_share_what_the_conversion_book_has(core: Any) -> None:
    conversion = core.Conversion(("kraken:USDC", "okx:USDC"), ("binance",))
    books = [book_of(core, [], [("100", "1")]), book_of(core, [], [("100.5", "1")])]
    through = book_of(core, [], [("1", "100"), ("1.1", "1000")])
    kraken, okx = conversion.convert(books, [through])
    assert kraken.top(9)[1] == [("100", "1")]
    assert okx.top(9)[1] == [("110.55", "1")]
    (alone, okx) = conversion.convert([None, books[1]], [through])
    assert alone is None
    assert okx.top(9)[1] == [("110.55", "1")]  # 0.995 of its one unit fit


@pytest.mark.parametrize("core", EACH)
def test_a_conversion_follows_each_change_of_its_books_and_of_the_rates_that_it_uses(
    core: Any,
) -> None:
    for seed in range(SEEDS):
        random_ = random.Random(seed)
        world = random_world(random_)
        fees = {"inverse": world.inverse, "fees": world.fees, "through_fees": world.through_fees}
        kept = core.Conversion(NAMES, THROUGH, **fees)
        groups = [[*world.books], [*world.through]]
        opened_groups = [[opened(core, book) for book in group] for group in groups]
        for _ in range(12):
            at = random_.randrange(2)
            of = random_.randrange(len(groups[at]))
            raw, book = groups[at][of], opened_groups[at][of]
            action = random_.random()
            if raw is None or action < 0.2:
                lives = book is not None
                opened_groups[at][of] = None if lives else opened(core, raw)
            elif book is not None and action < 0.7:
                side = random_.randrange(2)
                price, amount = random_.choice([*raw[side].items()] or [("0.5", "1")])
                amount = random_.choice(("0", amount, "7"))
                apply(book, *([(price, amount)] if each == side else [] for each in (0, 1)))
            fresh = core.Conversion(NAMES, THROUGH, **fees)
            found = [each.convert(*opened_groups, depth=5) for each in (kept, fresh)]
            shown_of = [
                [book and (book.top(9), book.horizon(), book.price_scale) for book in books]
                for books in found
            ]
            assert shown_of[0] == shown_of[1], seed
            assert kept.top() == fresh.top(), seed


@needs_compiled
@pytest.mark.parametrize("inverse", [False, True])
def test_a_conversion_uses_as_many_rates_as_it_needs(inverse: bool) -> None:
    """Deep conversion books: only a few rates are merged at first, all if these are too few."""
    random_ = random.Random(11)
    prices = [f"{1 + (-at if inverse else at) / 10_000:.4f}" for at in range(300)]
    cores = (COMPILED, reference)
    through = [
        [book_of(core, *sided([(price, "100") for price in prices], inverse)) for _ in range(2)]
        for core in cores
    ]
    kept = COMPILED.Conversion(("a", "b"), ("x", "y"), inverse=inverse)
    counts = set()
    for size in (1, 40, 3, 200, 1, 1, 590, 700, 2, 61, 62, 63, 64, 65, 66, 131):
        for price in random_.sample([*prices[:2], prices[70], prices[-1]], 2):
            change = [(price, str(random_.randrange(1, 100)))]
            for books in through:
                apply(books[0], *sided(change, inverse))
            found = []
            fresh = reference.Conversion(("a", "b"), ("x", "y"), inverse=inverse)
            for core, conversion, rate_books in zip(cores, (kept, fresh), through, strict=True):
                rows = [[("100", str(size)), ("101", "0.5")], [("100.5", "2")]]
                books = [book_of(core, [("99", "1")], each) for each in rows]
                converted = conversion.convert(books, rate_books)
                found.append([(shown(each, 1), each.horizon()) for each in converted])
            assert found[0] == found[1], size
            counts.add(len(found[0][0][0]))
    assert min(counts) == 2
    assert max(counts) == 300  # a level for each rate, and not enough of them


def sided(levels: list[tuple[str, str]], inverse: bool) -> tuple[Any, Any]:
    """Return bids and asks, with the levels on the side that a buyer of the members takes."""
    return (levels, []) if inverse else ([], levels)


@pytest.mark.parametrize("core", EACH)
def test_without_a_live_conversion_book_there_are_no_levels(core: Any) -> None:
    conversion = core.Conversion(("kraken:USDC",), ("kraken", "okx"))
    (found,) = conversion.convert([book_of(core, [("99", "1")], [("100", "1")])], [None, None])
    assert found.top(9) == ([], [])


@pytest.mark.parametrize("core", EACH)
def test_a_fast_top_is_converted_in_place_of_the_levels_that_it_covers(core: Any) -> None:
    conversion = core.Conversion(("kraken:USDC",), ("kraken",))
    book = book_of(core, [("99", "1")], [("100", "1"), ("102", "2")])
    book.overlay(pairs([("99.5", "4")]), pairs([("101", "3")]))
    through = book_of(core, [("2", "9999")], [("3", "9999")])
    (found,) = conversion.convert([book], [through])
    assert found.top(9) == ([("199", "4"), ("198", "1")], [("303", "3"), ("306", "2")])


@needs_compiled
def test_both_implementations_have_the_same_levels_and_horizons() -> None:
    for seed in range(SEEDS):
        random_ = random.Random(seed)
        world, depth, net = random_world(random_), random_.choice((1, 3)), bool(seed % 2)
        found = []
        for core in (COMPILED, reference):
            conversion = core.Conversion(
                NAMES,
                THROUGH,
                inverse=world.inverse,
                fees=world.fees,
                through_fees=world.through_fees,
                net=net,
            )
            books, through = (
                [opened(core, book) for book in group] for group in (world.books, world.through)
            )
            converted = conversion.convert(books, through, depth=depth)
            found.append([book and (book.top(9), book.horizon()) for book in converted])
        assert found[0] == found[1], seed


@needs_compiled
@pytest.mark.parametrize("inverse", [False, True])
def test_numbers_beyond_128_bits_are_converted_by_both_implementations(inverse: bool) -> None:
    random_ = random.Random(7)
    for _ in range(40):
        rows = [
            (
                f"{random_.randrange(1, 10**9)}.{random_.randrange(1, 10**9):09}",
                "123456789.123456789",
            )
            for _ in range(3)
        ]
        through = [("0.123456789012345678", "1"), ("1", f"{random_.randrange(10**17, 10**18)}")]
        tops = []
        for core in (COMPILED, reference):
            conversion = core.Conversion(
                ("a",), ("b",), inverse=inverse, fees=("0.000001",), through_fees=("0.999999",)
            )
            book, conversion_book = core.Book(), core.Book()
            apply(book, (), rows)
            apply(conversion_book, *(([], through[:1]) if not inverse else (through[1:], [])))
            (found,) = conversion.convert([book], [conversion_book])
            tops.append((found.top(9), found.horizon(), found.price_scale, found.amount_scale))
        assert tops[0] == tops[1]


if __name__ == "__main__":
    import sys

    for seed_ in range(int(sys.argv[1])):
        check(COMPILED, seed_)
    print(f"{sys.argv[1]} seeds: equal")
