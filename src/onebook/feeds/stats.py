"""Counters and data latency of one exchange's feeds, published as metrics once a second.

Latency is the age of data on arrival by the exchange's clock. It is sampled: one message per
`session.WATCH_S` and connection, and each snapshot that makes a book live. Samples have monotonic
times; `publish` gets the offset to Unix time.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from onebook import metrics
from onebook.books import LiveBook
from onebook.exchanges.kit import microseconds
from onebook.fusing import TopCounts
from onebook.model import Reason

log = logging.getLogger("onebook.feeds")

SAMPLES_MAX: Final = 1_000  # per publication; above this, the oldest are dropped
SKEW_S: Final = 1.0  # a message this far in the future is logged: one of the clocks is wrong
ACTIVE: Final = "active"
MAINTENANCE: Final = "maintenance"
LIMITED: Final = "limited"
OFFLINE: Final = "offline"

# In the order of the counts in `publish`.
COUNTERS: Final = (
    metrics.EXCHANGE_FRAMES,
    metrics.EXCHANGE_RECONNECTS,
    metrics.EXCHANGE_UNKNOWN,
    metrics.EXCHANGE_UNNAMED_ERRORS,
    metrics.EXCHANGE_SLOW_DOWNS,
    metrics.EXCHANGE_PAUSES,
    metrics.EXCHANGE_AUDITS,
)


class Latency:
    """Latency samples of one exchange until they are published; `newest_s` is the last one.

    Args:
        name: The exchange.
        recorded: Whether the data is a recording, which is not sampled.
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
        """Record a message that arrived at `now` (monotonic seconds); `at_ms` 0: no timestamp."""
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
                    "%s: data arrives %.1f s old, or this machine's clock is ahead; check NTP if "
                    "all exchanges are affected.",
                    latency_s,
                )
            elif latency_s < -SKEW_S:
                self._log(
                    "%s: timestamps are %.1f s ahead of this machine's clock; check NTP.",
                    -latency_s,
                )

    def _log(self, message: str, seconds: float) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.warning(message, self._name, seconds)


class PriceAges:
    """Publishes the age of the shown prices of live books."""

    def __init__(self) -> None:
        self._observers: dict[tuple[str, str], Callable[[float], None]] = {}

    def publish(self, books: Iterable[LiveBook], now: float) -> None:
        """Measure the exchanges' clocks and publish the ages that they determine."""
        measured = list(books)
        for book in measured:
            book.measure()
        for book in measured:
            offset = book.skew.offset(now)
            if offset is None:
                continue
            shown = {"top": book.top_at if book.core.overlaid else book.at, "depth": book.at}
            for layer, at in shown.items():
                at_us = microseconds(at)
                if at_us:
                    observe = self._observer(book.instrument.exchange, layer)
                    observe(max(0.0, now - at_us / 1_000_000 - offset.offset_s))

    def _observer(self, exchange: str, layer: str) -> Callable[[float], None]:
        observe = self._observers.get((exchange, layer))
        if observe is None:
            observe = metrics.PRICE_AGE.labels(exchange, layer).observe
            self._observers[exchange, layer] = observe
        return observe


class ExchangeStats:
    """Counters and current state of one exchange, exported as metrics by `publish`.

    `trouble` is the reason for a missing connection: one of the states above, or "".

    Args:
        name: The exchange.
        recorded: Whether the data is a recording, whose age is not measured.
    """

    def __init__(self, name: str, *, recorded: bool = False) -> None:
        self.name = name
        self.recorded = recorded
        self.frames = 0
        self.reconnects = 0
        self.unknown = 0  # messages of an unknown kind
        self.unnamed_errors = 0  # errors that name no instrument
        self.pauses = 0  # times reading was paused because frames arrived too fast
        self.slow_downs = 0  # rate limit errors of the exchange
        self.audits = 0  # comparisons of a live book with a REST snapshot
        self.audit_at = 0.0  # monotonic seconds; no snapshot is requested for one before
        self.invalidations: Counter[str] = Counter()
        self.connected = 0
        self.trouble = ""
        self.received_at = 0.0  # monotonic seconds
        self.latency = Latency(name, recorded=recorded)
        self.tops = TopCounts()
        self.bugs: set[str] = set()  # logged once each
        self._counters = [counter.labels(name) for counter in COUNTERS]
        self._counters += [metrics.EXCHANGE_TOPS.labels(name, each) for each in TopCounts.__slots__]
        self._published = (0,) * len(self._counters)
        self._invalidations_published: Counter[str] = Counter()
        for reason in Reason:  # PromQL's `increase` ignores the first value of a new time series
            metrics.BOOK_INVALIDATIONS.labels(name, reason)

    @property
    def state(self) -> str:
        """Return the state shown by `get_exchanges`."""
        return ACTIVE if self.connected or not self.trouble else self.trouble

    def forget(self) -> None:
        """Remove the gauges of an exchange that is no longer in use; its counters stay."""
        for gauge in (
            metrics.EXCHANGE_UP,
            metrics.EXCHANGE_LAST_FRAME,
            metrics.LIST_ROWS_REFUSED,
            metrics.LIST_UNREADABLE,
        ):
            with suppress(KeyError):
                gauge.remove(self.name)

    def publish(self, *, wall_offset_s: float, old_s: float) -> None:
        """Export changed counters as metrics.

        Args:
            wall_offset_s: Unix time minus monotonic time.
            old_s: Age on arrival from which data counts as old.
        """
        name = self.name
        metrics.EXCHANGE_UP.labels(name).set(1 if self.connected else 0)
        counts: tuple[int, ...] = (
            self.frames,
            self.reconnects,
            self.unknown,
            self.unnamed_errors,
            self.slow_downs,
            self.pauses,
            self.audits,
            *self.tops.counts(),
        )
        for counter, count, before in zip(self._counters, counts, self._published, strict=True):
            if count != before:
                counter.inc(count - before)
        self._published = counts
        if self.invalidations != self._invalidations_published:
            for cause, count in self.invalidations.items():
                before = self._invalidations_published[cause]
                metrics.BOOK_INVALIDATIONS.labels(name, cause).inc(count - before)
            self._invalidations_published = self.invalidations.copy()
        if self.received_at:
            metrics.EXCHANGE_LAST_FRAME.labels(name).set(self.received_at + wall_offset_s)
        self.latency.publish(wall_offset_s=wall_offset_s, old_s=old_s)
