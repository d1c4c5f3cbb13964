"""Dispatches a connector's outputs by type: one table from the type to its handler."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from onebook.books import Books
from onebook.config import FeedSettings
from onebook.exchanges.contract import (
    Acknowledged,
    Alive,
    BookHalted,
    BookRefused,
    Closing,
    Delta,
    Fetch,
    Gap,
    Ignored,
    Output,
    ProtocolError,
    Renewed,
    Send,
    SlowDown,
    Snapshot,
    SnapshotFailed,
    Trading,
    Unnamed,
    Verify,
)
from onebook.feeds.outbox import Outbox
from onebook.feeds.phases import LIVE_PHASE, Tally
from onebook.feeds.pulse import Pulse
from onebook.feeds.recovery import Ending, Recovery
from onebook.feeds.reseeding import Reseeding
from onebook.feeds.stats import ExchangeStats
from onebook.model import Instrument, Reason
from onebook.ratelimit import TokenBucket

log = logging.getLogger("onebook.feeds")

# Why a connection ends: the detail beside the code.
QUEUE_FULL: Final = "too many frames wait to be sent"
FAULTS: Final = "too many frames that cannot be understood"
NOISE: Final = "too many messages without data"


class Dispatch:
    """Executes the outputs of one connection's connector.

    Args:
        books: Where data goes.
        settings: Limits and waits.
        stats: Counters of the exchange.
        outbox: Where frames and REST requests go.
        pulse: Where heartbeats go.
        recovery: What is done about books that are not live.
        end: Ends the connection.
    """

    def __init__(
        self,
        *,
        books: Books,
        settings: FeedSettings,
        stats: ExchangeStats,
        outbox: Outbox,
        pulse: Pulse,
        recovery: Recovery,
        end: Ending,
    ) -> None:
        self.reseeding: Reseeding | None = None  # where REST bodies seed the books
        self._unsampled = books.change
        self.change = self._unsampled  # or `_sampled`, for one delta
        self.table: Final[dict[type, Callable[[Any, float], object]]] = {
            Snapshot: self._fill,
            Delta: self._change,
            Verify: self._verify,
            Gap: lambda out, now: recovery.invalidate(
                out.instrument, Reason.GAP, now, detail=out.reason
            ),
            Send: self._send,
            Fetch: self._fetch,
            Acknowledged: lambda out, now: recovery.acknowledged(out.instrument, now),
            Renewed: lambda out, now: recovery.renewed(out.instrument, now),
            BookRefused: lambda out, now: recovery.refused(out.instrument, out.reason, now),
            BookHalted: lambda out, now: recovery.not_traded(out.instrument, out.reason, now),
            SnapshotFailed: lambda out, now: recovery.snapshot_failed(
                out.instrument, out.reason, now
            ),
            Unnamed: lambda out, now: recovery.unnamed(out.reason, now),
            SlowDown: lambda out, now: recovery.slow_down(
                out.reason, now, unavailable=out.unavailable, about=out.instruments
            ),
            Trading: lambda out, now: recovery.trading(out.reason, now, is_open=out.open),
            Ignored: self._ignored,
            Alive: lambda out, now: pulse.alive(recovery.watches.get(out.instrument), now),
            Closing: lambda out, now: end(Reason.CLOSING, now, out.reason, at_once=True),
        }
        self._books = books
        self._settings = settings
        self._stats = stats
        self._outbox = outbox
        self._recovery = recovery
        self._end = end
        self._noise = TokenBucket.of_rate(settings.noise_per_s, settings.noise_burst)
        self._faults = Tally(settings.faults_max)
        self._unknown = False  # whether an unknown message was logged

    def run(self, outputs: Callable[[], Iterable[Output]], now: float) -> None:
        """Execute outputs as they are produced, then resync the books they invalidated."""
        table = self.table
        try:
            for output in outputs():
                table[type(output)](output, now)
        except Exception as error:
            self.failed(error, now)
        if self._recovery.broken:
            self._recovery.repair(now)

    def failed(self, error: Exception, now: float) -> None:
        """Handle an exception raised while a frame was parsed or applied."""
        if isinstance(error, ProtocolError):
            self.misunderstood(error.instrument, Reason.PROTOCOL_ERROR, error.reason, now)
            return
        kind = type(error).__name__
        if kind not in self._stats.bugs:
            self._stats.bugs.add(kind)
            log.error("Processing a frame of %s failed.", self._stats.name, exc_info=error)
        self.misunderstood(None, Reason.INTERNAL_ERROR, "", now)

    def misunderstood(
        self, instrument: Instrument | None, reason: Reason, detail: str, now: float
    ) -> None:
        """Invalidate what a frame may have changed: one book, or all where that is unknown."""
        if instrument is not None:
            self._recovery.invalidate(instrument, reason, now, detail=detail)
        elif self._faults.hit(now):
            self._end(reason, now, FAULTS, abrupt=True)
        else:
            for each in list(self._recovery.watches):
                self._recovery.invalidate(each, reason, now, detail=detail)

    def noise(self, now: float) -> None:
        """Count a frame without data; a flood of them ends the connection."""
        if self._noise.take(1, now) > 0:
            self._end(Reason.FLOOD, now, NOISE, abrupt=True)

    def sample_next(self) -> None:
        """Measure the latency of the next data message only."""
        self.change = self._sampled

    def _sampled(self, delta: Delta, now: float) -> Reason | None:
        self._sample(delta, now)
        return self.change(delta, now)

    def _sample(self, output: Snapshot | Delta, now: float) -> None:
        self.change = self._unsampled
        self._stats.latency.sample(output.at_ms, now)

    def _change(self, output: Delta, now: float) -> None:
        reason = self.change(output, now)
        if reason is not None:
            self._recovery.invalidate(output.instrument, reason, now)

    def _verify(self, output: Verify, now: float) -> None:
        reason = self._books.verify(output, now)
        if reason is not None:
            self._recovery.invalidate(output.instrument, reason, now)

    def _fill(self, output: Snapshot, now: float) -> None:
        recovery = self._recovery
        if recovery.over or recovery.halted is not None:
            return  # data after the end of the connection or of trading makes no book live
        before = recovery.watches.get(output.instrument)
        first = before is not None and before.phase is not LIVE_PHASE
        if first or self.change is not self._unsampled:
            self._sample(output, now)
        reason = self._books.fill(output, now)
        watch = recovery.filled(output.instrument, now)
        if reason is not None:
            recovery.invalidate(output.instrument, reason, now)
        elif watch is not None and self.reseeding is not None:
            self.reseeding.filled(watch, now)

    def _send(self, output: Send, now: float) -> None:
        if not self._outbox.send(output):
            self._end(Reason.RATE_LIMITED, now, QUEUE_FULL)

    def _fetch(self, output: Fetch, now: float) -> None:
        watch = self._recovery.watches.get(output.instrument)
        if watch is None:
            return
        if not output.spare:
            watch.fetches += 1
        if watch.fetches > self._settings.refetches_max:
            self._recovery.give_up(watch, now)
            return
        watch.fetching += 1
        self._outbox.request(output)

    def _ignored(self, output: Ignored, now: float) -> None:
        if not output.known:
            self._stats.unknown += 1
            if not self._unknown:
                self._unknown = True
                log.info("%s sends unknown messages.", self._stats.name)
        self.noise(now)
