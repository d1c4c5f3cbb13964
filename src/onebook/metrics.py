"""Prometheus metrics set by several packages; others are defined beside their code.

Labels never contain keys, tokens or symbols. Hot path counters are plain integers that are
published once a second. `docs/reference/metrics.md` lists every metric.
"""

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    Metric,
    generate_latest,
)
from prometheus_client.registry import Collector

TEXT_TYPE: Final = CONTENT_TYPE_LATEST
RENDER_S: Final = 1.0  # the text is at most this old
RENDER_TURN_S: Final = 0.005  # of the event loop

BUILD: Final = Info(
    "onebook_build", "Version, Python version, and whether the extensions are compiled."
)
LOOP_LAG: Final = Histogram(
    "onebook_event_loop_lag_seconds",
    "Delay of event loop timers; sampled four times a second.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
WORKER_RESTARTS: Final = Counter(
    "onebook_worker_restarts", "Restarts of this process by node.workers."
)

DATABASE_UNAVAILABLE: Final = Gauge(
    "onebook_database_unavailable", "1 while database operations fail."
)
USAGE_FLUSH_AGE: Final = Gauge(
    "onebook_usage_flush_age_seconds",
    "Seconds since the last successful database write of usage or a probe.",
)
USAGE_FILE_IN_USE: Final = Gauge(
    "onebook_usage_file_in_use",
    "1 while the usage file contains usage not yet written to the database.",
)
USAGE_FILE_FAILING: Final = Gauge(
    "onebook_usage_file_failing", "1 while writing the usage file fails."
)
LAST_BACKUP: Final = Gauge(
    "onebook_last_backup_timestamp_seconds", "Unix time of the newest `onebook backup`."
)
CERTIFICATE_ENDS: Final = Gauge(
    "onebook_tls_certificate_ends_timestamp_seconds",
    "Unix time at which server.tls_cert_file expires.",
)
for _unknown in (LAST_BACKUP, CERTIFICATE_ENDS):  # 0 would be a date of 1970
    _unknown.set(math.nan)
DISK_FREE: Final = Gauge(
    "onebook_disk_free_bytes",
    "Free space of the disks with the database (or pepper) and usage files.",
    ["files"],
)
AUTHENTICATION_FAILURES: Final = Counter(
    "onebook_authentication_failures", "Rejected API keys, REST and WebSocket.", ["reason"]
)
ALLOWANCE_MARKS: Final = Counter(
    "onebook_allowance_marks",
    "Keys that exceeded 80 % (warning) or 100 % (over) of their allowance.",
    ["mark"],
)

BOOKS: Final = Gauge("onebook_books", "Open books by health.", ["exchange", "health"])
BOOKS_MARKED: Final = Gauge(
    "onebook_books_marked", "Open books marked by the identity guard.", ["exchange", "reason"]
)

EXCHANGE_UP: Final = Gauge(
    "onebook_exchange_up", "1 while at least one feed of the exchange is connected.", ["exchange"]
)
EXCHANGE_FRAMES: Final = Counter(
    "onebook_exchange_frames", "Frames received from the exchange.", ["exchange"]
)
EXCHANGE_RECONNECTS: Final = Counter(
    "onebook_exchange_reconnects", "Connections to the exchange that ended.", ["exchange"]
)
BOOK_INVALIDATIONS: Final = Counter(
    "onebook_book_invalidations",
    "Invalidated books, by reason.",
    ["exchange", "reason"],
)
LIST_ROWS_REFUSED: Final = Gauge(
    "onebook_list_rows_refused",
    "Skipped rows of the exchange's instrument list: invalid name, or symbol already taken.",
    ["exchange"],
)
LIST_UNREADABLE: Final = Gauge(
    "onebook_list_unreadable",
    "1 while reading the exchange's instrument list fails, or the list is rejected.",
    ["exchange"],
)
EXCHANGE_UNKNOWN: Final = Counter(
    "onebook_exchange_unknown_messages", "Unknown messages.", ["exchange"]
)
EXCHANGE_UNNAMED_ERRORS: Final = Counter(
    "onebook_exchange_unnamed_errors", "Errors without an instrument.", ["exchange"]
)
EXCHANGE_SLOW_DOWNS: Final = Counter(
    "onebook_exchange_slow_downs", "Rate limit errors of the exchange.", ["exchange"]
)
EXCHANGE_PAUSES: Final = Counter(
    "onebook_exchange_pauses", "Pauses of reading because frames arrived too fast.", ["exchange"]
)
EXCHANGE_AUDITS: Final = Counter(
    "onebook_exchange_audits", "Live books compared with a REST snapshot.", ["exchange"]
)
EXCHANGE_TOPS: Final = Counter(
    "onebook_exchange_tops",
    "Best prices of a channel faster than the depth, by result.",
    ["exchange", "outcome"],
)
EXCHANGE_LATENCY: Final = Histogram(
    "onebook_exchange_latency_seconds",
    "Arrival time minus the exchange's timestamp of a message, sampled; negative values are "
    "clock skew.",
    ["exchange"],
    buckets=(-1.0, -0.1, -0.01, 0.0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0),
)
PRICE_AGE: Final = Histogram(
    "onebook_price_age_seconds",
    "Age of the shown prices of each live book, sampled every second: time since the exchange sent "
    "the newest message of the layer, top or depth, corrected by the offset of its clock.",
    ["exchange", "layer"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0),
)
EXCHANGE_OLD_MESSAGES: Final = Counter(
    "onebook_exchange_old_messages",
    "Sampled messages whose timestamp was older than 5 s on arrival.",
    ["exchange"],
)
EXCHANGE_LAST_FRAME: Final = Gauge(
    "onebook_exchange_last_frame_timestamp_seconds",
    "Unix time of the last frame from the exchange.",
    ["exchange"],
)

# PromQL's `increase` ignores the first sample of a counter that was absent.
for _reason in ("invalid_api_key", "api_key_disabled", "rate_limit_exceeded"):
    AUTHENTICATION_FAILURES.labels(_reason)
for _mark in ("warning", "over"):
    ALLOWANCE_MARKS.labels(_mark)


class Exposition:
    """The metrics as Prometheus text, rendered at most once a second in small steps.

    A thread would not help, because rendering holds the interpreter lock. Concurrent requests get
    the same text, one per turn of the loop, because sending a large answer takes time too.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._text = b""
        self._rendered_s = float("-inf")
        self._one = asyncio.Lock()

    async def text(self) -> bytes:
        """All metrics as text."""
        async with self._one:
            if time.monotonic() - self._rendered_s >= RENDER_S:
                self._text = await self._render()
                self._rendered_s = time.monotonic()
            await asyncio.sleep(0)
            return self._text

    async def _render(self) -> bytes:
        parts: list[bytes] = []
        ends_s = time.monotonic() + RENDER_TURN_S
        for family in self._registry.collect():
            parts.append(generate_latest(_Family(family)))
            if time.monotonic() >= ends_s:
                await asyncio.sleep(0)
                ends_s = time.monotonic() + RENDER_TURN_S
        return b"".join(parts)


class _Family(Collector):
    """One family, as `generate_latest` takes it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """The family."""
        yield self._family
