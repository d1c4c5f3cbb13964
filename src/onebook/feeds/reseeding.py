"""Decides when to refetch the snapshot of a live book: near its horizon, or on a silent stream.

`Reseeds` decides: it takes a book and its connector's position in the stream, and is pure;
`Reseeding` executes. Changes in a body that is newer than the stream must follow on the stream;
otherwise the stream is dead, even if the socket is open.
"""

import logging
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from onebook.books import LiveBook
from onebook.exchanges.contract import Output, ProtocolError, Seeded, StreamPosition
from onebook.feeds.limits import FeedLimits
from onebook.feeds.outbox import Outbox
from onebook.feeds.recovery import Ending, Recovery
from onebook.feeds.subscriptions import Watch
from onebook.model import Health, Instrument, Reason

RESEED_TOTAL_S: Final = 15.0  # one request, waits and retries included
RESEED_TRIES_MAX: Final = 3  # unanswered requests on the socket, before the book is stale
SEED_SHARE: Final = 0.75  # of a small seed's levels, where that is less than `reseed_levels`
REACH_SHARE: Final = 0.25  # of the distance to the horizon that the seed had
RETRY_S: Final = 2.0  # until a body that was put off is asked for again
NEVER: Final = float("inf")
log = logging.getLogger("onebook.feeds")

NO_CHANGES: Final = "books move by REST, and their streams bring nothing"

Execute = Callable[[Callable[[], Iterable[Output]], float], None]


class ReseedNeed(Enum):
    """What a live book needs."""

    FINE = auto()
    RESEED = auto()
    UNANSWERED = auto()  # a request on the socket
    DEAD = auto()


class Seed:
    """One seeded book: how far it reached when it was filled, and what was asked for since."""

    __slots__ = (
        "dead",
        "due_at",
        "filled_at",
        "next_at",
        "owed_by",
        "probed",
        "reaches",
        "retry_at",
        "unanswered",
        "waiting",
    )

    def __init__(self) -> None:
        self.reaches: tuple[tuple[int, float] | None, ...] = (None, None)
        self.filled_at = 0.0
        self.next_at = 0.0  # no body is asked for earlier
        self.retry_at = 0.0  # nor a probe after one that failed
        self.owed_by = NEVER  # the stream must have reached the body's state by then
        self.waiting = False  # a body is on its way
        self.due_at = NEVER  # it must have come by then
        self.unanswered = 0  # requests in a row that brought none
        self.probed = False  # a stream that never delivered was probed
        self.dead = 0  # how often the stream was found dead since it last delivered


