"""One side of a book, in both implementations: sorted, whatever is put and dropped where."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.both import EACH, apply, pairs
from onebook.core.types import LEVELS_MAX

pytestmark = pytest.mark.parametrize("core", EACH)


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
