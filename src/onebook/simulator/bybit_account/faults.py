"""What goes wrong on demand or at random: busy answers, broken bodies, resets, strange values."""

from collections import Counter, defaultdict, deque
from random import Random
from typing import Final

KINDS: Final = (
    "10000",  # server timeout, HTTP 200
    "10016",  # server error, HTTP 200
    "-1",  # "request expired", HTTP 200
    "10006",  # the limit of the path, HTTP 200
    "429",  # system-level protection
    "403",  # the country of the address is refused, an HTML page of the edge
    "404",  # the account's mode does not have the path
    "502",  # the edge, with an HTML body
    "truncated",  # half of the body
    "reset",  # the connection is gone
    "slow",  # the answer takes its time
    "string_ext",  # retExtInfo as a string
    "unknown_enum",  # a status and a type nobody has heard of
)


class Faults:
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
