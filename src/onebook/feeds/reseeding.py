"""Decides when to refetch the snapshot of a live book: near its horizon, or on a silent stream.

`Reseeds` decides from a book and its position in the stream; `Reseeding` executes. If a REST body
is newer than the stream, the stream must deliver the same changes soon; otherwise it is dead, even
if the socket is open.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from typing import Final

from onebook.books import LiveBook
from onebook.exchanges.kit.contract import (
    Output,
    ProtocolError,
    Seeded,
    Snapshot,
    StreamPosition,
)
from onebook.feeds.audits import AUDIT_CHANCE, AUDIT_S, difference
from onebook.feeds.limits import FeedLimits
from onebook.feeds.outbox import Outbox
from onebook.feeds.recovery import Ending, Recovery
from onebook.feeds.stats import ExchangeStats
from onebook.feeds.subscriptions import Watch
from onebook.model import Health, Instrument, Reason

RESEED_TOTAL_S: Final = 15.0  # timeout of one request, including waits and retries
RESEED_TRIES_MAX: Final = 3  # unanswered requests on the socket before the book is stale
SEED_SHARE: Final = 0.75  # of the levels of a small seed, if less than `reseed_levels`
REACH_SHARE: Final = 0.25  # of the seed's distance to the horizon
RETRY_S: Final = 2.0  # before a deferred body is requested again
NEVER: Final = float("inf")
log = logging.getLogger("onebook.feeds")

NO_CHANGES: Final = "books change over REST while their streams deliver nothing"

Execute = Callable[[Callable[[], Iterable[Output]], float], None]


class ReseedNeed(Enum):
    """What a live book needs."""

    FINE = auto()
    RESEED = auto()
    UNANSWERED = auto()  # a request on the socket was not answered
    DEAD = auto()


class Seed:
    """State of one seeded book: its reach when it was filled, and the requests since."""

    __slots__ = (
        "catch_up_by",
        "dead",
        "due_at",
        "filled_at",
        "next_at",
        "pending",
        "probed",
        "reaches",
        "retry_at",
        "unanswered",
    )

    def __init__(self) -> None:
        self.reaches: tuple[tuple[int, float] | None, ...] = (None, None)
        self.filled_at = 0.0
        self.next_at = 0.0  # earliest time of the next request
        self.retry_at = 0.0  # earliest time of the next probe, after a failed one
        self.catch_up_by = NEVER  # deadline for the stream to reach the body's state
        self.pending = False  # whether a body was requested
        self.due_at = NEVER  # deadline of its arrival
        self.unanswered = 0  # consecutive unanswered requests
        self.probed = False  # whether a stream that never delivered was probed
        self.dead = 0  # how often the stream was found dead since it last delivered


class Reseeds:
    """The seeded books of one connection.

    Args:
        connector: Requests bodies.
        limits: Limits and timeouts.
    """

    def __init__(self, connector: Seeded, limits: FeedLimits) -> None:
        self._connector = connector
        self._limits = limits
        self._seeds: dict[Instrument, Seed] = {}

    def filled(self, book: LiveBook, now: float) -> None:
        """Record the reach of a new book."""
        seed = self._seed(book.instrument)
        seed.pending = False
        seed.unanswered = 0
        seed.reaches = (book.core.reach(0), book.core.reach(1))
        seed.filled_at = now
        seed.catch_up_by = NEVER
        seed.next_at = max(seed.next_at, now + self._limits.reseed_min_s)
        if self._connector.position(book.instrument) is StreamPosition.BEHIND:
            seed.catch_up_by = now + self._limits.dead_stream_s

    def requested(self, instrument: Instrument, now: float) -> None:
        """Record that a body was requested."""
        seed = self._seed(instrument)
        seed.pending = True
        seed.due_at = NEVER
        seed.next_at = now + self._limits.reseed_min_s

    def due(self, instrument: Instrument, due_at: float) -> None:
        """Set the deadline of the requested body."""
        self._seed(instrument).due_at = due_at

    def unanswered(self, instrument: Instrument) -> int:
        """Count an unanswered request; return the number of consecutive ones."""
        seed = self._seed(instrument)
        seed.unanswered += 1
        return seed.unanswered

    def defer(self, instrument: Instrument, now: float) -> None:
        """Record that no body will arrive for now, so that a probe is inconclusive."""
        seed = self._seed(instrument)
        seed.pending = seed.probed = False
        seed.next_at = seed.retry_at = now + RETRY_S

    def is_pending(self, instrument: Instrument) -> bool:
        """Return whether a body for a live book was requested."""
        seed = self._seeds.get(instrument)
        return seed is not None and seed.pending

    def forget(self, instrument: Instrument) -> None:
        """Drop an instrument that is no longer on this connection."""
        self._seeds.pop(instrument, None)

    def audit_due_at(self, instrument: Instrument) -> float:
        """Return when a live book may be compared with a snapshot; never while one is pending."""
        seed = self._seed(instrument)
        waits = seed.pending or seed.catch_up_by != NEVER
        return NEVER if waits else max(seed.filled_at + AUDIT_S, seed.next_at, seed.retry_at)

    def found_dead(self, instrument: Instrument) -> int:
        """Count a dead stream; return the count since it last delivered."""
        seed = self._seed(instrument)
        seed.dead += 1
        seed.catch_up_by = NEVER
        seed.pending = seed.probed = False
        return seed.dead

    def check(self, book: LiveBook, now: float) -> ReseedNeed:
        """Check a live book."""
        seed = self._seed(book.instrument)
        position = self._connector.position(book.instrument)
        if position is StreamPosition.CURRENT:
            seed.dead = 0
            seed.catch_up_by = NEVER
        elif now >= seed.catch_up_by:
            return ReseedNeed.DEAD
        if seed.pending:
            return ReseedNeed.UNANSWERED if now >= seed.due_at else ReseedNeed.FINE
        if seed.catch_up_by != NEVER:
            return ReseedNeed.FINE
        if seed.unanswered and now >= seed.next_at:
            return ReseedNeed.RESEED
        if self._due_to_probe(book, seed, position, now):
            seed.probed = True
            return ReseedNeed.RESEED
        if now >= seed.next_at and self._near_horizon(book, seed):
            return ReseedNeed.RESEED
        return ReseedNeed.FINE

    def _due_to_probe(
        self, book: LiveBook, seed: Seed, position: StreamPosition, now: float
    ) -> bool:
        quiet_s = now - max(book.updated_at, seed.filled_at)
        first = position is StreamPosition.UNPROVEN and not seed.probed
        wait_s = self._limits.probe_first_s if first else self._limits.probe_quiet_s
        return quiet_s >= wait_s and now >= (seed.retry_at if first else seed.next_at)

    def _near_horizon(self, book: LiveBook, seed: Seed) -> bool:
        for side, had in enumerate(seed.reaches):
            has = book.core.reach(side)
            if had is None or has is None:
                continue
            levels_min = min(self._limits.reseed_levels, int(had[0] * SEED_SHARE))
            if has[0] < levels_min or has[1] < had[1] * REACH_SHARE:
                return True
        return False

    def _seed(self, instrument: Instrument) -> Seed:
        seed = self._seeds.get(instrument)
        if seed is None:
            seed = self._seeds[instrument] = Seed()
        return seed


class Reseeding:
    """The REST bodies of one connection's live books.

    Args:
        connector: Requests and parses bodies.
        limits: Limits and timeouts.
        stats: Counters of the exchange, shared by its connections.
        jitter: Returns a number in [0, 1).
        recovery: Resyncs a book whose stream is dead, or that the exchange refuses.
        outbox: Queue of requests on the socket.
        execute: Executes outputs.
        end: Ends the connection, with a reason and its detail.
    """

    def __init__(
        self,
        connector: Seeded,
        limits: FeedLimits,
        *,
        stats: ExchangeStats,
        jitter: Callable[[], float],
        recovery: Recovery,
        outbox: Outbox,
        execute: Execute,
        end: Ending,
    ) -> None:
        self._connector = connector
        self._audits = limits.audits and connector.comparable
        self._stats = stats
        self._jitter = jitter
        self._reseeds = Reseeds(connector, limits)
        self._recovery = recovery
        self._outbox = outbox
        self._execute = execute
        self._end = end

    def filled(self, watch: Watch, now: float) -> None:
        """Record the reach of a new book."""
        self._reseeds.filled(watch.book, now)

    def forget(self, instrument: Instrument) -> None:
        """Drop an instrument that is no longer on this connection."""
        self._reseeds.forget(instrument)

    def check(self, watch: Watch, now: float) -> None:
        """Check a live book, and request a body if it needs one."""
        instrument = watch.instrument
        need = self._reseeds.check(watch.book, now)
        if need is ReseedNeed.RESEED:
            self._request(instrument, now)
            if not watch.fetching:  # requested on the socket, which reports no failure
                due_at = now + self._outbox.wait_s(now) + RESEED_TOTAL_S
                self._reseeds.due(instrument, due_at)
        elif need is ReseedNeed.UNANSWERED:
            self.defer(watch, now)
            if self._reseeds.unanswered(instrument) >= RESEED_TRIES_MAX:
                self._recovery.invalidate(instrument, Reason.NO_SNAPSHOT, now)
        elif need is ReseedNeed.DEAD:
            times = self._reseeds.found_dead(instrument)
            self._execute(lambda: self._connector.invalidate(instrument), now)
            self._recovery.invalidate(instrument, Reason.DEAD_STREAM, now)
            if times > 1:
                self._end_dead(watch, now)

    def audit(self, watches: Collection[Watch], now: float) -> None:
        """Request the body of the book whose snapshot is the oldest, if the exchange's turn is due.

        Nothing is requested while a book of this connection waits for a body.
        """
        if not self._audits or now < self._stats.audit_at or self._jitter() >= AUDIT_CHANCE:
            return
        live = [each for each in watches if each.book.health is Health.LIVE]
        if not live or any(each.fetching for each in watches):
            return
        due_at = {each.instrument: self._reseeds.audit_due_at(each.instrument) for each in live}
        oldest = min(due_at, key=due_at.__getitem__)
        if due_at[oldest] <= now:
            self._stats.audit_at = now + AUDIT_S
            self._request(oldest, now)

    def _request(self, instrument: Instrument, now: float) -> None:
        self._reseeds.requested(instrument, now)
        self._execute(lambda: self._connector.reseed(instrument), now)

    def is_pending(self, watch: Watch) -> bool:
        """Return whether a requested body is for a live book."""
        return watch.book.health is Health.LIVE and self._reseeds.is_pending(watch.instrument)

    def arrived(self, watch: Watch, body: bytes, now: float) -> None:
        """Replace a live book; an unreadable body leaves it unchanged."""
        try:
            outputs = tuple(self._connector.fetched(watch.instrument, body))
        except ProtocolError as error:
            name = watch.instrument.exchange
            log.info("%s: cannot refetch a book: %s.", name, error.reason)
            self.defer(watch, now)
            return
        if self._audits and not self._agrees(watch, outputs, now):
            return
        self._execute(lambda: outputs, now)
        if not outputs:
            self.defer(watch, now)

    def _agrees(self, watch: Watch, outputs: Sequence[Output], now: float) -> bool:
        """Compare a live book with its body; one that differs is wrong, and is requested again."""
        instrument, book = watch.instrument, watch.book
        behind = self._connector.position(instrument) is StreamPosition.BEHIND
        if behind or not outputs or not isinstance(outputs[0], Snapshot):
            return True  # the stream has not reached the body's number, or the body was too old
        book.audits += 1
        self._stats.audits += 1
        found = difference(book, outputs)
        if found is None:
            return True
        log.warning(
            "%s: %s differs from the exchange's snapshot %d: %s. The book is requested again.",
            instrument.exchange, instrument.symbol, outputs[0].sequence, found,
        )  # fmt: skip
        self._reseeds.defer(instrument, now)
        self._recovery.invalidate(instrument, Reason.AUDIT, now, detail=found)
        self._recovery.repair(now)
        return False

    def defer(self, watch: Watch, now: float) -> None:
        """Stop waiting for the requested body; the book stays live."""
        self._connector.abandon(watch.instrument)
        self._reseeds.defer(watch.instrument, now)

    def _end_dead(self, watch: Watch, now: float) -> None:
        """End the connection if it serves no other book, because resubscribing did not help."""
        if self._recovery.serves_others(watch):
            self._recovery.retry_later(watch, Reason.DEAD_STREAM, now)
        else:
            self._end(Reason.DEAD_STREAM, now, NO_CHANGES)
