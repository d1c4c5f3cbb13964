"""The state of one instrument's subscription: tallies of its faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.feeds.phases import Tally


@given(st.lists(st.floats(0, 40), max_size=30))
def test_a_tally_is_full_exactly_when_enough_fell_into_its_window(steps):
    tally, now, times = Tally(3), 0.0, []
    for step in steps:
        now += step
        times.append(now)
        assert tally.hit(now) == (len(times) >= 3 and now - times[-3] <= 60.0)


@pytest.mark.parametrize("count_max", [0, 1])
def test_one_is_enough_where_one_or_none_is_the_maximum(count_max):
    assert Tally(count_max).hit(5.0) is True
