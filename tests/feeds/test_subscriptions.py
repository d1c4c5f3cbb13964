"""State of one instrument's subscription: its phases, fault tallies and data cadence."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeds.toy import A
from onebook.books import Books
from onebook.feeds.limits import LIMITS
from onebook.feeds.subscriptions import (
    CADENCE_WINDOW_S,
    NEVER,
    TRANSITIONS,
    Cadence,
    Cadences,
    Cause,
    NoTransition,
    Phase,
    Tally,
    Watch,
)
from onebook.model import Instrument

LEAST_S = 5.0


def test_the_table_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    for phase in Phase:
        rows = {
            cause: TRANSITIONS[phase, cause] for cause in Cause if (phase, cause) in TRANSITIONS
        }
        print(f"{phase.name:10}", *(f"{cause.name} -> {to.name}" for cause, to in rows.items()))
        assert rows
    assert set(TRANSITIONS.values()) == set(Phase), "each is reached"
    assert capsys.readouterr().out.count("\n") == len(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_left_again_and_ends_live(phase: Phase) -> None:
    reached = {phase}
    while True:
        further = reached | {to for (at, _), to in TRANSITIONS.items() if at in reached}
        if further == reached:
            break
        reached = further
    assert Phase.LIVE in reached


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("cause", Cause)
def test_what_the_table_does_not_know_is_an_error(phase: Phase, cause: Cause) -> None:
    book = Books().open(A)
    watch = Watch(book, 0.0, Cadence())
    watch.phase = phase
    if (phase, cause) in TRANSITIONS:
        watch.move(cause)
        assert watch.phase is TRANSITIONS[phase, cause]
    else:
        with pytest.raises(NoTransition, match=f"{phase.name} has no {cause.name}"):
            watch.move(cause)
        assert watch.phase is phase


def test_nothing_the_exchange_can_say_is_missing_in_the_table() -> None:
    """Any events in any order; causes on our side follow from the phase."""
    said = (Cause.ACKNOWLEDGE, Cause.REFUSE, Cause.POSTPONE, Cause.HALT)
    missing = [(at, cause) for at in Phase for cause in said if (at, cause) not in TRANSITIONS]
    assert missing == []


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


def spoken(*gaps_s: float, cadence: Cadence | None = None, at: float = 1_000.0) -> Cadence:
    cadence = cadence or Cadence()
    cadence.restart(at)
    for gap_s in gaps_s:
        at += gap_s
        cadence.observe(at)
    return cadence


def limit_s(cadence: Cadence) -> float:
    return cadence.limit_s(LIMITS, LEAST_S)


def test_one_that_always_speaks_each_second_is_overdue_after_a_few():
    assert limit_s(spoken(*[1.0] * 60)) == LEAST_S
    assert limit_s(spoken(*[2.0] * 60)) == 8.0


def test_thin_evidence_says_nothing():
    assert limit_s(spoken()) == NEVER
    assert limit_s(spoken(*[0.1] * 200)) == NEVER, "twenty seconds are no evidence"
    assert limit_s(spoken(*[10.0] * 20)) == NEVER, "twenty gaps are no evidence"


def test_the_time_before_a_restart_is_no_gap():
    cadence = spoken(*[1.0] * 60)
    assert limit_s(spoken(*[1.0] * 10, cadence=cadence, at=1_500.0)) == LEAST_S


def test_data_that_did_not_come_again_is_no_gap():
    cadence = spoken(*[2.0] * 60)
    for _ in range(100):
        cadence.observe(1_120.0)
    assert limit_s(cadence) == 8.0


def test_a_healthy_silence_is_remembered_for_one_to_two_windows():
    cadence = spoken(*[1.0] * 60)
    cadence.learn(20.0, 1_060.0)
    assert limit_s(cadence) == 80.0
    spoken(*[1.0] * 700, cadence=cadence, at=1_060.0)
    assert limit_s(cadence) == 80.0
    spoken(*[1.0] * 700, cadence=cadence, at=1_760.0)
    assert limit_s(cadence) == LEAST_S


def test_a_quiet_book_that_was_silent_for_25_s_is_never_overdue():
    """Gaps of MINA/GBP on Kraken: seconds on average, 25.8 s at most."""
    for seed in range(200):
        source = random.Random(seed)
        cadence = Cadence()
        at = 1_000.0
        cadence.restart(at)
        for _ in range(600):
            gap_s = min(25.8, source.lognormvariate(0.6, 1.1))
            assert gap_s < cadence.limit_s(LIMITS, LIMITS.quiet_min_s), (seed, gap_s)
            at += gap_s
            cadence.observe(at)


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=200))
def test_no_silence_of_the_window_is_ever_overdue_once_more(gaps_s):
    cadence = spoken(*gaps_s)
    recent, elapsed_s = 0.0, 0.0
    for gap_s in reversed(gaps_s):
        if elapsed_s + gap_s >= CADENCE_WINDOW_S:
            break
        elapsed_s += gap_s
        recent = max(recent, gap_s)
    assert limit_s(cadence) >= recent * LIMITS.cadence_factor * 0.999_999


def test_a_feed_keeps_the_cadences_of_what_it_carries():
    cadences = Cadences()
    instrument = Instrument("toy", "A/USD", "A")
    cadence = cadences.of(instrument)
    assert cadences.of(instrument) is cadence
    cadences.forget(instrument)
    assert cadences.of(instrument) is not cadence
