"""What a simulated exchange takes from its clients, counted in sliding windows as its page says.

The limits are stated by each dialect from its own source and enforced in another way than clients
keep to them (`onebook.exchanges.kit.limits`), so that neither can hide a mistake of the other.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple


class Most(NamedTuple):
    """At most `count` within `per_s` seconds, of one connection or of all of one address."""

    most: int
    per_s: float = 1.0
    per_address: bool = False


class Windows:
    """Counts what one connection does.

    Args:
        limits: All of them hold at once.
        address: Windows of the address, which its connections share.
        breaches: Where what was one too many is counted, by `kind`.
        kind: What is counted here.
    """

    def __init__(
        self,
        limits: Iterable[Most],
        address: dict[Most, deque[float]] | None = None,
        *,
        breaches: Counter[str] | None = None,
        kind: str = "",
    ) -> None:
        self._breaches = Counter[str]() if breaches is None else breaches
        self._kind = kind
        shared = {} if address is None else address
        self._windows = [
            (most, shared.setdefault(most, deque()) if most.per_address else deque[float]())
            for most in limits
        ]

    def takes(self, now_s: float, weight: int = 1) -> bool:
        """Count one of this weight unless that is too much; return whether it was counted."""
        for most, window in self._windows:
            while window and window[0] <= now_s - most.per_s:
                window.popleft()
        if any(len(window) + weight > most.most for most, window in self._windows):
            self._breaches[self._kind] += 1
            return False
        for _, window in self._windows:
            window.extend((now_s,) * weight)
        return True
