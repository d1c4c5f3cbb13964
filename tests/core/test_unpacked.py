"""Levels from binary updates: both implementations, hostile numbers, and what is kept of them."""

import pickle
import random
import re
import zlib
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from core.both import COMPILED, EACH, book_of, needs_compiled
from onebook.core import LevelError, reference
from onebook.orderbook import BookLevel, NetLevel

NAMES = ("bitstamp", "kraken", "okx", "xt")
SEEDS = 200  # `PYTHONPATH=tests python tests/core/test_unpacked.py 10000` runs more
END = 1 << 64
LARGE = (END - 1, 1 << 63, 10**19, 12345678901234567890)
NOTHING: list[list[int]] = [[], [], [], [], [], []]


def lists(bids: Any = (), asks: Any = (), **others: Any) -> list[list[int]]:
    """The lists of an update: levels, parts and prices before fees of both sides."""
    names = ("bid_parts", "ask_parts", "bid_gross", "ask_gross")
    return [list(each) for each in (bids, asks, *(others.get(name, ()) for name in names))]


def shown(levels: Any) -> Any:
    sides = levels.levels(0), levels.levels(1)
    gross = [getattr(level, "gross", None) for side in sides for level in side]
    kinds = [type(level) for side in sides for level in side]
    texts = [f"{number:f}" for side in sides for level in side for number in level[:2]]
    best = levels.best(0), levels.best(1)
    scales = levels.price_scale, levels.amount_scale
    return sides, gross, kinds, texts, best, levels.summary(), levels.checksum(), scales


def side_of(rng: random.Random, names: int, options: Any) -> list[list[int]]:
    """Levels, parts and prices before fees of one side: most of them valid."""
    split, gross, hostile = options
    numbers, count = list[int](), 0
    for at in range(rng.choice([0, 1, 3, 30])):
        step = rng.choice([1, 2, 7]) if at else rng.randint(200, 300)
        amount = rng.choice([0, 1, 5, 120, 10**9, rng.randrange(10**18)])
        members = rng.randrange(1 << min(names, 64))
        if hostile and rng.random() < 0.05:
            step, amount, members = (
                rng.choice([each, 0, *LARGE]) for each in (step, amount, members)
            )
        numbers += [step, amount] + [members] * (amount > 0)
        count += members.bit_count() if amount else 0
    if hostile and rng.random() < 0.1:
        del numbers[-1:]
    count += rng.choice([-1, 1]) if hostile and rng.random() < 0.1 else 0
    parts = [rng.choice([0, 1, 25, 10**9, *LARGE]) for _ in range(max(count, 0))]
    return [numbers, parts if split else [], parts[::-1] if gross else []]


def check(seed: int) -> Counter[str]:
    """Random updates give equal levels, or the same error and no change."""
    rng, found = random.Random(seed), Counter[str]()
    names = NAMES if rng.random() < 0.8 else [f"x{at}" for at in range(rng.choice([0, 64, 65]))]
    scales = [rng.choice([0, 2, 8, 18, 40, rng.randint(0, 41)]) for _ in range(3)]
    options = rng.random() < 0.5, rng.random() < 0.3, rng.random() < 0.5
    try:
        both = [core.PackedLevels(names, *scales) for core in (reference, COMPILED)]
    except LevelError as error:
        assert max(scales) > 40
        return Counter([str(error)])
    earlier = []
    for _ in range(rng.randint(1, 10)):
        bids, asks = side_of(rng, len(names), options), side_of(rng, len(names), options)
        update = [each for pair in zip(bids, asks, strict=True) for each in pair]
        after, errors = [], []
        for levels in both:
            try:
                after.append(levels.apply(*update))
            except LevelError as error:
                errors.append(str(error))
        assert not after or not errors, errors
        if errors:
            assert errors[0] == errors[1]
            found[errors[0]] += 1
        both = after or both
        states = [shown(levels) for levels in both]
        assert states[0] == states[1]
        earlier.append((both, states[0]))
        found["levels"] += len(states[0][0][0])
    for both, state in earlier:  # later updates changed none
        assert [shown(levels) for levels in both] == [state, state]
    return found


@needs_compiled
def test_random_updates_give_equal_levels_and_errors() -> None:
    found = Counter[str]()
    for seed in range(SEEDS):
        print("seed", seed)
        found += check(seed)
    sentences = {re.sub(r"\d+", "N", each) for each in found}
    assert sentences == {
        "levels", "has numbers of N decimals", "has a level that is cut off",
        "has a negative price", "has a price of more than N bits",
        "has a price twice", "names an exchange that is not in its table",
        "has more or fewer amounts than exchanges",
    }  # fmt: skip


