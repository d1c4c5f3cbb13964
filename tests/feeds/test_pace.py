"""Waits, paces and tallies, each against its own definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.feeds.pace import Backoff, Tally, full_jitter_s


@given(st.integers(0, 10_000), st.floats(0, 0.999))
def test_full_jitter_stays_between_zero_and_its_doubling_maximum(attempt, random):
    wait_s = full_jitter_s(attempt, 1.0, 60.0, random=random)
    assert 0 <= wait_s <= 60.0
    assert attempt > 5 or wait_s <= 2.0**attempt


def test_a_backoff_doubles_to_its_maximum_and_starts_again_after_a_reset():
    backoff = Backoff(1.0, 8.0, lambda: 0.5)
    assert [backoff.next_s() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


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


def test_units_are_in_the_names():
    with pytest.raises(TypeError):
        full_jitter_s(1, 1.0, 1.0, 0.5)  # type: ignore[misc]
