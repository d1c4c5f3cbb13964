"""Resyncs the instruments of a connection that are not live, by the table in `subscriptions`.

Changes the health of books and sends requests through `resync`. A book is invalidated at once and,
after its whole frame has been processed, requested again without the other books.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from onebook.backoff import DOUBLINGS_MAX, exponential_s, full_jitter_s
from onebook.books import LIVE, Books
from onebook.feeds.limits import FeedLimits
from onebook.feeds.outbox import Outbox
from onebook.feeds.stats import ExchangeStats
from onebook.feeds.subscriptions import (
    LIVE_PHASE,
    NEVER,
    RETRYING,
    WAITING,
    Cadences,
    Cause,
    Phase,
    Watch,
)
from onebook.model import Health, Instrument, Reason

UNAVAILABLE_MAX: Final = 5  # consecutive pauses before the error is attributed to an instrument
# Seconds after which an error that names no instrument is attributed to the unanswered requests.
# Exchanges answer within tens of milliseconds, not always in order.
UNNAMED_WAIT_S: Final = 1.0

CHECKSUMS: Final = "too many wrong checksums"
BEYOND_REPAIR: Final = "a book could not be repaired"

Ending = Callable[[Reason, float, str], None]  # ends the connection: (reason, now, detail)


class UnnamedError(NamedTuple):
    """An error that names no instrument, and the requests that were unanswered when it arrived."""

    words: str
    at: float
    pending: list[Watch]


class Recovery:
    """Resyncs the instruments of one connection that are not live.

    Args:
        books: The books whose health is set.
        outbox: Returns how long a queued request will wait.
        limits: Limits and timeouts.
        stats: Counters of the exchange.
        snapshot_s: Seconds a subscription may take to deliver its first book.
        jitter: Returns a number in [0, 1) for each wait.
        resync: Requests instruments again, in as few requests as possible.
        end: Ends the connection, with a reason and its detail.
    """

    def __init__(
        self,
        *,
        books: Books,
        outbox: Outbox,
        limits: FeedLimits,
        stats: ExchangeStats,
        snapshot_s: float,
        jitter: Callable[[], float],
        resync: Callable[[Sequence[Instrument], float], None],
        end: Ending,
    ) -> None:
        self.watches: dict[Instrument, Watch] = {}
        self.broken: list[Watch] = []  # requested again after this frame
        self.halted: str | None = None  # why the exchange does not match orders; None while it does
        self.over = False  # the connection has ended: no resyncs
        self._books = books
        self._outbox = outbox
        self._limits = limits
        self._stats = stats
        self._snapshot_s = snapshot_s
        self._jitter = jitter
        self._resync = resync
        self._end = end
        self._slowed = 0  # pauses of requests since the last acknowledgement
        self._isolated: deque[Watch] = deque()  # to be requested one by one
        self._isolating: Watch | None = None  # the one with an unanswered request
        self._unnamed_error: UnnamedError | None = None  # the oldest one

    def adopt(self, instruments: Iterable[Instrument], cadences: Cadences, now: float) -> None:
        """Add instruments whose books are already open."""
        for instrument in instruments:
            book = self._books.get(instrument)
            assert book is not None, instrument
            self.watches[instrument] = Watch(book, now + self._snapshot_s, cadences.of(instrument))

    def added(self, instruments: Iterable[Instrument], now: float) -> None:
        """Record instruments that were subscribed on the open connection."""
        watches = [self.watches[instrument] for instrument in instruments]
        self.requested(watches, now)
        if self.halted is not None:
            for watch in watches:
                self.halt(watch, now)

    def requested(self, watches: Iterable[Watch], now: float) -> None:
        """Set the deadlines of the requests that were just queued."""
        due_at = now + self._snapshot_s + self._outbox.wait_s(now)
        for watch in watches:
            if watch.phase in WAITING:
                watch.at = due_at

    def finish(self, reason: Reason, detail: str, now: float) -> None:
        """Invalidate all books, because the connection has ended."""
        self.over = True
        for watch in self._all():
            if watch.book.health is Health.LIVE:
                self._stats.invalidations[reason] += 1
            self._books.set_health(watch.instrument, Health.STALE, reason, now, detail=detail)

    def drop(self, instrument: Instrument, now: float) -> None:
        """Stop watching an instrument."""
        watch = self.watches.pop(instrument, None)
        if watch is not None:
            self._request_answered(watch, now)

    # Outputs of the connector

    def acknowledged(self, instrument: Instrument, now: float) -> None:
        """Wait for the snapshot of an accepted subscription."""
        watch = self.watches.get(instrument)
        if watch is None:
            return
        self._slowed = watch.postponements = 0
        if watch.phase in WAITING or watch.phase is Phase.ISOLATED:
            watch.move(Cause.ACKNOWLEDGE, now + self._snapshot_s)
        else:
            watch.move(Cause.ACKNOWLEDGE, NEVER if watch.phase is Phase.LIVE else None)
        self._request_answered(watch, now)

    def renewed(self, instrument: Instrument, now: float) -> None:
        """Wait for the acknowledgement of a live book that was subscribed again."""
        watch = self.watches.get(instrument)
        if watch is not None and watch.phase is Phase.LIVE:
            watch.at = now + self._snapshot_s + self._outbox.wait_s(now)

    def overdue(self, watch: Watch, now: float) -> None:
        """Invalidate a live book whose renewed subscription was not acknowledged in time."""
        if self._outbox.waiting:
            self.renewed(watch.instrument, now)
        else:
            self.invalidate(watch.instrument, Reason.NO_SNAPSHOT, now)

    def filled(self, instrument: Instrument, now: float) -> Watch | None:
        """Record that a snapshot arrived; returns the instrument whose book it made live."""
        watch = self.watches.get(instrument)
        if watch is None:
            return None
        self._slowed = watch.postponements = 0
        if watch.book.health is LIVE:
            if watch.phase is not LIVE_PHASE:
                watch.move(Cause.FILL, NEVER)
            watch.was_filled = True
            watch.reason = None
            watch.fetches = watch.failures = 0
        self._request_answered(watch, now)
        return watch if watch.phase is LIVE_PHASE else None

    def refused(self, instrument: Instrument, words: str, now: float) -> None:
        """Retry a refused book much later."""
        watch = self.watches.get(instrument)
        if watch is not None:
            self.retry_later(watch, Reason.REFUSED, now, detail=words)

    def not_traded(self, instrument: Instrument, words: str, now: float) -> None:
        """Retry an instrument that is not traded now much later."""
        watch = self.watches.get(instrument)
        if watch is not None:
            if watch.book.health is Health.LIVE:
                self._stats.invalidations[Reason.HALTED] += 1
            self.retry_later(watch, Reason.HALTED, now, detail=words)

    def snapshot_failed(self, instrument: Instrument, words: str, now: float) -> None:
        """Repeat a failed snapshot request with backoff."""
        watch = self.watches.get(instrument)
        if watch is not None:
            watch.fetches = max(0, watch.fetches - 1)  # not an unusable snapshot
            self.invalidate(instrument, Reason.SNAPSHOT_FAILED, now, detail=words)

    def unnamed(self, words: str, now: float) -> None:
        """Record an error that concerns one of the unanswered requests."""
        self._stats.unnamed_errors += 1
        asked = [watch for watch in self.watches.values() if watch.phase is Phase.REQUESTED]
        if asked and self._unnamed_error is None:
            asking = [self._isolating] if self._isolating is not None else asked
            self._unnamed_error = UnnamedError(words, now + UNNAMED_WAIT_S, asking)

    def resolve_unnamed(self, now: float) -> None:
        """Find the instrument that an error concerns by requesting the unanswered ones one by one.

        An error after such a request concerns its instrument.
        """
        error = self._unnamed_error
        if error is None or now < error.at:
            return
        self._unnamed_error = None
        here = [watch for watch in error.pending if self.watches.get(watch.instrument) is watch]
        left = [watch for watch in here if watch.phase is Phase.REQUESTED]
        if self._isolating is not None:
            for watch in left:
                self.retry_later(watch, Reason.REFUSED, now, detail=error.words)
            return
        for watch in left:
            watch.move(Cause.ISOLATE, NEVER)
        self._isolated.extend(left)
        self._request_isolated(now)

    def slow_down(
        self,
        words: str,
        now: float,
        *,
        unavailable: bool = False,
        about: Sequence[Instrument] = (),
    ) -> None:
        """Pause requests, then repeat the unacknowledged ones, or only those `about` some books.

        Other queued frames are sent after the pause: unsubscriptions, and snapshot requests of
        accepted subscriptions.

        An error during a pause answers an earlier message, so it does not extend the pause. If the
        exchange stays `unavailable`, or answers a request for a single instrument this way, the
        instrument may be the cause.
        """
        if about:
            self._failed(about, words, now)
            return
        reason = Reason.UNAVAILABLE if unavailable else Reason.RATE_LIMITED
        self._stats.slow_downs += not unavailable
        until = self._outbox.held_until
        if now >= until:
            if unavailable and (self._isolating is not None or self._slowed >= UNAVAILABLE_MAX):
                self.unnamed(words, now)
                return
            until = now + self._pause_s(self._slowed, self._jitter())
            self._slowed = min(self._slowed + 1, DOUBLINGS_MAX)
        self._outbox.hold(until)
        self._forget_isolated()
        postponed = {
            watch.instrument
            for watch in self._all()
            if self._postpone(watch, until, reason, words, now)
        }
        self._outbox.withdraw(postponed)
        if not self._outbox.waiting:
            self._invalidate_renewed(reason, words, now)

    def _invalidate_renewed(self, reason: Reason, words: str, now: float) -> None:
        """Invalidate the books whose renewed subscription may have been refused.

        The previous subscription may also have ended: Phemex can only unsubscribe from all.
        """
        for watch in self._all():
            if watch.phase is Phase.LIVE and watch.at != NEVER:
                self.invalidate(watch.instrument, reason, now, detail=words)

    def _failed(self, instruments: Iterable[Instrument], words: str, now: float) -> None:
        """Postpone the books that an error concerns; a book that fails repeatedly is refused."""
        jitter = self._jitter()  # the same for all, so that they are requested again together
        for watch in [self.watches[each] for each in instruments if each in self.watches]:
            if watch.phase is Phase.POSTPONED:
                continue
            if watch.postponements >= UNAVAILABLE_MAX and watch.phase is Phase.REQUESTED:
                self.retry_later(watch, Reason.REFUSED, now, detail=words)
                continue
            until = now + self._pause_s(watch.postponements, jitter)
            if self._postpone(watch, until, Reason.UNAVAILABLE, words, now):
                watch.postponements += 1
                self._request_answered(watch, now)

    def _pause_s(self, times: int, jitter: float) -> float:
        limits = self._limits
        pause_s = exponential_s(times, limits.slow_down_s, limits.slow_down_max_s)
        return pause_s * (1.0 + jitter)

    def _postpone(self, watch: Watch, until: float, reason: Reason, words: str, now: float) -> bool:
        """Schedule a new request at `until` for a book that was requested but not accepted."""
        was_postponed = watch.phase is Phase.POSTPONED
        watch.move(Cause.POSTPONE)
        if watch.phase is not Phase.POSTPONED:
            return False
        self._stats.invalidations[reason] += not was_postponed
        watch.at = until
        self._books.set_health(watch.instrument, Health.STALE, reason, now, detail=words)
        return True

    def trading(self, words: str, now: float, *, is_open: bool) -> None:
        """Invalidate all books while the exchange matches no orders; then request them again."""
        if not is_open:
            self.halted = words
            self._forget_isolated()
            for watch in self._all():
                self.halt(watch, now)
        elif self.halted is not None:
            self.halted = None
            for watch in self.watches.values():
                watch.move(Cause.RESUME)
                if watch.phase is Phase.BROKEN:
                    watch.at = now
                    self.broken.append(watch)

    def halt(self, watch: Watch, now: float) -> None:
        """Invalidate a book, because the exchange does not match orders."""
        if watch.book.health is Health.LIVE:
            self._stats.invalidations[Reason.MAINTENANCE] += 1
        watch.move(Cause.HALT)
        if watch.phase is Phase.HALTED:
            watch.at = NEVER
            self._books.set_health(
                watch.instrument, Health.STALE, Reason.MAINTENANCE, now, detail=self.halted or ""
            )

    # Invalidation and retry

    def invalidate(
        self, instrument: Instrument, reason: Reason, now: float, *, detail: str = ""
    ) -> None:
        """Invalidate a book, and schedule its resync."""
        watch = self.watches.get(instrument)
        if watch is None or self.over or watch.phase in (Phase.OFFLINE, Phase.HALTED):
            return  # already invalid, and retried at its deadline
        self._stats.invalidations[reason] += 1
        self._books.set_health(instrument, Health.STALE, reason, now, detail=detail)
        watch.reason = reason
        planned = watch.phase in RETRYING
        watch.move(Cause.INVALIDATE)
        self._request_answered(watch, now)
        if reason is Reason.CHECKSUM and watch.checksums.hit(now):
            self._end(Reason.CHECKSUM, now, CHECKSUMS)
        elif reason is Reason.SILENT:
            self._plan_after_silence(watch, now)
        elif not planned:
            self._plan(watch, now)

    def retry_later(self, watch: Watch, reason: Reason, now: float, *, detail: str = "") -> None:
        """Take a book offline and retry after `retry_offline_s`; other books are not affected."""
        self._books.set_health(watch.instrument, Health.OFFLINE, reason, now, detail=detail)
        watch.tries = watch.fetches = 0
        watch.move(Cause.REFUSE, now + self._limits.retry_offline_s)
        self._request_answered(watch, now)

    def give_up(self, watch: Watch, now: float) -> None:
        """Retry the instrument much later if the connection serves others, else reconnect.

        Levels that cannot be stored are a fault of the instrument, so reconnecting would not help.
        """
        if watch.reason is Reason.LEVELS:
            self.retry_later(watch, Reason.LEVELS, now)
        elif watch.was_filled or not self.serves_others(watch):
            self._end(Reason.NO_SNAPSHOT, now, BEYOND_REPAIR)
        else:
            self.retry_later(watch, Reason.NO_SNAPSHOT, now)

    def serves_others(self, watch: Watch) -> bool:
        """Return whether another book of this connection is live."""
        return any(
            other.book.health is Health.LIVE and other is not watch
            for other in self.watches.values()
        )

    def check(self, watch: Watch, now: float) -> None:
        """Check the deadlines of an instrument that is not live."""
        if now < watch.at:
            return
        if watch.phase in RETRYING:
            self.broken.append(watch)
        elif watch.phase in WAITING and self._outbox.waiting:
            # Limits shared with other connections can delay requests longer than computed.
            self.requested([watch], now)
        elif watch.phase in WAITING and not watch.fetching:
            self.invalidate(watch.instrument, Reason.NO_SNAPSHOT, now)

    def repair(self, now: float) -> None:
        """Request the invalidated books again, after their whole frame has been processed."""
        broken, self.broken = self.broken, []
        if self.over:
            return
        due = [watch for watch in dict.fromkeys(broken) if self._is_due(watch, now)]
        if due:
            self._request(due, now)

    def _is_due(self, watch: Watch, now: float) -> bool:
        here = self.watches.get(watch.instrument) is watch
        return here and watch.phase in RETRYING and watch.at <= now

    def _plan(self, watch: Watch, now: float) -> None:
        limits = self._limits
        if watch.reason is Reason.SNAPSHOT_FAILED:
            # Only this book is affected, and a new connection would get the same answer.
            tries, wait_max_s = watch.failures, limits.retry_offline_s
            watch.failures += 1
        elif watch.tries >= limits.resync_tries_max:
            self.give_up(watch, now)
            return
        else:
            tries, wait_max_s = watch.tries, limits.resync_max_s
            watch.tries += 1
        wait_s = 0.0
        if tries:
            wait_s = full_jitter_s(tries, limits.resync_base_s, wait_max_s, random=self._jitter())
        watch.at = now + wait_s
        if not wait_s:
            self.broken.append(watch)

    def _plan_after_silence(self, watch: Watch, now: float) -> None:
        """Schedule the next request for a silent book: at once, or later if it is frozen."""
        if watch.book.frozen_top is None:
            watch.at = now
            self.broken.append(watch)
        else:
            watch.at = now + self._limits.resync_max_s * (1.0 + self._jitter()) / 2

    def _request(self, watches: Sequence[Watch], now: float) -> None:
        for watch in watches:
            watch.move(Cause.REQUEST, NEVER)
            if self._unnamed_error is not None and watch in self._unnamed_error.pending:
                self._unnamed_error.pending.remove(watch)  # the error is older than this request
            if watch.book.health is Health.OFFLINE:
                self._books.set_health(watch.instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
        self._resync([watch.instrument for watch in watches], now)
        self.requested(watches, now)

    def _request_isolated(self, now: float) -> None:
        while self._isolated and self._isolating is None and not self.over:
            watch = self._isolated.popleft()
            if watch.phase is Phase.ISOLATED and watch.instrument in self.watches:
                self._isolating = watch
                self._request([watch], now)

    def _request_answered(self, watch: Watch, now: float) -> None:
        """Send the next isolated request if this was the answer to the last one."""
        if watch is self._isolating:
            self._isolating = None
            self._request_isolated(now)

    def _all(self) -> list[Watch]:
        """Copy the watches, because a callback of a book's health may remove an instrument."""
        return list(self.watches.values())

    def _forget_isolated(self) -> None:
        self._isolated.clear()
        self._isolating = self._unnamed_error = None
