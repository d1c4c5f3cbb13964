"""The merge of many books, in both implementations, beside sums in a dict."""

import json
from collections import defaultdict
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from random import Random
from typing import Any

import pytest

from core.both import EACH, pairs
from onebook.core.types import MEMBERS_MAX

pytestmark = pytest.mark.parametrize("core", EACH)

Sides = list[dict[Decimal, Decimal]]


def random_book(core: Any, dice: Random, count: int) -> tuple[Any, Sides]:
    """A book with its own scales, and its expected levels."""
    price, amount = (Decimal(1).scaleb(-dice.randrange(6)) for _ in range(2))
    sides: Sides = []
    for start, sign in ((100, -1), (101, 1)):
        steps = sorted(dice.sample(range(3 * count), count))
        sides.append({start + sign * n * price: dice.randrange(1, 10**6) * amount for n in steps})
    held = [{p: q for p, q in side.items() if p > 0} for side in sides]
    book = core.Book()
    book.replace(*(pairs([(f"{p:f}", f"{q:f}") for p, q in side.items()]) for side in held))
    return book, held


def expected(books: list[Sides], side: int, depth: int, step: Decimal | None) -> list[Any]:
    sums: dict[Decimal, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for index, sides in enumerate(books):
        for price, amount in sides[side].items():
            if step:
                rounding = ROUND_CEILING if side else ROUND_FLOOR
                price = (price / step).to_integral_value(rounding) * step
            sums[price][f"e{index}"] += amount
    best = sorted(sums, reverse=not side)[:depth]
    return [[p, sum(sums[p].values()), [[*each] for each in sums[p].items()]] for p in best]


@pytest.mark.parametrize("step", [None, "0.5", "3"])
@pytest.mark.parametrize("members", [1, 2, 3, 4, 5, 9, MEMBERS_MAX])
def test_a_merge_is_the_sum_of_its_members_at_each_price(
    core: Any, members: int, step: str | None
) -> None:
    made = [random_book(core, Random(seed), 40) for seed in range(members)]
    view = core.View(
        [f"e{n}" for n in range(members)], depth=25, group=step, split=True, arrays=True
    )
    assert view.merge([book for book, _ in made]) is True
    found = json.loads(view.full(b"{", b"}"), parse_float=Decimal, parse_int=Decimal)
    for side, name in enumerate(("bids", "asks")):
        truth = expected([sides for _, sides in made], side, 25, Decimal(step) if step else None)
        assert found[name] == truth


def test_an_empty_side_ends_a_merge_without_it(core: Any) -> None:
    books = [core.Book() for _ in range(3)]
    books[1].replace(b'[["1","2"]]', b"")
    view = core.View(["a", "b", "c"], depth=5, arrays=True)
    view.merge(books)
    assert json.loads(view.full(b"{", b"}"))["bids"] == [[1, 2]]
    assert json.loads(view.full(b"{", b"}"))["asks"] == []
