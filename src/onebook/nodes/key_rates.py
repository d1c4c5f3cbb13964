"""Request rate of each key over all gateways: one token bucket shared by all. Sans-I/O.

Ten times a second, gateways exchange the number of tokens they took. Between two rounds a gateway
takes at most its share of the remaining tokens, which are divided among the gateways that use the
key or, while these are unknown, among all gateways. Together they never take more than the bucket
holds, and a single gateway can take all of it. If two gateways take the same tokens at the same
moment, the bucket goes into debt, so that errors do not accumulate.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from onebook.accounts.limits import Decision, RateLimiter
from onebook.config import TierSettings
from onebook.model import Tier

ROUND_S: Final = 0.1
WINDOW_S: Final = 60.0
IN_USE_S: Final = 60.0  # how long a key counts as in use on a gateway after its last request there
NEW_ROUNDS: Final = 3  # rounds until other gateways know that this one uses a key
NEW_SHARE: Final = 0.02  # share of the limit until then, if others use the key
EVERYTHING: Final = 1 << 62
DEBT_MAX_S: Final = 60.0
TAKEN_S_MAX: Final = WINDOW_S + DEBT_MAX_S  # per key and round: no bucket holds more
KEYS_MAX: Final = 50_000  # evicting the least recently used key only forgets its usage


class KeyUse:
    """One key's bucket, stored as the time when it is full, and this round's share."""

    __slots__ = ("first", "full_at", "others", "share", "since", "unsent", "unsent_s", "used_at")

    def __init__(self, now: float) -> None:
        self.full_at = now
        self.since = self.used_at = float("-inf")
        self.first = 0  # rest of the first share, until others know that the key is in use here
        self.unsent = 0  # tokens taken here in this round,
        self.unsent_s = 0.0  # and the same in seconds of the bucket
        self.share: int | None = None
        self.others: dict[int, float] = {}  # time of the last tokens taken, by gateway

    def tokens(self, now: float, per_minute: int) -> int:
        """Return the number of whole tokens left."""
        used_s = max(0.0, self.full_at - now)
        return max(0, int((WINDOW_S - used_s) * per_minute / WINDOW_S + 1e-6))

    def take(self, seconds: float, now: float) -> None:
        """Subtract the tokens gained in this many seconds, even below zero."""
        self.full_at = min(max(self.full_at, now) + seconds, now + WINDOW_S + DEBT_MAX_S)


class SharedRateLimiter(RateLimiter):
    """A `RateLimiter` with one limit per key over all gateways; addresses are limited per node.

    Args:
        tiers: Limits by tier.
        gateways: Returns the number of live gateways including this one; 1: nothing is shared.
    """

    def __init__(self, tiers: TierSettings, *, gateways: Callable[[], int]) -> None:
        super().__init__(tiers)
        self._per_minute_of = {tier: tiers.of(tier).requests_per_minute for tier in Tier}
        self._gateways = gateways
        self._uses: dict[str, KeyUse] = {}
        self._taken: dict[str, KeyUse] = {}  # keys with a share or unsent tokens

    def take(self, key_id: str, tier: Tier, now_s: float) -> Decision:
        """Count a request or WebSocket message of a key."""
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
        """End a round; return the tokens taken, in seconds of each key's bucket, to publish."""
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
        """Tokens that this gateway may take until others know that the key is in use here."""
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
