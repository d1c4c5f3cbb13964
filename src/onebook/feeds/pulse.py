"""Liveness of one connection: when it last delivered, and whether its silence is a fault.

Pure: times come in, verdicts go out. A pong proves that the socket works, a heartbeat that the
exchange serves us, and only data that a busy book is up to date.
"""

from collections.abc import Iterable
from typing import Final

from onebook.config import FeedSettings
from onebook.exchanges.contract import Exchange
from onebook.feeds.liveness import NEVER, Cadences
from onebook.feeds.phases import Watch
from onebook.model import Health

# Why a connection ends: the detail beside the code.
DEAD: Final = "no frame, not even a pong"
NO_HEARTBEAT: Final = "neither data nor the heartbeats that the exchange promises"
NO_DATA: Final = "no data from books that always changed"


class Pulse:
    """The liveness of one connection; all times in monotonic seconds.

    Args:
        exchange: What it promises.
        settings: The limits of silence.
        cadences: Cadences measured by earlier connections of the feed.
    """

    def __init__(self, exchange: Exchange, settings: FeedSettings, cadences: Cadences) -> None:
        self.cadences = cadences
        self.heard_at = 0.0  # a frame of any kind, or a pong
        self.alive_at = 0.0  # a heartbeat of the exchange
        self._pinged_at = 0.0
        self._any_live = False  # at the last check
        self._beat_at = NEVER
        self._exchange = exchange
        self._settings = settings

    def opened(self, now: float) -> None:
        """Begin to count."""
        self.heard_at = self.alive_at = self._pinged_at = now
        if self._exchange.heartbeat is not None:
            self._beat_at = now + self._exchange.heartbeat.every_s

    def alive(self, watch: Watch | None, now: float) -> None:
        """Note a heartbeat of the exchange, of one instrument where it has a `watch`."""
        self.alive_at = now
        if watch is not None:
            watch.alive_at = now

    def heartbeat(self, now: float) -> bytes | None:
        """Return the frame that the exchange must get now, None while none is due."""
        heartbeat = self._exchange.heartbeat
        if heartbeat is None or now < self._beat_at:
            return None
        self._beat_at = now + heartbeat.every_s
        return heartbeat.frame

    def is_dead(self, now: float) -> bool:
        """Return whether nothing was received for too long."""
        return now - self.heard_at >= self._exchange.silence_max_s

    def wants_ping(self, now: float) -> bool:
        """Return whether to send a ping, once per silence."""
        silent_s = now - self.heard_at
        due = silent_s >= self._exchange.silence_max_s / 2 and self._pinged_at <= self.heard_at
        if due:
            self._pinged_at = now
        return due

    def judge(self, watches: Iterable[Watch], now: float) -> str | None:
        """Check all books; returns why the connection counts as dead, None if it does not."""
        data_at = self._observed(watches)
        promised_s = self._exchange.heartbeat_max_s
        if promised_s is not None and now - max(data_at, self.alive_at) >= promised_s:
            return NO_HEARTBEAT
        limit_s = self.cadences.connection.limit_s(self._settings, self._settings.silent_min_s)
        return NO_DATA if data_at and now - data_at >= limit_s else None

    def _observed(self, watches: Iterable[Watch]) -> float:
        """Update the cadences; returns when a live book last changed, 0 without one."""
        data_at = 0.0
        for watch in watches:
            book = watch.book
            live = book.health is Health.LIVE
            if live:
                data_at = max(data_at, book.updated_at)
                learn = watch.cadence.observe if watch.was_live else watch.cadence.restart
                learn(book.updated_at)
            watch.was_live = live
        if data_at:
            cadence = self.cadences.connection
            (cadence.observe if self._any_live else cadence.restart)(data_at)
        self._any_live = bool(data_at)
        return data_at

    def overdue(self, watches: Iterable[Watch], now: float) -> list[Watch]:
        """List the instruments that are silent for longer than ever observed."""
        settings = self._settings
        return [
            watch
            for watch in watches
            if now - watch.book.updated_at >= watch.cadence.limit_s(settings, settings.silent_min_s)
        ]

    def is_quiet(self, watch: Watch, now: float) -> bool:
        """Return whether one live book is silent for too long; a false alarm raises its limit."""
        book, settings = watch.book, self._settings
        if now - max(book.updated_at, watch.alive_at) > self._exchange.quiet_max_s:
            return True
        silent_s = now - book.updated_at
        if silent_s >= watch.cadence.limit_s(settings, settings.quiet_min_s):
            watch.cadence.learn(silent_s, now)
            return True
        return False
