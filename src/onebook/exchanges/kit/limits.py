"""Rate limits of an exchange, and token buckets that enforce them.

Each connector states its `ExchangeLimits`. `Quotas` makes the buckets of one exchange: all
connections of this process share the buckets of address limits, and each has its own buckets of
connection limits. Other processes behind the same address are not counted.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from onebook.ratelimit import TokenBucket

# Share of a window that may be sent at once; the rest is refilled evenly over the window.
MESSAGES_BURST: Final = 0.2
REQUESTS_BURST: Final = 0.5
CONNECTS_BURST: Final = 0.0  # evenly spaced
FETCHES_BURST: Final = 0.5
# Messages sent at the same time may arrive this far apart.
JITTER_S: Final = 0.25


class Scope(Enum):
    """The scope of a limit."""

    CONNECTION = auto()  # each connection separately
    ADDRESS = auto()  # all connections and requests from one IP address


class Limit(Struct, frozen=True):
    """At most `count` in any `per_s` seconds."""

    count: int
    per_s: float
    scope: Scope = Scope.CONNECTION


class ExchangeLimits(Struct, frozen=True):
    """Rate and connection limits of an exchange. All limits of a kind apply at once.

    Args:
        topics: Maximum number of instruments on one connection.
        messages: All frames that a client sends: requests, heartbeats, pings and pongs.
        connects: Connection attempts, per address.
        fetches: REST requests in the exchange's weight units, per address.
        requests: Subscribe and unsubscribe requests, if limited beyond `messages`.
        connections: Maximum number of open connections per address; None without a limit.
    """

    topics: int
    messages: tuple[Limit, ...]
    connects: tuple[Limit, ...]
    fetches: tuple[Limit, ...]
    requests: tuple[Limit, ...] = ()
    connections: int | None = None


def bucket_within(limit: Limit, burst: float) -> TokenBucket:
    """Make the bucket that keeps within a limit in every window, wherever the window starts.

    `burst` is the share that may be sent at once; burst and refill of a window add up to `count`.
    The exchange counts arrivals: its window also contains messages sent up to `JITTER_S` before.
    """
    capacity = max(1.0, limit.count * burst)
    rate = max(1.0, limit.count - capacity) / (limit.per_s + JITTER_S)
    return TokenBucket.of_rate(rate, capacity)


class Quota:
    """Token buckets of several limits that apply at once: the slowest decides."""

    __slots__ = ("buckets",)

    def __init__(self, buckets: Sequence[TokenBucket]) -> None:
        self.buckets = tuple(buckets)

    def wait_s(self, tokens: float, now: float) -> float:
        """Return the wait for `tokens`, in seconds."""
        return max((each.wait_s(tokens, now) for each in self.buckets), default=0.0)

    def until_s(self, tokens: float, now: float) -> float:
        """Return the seconds until `tokens` have been granted in total."""
        return max((each.until_s(tokens, now) for each in self.buckets), default=0.0)

    def take(self, tokens: float, now: float) -> float:
        """Take `tokens`; returns the seconds to wait before using them."""
        return max((each.take(tokens, now) for each in self.buckets), default=0.0)

    def give_back(self, tokens: float) -> None:
        """Return unused tokens."""
        for each in self.buckets:
            each.give_back(tokens)

    def hold(self, until: float) -> None:
        """Grant no token before `until`, and no burst afterwards."""
        for each in self.buckets:
            each.hold(until)

    def spares(self, tokens: float, share: float, now: float) -> bool:
        """Return whether taking `tokens` now leaves this share of every bucket."""
        return all(each.tokens(now) - tokens >= each.capacity * share for each in self.buckets)


class Quotas:
    """The buckets of one exchange: shared ones of the address, new ones per connection."""

    def __init__(self, limits: ExchangeLimits) -> None:
        self.connects = Quota([bucket_within(each, CONNECTS_BURST) for each in limits.connects])
        kinds = ((limits.messages, MESSAGES_BURST), (limits.requests, REQUESTS_BURST))
        self._own = [
            [(each, burst) for each in kind if each.scope is Scope.CONNECTION]
            for kind, burst in kinds
        ]
        self._shared = [
            [bucket_within(each, burst) for each in kind if each.scope is Scope.ADDRESS]
            for kind, burst in kinds
        ]

    def of_connection(self) -> tuple[Quota, Quota]:
        """Return the quotas of a new connection: one for all messages, one for requests."""
        messages, requests = (
            Quota([*shared, *(bucket_within(limit, burst) for limit, burst in own)])
            for shared, own in zip(self._shared, self._own, strict=True)
        )
        return messages, requests
