"""One request rate of a key over many gateways, whatever the load on each."""

from random import Random

import pytest

from onebook.config import TierSettings
from onebook.model import Tier
from onebook.nodes.key_rates import ROUND_S, SharedRateLimiter

TIERS = TierSettings()
LIMIT = TIERS.basic.requests_per_minute
MESSAGES_S = 0.02  # on their way
BURST_SHARE = 0.2  # of ticks: a flood of 290 requests a second on each gateway


class Gateways:
    """Gateways whose rounds are not synchronised, and delayed messages."""

    def __init__(self, count, seed=0):
        self.random = Random(seed)
        self.limiters = [SharedRateLimiter(TIERS, gateways=lambda: count) for _ in range(count)]
        self.offsets = [self.random.random() * ROUND_S for _ in range(count)]
        self.due = list(self.offsets)
        self.mail = []
        self.now = 1_000.0

    def take(self, gateway, times=1):
        limiter = self.limiters[gateway]
        return sum(limiter.take("k", Tier.BASIC, self.now).allowed for _ in range(times))

    def tick(self, seconds):
        self.now += seconds
        for at, sender, taken in list(self.mail):
            if at <= self.now:
                self.mail.remove((at, sender, taken))
                for number, limiter in enumerate(self.limiters):
                    if number != sender:
                        limiter.received(sender, taken, self.now)
        for number, limiter in enumerate(self.limiters):
            if self.now - 1_000.0 >= self.due[number]:
                self.due[number] += ROUND_S
                if taken := limiter.round():
                    self.mail.append((self.now + MESSAGES_S, number, taken))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_a_flood_of_all_gateways_gets_the_limit_and_no_more_than_a_twentieth_above(count, seed):
    """Three minutes: the full bucket, and its refill."""
    gateways = Gateways(count, seed)
    allowed = 0
    joins = [0.0] + [gateways.random.random() * 5 for _ in range(count - 1)]
    while gateways.now < 1_180.0:
        for number in range(count):
            if gateways.now - 1_000.0 >= joins[number] and gateways.random.random() < BURST_SHARE:
                allowed += gateways.take(number, gateways.random.randrange(30))
        gateways.tick(0.01)
    entitled = LIMIT * (1 + 3)
    assert 0.97 * entitled <= allowed <= 1.05 * entitled


def test_gateways_that_begin_at_one_moment_share_the_first_burst():
    gateways = Gateways(2)
    allowed = 0
    for _ in range(100):
        allowed += gateways.take(0, 50) + gateways.take(1, 50)
        gateways.tick(0.01)
    assert allowed <= 1.05 * (LIMIT + LIMIT / 60)


def test_one_gateway_alone_gives_a_key_all_of_it_within_a_second():
    """A burst on a fresh connection: half of the bucket at once, the rest in the next rounds."""
    gateways = Gateways(2)
    assert gateways.take(0, LIMIT) == LIMIT // 2
    allowed = LIMIT // 2
    for _ in range(100):
        gateways.tick(0.01)
        allowed += gateways.take(0, LIMIT)
    assert LIMIT <= allowed <= LIMIT * 1.05
    denied = gateways.limiters[0].take("k", Tier.BASIC, gateways.now)
    assert not denied.allowed
    assert 0 < denied.retry_after_s <= 60 / LIMIT + 0.001


def test_without_other_gateways_nothing_is_shared():
    gateways = Gateways(1)
    assert gateways.take(0, 2 * LIMIT) == LIMIT
    gateways.now += 6.0
    assert gateways.take(0, 2 * LIMIT) == LIMIT // 10
