"""Resync of the instruments of a connection that are not live, by the table in `phases`.

Pure: changes the health of books, and sends requests through `resync`. An invalid book is marked at
once and requested again alone, after the frame that invalidated it was read to its end.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

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

UNAVAILABLE_MAX: Final = 5  # pauses in a row until an error counts as one about an instrument
# So long an error that names nothing waits for other answers, before it counts as one about what
# is still unanswered. An exchange answers in tens of milliseconds, not always in order.
ERRORS_SETTLE_S: Final = 1.0

CHECKSUMS: Final = "too many wrong checksums"
BEYOND_REPAIR: Final = "a book could not be repaired"


class Ending(Protocol):
    """How a session ends its connection."""

    def __call__(
        self,
        reason: Reason,
        now: float,
        detail: str,
        *,
        at_once: bool = False,
        abrupt: bool = False,
    ) -> None:
        """End the connection, once; for the options see `actions.End`."""


class NamelessError(NamedTuple):
    """An error that names nothing, and what it may be about: requests unanswered when it came."""

    words: str
    at: float
    asked: list[Watch]


class Recovery:
    """Resyncs the instruments of one connection that are not live.

    Args:
        books: Their health is set here.
        outbox: How long a request waits until it leaves.
        limits: Limits and waits.
        stats: Counters of the exchange.
        snapshot_s: A subscription must have brought its book after so long.
        jitter: A number in [0, 1) for each wait.
        resync: Asks the exchange again for some instruments, in as few requests as possible.
        end: Ends the connection, for a reason and its detail.
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
        self.broken: list[Watch] = []  # to be asked for again after this frame
        self.halted: str | None = None  # why the exchange matches no orders
        self.over = False  # the connection has ended: no resyncs
        self._books = books
        self._outbox = outbox
        self._limits = limits
        self._stats = stats
        self._snapshot_s = snapshot_s
        self._jitter = jitter
        self._resync = resync
        self._end = end
        self._slowed = 0  # pauses of requests since it last acknowledged something
        self._alone: deque[Watch] = deque()  # to be asked for one by one
        self._asking: Watch | None = None  # the one of them that is being asked for
        self._nameless: NamelessError | None = None  # the oldest that waits for other answers

    def adopt(self, instruments: Iterable[Instrument], cadences: Cadences, now: float) -> None:
        """Watch books, already open, that are asked for."""
        for instrument in instruments:
            book = self._books.get(instrument)
            assert book is not None, instrument
            self.watches[instrument] = Watch(book, now + self._snapshot_s, cadences.of(instrument))

    def added(self, instruments: Iterable[Instrument], now: float) -> None:
        """Note what was subscribed on the open connection."""
        watches = [self.watches[instrument] for instrument in instruments]
        self.asked(watches, now)
        if self.halted is not None:
            for watch in watches:
                self.halt(watch, now)

    def asked(self, watches: Iterable[Watch], now: float) -> None:
        """Note when the snapshots of the requests last queued are due."""
        due_at = now + self._snapshot_s + self._outbox.wait_s(now)
        for watch in watches:
            if watch.phase in WAITING:
                watch.at = due_at

    def finish(self, reason: Reason, detail: str, now: float) -> None:
        """The connection has ended: its books are not live any more."""
        self.over = True
        for watch in self._all():
            if watch.book.health is Health.LIVE:
                self._stats.invalidations[reason] += 1
            self._books.set_health(watch.instrument, Health.STALE, reason, now, detail=detail)

    def drop(self, instrument: Instrument, now: float) -> None:
        """Stop watching an instrument."""
        watch = self.watches.pop(instrument, None)
        if watch is not None:
            self._settled(watch, now)

    # Outputs of the connector.

    def acknowledged(self, instrument: Instrument, now: float) -> None:
        """A subscription was accepted: its snapshot is due."""
        watch = self.watches.get(instrument)
        if watch is None:
            return
        self._slowed = watch.postponements = 0
        if watch.phase in WAITING or watch.phase is Phase.ALONE:
            watch.move(Cause.ACKNOWLEDGE, now + self._snapshot_s)
        else:
            watch.move(Cause.ACKNOWLEDGE, NEVER if watch.phase is Phase.LIVE else None)
        self._settled(watch, now)

    def renewed(self, instrument: Instrument, now: float) -> None:
        """The subscription of a live book was requested anew: its acknowledgement is due."""
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
        """A snapshot arrived; returns the instrument whose book it made live."""
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
        self._settled(watch, now)
        return watch if watch.phase is LIVE_PHASE else None

    def refused(self, instrument: Instrument, words: str, now: float) -> None:
        """The exchange refused a book: retry it much later."""
        watch = self.watches.get(instrument)
        if watch is not None:
            self.leave(watch, Reason.REFUSED, now, detail=words)

    def not_traded(self, instrument: Instrument, words: str, now: float) -> None:
        """The exchange does not trade an instrument now: retry it much later."""
        watch = self.watches.get(instrument)
        if watch is not None:
            if watch.book.health is Health.LIVE:
                self._stats.invalidations[Reason.HALTED] += 1
            self.leave(watch, Reason.HALTED, now, detail=words)

    def snapshot_failed(self, instrument: Instrument, words: str, now: float) -> None:
        """The request for the whole book of an instrument failed: asked again at growing waits."""
        watch = self.watches.get(instrument)
        if watch is not None:
            watch.fetches = max(0, watch.fetches - 1)  # it is none that did not fit
            self.invalidate(instrument, Reason.SNAPSHOT_FAILED, now, detail=words)

    def unnamed(self, words: str, now: float) -> None:
        """Note an error that is about one of the requests that nothing has answered yet."""
        self._stats.unnamed_errors += 1
        asked = [watch for watch in self.watches.values() if watch.phase is Phase.ASKED]
        if asked and self._nameless is None:
            asking = [self._asking] if self._asking is not None else asked
            self._nameless = NamelessError(words, now + ERRORS_SETTLE_S, asking)

    def settle(self, now: float) -> None:
        """Find out which instrument an error is about: ask for those that are left one by one.

        The error that follows a request for one is about it.
        """
        error = self._nameless
        if error is None or now < error.at:
            return
        self._nameless = None
        here = [watch for watch in error.asked if self.watches.get(watch.instrument) is watch]
        left = [watch for watch in here if watch.phase is Phase.ASKED]
        if self._asking is not None:
            for watch in left:
                self.leave(watch, Reason.REFUSED, now, detail=error.words)
            return
        for watch in left:
            watch.move(Cause.SET_ASIDE, NEVER)
        self._alone.extend(left)
        self._ask_next(now)

    def slow_down(
        self,
        words: str,
        now: float,
        *,
        unavailable: bool = False,
        about: Sequence[Instrument] = (),
    ) -> None:
        """Pause requests, then repeat the unacknowledged ones; those `about` some books alone.

        Queued frames that are not repeated leave after the pause: unsubscriptions, requests for the
        snapshots of accepted subscriptions.

        An error during a pause answers what was sent before it: the pause gets no longer. One of an
        exchange that is `unavailable` to a request for one instrument, or for long, may be about
        what was asked for.
        """
        if about:
            self._failed(about, words, now)
            return
        reason = Reason.UNAVAILABLE if unavailable else Reason.RATE_LIMITED
        self._stats.slow_downs += not unavailable
        until = self._outbox.held_until
        if now >= until:
            if unavailable and (self._asking is not None or self._slowed >= UNAVAILABLE_MAX):
                self.unnamed(words, now)
                return
            until = now + self._pause_s(self._slowed, self._jitter())
            self._slowed = min(self._slowed + 1, DOUBLINGS_MAX)
        self._outbox.hold(until)
        self._forget_turns()
        postponed = {
            watch.instrument
            for watch in self._all()
            if self._postpone(watch, until, reason, words, now)
        }
        self._outbox.withdraw(postponed)
        if not self._outbox.waiting:
            self._invalidate_renewed(reason, words, now)

    def _invalidate_renewed(self, reason: Reason, words: str, now: float) -> None:
        """Invalidate the books whose renewed subscription may be what was refused.

        The former one may have ended: to end one, Phemex ends all.
        """
        for watch in self._all():
            if watch.phase is Phase.LIVE and watch.at != NEVER:
                self.invalidate(watch.instrument, reason, now, detail=words)

    def _failed(self, instruments: Iterable[Instrument], words: str, now: float) -> None:
        """Postpone the books that an error is about; one that fails again and again is refused."""
        jitter = self._jitter()  # one for all: they are asked for again in one request
        for watch in [self.watches[each] for each in instruments if each in self.watches]:
            if watch.phase is Phase.POSTPONED:
                continue
            if watch.postponements >= UNAVAILABLE_MAX and watch.phase is Phase.ASKED:
                self.leave(watch, Reason.REFUSED, now, detail=words)
                continue
            until = now + self._pause_s(watch.postponements, jitter)
            if self._postpone(watch, until, Reason.UNAVAILABLE, words, now):
                watch.postponements += 1
                self._settled(watch, now)

    def _pause_s(self, times: int, jitter: float) -> float:
        limits = self._limits
        pause_s = exponential_s(times, limits.slow_down_s, limits.slow_down_max_s)
        return pause_s * (1.0 + jitter)

    def _postpone(self, watch: Watch, until: float, reason: Reason, words: str, now: float) -> bool:
        """Ask for a book again at a time, unless it is live, accepted or not asked for."""
        was_postponed = watch.phase is Phase.POSTPONED
        watch.move(Cause.POSTPONE)
        if watch.phase is not Phase.POSTPONED:
            return False
        self._stats.invalidations[reason] += not was_postponed
        watch.at = until
        self._books.set_health(watch.instrument, Health.STALE, reason, now, detail=words)
        return True

    def trading(self, words: str, now: float, *, is_open: bool) -> None:
        """Invalidate all books while the exchange matches no orders, then request them again."""
        if not is_open:
            self.halted = words
            self._forget_turns()
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
        """Invalidate a book, because the exchange matches no orders."""
        if watch.book.health is Health.LIVE:
            self._stats.invalidations[Reason.MAINTENANCE] += 1
        watch.move(Cause.HALT)
        if watch.phase is Phase.HALTED:
            watch.at = NEVER
            self._books.set_health(
                watch.instrument, Health.STALE, Reason.MAINTENANCE, now, detail=self.halted or ""
            )

    # What follows.

    def invalidate(
        self, instrument: Instrument, reason: Reason, now: float, *, detail: str = ""
    ) -> None:
        """Invalidate a book, and schedule its resync."""
        watch = self.watches.get(instrument)
        if watch is None or self.over or watch.phase in (Phase.OFFLINE, Phase.HALTED):
            return  # it is not shown already, and tried again when its time comes
        self._stats.invalidations[reason] += 1
        self._books.set_health(instrument, Health.STALE, reason, now, detail=detail)
        watch.reason = reason
        planned = watch.phase in RETRYING
        watch.move(Cause.INVALIDATE)
        self._settled(watch, now)
        if reason is Reason.CHECKSUM and watch.checksums.hit(now):
            self._end(Reason.CHECKSUM, now, CHECKSUMS)
        elif reason is Reason.SILENT:
            self._plan_thaw(watch, now)
        elif not planned:
            self._plan(watch, now)

    def leave(self, watch: Watch, reason: Reason, now: float, *, detail: str = "") -> None:
        """Retry an instrument much later; the others of the connection are not affected."""
        self._books.set_health(watch.instrument, Health.OFFLINE, reason, now, detail=detail)
        watch.tries = watch.fetches = 0
        watch.move(Cause.REFUSE, now + self._limits.retry_offline_s)
        self._settled(watch, now)

    def give_up(self, watch: Watch, now: float) -> None:
        """Retry the instrument much later where the connection serves others, else reconnect.

        Levels that cannot be held are the instrument's: another connection brings the same.
        """
        if watch.reason is Reason.LEVELS:
            self.leave(watch, Reason.LEVELS, now)
        elif watch.was_filled or not self.serves_others(watch):
            self._end(Reason.NO_SNAPSHOT, now, BEYOND_REPAIR)
        else:
            self.leave(watch, Reason.NO_SNAPSHOT, now)

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
            # Limits that are shared with other connections let requests wait longer than counted.
            self.asked([watch], now)
        elif watch.phase in WAITING and not watch.fetching:
            self.invalidate(watch.instrument, Reason.NO_SNAPSHOT, now)

    def repair(self, now: float) -> None:
        """Request the invalidated books again, after their frame was read to its end."""
        broken, self.broken = self.broken, []
        if self.over:
            return
        due = [watch for watch in dict.fromkeys(broken) if self._is_due(watch, now)]
        if due:
            self._ask(due, now)

    def _is_due(self, watch: Watch, now: float) -> bool:
        here = self.watches.get(watch.instrument) is watch
        return here and watch.phase in RETRYING and watch.at <= now

    def _plan(self, watch: Watch, now: float) -> None:
        limits = self._limits
        if watch.reason is Reason.SNAPSHOT_FAILED:
            # Of this book alone, and another connection would be answered the same.
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

    def _plan_thaw(self, watch: Watch, now: float) -> None:
        """Plan the next request for a book whose resync brought the same state."""
        if watch.book.frozen_top is None:
            watch.at = now
            self.broken.append(watch)
        else:
            watch.at = now + self._limits.resync_max_s * (1.0 + self._jitter()) / 2

    def _ask(self, watches: Sequence[Watch], now: float) -> None:
        for watch in watches:
            watch.move(Cause.ASK, NEVER)
            if self._nameless is not None and watch in self._nameless.asked:
                self._nameless.asked.remove(watch)  # it came before this request
            if watch.book.health is Health.OFFLINE:
                self._books.set_health(watch.instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
        self._resync([watch.instrument for watch in watches], now)
        self.asked(watches, now)

    def _ask_next(self, now: float) -> None:
        while self._alone and self._asking is None and not self.over:
            watch = self._alone.popleft()
            if watch.phase is Phase.ALONE and watch.instrument in self.watches:
                self._asking = watch
                self._ask([watch], now)

    def _settled(self, watch: Watch, now: float) -> None:
        """This request is answered: send the next one."""
        if watch is self._asking:
            self._asking = None
            self._ask_next(now)

    def _all(self) -> list[Watch]:
        """List all watches: a listener of a book's health may drop an instrument meanwhile."""
        return list(self.watches.values())

    def _forget_turns(self) -> None:
        self._alone.clear()
        self._asking = self._nameless = None