class Reseeds:
    """The seeded books of one connection.

    Args:
        connector: Where bodies are asked for.
        limits: Limits and waits.
    """

    def __init__(self, connector: Seeded, limits: FeedLimits) -> None:
        self._connector = connector
        self._limits = limits
        self._seeds: dict[Instrument, Seed] = {}

    def filled(self, book: LiveBook, now: float) -> None:
        """Note how far a fresh book reaches."""
        seed = self._seed(book.instrument)
        seed.waiting = False
        seed.unanswered = 0
        seed.reaches = (book.core.reach(0), book.core.reach(1))
        seed.filled_at = now
        seed.owed_by = NEVER
        seed.next_at = max(seed.next_at, now + self._limits.reseed_min_s)
        if self._connector.position(book.instrument) is StreamPosition.BEHIND:
            seed.owed_by = now + self._limits.dead_stream_s

    def asked(self, instrument: Instrument, now: float) -> None:
        """Note that a body was asked for."""
        seed = self._seed(instrument)
        seed.waiting = True
        seed.due_at = NEVER
        seed.next_at = now + self._limits.reseed_min_s

    def due(self, instrument: Instrument, due_at: float) -> None:
        """Note by when the body that was asked for must have come."""
        self._seed(instrument).due_at = due_at

    def unanswered(self, instrument: Instrument) -> int:
        """Count a request that brought nothing; return how many of them there were in a row."""
        seed = self._seed(instrument)
        seed.unanswered += 1
        return seed.unanswered

    def put_off(self, instrument: Instrument, now: float) -> None:
        """Note that no body comes for now; a probe that brought none proves nothing."""
        seed = self._seed(instrument)
        seed.waiting = seed.probed = False
        seed.next_at = seed.retry_at = now + RETRY_S

    def waits(self, instrument: Instrument) -> bool:
        """Whether a body for a live book was requested."""
        seed = self._seeds.get(instrument)
        return seed is not None and seed.waiting

    def forget(self, instrument: Instrument) -> None:
        """Drop an instrument that is no longer on this connection."""
        self._seeds.pop(instrument, None)

    def found_dead(self, instrument: Instrument) -> int:
        """Count a dead stream; return how often that happened since it last delivered."""
        seed = self._seed(instrument)
        seed.dead += 1
        seed.owed_by = NEVER
        seed.waiting = seed.probed = False
        return seed.dead

    def check(self, book: LiveBook, now: float) -> ReseedNeed:
        """Check a live book."""
        seed = self._seed(book.instrument)
        position = self._connector.position(book.instrument)
        if position is StreamPosition.CURRENT:
            seed.dead = 0
            seed.owed_by = NEVER
        elif now >= seed.owed_by:
            return ReseedNeed.DEAD
        if seed.waiting:
            return ReseedNeed.UNANSWERED if now >= seed.due_at else ReseedNeed.FINE
        if seed.owed_by != NEVER:
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
        connector: Where bodies are asked for and read.
        limits: Limits and waits.
        recovery: Resyncs a book whose stream is dead, or that the exchange refuses.
        outbox: How long a request on the socket waits until it leaves.
        execute: Executes outputs.
        end: Ends the connection, for a reason and its detail.
    """

    def __init__(
        self,
        connector: Seeded,
        limits: FeedLimits,
        *,
        recovery: Recovery,
        outbox: Outbox,
        execute: Execute,
        end: Ending,
    ) -> None:
        self._connector = connector
        self._reseeds = Reseeds(connector, limits)
        self._recovery = recovery
        self._outbox = outbox
        self._execute = execute
        self._end = end

    def filled(self, watch: Watch, now: float) -> None:
        """Note how far a fresh book reaches."""
        self._reseeds.filled(watch.book, now)

    def forget(self, instrument: Instrument) -> None:
        """Drop an instrument that is no longer on this connection."""
        self._reseeds.forget(instrument)

    def check(self, watch: Watch, now: float) -> None:
        """Check a live book, and request a body if it needs one."""
        instrument = watch.instrument
        need = self._reseeds.check(watch.book, now)
        if need is ReseedNeed.RESEED:
            self._reseeds.asked(instrument, now)
            self._execute(lambda: self._connector.reseed(instrument), now)
            if not watch.fetching:  # requested on the socket: only its absence shows a failure
                due_at = now + self._outbox.wait_s(now) + RESEED_TOTAL_S
                self._reseeds.due(instrument, due_at)
        elif need is ReseedNeed.UNANSWERED:
            self.put_off(watch, now)
            if self._reseeds.unanswered(instrument) >= RESEED_TRIES_MAX:
                self._recovery.invalidate(instrument, Reason.NO_SNAPSHOT, now)
        elif need is ReseedNeed.DEAD:
            times = self._reseeds.found_dead(instrument)
            self._execute(lambda: self._connector.invalidate(instrument), now)
            self._recovery.invalidate(instrument, Reason.DEAD_STREAM, now)
            if times > 1:
                self._leave_dead(watch, now)

    def waits(self, watch: Watch) -> bool:
        """Return whether a body on its way is for a live book."""
        return watch.book.health is Health.LIVE and self._reseeds.waits(watch.instrument)

    def arrived(self, watch: Watch, body: bytes, now: float) -> None:
        """Replace a live book; an unreadable body leaves it unchanged."""
        try:
            outputs = tuple(self._connector.fetched(watch.instrument, body))
        except ProtocolError as error:
            name = watch.instrument.exchange
            log.info("%s: a book could not be reseeded: %s.", name, error.reason)
            self.put_off(watch, now)
            return
        self._execute(lambda: outputs, now)
        if not outputs:
            self.put_off(watch, now)

    def put_off(self, watch: Watch, now: float) -> None:
        """Expect no body for a live book for now."""
        self._connector.abandon(watch.instrument)
        self._reseeds.put_off(watch.instrument, now)

    def _leave_dead(self, watch: Watch, now: float) -> None:
        """Resubscribing did not help: end the connection if it serves no other book."""
        if self._recovery.serves_others(watch):
            self._recovery.leave(watch, Reason.DEAD_STREAM, now)
        else:
            self._end(Reason.DEAD_STREAM, now, NO_CHANGES)
