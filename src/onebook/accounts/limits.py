"""Rate limits of keys and client addresses (token buckets), and their response headers.

A bucket holds one minute's worth of requests and refills evenly. Header fields follow
draft-ietf-httpapi-ratelimit-headers-10 and also the older X-RateLimit-* form. Times are
arguments, in seconds of any clock.
"""

import ipaddress
import math
from functools import lru_cache
from typing import Final

from msgspec import Struct

from onebook.accounts.keys import Key
from onebook.config import AccountsSettings, TierSettings
from onebook.errors import RateLimitExceeded
from onebook.model import Tier
from onebook.ratelimit import MINUTE_NS, SECOND_NS, TokenBucket

FAILURES_PER_MINUTE: Final = 10  # failed authentications, by address
UNKNOWN_KEYS_PER_MINUTE: Final = 60  # usage reports of unknown keys, by address
WINDOW_S: Final = MINUTE_NS // SECOND_NS

FAILED_ATTEMPTS: Final = "failed attempts"

# Buckets kept per kind; evicting the least recently used one only forgives usage.
BUCKETS_MAX: Final = 50_000
ADDRESS_LENGTH_MAX: Final = 64
IPV6_PREFIX_BITS: Final = 64  # one customer's network, with freely chosen addresses


class Decision(Struct, frozen=True):
    """A bucket's decision on one request.

    `reset_s` is when the bucket is full again, `retry_after_s` when it has one token again (0 if
    it has one now).
    """

    allowed: bool
    policy: str
    limit: int
    remaining: int
    reset_s: float
    retry_after_s: float

    @property
    def wait_whole_s(self) -> int:
        """`retry_after_s` rounded up to whole seconds, at least 1."""
        return max(1, math.ceil(self.retry_after_s))

    def headers(self) -> dict[str, str]:
        """The header fields of the response.

        A refusal's reset time equals Retry-After, as the draft requires: the wait for one token.
        """
        wait_s = self.wait_whole_s
        reset_s = math.ceil(self.reset_s) if self.allowed else wait_s
        fields = {
            "RateLimit-Policy": f'"{self.policy}";q={self.limit};w={WINDOW_S}',
            "RateLimit": f'"{self.policy}";r={self.remaining};t={reset_s}',
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(reset_s),
        }
        if not self.allowed:
            fields["Retry-After"] = str(wait_s)
        return fields

    def require(self, what: str) -> None:
        """Raise if the bucket refused the request.

        Raises: RateLimitExceeded: It was refused; `what` names the limited action.
        """
        if not self.allowed:
            raise RateLimitExceeded(
                f"Too many {what}: {self.limit} a minute. Try again in {self.wait_whole_s} s.",
                retry_after_s=self.retry_after_s,
                headers=self.headers(),
            )


class Buckets:
    """Token buckets by name, least recently used first."""

    def __init__(self, *, buckets_max: int = BUCKETS_MAX) -> None:
        self._full_at_ns: dict[str, int] = {}
        self._buckets_max = buckets_max

    def __len__(self) -> int:
        return len(self._full_at_ns)

    def take(self, name: str, now_s: float, *, policy: str, per_minute: int) -> Decision:
        """Take a token from a bucket if it has one."""
        bucket = self._bucket(name, now_s, per_minute)
        allowed = bucket.grant(1, now_s)
        if allowed:
            self._keep(name, bucket.full_at_ns)
        return _decision(bucket, now_s, allowed=allowed, policy=policy)

    def peek(self, name: str, now_s: float, *, policy: str, per_minute: int) -> Decision:
        """Return what `take` would, without taking a token."""
        bucket = self._bucket(name, now_s, per_minute)
        return _decision(bucket, now_s, allowed=bucket.whole_tokens(now_s) >= 1, policy=policy)

    def _bucket(self, name: str, now_s: float, per_minute: int) -> TokenBucket:
        full_at_ns = self._full_at_ns.get(name, 0)
        if full_at_ns > round(now_s * SECOND_NS) + MINUTE_NS:
            # Only possible if the clock was set back: forget earlier usage.
            full_at_ns = self._full_at_ns[name] = 0
        return TokenBucket.of_minute(per_minute, full_at_ns=full_at_ns)

    def _keep(self, name: str, full_at_ns: int) -> None:
        self._full_at_ns.pop(name, None)
        self._full_at_ns[name] = full_at_ns
        if len(self._full_at_ns) > self._buckets_max:
            del self._full_at_ns[next(iter(self._full_at_ns))]


