"""One side of a book, in both implementations: sorted after any insertion and removal."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.both import COMPILED, EACH, apply, needs_compiled, pairs
from onebook.core.types import LEVELS_MAX

pytestmark = pytest.mark.parametrize("core", EACH)
LEVEL_BYTES_MAX = 20


def test_levels_beyond_the_depth_fall_off_after_each_frame(core: Any) -> None:
    book = core.Book(3)
    book.replace(
        pairs([(str(n), "1") for n in range(1, 8)]), pairs([(str(n), "1") for n in range(10, 17)])
    )
    assert book.top(9) == (
        [("7", "1"), ("6", "1"), ("5", "1")],
        [("10", "1"), ("11", "1"), ("12", "1")],
    )
    apply(book, [("5.5", "1"), ("7", "0"), ("1", "1")], [("9", "1"), ("20", "1")])
    assert book.top(9) == (
        [("6", "1"), ("5.5", "1"), ("5", "1")],
        [("9", "1"), ("10", "1"), ("11", "1")],
    )


def test_deep_books_keep_their_order_through_any_change(core: Any) -> None:
    book = core.Book(1_000)
    prices = [str(n * 7919 % 5003 + 1) for n in range(5_003)]
    for at in range(0, len(prices), 97):
        apply(
            book, [(p, "1") for p in prices[at : at + 97]], [(p, "2") for p in prices[at : at + 97]]
        )
    assert book.top(2_000)[0] == [(str(n), "1") for n in range(5_003, 4_003, -1)]
    assert book.top(2_000)[1] == [(str(n), "2") for n in range(1, 1_001)]
    for at in range(1, 1_001, 3):
        apply(book, [(str(5_003 - at), "0")], [(str(at + 1), "0"), (str(at), "0")])
    assert [p for p, _ in book.top(2_000)[0]] == [
        str(5_003 - n) for n in range(1_000) if n % 3 != 1
    ]
    assert [p for p, _ in book.top(2_000)[1]] == [str(n) for n in range(3, 1_000, 3)]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 900), st.integers(0, 3)), min_size=1, max_size=400),
        max_size=12,
    ),
    st.sampled_from([7, 300, LEVELS_MAX]),
)
@settings(max_examples=60)
def test_a_side_is_a_sorted_dict_cut_at_its_worst(
    core: Any, frames: list[list[tuple[int, int]]], levels_max: int
) -> None:
    """Frames at both ends, in the middle and at random split, join and drop blocks."""
    book = core.Book(levels_max)
    held: dict[int, int] = {}
    for frame in frames:
        apply(book, [(str(price), str(amount)) for price, amount in frame])
        held |= dict(frame)
        held = {price: held[price] for price in sorted(held, reverse=True) if held[price]}
        held = dict([*held.items()][:levels_max])
        assert [*book.ladder(0)] == [*held.items()]
        assert book.bid_count == len(held)


def test_a_whole_book_may_be_in_any_order_and_have_a_price_twice(core: Any) -> None:
    rows = [(str(price), "1") for price in range(1, 400)]
    for found in (rows, rows[::-1], [*rows, ("7", "2")], [("7", "2"), *rows[::-1], ("7", "3")]):
        book = core.Book()
        book.replace(pairs(found), pairs(found))
        expected = sorted(dict(found).items(), key=lambda row: int(row[0]))
        assert book.top(500) == (expected[::-1], expected)


def test_changes_all_over_a_deep_book_keep_it_sorted(core: Any) -> None:
    """Shrink the book to a tenth and refill it, at random prices and far away."""
    random_ = random.Random(8)
    book = core.Book()
    held = dict.fromkeys(range(10_000, 20_000), 1)
    book.replace(pairs([(str(price), "1") for price in held]), b"[]")
    for low, high, gone in (
        (10_000, 20_000, 0.9), (10_000, 30_000, 0.3), (10_000, 30_000, 0.7), (50_000, 51_000, 0.5),
    ):  # fmt: skip
        for _ in range(60):
            frame = {
                random_.randrange(low, high): int(random_.random() >= gone) for _ in range(400)
            }
            apply(book, [(str(price), str(amount)) for price, amount in frame.items()])
            held |= frame
        held = {price: held[price] for price in sorted(held, reverse=True) if held[price]}
        assert [*book.ladder(0)] == [*held.items()]


@needs_compiled
def test_a_deep_book_stays_compact_while_levels_come_and_go(core: Any) -> None:
    if core is not COMPILED:
        pytest.skip("memory of the reference is not that of blocks")
    random_ = random.Random(9)
    book = core.Book()
    held = [*range(0, 2_000_000, 100)]
    book.replace(b"[]", pairs([(str(price + 1), "1") for price in held]))
    assert book.nbytes / book.ask_count <= LEVEL_BYTES_MAX
    for turn in range(300):
        gone = {held.pop(random_.randrange(len(held))) for _ in range(200)}
        new = {random_.randrange(2_000_000) for _ in range(200)}
        held += new
        apply(book, [], [(str(price + 1), "0") for price in gone])
        apply(book, [], [(str(price + 1), "1") for price in new])
        if turn % 50 == 49:
            assert book.nbytes / book.ask_count <= LEVEL_BYTES_MAX
