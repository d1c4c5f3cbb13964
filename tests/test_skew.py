"""Clock offsets: bounds from messages and requests, and none without evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.skew import ANSWER_S, DRIFT, WINDOW_S, ClockSkew, Offset

UNIX_US = 1_763_632_800_000_000
seconds = st.floats(0.000_001, 0.2)


def at(monotonic_s: float, offset_s: float) -> int:
    """The exchange's time in microseconds at our time."""
    return UNIX_US + round((monotonic_s - offset_s) * 1_000_000)


def of(offset: Offset | None) -> Offset:
    """An offset relative to the epoch of these tests."""
    assert offset is not None
    return offset._replace(offset_s=offset.offset_s + UNIX_US / 1_000_000)


def test_nothing_is_known_before_the_first_measurement() -> None:
    assert ClockSkew().offset(0.0) is None


@given(st.floats(-5, 5), st.lists(seconds, min_size=1, max_size=20))
def test_messages_bound_the_offset_from_above_by_the_least_delay(
    offset_s: float, delays: list[float]
) -> None:
    skew = ClockSkew()
    for n, delay_s in enumerate(delays):
        skew.received(at(n, offset_s), n + delay_s)
    found = of(skew.offset(len(delays)))
    assert found.error_s is None
    assert found.offset_s == pytest.approx(offset_s + min(delays), abs=3e-6)


Measurement = tuple[str, float, float]  # its kind, and the ways to and from the exchange
measurements = st.lists(
    st.tuples(st.sampled_from(("message", "request")), seconds, seconds), min_size=1, max_size=40
)


