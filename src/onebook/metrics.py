"""Prometheus metrics that several packages set; the others are beside the code that sets them.

No label ever holds a key, a token or a symbol. Counters of the hot path are plain integers there
and are published once a second. `docs/reference/metrics.md` lists every metric.
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
RENDER_TURN_S: Final = 0.005  # of the event loop, then others have theirs

BUILD: Final = Info("onebook_build", "Version, Python, and whether the extensions are compiled.")
LOOP_LAG: Final = Histogram(
    "onebook_event_loop_lag_seconds",
    "How late a timer of the event loop was called; sampled four times a second.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
WORKER_RESTARTS: Final = Counter(
    "onebook_worker_restarts", "How often this process of node.workers was started again."
)

DATABASE_UNAVAILABLE: Final = Gauge(
    "onebook_database_unavailable", "1 while the database does not take what is asked of it."
)
USAGE_FLUSH_AGE: Final = Gauge(
    "onebook_usage_flush_age_seconds", "Since the database last took usage or a probe."
)
USAGE_FILE_IN_USE: Final = Gauge(
    "onebook_usage_file_in_use", "1 while the usage file holds what the database did not take."
)
USAGE_FILE_FAILING: Final = Gauge(
    "onebook_usage_file_failing", "1 while the usage file cannot be written."
)
LAST_BACKUP: Final = Gauge(
    "onebook_last_backup_timestamp_seconds", "Of the newest `onebook backup`."
)
CERTIFICATE_ENDS: Final = Gauge(
    "onebook_tls_certificate_ends_timestamp_seconds", "Of server.tls_cert_file."
)
for _unknown in (LAST_BACKUP, CERTIFICATE_ENDS):  # 0 would be a date of 1970
    _unknown.set(math.nan)
DISK_FREE: Final = Gauge(
    "onebook_disk_free_bytes", "Room where the database (or pepper) and usage files are.", ["files"]
)
AUTHENTICATION_FAILURES: Final = Counter(
    "onebook_authentication_failures", "Refused API keys, REST and WebSocket.", ["reason"]
)
ALLOWANCE_MARKS: Final = Counter(
    "onebook_allowance_marks",
    "Keys that passed 80 % (warning) or all (over) of their allowance.",
    ["mark"],
)

BOOKS: Final = Gauge("onebook_books", "Open books by health.", ["exchange", "health"])
BOOKS_MARKED: Final = Gauge(
    "onebook_books_marked", "Open books with a mark of the identity guard.", ["exchange", "reason"]
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
    "Books that could no longer be trusted, by cause.",
    ["exchange", "reason"],
)
LIST_ROWS_REFUSED: Final = Gauge(
    "onebook_list_rows_refused",
    "Rows of the exchange's instrument list left out: unsound name, or the symbol of another.",
    ["exchange"],
)
LIST_UNREADABLE: Final = Gauge(
    "onebook_list_unreadable",
    "1 while the exchange's instrument list cannot be read, or is refused.",
    ["exchange"],
)
EXCHANGE_UNKNOWN: Final = Counter(
    "onebook_exchange_unknown_messages", "Messages of no known kind.", ["exchange"]
)
EXCHANGE_UNNAMED_ERRORS: Final = Counter(
    "onebook_exchange_unnamed_errors", "Errors that name no instrument.", ["exchange"]
)
EXCHANGE_SLOW_DOWNS: Final = Counter(
    "onebook_exchange_slow_downs", "Times the exchange asked for fewer requests.", ["exchange"]
)
EXCHANGE_PAUSES: Final = Counter(
    "onebook_exchange_pauses", "Times reading paused because frames came too fast.", ["exchange"]
)
EXCHANGE_LATENCY: Final = Histogram(
    "onebook_exchange_latency_seconds",
    "Time of arrival minus the exchange's own time of a message, sampled; below 0: clock skew.",
    ["exchange"],
    buckets=(-1.0, -0.1, -0.01, 0.0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0),
)
EXCHANGE_OLD_MESSAGES: Final = Counter(
    "onebook_exchange_old_messages",
    "Sampled messages whose own time was older than feeds.old_s when they arrived.",
    ["exchange"],
)
EXCHANGE_LAST_FRAME: Final = Gauge(
    "onebook_exchange_last_frame_timestamp_seconds",
    "When the exchange last sent anything, Unix time.",
    ["exchange"],
)

# A counter without a sample is absent, and `increase` cannot see the first one.
for _reason in ("invalid_api_key", "api_key_disabled", "rate_limit_exceeded"):
    AUTHENTICATION_FAILURES.labels(_reason)
for _mark in ("warning", "over"):
    ALLOWANCE_MARKS.labels(_mark)


class Exposition:
    """The metrics as Prometheus text, rendered at most once a second in turns of the event loop.

    A thread would not help: rendering holds the interpreter lock. All who ask meanwhile get the
    same text, one in each turn of the loop, because a large answer is work too.
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
