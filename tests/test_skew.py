"""Clock offsets: bounds by messages and by requests, and never a number that nothing supports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.skew import WINDOW_S, ClockSkew, Offset

UNIX_US = 1_763_632_800_000_000
seconds = st.floats(0.000_001, 0.2)


def at(monotonic_s: float, offset_s: float) -> int:
    """The exchange's time in microseconds at a time of ours."""
    return UNIX_US + round((monotonic_s - offset_s) * 1_000_000)


def of(offset: Offset | None) -> Offset:
    """An offset relative to the epoch of these tests."""
    assert offset is not None
    return offset._replace(offset_s=offset.offset_s + UNIX_US / 1_000_000)


def test_nothing_is_known_before_the_first_measurement() -> None:
    assert ClockSkew().offset() is None


@given(st.floats(-5, 5), st.lists(seconds, min_size=1, max_size=20))
def test_messages_bound_the_offset_from_above_by_the_least_delay(
    offset_s: float, delays: list[float]
) -> None:
    skew = ClockSkew()
    for n, delay_s in enumerate(delays):
        skew.received(at(n, offset_s), n + delay_s)
    found = of(skew.offset())
    assert found.error_s is None
    assert found.offset_s == pytest.approx(offset_s + min(delays), abs=3e-6)


@given(
    st.floats(-5, 5),
    st.lists(seconds, max_size=6),
    st.lists(st.tuples(seconds, seconds), min_size=1, max_size=12),
)
def test_the_true_offset_is_within_the_error_of_requests_and_messages(
    offset_s: float, delays: list[float], trips: list[tuple[float, float]]
) -> None:
    skew = ClockSkew()
    for n, delay_s in enumerate(delays):
        skew.received(at(n, offset_s), n + delay_s)
    for n, (there_s, back_s) in enumerate(trips):
        told = at(n + there_s, offset_s) // 1_000 * 1_000
        skew.answered(told, n, n + there_s + back_s)
    found = of(skew.offset())
    assert found.error_s is not None
    assert abs(found.offset_s - offset_s) <= found.error_s + 3e-6
    least = min(there + back for there, back in trips[-8:])
    assert found.error_s <= least / 2 + 0.000_501


def test_a_window_that_has_passed_is_forgotten() -> None:
    skew = ClockSkew()
    skew.received(at(0, 1), 0.001)
    skew.received(at(WINDOW_S, 1), WINDOW_S + 0.005)
    assert of(skew.offset()).offset_s == pytest.approx(1.001, abs=3e-6), "the last one counts"
    skew.received(at(3 * WINDOW_S, 1), 3 * WINDOW_S + 0.009)
    assert of(skew.offset()).offset_s == pytest.approx(1.009, abs=3e-6)


def test_requests_and_messages_of_different_clocks_give_a_bound_without_an_error() -> None:
    skew = ClockSkew()
    skew.answered(at(0, 2), 0.0, 0.01)
    skew.received(at(1, 1), 1.001)
    assert of(skew.offset()) == (pytest.approx(1.001, abs=3e-6), None)
