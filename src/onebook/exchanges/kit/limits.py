"""Rate limits of an exchange, and the token buckets that keep within them.

`ExchangeLimits` are facts that each connector states. `Quotas` makes the buckets of one exchange: a
limit of the address is one bucket that all connections of this process share, a limit of a
connection is a bucket of its own for each. Other processes behind the same address are not counted
here.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from onebook.ratelimit import TokenBucket

# How much of a window may leave at once; the rest comes back evenly over the window.
MESSAGES_BURST: Final = 0.2
REQUESTS_BURST: Final = 0.5
CONNECTS_BURST: Final = 0.0  # evenly apart
FETCHES_BURST: Final = 0.5
# How much later than another a message may arrive that left at the same time.
JITTER_S: Final = 0.25


class Scope(Enum):
    """What an exchange counts together."""

    CONNECTION = auto()  # each connection alone
    ADDRESS = auto()  # everything from one IP address


class Limit(Struct, frozen=True):
    """At most `count` in any `per_s` seconds."""

    count: int
    per_s: float
    scope: Scope = Scope.CONNECTION


class ExchangeLimits(Struct, frozen=True):
    """What an exchange takes from its clients. Several limits of one kind hold at once.

    Args:
        topics: The most instruments on one connection.
        messages: Everything a client sends: requests, heartbeats, pings and pongs.
        connects: Connection attempts; always of the address.
        fetches: REST requests in the exchange's own weight units; always of the address.
        requests: Subscribe and unsubscribe requests, where they are limited beyond `messages`.
        connections: The most connections open at once from one address, None without a limit.
    """

    topics: int
    messages: tuple[Limit, ...]
    connects: tuple[Limit, ...]
    fetches: tuple[Limit, ...]
    requests: tuple[Limit, ...] = ()
    connections: int | None = None


def bucket_within(limit: Limit, burst: float) -> TokenBucket:
    """Make the bucket that keeps within a limit in every window, wherever the window starts.

    What may leave at once (`burst`, a share) and what comes back in a window make `count` together.
    The exchange counts what arrives: a window there holds what left in its time and in `JITTER_S`
    before.
    """
    capacity = max(1.0, limit.count * burst)
    rate = max(1.0, limit.count - capacity) / (limit.per_s + JITTER_S)
    return TokenBucket.of_rate(rate, capacity)


class Quota:
    """Token buckets of several limits at once: what one of them delays waits."""

    __slots__ = ("buckets",)

    def __init__(self, buckets: Sequence[TokenBucket]) -> None:
        self.buckets = tuple(buckets)

    def wait_s(self, tokens: float, now: float) -> float:
        """Return how long a taker of `tokens` would wait."""
        return max((each.wait_s(tokens, now) for each in self.buckets), default=0.0)

    def until_s(self, tokens: float, now: float) -> float:
        """Return how long it takes until takers of `tokens` in all have been served."""
        return max((each.until_s(tokens, now) for each in self.buckets), default=0.0)

    def take(self, tokens: float, now: float) -> float:
        """Take `tokens` and return how long to wait before using them."""
        return max((each.take(tokens, now) for each in self.buckets), default=0.0)

    def give_back(self, tokens: float) -> None:
        """Put back what was taken and not used."""
        for each in self.buckets:
            each.give_back(tokens)

    def hold(self, until: float) -> None:
        """Serve none before `until`, and then one after the other."""
        for each in self.buckets:
            each.hold(until)

    def spares(self, tokens: float, share: float, now: float) -> bool:
        """Return whether `tokens` may go now and leave this share of every bucket."""
        return all(each.tokens(now) - tokens >= each.capacity * share for each in self.buckets)


class Quotas:
    """The buckets of one exchange: shared ones of the address, new ones for each connection."""

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
        """Return what a new connection keeps to: for all its messages, and for its requests."""
        messages, requests = (
            Quota([*shared, *(bucket_within(limit, burst) for limit, burst in own)])
            for shared, own in zip(self._shared, self._own, strict=True)
        )
        return messages, requests
