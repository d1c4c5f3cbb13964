"""Rate limits: no window exceeds an exchange's limit, and an address shares one limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.exchanges.kit.limits import (
    JITTER_S,
    ExchangeLimits,
    Limit,
    Quota,
    Quotas,
    Scope,
    bucket_within,
)

FREE = (Limit(10**9, 1.0),)


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 50)), max_size=60))
def test_no_window_ever_holds_more_than_its_limit(steps):
    bucket = bucket_within(Limit(100, 60.0), 0.5)
    now, uses = 1_000.0, []
    for wait_s, weight in steps:
        now += wait_s
        uses.append((now + bucket.take(weight, now), weight))
    for start, _ in uses:
        within = sum(weight for at, weight in uses if start <= at < start + 60 - 1e-6)
        assert within <= 100 + 1e-6


@given(
    st.integers(1, 40),
    st.floats(0, 0.5),
    st.lists(st.tuples(st.floats(0, 1.5), st.integers(0, 9)), max_size=40),
)
def test_a_waiter_for_free_tokens_stays_within_the_limit(count, burst, steps):
    bucket, now, uses = bucket_within(Limit(count, 1.0), burst), 50.0, []
    for wait_s, tries in steps:
        now += wait_s
        for _ in range(tries):
            if bucket.wait_s(1, now) == 0:
                bucket.take(1, now)
                uses.append(now)
    for start in uses:
        assert sum(1 for at in uses if start <= at < start + 1.0 - 1e-9) <= count


@given(st.integers(2, 9), st.floats(0, 0.5), st.lists(st.floats(0, JITTER_S), max_size=25))
def test_what_arrives_unevenly_stays_within_the_limit(count, burst, delays):
    bucket = bucket_within(Limit(count, 1.0), burst)
    arrived = [50.0 + bucket.take(1, 50.0) + delay for delay in delays]
    for start in arrived:
        assert sum(1 for at in arrived if start <= at < start + 1.0 - 1e-9) <= count


def test_attempts_at_one_each_interval_are_evenly_apart_and_none_while_held():
    quota = Quota([bucket_within(Limit(1, 2.0), 0.0)])
    assert [quota.take(1, 100.0) for _ in range(3)] == [0.0, 2.25, 4.5]
    assert quota.take(1, 200.0) == 0.0
    quota.hold(250.0)
    quota.hold(240.0)
    assert [quota.take(1, 210.0) for _ in range(2)] == [40.0, 42.25]
    assert quota.take(1, 260.0) == 0.0


def test_the_slowest_of_several_limits_counts():
    quota = Quota([bucket_within(Limit(10, 1.0), 0.2), bucket_within(Limit(10, 60.0), 0.5)])
    assert [quota.take(1, 0.0) for _ in range(2)] == [0.0, 0.0]
    assert quota.wait_s(1, 0.0) == pytest.approx(1.25 / 8)
    assert [quota.take(1, 60.0) for _ in range(5)][:2] == [0.0, 0.0]
    assert quota.wait_s(1, 61.0) == pytest.approx(60.25 / 5 - 1.0)
    assert quota.until_s(3, 61.0) == pytest.approx(60.25 / 5 * 3 - 1.0)
    quota.give_back(1)
    assert quota.wait_s(1, 61.0) == 0.0


def test_a_limit_of_the_address_is_shared_and_one_of_a_connection_is_not():
    own, shared = Limit(2, 1.0), Limit(2, 1.0, Scope.ADDRESS)
    quotas = Quotas(
        ExchangeLimits(1, messages=(own,), requests=(shared,), connects=FREE, fetches=FREE)
    )
    messages, requests = quotas.of_connection()
    messages.take(1, 0.0)
    requests.take(1, 0.0)
    messages, requests = quotas.of_connection()
    assert messages.wait_s(1, 0.0) == 0.0
    assert requests.wait_s(1, 0.0) == 1.25