def _decision(bucket: TokenBucket, now_s: float, *, allowed: bool, policy: str) -> Decision:
    return Decision(
        allowed=allowed,
        policy=policy,
        limit=round(bucket.capacity),
        remaining=bucket.whole_tokens(now_s),
        reset_s=bucket.full_in_s(now_s),
        retry_after_s=bucket.wait_s(1, now_s),
    )


class RateLimiter:
    """Rate limits of keys, and of addresses for requests without a key."""

    def __init__(self, tiers: TierSettings | None = None) -> None:
        self._tiers = tiers or TierSettings()  # read at each request: a reload changes them
        self._keys = Buckets()
        self._addresses = Buckets()

    def take(self, key_id: str, tier: Tier, now_s: float) -> Decision:
        """Count one request, or one WebSocket message, of a key."""
        per_minute = self._tiers.of(tier).requests_per_minute
        return self._keys.take(key_id, now_s, policy=tier.value, per_minute=per_minute)

    def take_address(self, address: str, now_s: float) -> Decision:
        """Count one public GET of an address, at the basic rate."""
        per_minute = self._tiers.of(Tier.BASIC).requests_per_minute
        return self._addresses.take(network(address), now_s, policy="public", per_minute=per_minute)


class AddressLimit:
    """Events per minute and address, such as failed authentications."""

    def __init__(self, policy: str, per_minute: int) -> None:
        self.per_minute = per_minute
        self._policy = policy
        self._buckets = Buckets()

    def take(self, address: str, now_s: float) -> Decision:
        """Count one event."""
        return self._buckets.take(
            network(address), now_s, policy=self._policy, per_minute=self.per_minute
        )

    def peek(self, address: str, now_s: float) -> Decision:
        """Return whether one more event would be allowed."""
        return self._buckets.peek(
            network(address), now_s, policy=self._policy, per_minute=self.per_minute
        )


class AttemptLimits:
    """Limits of attempts: failures and unknown keys by address, sessions by key."""

    def __init__(self, settings: AccountsSettings) -> None:
        self.failures = AddressLimit("failures", FAILURES_PER_MINUTE)
        self.unknown_keys = AddressLimit("unknown", UNKNOWN_KEYS_PER_MINUTE)
        self._authentications = RateLimiter(settings.tiers)

    def require_verdict(self, address: str, now_s: float) -> None:
        """Raise if an address has had too many failures.

        Raises:
            RateLimitExceeded: The address has had too many failures.
        """
        self.failures.peek(address, now_s).require(FAILED_ATTEMPTS)

    def failed(self, address: str, now_s: float) -> None:
        """Count a failed attempt.

        Raises:
            RateLimitExceeded: The limit is exceeded.
        """
        self.failures.take(address, now_s).require(FAILED_ATTEMPTS)

    def unknown_key(self, address: str, now_s: float) -> None:
        """Count a usage report for an unknown key.

        Raises:
            RateLimitExceeded: The limit is exceeded.
        """
        self.unknown_keys.take(address, now_s).require("unknown API keys")

    def authenticated(self, key: Key, now_s: float) -> None:
        """Count an authentication with a key.

        Raises:
            RateLimitExceeded: The limit of its tier is exceeded.
        """
        decision = self._authentications.take(key.key_id, key.tier, now_s)
        decision.require("authentications with this key")


@lru_cache(maxsize=4_096)
def network(address: str) -> str:
    """Return the key of a bucket: an IPv4 address, an IPv6 /64 network, or other text."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:ADDRESS_LENGTH_MAX]
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, IPV6_PREFIX_BITS), strict=False))