@pytest.mark.parametrize("core", EACH)
def test_levels_are_exact(core: Any) -> None:
    update = lists(
        [1050, 2000, 0b101, 50, 10, 0b1000], [1060, 7, 0b10], bid_parts=[1500, 500, 10],
        ask_parts=[7], bid_gross=[10501, 10502, 10003], ask_gross=[10590],
    )  # fmt: skip
    levels = core.PackedLevels(NAMES, 1, 3, 2).apply(*update)
    assert levels.levels(0) == [
        BookLevel(
            Decimal("105"), Decimal(2), ("bitstamp", "okx"), (Decimal("1.5"), Decimal("0.5"))
        ),
        BookLevel(Decimal("100"), Decimal("0.01"), ("xt",), (Decimal("0.01"),)),
    ]
    (ask,) = levels.levels(1)
    assert ask == BookLevel(Decimal(106), Decimal("0.007"), ("kraken",), (Decimal("0.007"),))
    assert type(ask) is NetLevel
    assert ask.gross == (Decimal("105.9"),)
    assert levels.best(0).gross == (Decimal("105.01"), Decimal("105.02"))
    assert levels.summary() == (1050, 1060, 2010, 7, 4)
    assert levels.checksum() == zlib.crc32(b"105:2:100:0.01:106:0.007")


@pytest.mark.parametrize("core", EACH)
def test_the_checksum_is_of_the_best_levels(core: Any) -> None:
    empty = core.PackedLevels(NAMES, 40, 40, 0)
    assert empty.checksum() == zlib.crc32(b"")
    deep = [END - 1, END - 1, 1, *[1, END - 1, 1] * 29]
    levels = empty.apply(*lists(deep, [END - 30, *deep[1:]]))
    best = [
        f"{level.price:f}:{level.amount:f}" for side in (0, 1) for level in levels.levels(side)[:25]
    ]
    assert len(best) == 50
    assert levels.checksum() == zlib.crc32(":".join(best).encode())
    assert levels.summary()[2] == 30 * (END - 1)


@pytest.mark.parametrize("core", EACH)
def test_a_level_that_did_not_change_is_made_once(core: Any) -> None:
    before = core.PackedLevels(NAMES, 0, 0, 0).apply(*lists([100, 1, 1, 1, 2, 1], [101, 3, 2]))
    made = [*before.levels(0), *before.levels(1)]
    after = before.apply(*lists([100, 0, 1, 9, 1], [103, 4, 2]))
    assert [after.levels(0)[0].amount, *after.levels(1)] == [
        9,
        made[2],
        BookLevel(Decimal(103), Decimal(4), ("kraken",)),
    ]
    assert after.levels(1)[0] is made[2] is after.best(1)
    assert after.levels(0)[0] is after.best(0)
    assert before.levels(0)[0] is made[0]
    unchanged = after.apply(*NOTHING)
    assert unchanged.levels(0)[0] is after.best(0)
    assert core.PackedLevels(NAMES, 0, 0, 0).best(0) is None


@pytest.mark.parametrize("core", EACH)
def test_levels_can_be_copied_to_another_process(core: Any) -> None:
    update = lists([100, 1, 3], [101, 1, 1], bid_parts=[1, 0], bid_gross=[99, 98])
    levels = core.PackedLevels(NAMES, 1, 2, 3).apply(*update)
    copied = pickle.dumps(levels)
    assert shown(pickle.loads(copied)) == shown(levels)
    after = pickle.loads(copied).apply(*lists([100, 0, 7, 2, 1]))
    assert shown(after) == shown(levels.apply(*lists([100, 0, 7, 2, 1])))


@pytest.mark.parametrize("core", EACH)
@pytest.mark.parametrize(
    ("update", "fault"),
    [
        (lists([100]), "has a level that is cut off"),
        (lists([100, 1]), "has a level that is cut off"),
        (lists(asks=[100, 0, 1]), "has a level that is cut off"),
        (lists([100, 1, 1, 0, 2, 1]), "has a price twice"),
        (lists(asks=[100, 1, 1, 0, 0]), "has a price twice"),
        (lists([100, 1, 1, 101, 1, 1]), "has a negative price"),
        (lists([100, 1, 1, END - 1, 1, 1]), "has a negative price"),
        (lists(asks=[END - 1, 1, 1, 1, 1, 1]), "has a price of more than 64 bits"),
        (lists([100, 1, 1 << 4]), "names an exchange that is not in its table"),
        (lists([100, 1, 3], bid_parts=[1]), "has more or fewer amounts than exchanges"),
        (lists([100, 1, 3], bid_parts=[1, 2, 3]), "has more or fewer amounts than exchanges"),
        (lists(asks=[100, 1, 3], ask_gross=[1]), "has more or fewer amounts than exchanges"),
    ],
)
def test_an_invalid_update_changes_nothing(core: Any, update: Any, fault: str) -> None:
    levels = core.PackedLevels(NAMES, 0, 0, 0).apply(*lists([100, 1, 1], [101, 1, 1]))
    before = shown(levels)
    with pytest.raises(LevelError, match=f"^{fault}$"):
        levels.apply(*update)
    assert shown(levels) == before


@pytest.mark.parametrize("core", EACH)
def test_numbers_beyond_64_bits_of_one_view_are_not_packed(core: Any) -> None:
    """A price can be too large while its distance from the one before is not."""
    view = core.View(("a", "b"), depth=3)
    asks = [("18", "1"), ("19", "1")]
    view.merge([book_of(core, [("0.000000000000000001", "1")]), book_of(core, [], asks)])
    assert 18 * 10**18 < END < 19 * 10**18
    assert core.Packer(view).whole(1, 1, b"", checked=True) is None


if __name__ == "__main__":
    import sys

    for seed_ in range(int(sys.argv[1])):
        check(seed_)
    print(f"{sys.argv[1]} seeds: equal")
