"""Request rate of each key over all gateways: one token bucket that all of them follow. Sans-I/O.

Ten times a second gateways exchange how many tokens they took. Between two rounds a gateway takes
at most its share of the remaining tokens: one part for each gateway where the key is in use or,
while that is unknown, for each gateway. Together they never take more than the bucket holds, and a
single gateway can take all of it. Tokens that two gateways take at the same moment become a debt,
so that errors do not add up.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from onebook.accounts.limits import Decision, RateLimiter
from onebook.config import TierSettings
from onebook.model import Tier

ROUND_S: Final = 0.1
WINDOW_S: Final = 60.0
IN_USE_S: Final = 60.0  # a key is in use on a gateway for this time after its last request there
NEW_ROUNDS: Final = 3  # rounds until other gateways know that a key is in use here
NEW_SHARE: Final = 0.02  # of the limit until then, if others use the key
EVERYTHING: Final = 1 << 62
DEBT_MAX_S: Final = 60.0
TAKEN_S_MAX: Final = WINDOW_S + DEBT_MAX_S  # of a key in one round: no bucket holds more
KEYS_MAX: Final = 50_000  # evicting the least recently used key only forgives usage


class KeyUse:
    """One key's bucket, as the time at which it is full again, and this round's share."""

    __slots__ = ("first", "full_at", "others", "share", "since", "unsent", "unsent_s", "used_at")

    def __init__(self, now: float) -> None:
        self.full_at = now
        self.since = self.used_at = float("-inf")
        self.first = 0  # rest of the share until other gateways know that the key is in use here
        self.unsent = 0  # taken here in this round ...
        self.unsent_s = 0.0  # ... and that in seconds of the bucket
        self.share: int | None = None
        self.others: dict[int, float] = {}  # gateway: when it last took

    def tokens(self, now: float, per_minute: int) -> int:
        """Whole tokens left."""
        used_s = max(0.0, self.full_at - now)
        return max(0, int((WINDOW_S - used_s) * per_minute / WINDOW_S + 1e-6))

    def take(self, seconds: float, now: float) -> None:
        """Subtract the tokens that the bucket gains in this many seconds, even below zero."""
        self.full_at = min(max(self.full_at, now) + seconds, now + WINDOW_S + DEBT_MAX_S)


class SharedRateLimiter(RateLimiter):
    """A `RateLimiter` whose keys have one limit over all gateways; addresses are each node's own.

    Args:
        tiers: Limits by tier.
        gateways: Returns the number of live gateways, including this one; 1 shares nothing.
    """

    def __init__(self, tiers: TierSettings, *, gateways: Callable[[], int]) -> None:
        super().__init__(tiers)
        self._per_minute_of = {tier: tiers.of(tier).requests_per_minute for tier in Tier}
        self._gateways = gateways
        self._uses: dict[str, KeyUse] = {}
        self._taken: dict[str, KeyUse] = {}  # keys with a share or something unsent

    def take(self, key_id: str, tier: Tier, now_s: float) -> Decision:
        """Count one request, or one WebSocket message, of a key."""
        per_minute = self._per_minute_of[tier]
        use = self._use(key_id, now_s)
        tokens = use.tokens(now_s, per_minute)
        if now_s - use.used_at > IN_USE_S:
            use.since = now_s
            use.first = self._first_share(use, tokens, now_s, per_minute)
        use.used_at = now_s
        if use.share is None:
            use.share = self._share(use, tokens, now_s)
            self._taken[key_id] = use
        allowed = tokens > 0 and use.unsent < use.share
        wait_s = 0.0 if tokens else use.full_at - now_s - WINDOW_S + WINDOW_S / per_minute
        if allowed:
            use.take(WINDOW_S / per_minute, now_s)
            use.unsent += 1
            use.first -= 1
            use.unsent_s += WINDOW_S / per_minute
            tokens -= 1
        elif tokens:
            wait_s = ROUND_S
        return Decision(
            allowed=allowed,
            policy=tier.value,
            limit=per_minute,
            remaining=tokens,
            reset_s=max(0.0, use.full_at - now_s),
            retry_after_s=max(0.0, wait_s),
        )

    def round(self) -> dict[str, float]:
        """End a round; return what each key took, in seconds of its bucket, for other gateways."""
        taken = {
            key_id: min(use.unsent_s, TAKEN_S_MAX)
            for key_id, use in self._taken.items()
            if use.unsent
        }
        for use in self._taken.values():
            use.unsent, use.unsent_s, use.share = 0, 0.0, None
        self._taken.clear()
        return taken

    def received(self, gateway: int, taken: Mapping[str, float], now_s: float) -> None:
        """Subtract the tokens that another gateway took."""
        for key_id, seconds in taken.items():
            use = self._use(key_id, now_s)
            use.others[gateway] = now_s
            use.take(seconds, now_s)

    def _use(self, key_id: str, now_s: float) -> KeyUse:
        use = self._uses.pop(key_id, None)
        if use is None or use.full_at > now_s + WINDOW_S + DEBT_MAX_S:  # or a clock set back
            use = KeyUse(now_s)
        self._uses[key_id] = use
        if len(self._uses) > KEYS_MAX:
            oldest = next(iter(self._uses))
            del self._uses[oldest]
            self._taken.pop(oldest, None)
        return use

    def _first_share(self, use: KeyUse, tokens: int, now_s: float, per_minute: int) -> int:
        """Tokens that this gateway may take before the others know that the key is in use here."""
        if _others(use, now_s):
            return max(1, int(per_minute * NEW_SHARE))
        return max(1, tokens // max(1, self._gateways()))

    def _share(self, use: KeyUse, tokens: int, now_s: float) -> int:
        """Tokens that this gateway may take until the next round."""
        if self._gateways() <= 1:
            return EVERYTHING
        if now_s - use.since < NEW_ROUNDS * ROUND_S:
            return use.first
        return ceil(tokens / (1 + _others(use, now_s)))


def _others(use: KeyUse, now_s: float) -> int:
    """Number of other gateways on which the key is in use."""
    return sum(now_s - at <= IN_USE_S for at in use.others.values())
