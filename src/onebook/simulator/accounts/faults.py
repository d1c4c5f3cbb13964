"""What goes wrong at a simulated exchange, on demand or at random: faults by path and kind.

What a kind means is the exchange's.
"""

from collections import Counter, defaultdict, deque
from random import Random


class AccountFaults:
    """The faults of a simulated exchange.

    Args:
        rate: Share of requests that fail at random.
        kinds: Which faults come at random.
        slow_s: How long a slow answer takes.
    """

    def __init__(
        self, *, rate: float = 0.0, kinds: tuple[str, ...] = (), seed: int = 1, slow_s: float = 1.0
    ) -> None:
        self.rate = rate
        self.slow_s = slow_s
        self.served: Counter[tuple[str, str]] = Counter()
        self.kinds = kinds
        self._random = Random(seed)  # noqa: S311  # a simulation
        self._queued: dict[str, deque[str]] = defaultdict(deque)

    def queue(self, path: str, *kinds: str) -> None:
        """Let the next requests of a path fail, one after the other."""
        self._queued[path].extend(kinds)

    def next(self, path: str) -> str:
        """The fault of this request; "" for none."""
        queued = self._queued[path]
        kind = queued.popleft() if queued else self._drawn()
        if kind:
            self.served[path, kind] += 1
        return kind

    def _drawn(self) -> str:
        if not self.kinds or self._random.random() >= self.rate:
            return ""
        return self._random.choice(self.kinds)
