"""Token bucket for all rate limits: keys, addresses, connections, and requests to exchanges.

The state is one integer, the time at which the bucket is full again (GCRA,
https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm), in nanoseconds so that steps are exact.
Times are passed in as seconds of any clock.

Not used for the account APIs of exchanges (`transactions`): they count requests in rolling windows,
which a long history should use completely; a bucket would have to leave half of each window free.
"""

import math
from typing import Final

SECOND_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * SECOND_NS


class TokenBucket:
    """Tokens refilled at a constant rate, up to a capacity.

    `grant` takes a token if one is available. `take` always takes one and returns the seconds to
    wait for it, so that callers are served in order.

    Args:
        step_ns: Nanoseconds per token.
        capacity: Tokens of a full bucket.
        full_at_ns: Time at which the bucket is full again; by default it starts full.
    """

    __slots__ = ("_full_at_ns", "_step_ns", "capacity")

    def __init__(self, step_ns: int, capacity: float, *, full_at_ns: int = 0) -> None:
        self.capacity = capacity
        self._step_ns = step_ns
        self._full_at_ns = full_at_ns

    @classmethod
    def of_rate(cls, per_s: float, capacity: float) -> "TokenBucket":
        """Create a bucket refilled at a rate, rounded down."""
        return cls(math.ceil(SECOND_NS / per_s), capacity)

    @classmethod
    def of_minute(cls, count: int, *, full_at_ns: int = 0) -> "TokenBucket":
        """Create a bucket with one minute's tokens, refilled within a minute."""
        return cls(MINUTE_NS // count, count, full_at_ns=full_at_ns)

    @property
    def full_at_ns(self) -> int:
        """Time at which the bucket is full again, in nanoseconds of its clock."""
        return self._full_at_ns

    def tokens(self, now_s: float) -> float:
        """Number of tokens; negative while callers wait."""
        return self.capacity - self._used_ns(now_s) / self._step_ns

    def whole_tokens(self, now_s: float) -> int:
        """Number of whole tokens."""
        return (round(self.capacity * self._step_ns) - self._used_ns(now_s)) // self._step_ns

    def full_in_s(self, now_s: float) -> float:
        """Seconds until the bucket is full."""
        return self._used_ns(now_s) / SECOND_NS

    def wait_s(self, tokens: float, now_s: float) -> float:
        """Seconds that a caller of `take` would wait."""
        # More than the capacity: a full bucket suffices, and the balance becomes negative.
        return self.until_s(min(tokens, self.capacity), now_s)

    def until_s(self, tokens: float, now_s: float) -> float:
        """Seconds until callers of a number of tokens in total are served."""
        lacking_ns = self._used_ns(now_s) + round((tokens - self.capacity) * self._step_ns)
        return max(0, lacking_ns) / SECOND_NS

    def take(self, tokens: float, now_s: float) -> float:
        """Take tokens and return the seconds to wait before using them."""
        wait_s = self.wait_s(tokens, now_s)
        self._full_at_ns = _ns(now_s) + self._used_ns(now_s) + round(tokens * self._step_ns)
        return wait_s

    def grant(self, tokens: float, now_s: float) -> bool:
        """Take tokens if enough are available; returns whether they were."""
        if self.until_s(tokens, now_s) > 0:
            return False
        self.take(tokens, now_s)
        return True

    def give_back(self, tokens: float) -> None:
        """Return unused tokens."""
        self._full_at_ns -= round(tokens * self._step_ns)

    def hold(self, until_s: float) -> None:
        """Grant nothing before a time, then refill from empty."""
        one_by_one_ns = _ns(until_s) + round((self.capacity - 1) * self._step_ns)
        self._full_at_ns = max(self._full_at_ns, one_by_one_ns)

    def _used_ns(self, now_s: float) -> int:
        return max(0, self._full_at_ns - _ns(now_s))


def _ns(at_s: float) -> int:
    return round(at_s * SECOND_NS)