@given(
    offset_s=st.floats(-5, 5),
    drift=st.floats(-DRIFT, DRIFT),
    measured=measurements,
    apart_s=st.sampled_from((0.3, 5.0, 60.0, 300.0)),
    later_s=st.floats(0.0, ANSWER_S),
)
def test_the_true_offset_is_within_the_error_of_requests_and_messages(
    offset_s: float, drift: float, measured: list[Measurement], apart_s: float, later_s: float
) -> None:
    """Bounds from both sides, while the clocks drift, as long as the answers are valid."""
    skew = ClockSkew()
    now = 0.0
    answered_at = float("-inf")
    for number, (kind, there_s, back_s) in enumerate(measured):
        now = number * apart_s
        told_s = now + there_s - (offset_s + drift * (now + there_s))
        now += there_s
        if kind == "message":
            told_s = now - there_s - (offset_s + drift * (now - there_s))
            skew.received(UNIX_US + round(told_s * 1_000_000) // 1_000 * 1_000, now)
            continue
        now += back_s
        answered_at = now
        told = UNIX_US + round(told_s * 1_000_000) // 1_000 * 1_000
        skew.answered(told, now - there_s - back_s, now)
    now += later_s
    found = of(skew.offset(now))
    if now - answered_at > ANSWER_S:
        assert found.error_s is None
        return
    assert found.error_s is not None
    true_s = offset_s + drift * now
    assert abs(found.offset_s - true_s) <= found.error_s + 5e-6
    assert found.error_s <= 0.2 + 0.000_501 + DRIFT * (now - answered_at)


@given(st.floats(-5, 5), st.lists(st.tuples(seconds, seconds), min_size=2, max_size=12))
def test_the_error_is_at_most_half_of_the_least_round_trip(
    offset_s: float, trips: list[tuple[float, float]]
) -> None:
    skew = ClockSkew()
    for there_s, back_s in trips:
        skew.answered(at(there_s, offset_s), 0.0, there_s + back_s)
    found = of(skew.offset(0.0))
    assert found.error_s is not None
    assert found.error_s <= min(map(sum, trips)) / 2 + 0.000_501


@pytest.mark.parametrize("step_s", [-3_600.0, -0.5, 0.5, 3_600.0])
def test_a_clock_that_was_set_is_measured_anew_by_the_next_answer(step_s: float) -> None:
    skew = ClockSkew()
    for n in range(5):
        skew.received(at(n, 1.0), n + 0.01)
        skew.answered(at(n + 0.01, 1.0), n, n + 0.02)
    before = of(skew.offset(5.0))
    assert before.offset_s == pytest.approx(1.0, abs=0.011)
    skew.received(at(6, 1.0 + step_s), 6.01)
    between = of(skew.offset(6.02))
    assert between.error_s is None or abs(between.offset_s - 1.0) <= between.error_s
    skew.answered(at(7.01, 1.0 + step_s), 7.0, 7.02)
    skew.received(at(8, 1.0 + step_s), 8.01)
    after = of(skew.offset(9.0))
    assert after.error_s is not None
    assert abs(after.offset_s - 1.0 - step_s) <= after.error_s < 0.012


def test_answers_that_stopped_make_the_error_grow_until_it_is_unknown() -> None:
    skew = ClockSkew()
    skew.answered(at(0.01, 1.0), 0.0, 0.02)
    errors = [of(skew.offset(now)).error_s for now in (0.02, 60.0, ANSWER_S)]
    assert errors == sorted(errors)  # type: ignore[type-var]
    assert errors[-1] == pytest.approx(0.0105 + DRIFT * ANSWER_S, rel=1e-3)
    assert skew.offset(ANSWER_S + 1.0) is None


def test_a_window_that_has_passed_is_forgotten() -> None:
    skew = ClockSkew()
    skew.received(at(0, 1), 0.001)
    skew.received(at(WINDOW_S, 1), WINDOW_S + 0.005)
    assert of(skew.offset(WINDOW_S)).offset_s == pytest.approx(1.001, abs=3e-6), (
        "the last one counts"
    )
    skew.received(at(3 * WINDOW_S, 1), 3 * WINDOW_S + 0.009)
    later = of(skew.offset(3 * WINDOW_S))
    assert later.offset_s == pytest.approx(1.009, abs=3e-6)


def test_requests_and_messages_of_different_clocks_give_a_bound_without_an_error() -> None:
    skew = ClockSkew()
    skew.answered(at(0, 2), 0.0, 0.01)
    skew.received(at(1, 1), 1.001)
    assert of(skew.offset(1.001)) == (pytest.approx(1.001, abs=3e-6), None)


@given(
    exchange_s=st.floats(-5, 5),
    node_s=st.floats(-1e6, 1e6),
    asked=st.lists(st.tuples(seconds, seconds), min_size=1, max_size=5),
    there_s=seconds,
    back_s=seconds,
    later_s=st.floats(0.0, 60.0),
)
def test_a_reading_passed_on_by_another_node_bounds_the_offset_there(
    exchange_s: float,
    node_s: float,
    asked: list[tuple[float, float]],
    there_s: float,
    back_s: float,
    later_s: float,
) -> None:
    """Times of the measuring node; the other's clock is `node_s` ahead and never compared."""
    measured, other = ClockSkew(), ClockSkew()
    now = 0.0
    for way_s, return_s in asked:
        sent_at = now
        now += way_s
        told = at(now, exchange_s) // 1_000 * 1_000
        now += return_s
        measured.answered(told, sent_at, now)
    now += later_s
    reading = measured.reading(now)
    assert reading is not None
    # The other node's heartbeat was under way for `there_s`; the hold before the answer is added.
    asked_at, arrived_at = now - there_s, now + back_s
    other.answered(reading[0], asked_at + node_s, arrived_at + node_s, resolution_us=reading[1])
    passed_on = of(other.offset(arrived_at + node_s))
    assert passed_on.error_s is not None
    assert abs(passed_on.offset_s - (exchange_s + node_s)) <= passed_on.error_s + 5e-6
    known = measured.offset(now)
    assert known is not None
    assert known.error_s is not None
    added_s = (there_s + back_s) / 2
    assert passed_on.error_s == pytest.approx(known.error_s + added_s, abs=5e-6)


def test_messages_alone_make_no_reading() -> None:
    skew = ClockSkew()
    assert skew.reading(0.0) is None
    skew.received(at(0.0, 0.0), 0.1)
    assert skew.reading(0.2) is None
