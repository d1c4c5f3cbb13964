"""Sans-I/O state machine of one exchange connection: frames and time in, effects out.

Books change at once; `drain` returns the effects for the connection. A table maps each output of a
connector to its handler; `received` is the hot path. Decisions are made in `liveness` (silence,
heartbeats), `recovery` (books that are not live), `reseeding` (snapshots of live books) and
`outbox` (rate limits).
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from onebook.books import Books
from onebook.clock import SYSTEM_CLOCK
from onebook.exchanges.kit.codec import UNREADABLE
from onebook.exchanges.kit.contract import (
    Acknowledged,
    Alive,
    BookHalted,
    BookRefused,
    Closing,
    Connector,
    Delta,
    Exchange,
    Fetch,
    Gap,
    Ignored,
    Output,
    ProtocolError,
    Renewed,
    Seeded,
    Send,
    SlowDown,
    Snapshot,
    SnapshotFailed,
    TopOfBook,
    Trading,
    Unnamed,
    Verify,
)
from onebook.exchanges.kit.limits import Quotas
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.feeds.liveness import DEAD, Liveness
from onebook.feeds.outbox import PING, Effect, End, Outbox
from onebook.feeds.recovery import Recovery
from onebook.feeds.reseeding import Reseeding
from onebook.feeds.stats import ExchangeStats
from onebook.feeds.subscriptions import LIVE_PHASE, NEVER, WAITING, Cadences, Phase, Tally, Watch
from onebook.model import Health, Instrument, Reason
from onebook.ratelimit import TokenBucket

log = logging.getLogger("onebook.feeds")

WATCH_S: Final = 0.25  # interval between checks of each instrument
REFETCHES_MAX: Final = 5  # consecutive unusable snapshots before the connection is reopened
RENEW_BEFORE_S: Final = 60.0  # before the exchange closes the connection; with jitter, up to twice
FROZEN_MAX_S: Final = 600.0  # how long an identical book is rejected after a silence

# Details of why a connection ended.
RENEWED: Final = "its age limit is near"
QUEUE_FULL: Final = "too many frames wait to be sent"
FAULTS: Final = "too many invalid frames"
NOISE: Final = "too many messages without data"


class FeedSession:
    """Sans-I/O state of one exchange connection between `opened` and `closed`.

    Args:
        exchange: The exchange's facts.
        instruments: Instruments whose books are already open.
        books: Receive the data.
        limits: Limits and timeouts.
        stats: Counters of the exchange, shared by its connections.
        jitter: Returns a number in [0, 1) for each wait.
        cadences: Cadences measured by earlier connections of the feed.
        quotas: The exchange's limits, shared by its connections.
        wall_ms: Returns Unix milliseconds, for requests that contain their time.
    """

    def __init__(
        self,
        exchange: Exchange,
        instruments: Sequence[Instrument],
        *,
        books: Books,
        limits: FeedLimits = LIMITS,
        stats: ExchangeStats,
        jitter: Callable[[], float] = random.random,
        cadences: Cadences | None = None,
        quotas: Quotas | None = None,
        wall_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
    ) -> None:
        self.pending = False  # whether `drain` has effects
        self.ended: End | None = None
        self._exchange = exchange
        self._books = books
        self._limits = limits
        self._stats = stats
        self._jitter = jitter
        self._connector: Connector = exchange.connector(instruments)
        self._read = self._connector.reader()
        self._outbox = Outbox(
            quotas or Quotas(exchange.limits),
            frames_max=limits.send_queue_max,
            wake=self._wake,
            wall_ms=wall_ms,
        )
        self._liveness = Liveness(exchange, cadences or Cadences(), limits)
        self._recovery = Recovery(
            books=books,
            outbox=self._outbox,
            limits=limits,
            stats=stats,
            snapshot_s=exchange.snapshot_s,
            jitter=jitter,
            resync=self._resync,
            end=self._end,
        )
        self._watches = self._recovery.watches
        self._invalidate = self._recovery.invalidate
        self._reseeding: Reseeding | None = None
        if isinstance(self._connector, Seeded):
            self._reseeding = Reseeding(
                self._connector,
                limits,
                stats=stats,
                jitter=jitter,
                recovery=self._recovery,
                outbox=self._outbox,
                execute=self._execute,
                end=self._end,
            )
        self._unsampled = books.change
        self._change = self._unsampled  # or `_sampled`, for the next delta
        self._table: Final = self._handlers()
        self._noise = TokenBucket.of_rate(limits.noise_per_s, limits.noise_burst)
        self._faults = Tally(limits.faults_max)
        self._unknown = False  # whether an unknown message has been logged
        self._orphans: Counter[Instrument] = (
            Counter()
        )  # requested bodies of books that were removed
        self._renew_at = NEVER
        self._check_at = 0.0
        self._recovery.adopt(instruments, self._liveness.cadences, 0.0)

    @property
    def instruments(self) -> list[Instrument]:
        """Return the instruments of this connection."""
        return list(self._watches)

    def opened(self, now: float) -> None:
        """Subscribe and start the timers when the socket is open."""
        self._liveness.opened(now)
        # Jittered, because connections opened together would be renewed together.
        renew_before_s = RENEW_BEFORE_S * (1.0 + self._jitter())
        self._renew_at = now + max(
            self._exchange.lifetime_s - renew_before_s, self._limits.stable_s
        )
        for watch in list(self._watches.values()):
            self._books.set_health(watch.instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
        self._execute(self._connector.opened, now)
        self._recovery.requested(self._watches.values(), now)

    def received(self, frame: bytes, now: float) -> None:
        """Process one message (hot path: `_execute` inlined)."""
        if self.ended is not None:
            return
        self._liveness.received_at = now
        self._stats.frames += 1
        # Local variables, because Python 3.11 is slow to call attributes that are not methods.
        read = self._read
        try:
            try:
                outputs = read(frame)
            except UNREADABLE:
                outputs = None
            if type(outputs) is Delta:  # most frames
                change = self._change
                reason = change(outputs, now)
                if reason is None:
                    return
                self._invalidate(outputs.instrument, reason, now)
            elif type(outputs) is TopOfBook:  # most frames of exchanges with a top of book
                self._books.top(outputs, now)
                return
            else:
                if outputs is None:
                    outputs = self._connector.received(frame)
                if not outputs:
                    self._liveness.withheld(now)
                table = self._table
                for output in outputs:
                    table[type(output)](output, now)
        except Exception as error:
            self._failed(error, now)
        if self._recovery.broken:
            self._recovery.repair(now)

    def damaged(self, reason: str, now: float) -> None:
        """Handle a message that cannot be decompressed and may concern any book."""
        if self.ended is None:
            self._liveness.received_at = now
            self._misunderstood(None, Reason.PROTOCOL_ERROR, reason, now)
            self._recovery.repair(now)

    def received_control(self, now: float) -> None:
        """Record a control frame or a fragment, which proves the socket but not the data."""
        if self.ended is None:
            self._liveness.received_at = now
            self._count_noise(now)

    def ponged(self, now: float) -> None:
        """Count a pong that was sent, because exchanges count it as a message."""
        self._outbox.sent(now)

    def fetched(self, instrument: Instrument, body: bytes, now: float) -> None:
        """Process the body of a `Request`."""
        watch = self._answered(instrument)
        if watch is None:
            return
        if self._reseeding is not None and self._reseeding.is_pending(watch):
            self._reseeding.arrived(watch, body, now)
            return
        if watch.phase in WAITING:
            watch.at = now + self._exchange.snapshot_s
        try:
            outputs = tuple(self._connector.fetched(instrument, body))
        except ProtocolError as error:
            self._fetch_failed(watch, error.reason, now)
        else:
            self._execute(lambda: outputs, now)

    def fetch_failed(self, instrument: Instrument, words: str, now: float) -> None:
        """Handle a failed `Request`."""
        watch = self._answered(instrument)
        if watch is None:
            return
        if self._reseeding is not None and self._reseeding.is_pending(watch):
            self._reseeding.defer(watch, now)
        else:
            self._fetch_failed(watch, words, now)

    def _fetch_failed(self, watch: Watch, words: str, now: float) -> None:
        if watch.phase is not Phase.LIVE:  # the stream may have delivered the book meanwhile
            self._recovery.snapshot_failed(watch.instrument, words, now)
            self._recovery.repair(now)

    def deferred(self, instrument: Instrument, now: float) -> None:
        """Handle a deferrable `Request` that was not sent because the budget is in use."""
        watch = self._answered(instrument)
        if watch is not None and self._reseeding is not None:
            self._reseeding.defer(watch, now)

    def add(self, instruments: Sequence[Instrument], now: float) -> None:
        """Add instruments whose books are already open."""
        self._recovery.adopt(instruments, self._liveness.cadences, now)
        if self.ended is None:
            self._execute(lambda: self._connector.add(instruments), now)
            self._recovery.added(instruments, now)

    def remove(self, instruments: Sequence[Instrument], now: float) -> None:
        """Remove instruments."""
        for instrument in instruments:
            if (watch := self._watches.get(instrument)) is not None and watch.fetching:
                self._orphans[instrument] += watch.fetching
            self._recovery.drop(instrument, now)
            self._liveness.cadences.forget(instrument)
            if self._reseeding is not None:
                self._reseeding.forget(instrument)
        if self.ended is None:
            self._execute(lambda: self._connector.remove(instruments), now)

    def tick(self, now: float) -> None:
        """Check silence, heartbeats, age and the deadlines of each instrument."""
        if self.ended is not None:
            return
        self._stats.received_at = max(self._stats.received_at, self._liveness.received_at)
        if self._liveness.is_dead(now):
            self._end(Reason.SILENT, now, DEAD)
        elif self._liveness.wants_ping(now):
            self._outbox.urge(PING)
        heartbeat = self._liveness.heartbeat(now)
        if heartbeat is not None:
            self._outbox.send(heartbeat)
        if now >= self._renew_at:
            self._end(Reason.RENEWING, now, RENEWED, at_once=True)
        elif now >= self._check_at:
            self._check_at = now + WATCH_S
            self._change = self._sampled  # measures the latency of the next data message
            self._check_all(now)

    def drain(self, now: float) -> list[Effect]:
        """Return the effects that are due; frames beyond the rate limits wait for the next call."""
        self.pending = False
        if self.ended is not None:
            return [self.ended]
        return self._outbox.drain(now)

    def closed(self, now: float, reason: Reason = Reason.DISCONNECTED, detail: str = "") -> None:
        """Invalidate all books, because the socket is closed."""
        if self.ended is None:
            self.ended = End(reason, detail)
        self._recovery.finish(self.ended.reason, self.ended.detail, now)

    # Outputs of the connector

    def _handlers(self) -> dict[type, Callable[[Any, float], object]]:
        recovery = self._recovery
        return {
            Snapshot: self._fill,
            Delta: self._delta,
            TopOfBook: lambda out, now: self._books.top(out, now),
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
            Alive: lambda out, now: self._liveness.alive(recovery.watches.get(out.instrument), now),
            Closing: lambda out, now: self._end(Reason.CLOSING, now, out.reason, at_once=True),
        }

    def _execute(self, outputs: Callable[[], Iterable[Output]], now: float) -> None:
        """Execute outputs as they are produced, then resync the books they invalidated."""
        table = self._table
        try:
            for output in outputs():
                table[type(output)](output, now)
        except Exception as error:
            self._failed(error, now)
        if self._recovery.broken:
            self._recovery.repair(now)

    def _failed(self, error: Exception, now: float) -> None:
        """Handle an exception raised while a frame was parsed or applied."""
        if isinstance(error, ProtocolError):
            self._misunderstood(error.instrument, Reason.PROTOCOL_ERROR, error.reason, now)
            return
        kind = type(error).__name__
        if kind not in self._stats.bugs:
            self._stats.bugs.add(kind)
            log.error("Processing a frame of %s failed.", self._stats.name, exc_info=error)
        self._misunderstood(None, Reason.INTERNAL_ERROR, "", now)

    def _misunderstood(
        self, instrument: Instrument | None, reason: Reason, detail: str, now: float
    ) -> None:
        """Invalidate the book that a frame may have changed, or all if that is unknown."""
        if instrument is not None:
            self._recovery.invalidate(instrument, reason, now, detail=detail)
        elif self._faults.hit(now):
            self._end(reason, now, FAULTS, abrupt=True)
        else:
            for each in list(self._recovery.watches):
                self._recovery.invalidate(each, reason, now, detail=detail)

    def _count_noise(self, now: float) -> None:
        """Count a frame without data; a flood of them ends the connection."""
        if self._noise.take(1, now) > 0:
            self._end(Reason.FLOOD, now, NOISE, abrupt=True)

    def _sampled(self, delta: Delta, now: float) -> Reason | None:
        self._sample(delta, now)
        return self._change(delta, now)

    def _sample(self, output: Snapshot | Delta, now: float) -> None:
        self._change = self._unsampled
        self._stats.latency.sample(output.at_ms, now)

    def _delta(self, output: Delta, now: float) -> None:
        reason = self._change(output, now)
        if reason is not None:
            self._recovery.invalidate(output.instrument, reason, now)

    def _verify(self, output: Verify, now: float) -> None:
        reason = self._books.verify(output, now)
        if reason is not None:
            self._recovery.invalidate(output.instrument, reason, now)

    def _fill(self, output: Snapshot, now: float) -> None:
        recovery = self._recovery
        if recovery.over or recovery.halted is not None:
            return  # no book becomes live after the end of the connection or of trading
        before = recovery.watches.get(output.instrument)
        first = before is not None and before.phase is not LIVE_PHASE
        if first or self._change is not self._unsampled:
            self._sample(output, now)
        reason = self._books.fill(output, now)
        watch = recovery.filled(output.instrument, now)
        if reason is not None:
            recovery.invalidate(output.instrument, reason, now)
        elif watch is not None and self._reseeding is not None:
            self._reseeding.filled(watch, now)

    def _send(self, output: Send, now: float) -> None:
        if not self._outbox.send(output):
            self._end(Reason.RATE_LIMITED, now, QUEUE_FULL)

    def _fetch(self, output: Fetch, now: float) -> None:
        watch = self._recovery.watches.get(output.instrument)
        if watch is None:
            return
        if not output.spare:
            watch.fetches += 1
        if watch.fetches > REFETCHES_MAX:
            self._recovery.give_up(watch, now)
            return
        watch.fetching += 1
        self._outbox.request(output)

    def _ignored(self, output: Ignored, now: float) -> None:
        if not output.known:
            self._stats.unknown += 1
            if not self._unknown:
                self._unknown = True
                log.info(
                    "%s: unknown message ignored (further ones are only counted).", self._stats.name
                )
        self._count_noise(now)

    # Timers

    def _check_all(self, now: float) -> None:
        silence = self._liveness.check(self._watches.values(), now)
        if silence is not None:
            for watch in self._liveness.overdue(self._watches.values(), now):
                # Books that always changed before must change after the reconnect.
                self._books.remember_top(watch.book, now + FROZEN_MAX_S)
            self._end(Reason.SILENT, now, silence)
        if self.ended is None and self._recovery.halted is None:
            self._recovery.resolve_unnamed(now)
            for watch in list(self._watches.values()):
                self._check(watch, now)
            if self._reseeding is not None:
                self._reseeding.audit(self._watches.values(), now)
            self._recovery.repair(now)

    def _check(self, watch: Watch, now: float) -> None:
        if watch.phase is not Phase.LIVE:
            self._recovery.check(watch, now)
        elif self._liveness.is_quiet(watch, now):
            self._invalidate(watch.instrument, Reason.QUIET, now)
        elif now >= watch.at:
            self._recovery.overdue(watch, now)
        else:
            if watch.tries and now - watch.book.changed_at >= self._limits.stable_s:
                watch.tries = 0
            if self._reseeding is not None:
                self._reseeding.check(watch, now)
            fusing = watch.book.fusing
            if fusing is not None and fusing.off and not fusing.reported:
                fusing.reported = True
                log.warning(
                    "%s: the fast best price of %s is ignored: %s.",
                    self._stats.name,
                    watch.instrument.symbol,
                    fusing.off,
                )

    # Callbacks of the parts

    def _wake(self) -> None:
        self.pending = True

    def _resync(self, instruments: Sequence[Instrument], now: float) -> None:
        self._execute(lambda: self._connector.resync(instruments), now)

    def _end(
        self,
        reason: Reason,
        now: float,
        detail: str,
        *,
        at_once: bool = False,
        abrupt: bool = False,
    ) -> None:
        if self.ended is None:
            self.ended = End(reason, detail, at_once, abrupt)
            self.pending = True
            self._recovery.finish(reason, detail, now)

    def _answered(self, instrument: Instrument) -> Watch | None:
        if self._orphans[instrument]:  # it may have been added again, with other requests
            self._orphans -= Counter((instrument,))
            return None
        watch = self._watches.get(instrument)
        if watch is not None:
            watch.fetching -= 1
        return watch if self.ended is None else None
