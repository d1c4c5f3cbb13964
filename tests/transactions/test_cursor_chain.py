"""A repeated pagination cursor ends a walk, in memory that does not grow with the pages."""

import sys

import pytest

from onebook.transactions.adapter import SourceFailed
from onebook.transactions.windows import CURSORS_KEPT_MAX, CursorChain


@pytest.mark.parametrize("cycle", [1, 2, 7, CURSORS_KEPT_MAX - 1])
def test_a_short_cycle_ends_at_the_first_repeated_cursor(cycle: int) -> None:
    chain = CursorChain()
    for page in range(5_000):
        assert chain.follow(f"once {page}")
    for page in range(cycle):
        assert chain.follow(f"again {page}")
    with pytest.raises(SourceFailed, match="repeated a cursor"):
        chain.follow("again 0")


@pytest.mark.parametrize(("before", "cycle"), [(0, 1_500), (300, 3_000), (20_000, 5_000)])
def test_a_long_cycle_ends_within_a_few_rounds(before: int, cycle: int) -> None:
    chain = CursorChain()
    for page in range(before):
        assert chain.follow(f"once {page}")
    with pytest.raises(SourceFailed):
        all(chain.follow(f"again {page % cycle}") for page in range(4 * (before + cycle)))


def test_a_walk_without_repetition_keeps_a_bounded_number_of_cursors() -> None:
    chain = CursorChain("begin")
    for page in range(100_000):
        assert chain.follow(str(page))
    assert chain.cursor == "99999"
    assert len(chain._recent) == CURSORS_KEPT_MAX
    assert sys.getsizeof(chain._recent) < 200_000
    assert not chain.follow("")
