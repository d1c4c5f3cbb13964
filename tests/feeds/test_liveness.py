"""Cadences: what counts as silence for one that was seen to speak before."""

import random

from hypothesis import given
from hypothesis import strategies as st

from onebook.config import FeedSettings
from onebook.feeds.liveness import NEVER, Cadence, Cadences
from onebook.model import Instrument

SETTINGS = FeedSettings()
LEAST_S = 5.0


def spoken(*gaps_s: float, cadence: Cadence | None = None, at: float = 1_000.0) -> Cadence:
    cadence = cadence or Cadence(SETTINGS.cadence_window_s)
    cadence.restart(at)
    for gap_s in gaps_s:
        at += gap_s
        cadence.observe(at)
    return cadence


def limit_s(cadence: Cadence) -> float:
    return cadence.limit_s(SETTINGS, LEAST_S)


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
    """Gaps as of MINA/GBP on Kraken: seconds on average, 25.8 at the longest."""
    for seed in range(200):
        source = random.Random(seed)
        cadence = Cadence(SETTINGS.cadence_window_s)
        at = 1_000.0
        cadence.restart(at)
        for _ in range(600):
            gap_s = min(25.8, source.lognormvariate(0.6, 1.1))
            assert gap_s < cadence.limit_s(SETTINGS, SETTINGS.quiet_min_s), (seed, gap_s)
            at += gap_s
            cadence.observe(at)


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=200))
def test_no_silence_of_the_window_is_ever_overdue_once_more(gaps_s):
    cadence = spoken(*gaps_s)
    recent, elapsed_s = 0.0, 0.0
    for gap_s in reversed(gaps_s):
        if elapsed_s + gap_s >= SETTINGS.cadence_window_s:
            break
        elapsed_s += gap_s
        recent = max(recent, gap_s)
    assert limit_s(cadence) >= recent * SETTINGS.cadence_factor * 0.999_999


def test_a_feed_keeps_the_cadences_of_what_it_carries():
    cadences = Cadences(SETTINGS)
    instrument = Instrument("toy", "A/USD", "A")
    cadence = cadences.of(instrument)
    assert cadences.of(instrument) is cadence
    cadences.forget(instrument)
    assert cadences.of(instrument) is not cadence
