"""The token bucket, against a continuous model and at its limits."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.ratelimit import MINUTE_NS, TokenBucket

STEPS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 9)), max_size=60)


class Dripping:
    """A continuous token bucket, below zero while takers wait."""

    def __init__(self, per_s: int, capacity: int) -> None:
        self.per_s, self.capacity = per_s, capacity
        self.tokens, self.at_ms = Fraction(capacity), 0

    def drip(self, now_ms: int) -> None:
        come_back = Fraction((now_ms - self.at_ms) * self.per_s, 1_000)
        self.tokens = min(Fraction(self.capacity), self.tokens + come_back)
        self.at_ms = now_ms


@given(st.sampled_from((1, 2, 5, 10, 100)), st.integers(1, 20), STEPS)
def test_takers_wait_as_long_as_a_dripping_bucket_makes_them(per_s, capacity, steps):
    bucket, oracle, now_ms = TokenBucket.of_rate(per_s, capacity), Dripping(per_s, capacity), 0
    for step_ms, tokens in steps:
        now_ms += step_ms
        oracle.drip(now_ms)
        lacking = min(tokens, capacity) - oracle.tokens
        assert bucket.take(tokens, now_ms / 1_000) == pytest.approx(
            float(max(0, lacking) / per_s), abs=1e-8
        )
        oracle.tokens -= tokens
        assert bucket.tokens(now_ms / 1_000) == pytest.approx(float(oracle.tokens))


@given(st.sampled_from((1, 2, 5, 10, 100)), st.integers(1, 20), STEPS)
def test_tokens_are_granted_exactly_while_there_are_any(per_s, capacity, steps):
    bucket, oracle, now_ms = TokenBucket.of_rate(per_s, capacity), Dripping(per_s, capacity), 0
    for step_ms, tokens in steps:
        now_ms += step_ms
        oracle.drip(now_ms)
        assert bucket.whole_tokens(now_ms / 1_000) == int(oracle.tokens)
        granted = bucket.grant(tokens, now_ms / 1_000)
        assert granted == (oracle.tokens >= tokens)
        oracle.tokens -= tokens * granted


def test_more_than_a_bucket_holds_is_paid_afterwards():
    bucket = TokenBucket.of_rate(1.0, 10.0)
    assert bucket.take(25, 100.0) == 0.0
    assert bucket.take(1, 100.0) == 16.0
    assert bucket.take(0, 50.0) > 0.0, "a clock that goes back gives nothing"


def test_what_was_not_used_is_given_back_and_never_more_than_the_capacity():
    bucket = TokenBucket.of_rate(1.0, 2.0)
    assert [bucket.take(1, 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    bucket.give_back(2)
    assert bucket.tokens(0.0) == 1.0
    bucket.give_back(5)
    assert bucket.tokens(0.0) == 2.0


def test_a_held_bucket_serves_one_after_the_other_from_then_on():
    bucket = TokenBucket.of_rate(0.5, 10.0)
    bucket.hold(60.0)
    bucket.hold(30.0)
    assert [bucket.take(1, 10.0) for _ in range(3)] == [50.0, 52.0, 54.0]


def test_a_bucket_in_debt_is_not_relieved_by_a_hold():
    bucket = TokenBucket.of_rate(1.0, 1.0)
    bucket.take(1, 0.0)
    bucket.take(99, 0.0)
    bucket.hold(5.0)
    assert bucket.take(1, 0.0) == 100.0


@pytest.mark.parametrize("count", [1, 7, 600, 999, 1_000, 10_000])
def test_a_minutes_worth_is_granted_at_once_and_is_back_within_the_minute(count):
    bucket = TokenBucket.of_minute(count)
    now_s = 1_763_632_800.123
    assert sum(bucket.grant(1, now_s) for _ in range(count + 1)) == count
    assert bucket.full_in_s(now_s) <= 60
    assert bucket.whole_tokens(now_s + 60) == count
    again = TokenBucket.of_minute(count, full_at_ns=bucket.full_at_ns)
    assert not again.grant(1, now_s), "a bucket is its one number"


def test_a_minute_in_nanoseconds():
    assert MINUTE_NS == 60 * 10**9
