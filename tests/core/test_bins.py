"""One side of a book binned by a price step, in both implementations, against plain arithmetic."""

import tracemalloc
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.both import EACH, pairs
from onebook.core.types import SCALE_MAX

pytestmark = pytest.mark.parametrize("core", EACH)

UNIT = 10**SCALE_MAX
DEEP = 5_000  # levels a side
MERGE_BYTES_MAX = 200_000  # a list of that many levels takes more


def opened(core: Any, bids: list[tuple[str, str]], asks: list[tuple[str, str]]) -> Any:
    book = core.Book()
    book.replace(pairs(bids), pairs(asks))
    return book


def units(price: str) -> int:
    return int(Decimal(price) * UNIT)


def test_bids_are_rounded_down_and_asks_up(core: Any) -> None:
    book = opened(
        core,
        [("10.4", "1"), ("10", "2"), ("9.9", "3")],
        [("10.5", "4"), ("11", "5"), ("11.1", "6")],
    )
    assert book.bins(0, units("1"), 9) == [(units("10"), 3), (units("9"), 3)]
    assert book.bins(1, units("1"), 9) == [(units("11"), 9), (units("12"), 6)]
    assert book.bins(1, units("1"), 1) == [(units("11"), 9)]
    assert book.bins(0, units("1"), 0) == []


def test_bids_below_one_step_are_in_no_bin(core: Any) -> None:
    book = opened(core, [("1.5", "1"), ("0.9", "2"), ("0.1", "3")], [("0.2", "4")])
    assert book.bins(0, units("1"), 9) == [(units("1"), 1)]
    assert book.bins(0, units("2"), 9) == []
    assert book.bins(1, units("1"), 9) == [(units("1"), 4)]


def test_without_a_step_each_level_is_a_bin(core: Any) -> None:
    book = opened(core, [("2", "1.5"), ("0.01", "2")], [])
    assert book.bins(0, 0, 9) == [(units("2"), 15), (units("0.01"), 20)]
    assert book.bins(1, 0, 9) == []


def test_a_side_that_no_book_has_is_an_error(core: Any) -> None:
    with pytest.raises(IndexError):
        core.Book().bins(2, 0, 1)


def test_a_step_finer_than_the_ticks_moves_prices(core: Any) -> None:
    book = opened(core, [("0.5", "1")], [("0.7", "1")])
    assert book.bins(0, units("0.3"), 1) == [(units("0.3"), 1)]
    assert book.bins(1, units("0.3"), 1) == [(units("0.9"), 1)]


def test_prices_steps_and_sums_beyond_64_bits_are_exact(core: Any) -> None:
    most = "9" * 18
    rows = [(str(int(most) - n), most) for n in range(40)]
    book = opened(core, rows, rows)
    step = 10**20 * UNIT // 100
    assert book.bins(0, 0, 1) == [(int(most) * UNIT, int(most))]
    assert book.bins(1, step, 5) == [(step, 40 * int(most))]


@given(
    st.dictionaries(st.integers(1, 10**6), st.integers(1, 10**17), min_size=1, max_size=300),
    st.sampled_from(["0", "0.0001", "0.007", "1", "2.5", "1000"]),
    st.integers(1, 50),
)
def test_bins_are_what_arithmetic_says(
    core: Any, levels: dict[int, int], step: str, count: int
) -> None:
    rows = [(str(Decimal(price) / 1_000), str(amount)) for price, amount in levels.items()]
    width = units(step)
    for side, book in enumerate((opened(core, rows, []), opened(core, [], rows))):
        amounts = 10**book.amount_scale
        expected: dict[int, int] = {}
        for price, amount in levels.items():
            price *= UNIT // 1_000
            if width:
                price = (price + (width - 1 if side else 0)) // width * width
            expected[price] = expected.get(price, 0) + amount * amounts
        expected.pop(0, None)
        best = sorted(expected.items(), reverse=not side)[:count]
        assert book.bins(side, width, count) == best


@pytest.mark.parametrize(("group", "summed"), [(None, 1), ("1000", 1_000)])
def test_a_view_of_sums_beyond_64_bits_reads_no_more_of_deep_books_than_it_shows(
    core: Any, group: str | None, summed: int
) -> None:
    """The cost of such a view must not grow with its books, or it would block the node."""
    most = "9" * 18
    rows = [(str(price), most) for price in range(DEEP)][1:]
    books = [opened(core, rows, [("9999", "1")]) for _ in range(4)]
    books.append(opened(core, [("1", "0.00000001")], [("9999", "1")]))
    view = core.View(["a", "b", "c", "d", "e"], depth=10, group=group)
    tracemalloc.start()
    try:
        assert view.merge(books) is True
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MERGE_BYTES_MAX
    levels = view.levels()
    assert levels.bids[0][1] == 4 * summed * int(most) * 10**levels.amount_scale
