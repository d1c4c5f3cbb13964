"""Latency of one exchange's data: its age on arrival, by the exchange's clock.

Sampled: of each connection one message in `session.WATCH_S`, and each snapshot that makes a book
live. No clock: samples have monotonic times, and `publish` gets the offset to Unix time once a
second.
"""

import logging
from collections import deque
from typing import Final

from onebook import metrics

log = logging.getLogger("onebook.feeds")

SAMPLES_MAX: Final = 1_000  # between two publications; beyond it the oldest are dropped
SKEW_S: Final = 1.0  # a message this far in the future is logged: one of the clocks is wrong


class Latency:
    """Latency samples of one exchange until they are published; `newest_s` is the last one.

    Args:
        name: The exchange.
        recorded: Its data is a recording's: nothing is sampled.
    """

    def __init__(self, name: str, *, recorded: bool = False) -> None:
        self.newest_s: float | None = None
        self._name = name
        self._recorded = recorded
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)  # monotonic minus exchange time
        self._observe = metrics.EXCHANGE_LATENCY.labels(name).observe
        self._count_old = metrics.EXCHANGE_OLD_MESSAGES.labels(name).inc
        self._logged: set[str] = set()

    def sample(self, at_ms: int, now: float) -> None:
        """Note a message that arrived at `now`, in monotonic seconds; 0 ms is no time."""
        if at_ms and not self._recorded:
            self._samples.append(now - at_ms / 1_000)

    def publish(self, *, wall_offset_s: float, old_s: float) -> None:
        """Publish the samples as metrics, and log the first old and the first future one."""
        while self._samples:
            latency_s = self.newest_s = self._samples.popleft() + wall_offset_s
            self._observe(latency_s)
            if latency_s > old_s:
                self._count_old()
                self._log(
                    "%s sends data that is %.1f s old, or this machine's clock is ahead; check its "
                    "NTP if all do.",
                    latency_s,
                )
            elif latency_s < -SKEW_S:
                self._log(
                    "%s sends times %.1f s ahead of this machine's clock; check its NTP.",
                    -latency_s,
                )

    def _log(self, message: str, seconds: float) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.warning(message, self._name, seconds)
