"""What happened on the feeds of one exchange, in plain integers that cost nothing to count."""

from collections import Counter
from typing import Final

from onebook import metrics

ACTIVE: Final = "active"
MAINTENANCE: Final = "maintenance"
LIMITED: Final = "limited"
OFFLINE: Final = "offline"


class ExchangeStats:
    """Counters and the present state of one exchange; `publish` brings them to the metrics.

    `trouble` is why no connection stands: one of the state words above, "" while there is none.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.frames = 0
        self.reconnects = 0
        self.invalidations: Counter[str] = Counter()
        self.connected = 0
        self.trouble = ""
        self.heard_at = 0.0  # monotonic seconds
        self.bugs: set[str] = set()  # each is logged once
        self._frames_published = 0
        self._reconnects_published = 0
        self._invalidations_published: Counter[str] = Counter()

    @property
    def state(self) -> str:
        """Return the state word that clients read in `get_exchanges`."""
        return ACTIVE if self.connected or not self.trouble else self.trouble

    def publish(self, *, wall_offset_s: float) -> None:
        """Bring what changed to the metrics; `wall_offset_s` is Unix time minus monotonic."""
        name = self.name
        metrics.EXCHANGE_UP.labels(name).set(1 if self.connected else 0)
        metrics.EXCHANGE_FRAMES.labels(name).inc(self.frames - self._frames_published)
        metrics.EXCHANGE_RECONNECTS.labels(name).inc(self.reconnects - self._reconnects_published)
        for cause, count in self.invalidations.items():
            before = self._invalidations_published[cause]
            metrics.BOOK_INVALIDATIONS.labels(name, cause).inc(count - before)
        if self.heard_at:
            metrics.EXCHANGE_LAST_FRAME.labels(name).set(self.heard_at + wall_offset_s)
        self._frames_published = self.frames
        self._reconnects_published = self.reconnects
        self._invalidations_published = self.invalidations.copy()
