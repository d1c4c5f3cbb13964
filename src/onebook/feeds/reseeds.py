"""When a live book needs another REST body: near its horizon, or on a silent stream.

Pure: takes a book and what its connector knows of the stream, returns what to do. Changes in a body
that is newer than the stream must follow on the stream; where they do not, the stream is dead, even
if the socket is open.
"""

from enum import Enum, auto
from typing import Final

from onebook.books import LiveBook
from onebook.config import FeedSettings
from onebook.exchanges.kit import Seeded, StreamPosition
from onebook.model import Instrument

SEED_SHARE: Final = 0.75  # of a small seed's levels, where that is less than `reseed_levels`
REACH_SHARE: Final = 0.25  # of the distance to the horizon that the seed had
RETRY_S: Final = 2.0  # until a body that was put off is asked for again
NEVER: Final = float("inf")


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
        settings: Limits and waits.
    """

    def __init__(self, connector: Seeded, settings: FeedSettings) -> None:
        self._connector = connector
        self._settings = settings
        self._seeds: dict[Instrument, Seed] = {}

    def filled(self, book: LiveBook, now: float) -> None:
        """Note how far a fresh book reaches."""
        seed = self._seed(book.instrument)
        seed.waiting = False
        seed.unanswered = 0
        seed.reaches = (book.core.reach(0), book.core.reach(1))
        seed.filled_at = now
        seed.owed_by = NEVER
        seed.next_at = max(seed.next_at, now + self._settings.reseed_min_s)
        if self._connector.position(book.instrument) is StreamPosition.BEHIND:
            seed.owed_by = now + self._settings.dead_stream_s

    def asked(self, instrument: Instrument, now: float) -> None:
        """Note that a body was asked for."""
        seed = self._seed(instrument)
        seed.waiting = True
        seed.due_at = NEVER
        seed.next_at = now + self._settings.reseed_min_s

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
        wait_s = self._settings.probe_first_s if first else self._settings.probe_quiet_s
        return quiet_s >= wait_s and now >= (seed.retry_at if first else seed.next_at)

    def _near_horizon(self, book: LiveBook, seed: Seed) -> bool:
        for side, had in enumerate(seed.reaches):
            has = book.core.reach(side)
            if had is None or has is None:
                continue
            levels_min = min(self._settings.reseed_levels, int(had[0] * SEED_SHARE))
            if has[0] < levels_min or has[1] < had[1] * REACH_SHARE:
                return True
        return False

    def _seed(self, instrument: Instrument) -> Seed:
        seed = self._seeds.get(instrument)
        if seed is None:
            seed = self._seeds[instrument] = Seed()
        return seed
