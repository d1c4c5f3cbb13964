"""Liveness of one connection: time of its last data, and whether its silence is a fault.

A pong proves that the socket works, a heartbeat that the exchange serves the connection; only data
proves that a busy book is up to date.
"""

from collections.abc import Collection, Iterable
from typing import Final

from onebook.exchanges.kit.contract import Exchange, Send
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.feeds.subscriptions import NEVER, Cadences, Watch
from onebook.model import Health

# Details of why a connection ended.
DEAD: Final = "no frame, not even a pong"
NO_HEARTBEAT: Final = "neither data nor the promised heartbeats"
NO_DATA: Final = "no data from books that always changed"


class Liveness:
    """The liveness of one connection; all times in monotonic seconds.

    Args:
        exchange: The exchange's facts, with its promised limits.
        cadences: Cadences measured by earlier connections of the feed.
        limits: Minimum silences, and the evidence required for a silence limit.
    """

    def __init__(
        self,
        exchange: Exchange,
        cadences: Cadences,
        limits: FeedLimits = LIMITS,
    ) -> None:
        self.cadences = cadences
        self.received_at = 0.0  # last frame of any kind, or pong
        self.alive_at = 0.0  # last heartbeat of the exchange
        self._withheld_at = 0.0
        self._pinged_at = 0.0
        self._measured = (
            False  # whether all books of the connection's cadence were live at the last check
        )
        self._beat_at = NEVER
        self._exchange = exchange
        self._limits = limits

    def opened(self, now: float) -> None:
        """Start counting."""
        self.received_at = self.alive_at = self._pinged_at = now
        if self._exchange.heartbeat is not None:
            self._beat_at = now + self._exchange.heartbeat.every_s

    def alive(self, watch: Watch | None, now: float) -> None:
        """Record a heartbeat of the exchange, or of one instrument (`watch`)."""
        self.alive_at = now
        if watch is not None:
            watch.alive_at = now

    def heartbeat(self, now: float) -> Send | None:
        """Return the heartbeat frame if one is due."""
        heartbeat = self._exchange.heartbeat
        if heartbeat is None or now < self._beat_at:
            return None
        self._beat_at = now + heartbeat.every_s
        return heartbeat.message()

    def is_dead(self, now: float) -> bool:
        """Return whether nothing has been received for too long."""
        return now - self.received_at >= self._exchange.silence_max_s

    def wants_ping(self, now: float) -> bool:
        """Return whether to send a ping, once per silence."""
        silent_s = now - self.received_at
        due = silent_s >= self._exchange.silence_max_s / 2 and self._pinged_at <= self.received_at
        if due:
            self._pinged_at = now
        return due

    def withheld(self, now: float) -> None:
        """Record a frame of a book that is out of sync: it counts as data but is not shown."""
        self._withheld_at = now

    def check(self, watches: Collection[Watch], now: float) -> str | None:
        """Check all books; return why the connection counts as dead, or None."""
        data_at = self._observed(watches, now)
        served_at = max((each.book.updated_at for each in watches), default=0.0)
        served_at = max(served_at, self._withheld_at)
        promised_s = self._exchange.heartbeat_max_s
        if promised_s is not None and now - max(served_at, self.alive_at) >= promised_s:
            return NO_HEARTBEAT
        silent_s = now - served_at
        if not data_at or silent_s < self._limits.silent_min_s:
            return None
        return NO_DATA if silent_s >= self._limit_s(watches) else None

    def _observed(self, watches: Iterable[Watch], now: float) -> float:
        """Update the cadences; returns the time of the last change of a live book, 0 if none."""
        data_at, whole = 0.0, True
        gone_s = self._limits.cadence_evidence_s
        for watch in watches:
            book = watch.book
            live = book.health is Health.LIVE
            if live:
                data_at = max(data_at, book.updated_at)
                learn = watch.cadence.observe if watch.was_live else watch.cadence.restart
                learn(book.updated_at)
            elif book.health is Health.OFFLINE or now - book.changed_at >= gone_s:
                self.cadences.exclude(watch.cadence)
            else:
                whole = whole and not watch.cadence.shared
            watch.was_live = live
        measured = whole and data_at > 0.0
        if measured:
            cadence = self.cadences.connection
            (cadence.observe if self._measured else cadence.restart)(data_at)
            for watch in watches:
                watch.cadence.shared = watch.was_live
        self._measured = measured
        return data_at

    def _limit_s(self, watches: Iterable[Watch]) -> float:
        """Return the seconds of silence after which the connection is dead.

        The common cadence of all books does not apply while one of them is out of sync; each of the
        others is then judged by its own cadence.
        """
        cadences = [watch.cadence for watch in watches if watch.was_live]
        if self._measured:
            cadences.append(self.cadences.connection)
        least_s = self._limits.silent_min_s
        return min(each.limit_s(self._limits, least_s) for each in cadences)

    def overdue(self, watches: Iterable[Watch], now: float) -> list[Watch]:
        """List the instruments that are silent longer than their limit."""
        least_s = self._limits.silent_min_s
        return [
            watch
            for watch in watches
            if now - watch.book.updated_at >= watch.cadence.limit_s(self._limits, least_s)
        ]

    def is_quiet(self, watch: Watch, now: float) -> bool:
        """Return whether a live book is silent for too long; a false alarm raises its limit."""
        book = watch.book
        if now - max(book.updated_at, watch.alive_at) > self._exchange.quiet_max_s:
            return True
        silent_s = now - book.updated_at
        if silent_s >= watch.cadence.limit_s(self._limits, self._limits.quiet_min_s):
            watch.cadence.learn(silent_s, now)
            return True
        return False
