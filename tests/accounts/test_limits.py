"""Token buckets against a simple oracle, under a virtual clock."""

from collections import deque
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.accounts.limits import (
    BUCKETS_MAX,
    FAILURES_PER_MINUTE,
    UNKNOWN_KEYS_PER_MINUTE,
    WINDOW_S,
    AddressLimit,
    Buckets,
    RateLimiter,
    network,
)
from onebook.config import TierLimits, TierSettings
from onebook.errors import RateLimitExceeded
from onebook.model import Tier

LIMITS = st.sampled_from((10, 60, 600, 1_000, 1_200, 10_000))
STEPS_MS = st.lists(st.integers(0, 30_000), min_size=1, max_size=60)


def tiers(per_minute: int) -> TierSettings:
    """Every tier at the same rate."""
    limits = TierLimits(requests_per_minute=per_minute, connections_max=1)
    return TierSettings(**dict.fromkeys(Tier, limits))


class Oracle:
    """A token bucket as the textbook describes it."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.tokens = Fraction(per_minute)
        self.at_ms = 0

    def take(self, now_ms: int) -> bool:
        dripped = Fraction((now_ms - self.at_ms) * self.per_minute, WINDOW_S * 1_000)
        self.tokens = min(Fraction(self.per_minute), self.tokens + dripped)
        self.at_ms = now_ms
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@pytest.mark.parametrize(
    ("tier", "per_minute"),
    [("basic", 600), ("premium", 1_200), ("developer", 1_000), ("enterprise", 10_000)],
)
def test_the_request_rate_of_each_tier(tier: str, per_minute: int) -> None:
    limiter = RateLimiter()
    allowed = 0
    while limiter.take("key_1", Tier(tier), 0.0).allowed:
        allowed += 1
    assert allowed == per_minute


def test_thresholds_of_attempts() -> None:
    assert FAILURES_PER_MINUTE == 10
    assert UNKNOWN_KEYS_PER_MINUTE == 60


@given(LIMITS, STEPS_MS, st.integers(1, 50))
def test_decisions_are_those_of_a_bucket_that_drips(
    per_minute: int, steps_ms: list[int], burst: int
) -> None:
    buckets, oracle, now_ms = Buckets(), Oracle(per_minute), 0
    for step_ms in steps_ms:
        now_ms += step_ms
        for _ in range(burst):
            peeked = buckets.peek("a", now_ms / 1_000, policy="p", per_minute=per_minute)
            taken = buckets.take("a", now_ms / 1_000, policy="p", per_minute=per_minute)
            assert taken.allowed == peeked.allowed == oracle.take(now_ms)
            assert taken.remaining == int(oracle.tokens)
            assert (taken.retry_after_s == 0) == (taken.remaining >= 1)


@given(LIMITS, STEPS_MS, st.integers(1, 50))
def test_no_window_lets_through_more_than_the_limit_and_the_burst(
    per_minute: int, steps_ms: list[int], burst: int
) -> None:
    buckets, now_ms = Buckets(), 0
    accepted: deque[int] = deque()
    for step_ms in steps_ms:
        now_ms += step_ms
        for _ in range(burst):
            if buckets.take("a", now_ms / 1_000, policy="p", per_minute=per_minute).allowed:
                accepted.append(now_ms)
        while accepted and accepted[0] <= now_ms - WINDOW_S * 1_000:
            accepted.popleft()
        assert len(accepted) <= 2 * per_minute


@pytest.mark.parametrize("per_minute", [10, 60, 600, 1_000, 1_200])
def test_95_percent_of_the_limit_sent_evenly_is_never_refused(per_minute: int) -> None:
    buckets = Buckets()
    pause_s = WINDOW_S / (per_minute * 0.95)
    for n in range(per_minute * 10):
        assert buckets.take("a", n * pause_s, policy="p", per_minute=per_minute).allowed


@pytest.mark.parametrize("per_minute", [7, 11, 999, 1_000, 10_000])
def test_a_bucket_holds_one_minutes_worth_exactly(per_minute: int) -> None:
    buckets = Buckets()
    taken = [
        buckets.take("a", 5.0, policy="p", per_minute=per_minute).allowed
        for _ in range(per_minute + 5)
    ]
    assert taken == [True] * per_minute + [False] * 5


def test_after_retry_after_there_is_one_token_again() -> None:
    limit = AddressLimit("failures", 10)
    for _ in range(10):
        assert limit.take("192.0.2.1", 100.0).allowed
    refused = limit.take("192.0.2.1", 100.0)
    assert (refused.allowed, refused.retry_after_s, refused.reset_s) == (False, 6.0, 60.0)
    assert not limit.peek("192.0.2.1", 105.9).allowed
    assert limit.take("192.0.2.1", 106.0).allowed
    assert not limit.take("192.0.2.1", 106.0).allowed


def test_a_clock_that_is_set_back_blocks_nobody_for_longer_than_a_window() -> None:
    buckets = Buckets()
    for _ in range(10):
        buckets.take("a", 10_000.0, policy="p", per_minute=10)
    allowed = [buckets.take("a", 100.0, policy="p", per_minute=10).allowed for _ in range(12)]
    assert allowed == [True] * 10 + [False] * 2


def test_keys_and_addresses_do_not_share_buckets() -> None:
    limiter = RateLimiter(tiers(1))
    assert limiter.take("a", Tier.BASIC, 0.0).allowed
    assert limiter.take("b", Tier.BASIC, 0.0).allowed
    assert limiter.take_address("a", 0.0).allowed
    assert not limiter.take("a", Tier.BASIC, 0.0).allowed
    assert not limiter.take_address("a", 0.0).allowed


def test_public_gets_count_per_address_at_the_basic_rate() -> None:
    decision = RateLimiter().take_address("192.0.2.1", 0.0)
    assert (decision.policy, decision.limit, decision.remaining) == ("public", 600, 599)


def test_headers_of_an_allowed_request() -> None:
    assert RateLimiter().take("key_1", Tier.BASIC, 0.0).headers() == {
        "RateLimit-Policy": '"basic";q=600;w=60',
        "RateLimit": '"basic";r=599;t=1',
        "X-RateLimit-Limit": "600",
        "X-RateLimit-Remaining": "599",
        "X-RateLimit-Reset": "1",
    }


def test_headers_of_a_refused_request_say_when_to_return() -> None:
    limiter = RateLimiter(tiers(2))
    for _ in range(2):
        limiter.take("key_1", Tier.BASIC, 0.0)
    assert limiter.take("key_1", Tier.BASIC, 0.0).headers() == {
        "RateLimit-Policy": '"basic";q=2;w=60',
        "RateLimit": '"basic";r=0;t=30',
        "X-RateLimit-Limit": "2",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "30",
        "Retry-After": "30",
    }


def test_a_refusal_says_what_and_when() -> None:
    limit = AddressLimit("failures", 1)
    limit.take("192.0.2.1", 0.0).require("failed attempts")
    with pytest.raises(RateLimitExceeded, match=r"Too many failed attempts: 1 a minute\. .* 60 s"):
        limit.take("192.0.2.1", 0.0).require("failed attempts")


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("unix", "unix", True),
        ("", "testclient", False),
        ("x" * 100, "x" * 200, True),
    ],
)
def test_an_ipv6_network_of_64_bits_counts_as_one(one: str, other: str, shared: bool) -> None:
    assert (network(one) == network(other)) is shared


def test_the_addresses_that_are_remembered_are_bounded() -> None:
    buckets = Buckets(buckets_max=3)
    for name in "abcabd":
        buckets.take(name, 0.0, policy="p", per_minute=2)
    assert len(buckets) == 3
    assert buckets.take("a", 0.0, policy="p", per_minute=2).remaining == 0, "used last, kept"
    assert buckets.take("c", 0.0, policy="p", per_minute=2).remaining == 1, "used first, gone"
    assert BUCKETS_MAX <= 100_000
