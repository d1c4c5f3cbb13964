"""State of one instrument's subscription: its phase, deadline and data cadence.

A transition table leads from the subscription to a live book and through its resyncs; a missing row
is an error, and a test prints the table. The cadence is the usual gap between data. Most exchanges
send a book only when it changes, so silence alone proves nothing, but an instrument whose many gaps
never exceeded a second is overdue after a few seconds.

There is no work per frame: `Cadence.observe` is called a few times a second with the time of the
last data, so a gap is known to within the time between two calls.
"""

from collections import deque
from enum import Enum, auto
from typing import Final

from onebook.books import LiveBook
from onebook.feeds.limits import FeedLimits
from onebook.model import Instrument, Reason

CHECKSUMS_MAX: Final = 3  # mismatches per instrument and minute before a reconnect
CADENCE_WINDOW_S: Final = 600.0  # a gap is remembered for once to twice this time
NEVER: Final = float("inf")


class Phase(Enum):
    """State of an instrument's subscription; `Watch.at` is its deadline."""

    REQUESTED = auto()  # not yet answered; the snapshot is due at `at`
    ACCEPTED = auto()  # acknowledged; the snapshot is due at `at`
    LIVE = auto()  # the acknowledgement of a renewed subscription is due at `at`
    BROKEN = auto()  # requested again at `at`
    POSTPONED = auto()  # requested again at `at`, because the exchange limits requests
    OFFLINE = auto()  # refused or beyond repair; requested again at `at`
    HALTED = auto()  # the exchange does not match orders
    ISOLATED = auto()  # queued for a separate request


LIVE_PHASE: Final = Phase.LIVE  # a constant, because enum access is slow in Python 3.11


class Cause(Enum):
    """Cause of a transition between phases."""

    REQUEST = auto()
    ACKNOWLEDGE = auto()
    FILL = auto()  # a snapshot made the book live
    INVALIDATE = auto()  # the book is invalid, or its snapshot did not arrive
    REFUSE = auto()  # the exchange refused the book, or it was given up
    POSTPONE = auto()  # a rate limit error, or the exchange is unavailable
    HALT = auto()
    RESUME = auto()
    ISOLATE = auto()  # an error that names no instrument may concern it


P, C = Phase, Cause
TRANSITIONS: Final[dict[tuple[Phase, Cause], Phase]] = {
    (P.REQUESTED, C.REQUEST): P.REQUESTED,
    (P.REQUESTED, C.ACKNOWLEDGE): P.ACCEPTED,
    (P.REQUESTED, C.FILL): P.LIVE,
    (P.REQUESTED, C.INVALIDATE): P.BROKEN,
    (P.REQUESTED, C.REFUSE): P.OFFLINE,
    (P.REQUESTED, C.POSTPONE): P.POSTPONED,
    (P.REQUESTED, C.HALT): P.HALTED,
    (P.REQUESTED, C.ISOLATE): P.ISOLATED,
    (P.ACCEPTED, C.ACKNOWLEDGE): P.ACCEPTED,
    (P.ACCEPTED, C.FILL): P.LIVE,
    (P.ACCEPTED, C.INVALIDATE): P.BROKEN,
    (P.ACCEPTED, C.REFUSE): P.OFFLINE,
    (P.ACCEPTED, C.POSTPONE): P.ACCEPTED,
    (P.ACCEPTED, C.HALT): P.HALTED,
    (P.LIVE, C.ACKNOWLEDGE): P.LIVE,
    (P.LIVE, C.FILL): P.LIVE,
    (P.LIVE, C.INVALIDATE): P.BROKEN,
    (P.LIVE, C.REFUSE): P.OFFLINE,
    (P.LIVE, C.POSTPONE): P.LIVE,
    (P.LIVE, C.HALT): P.HALTED,
    (P.BROKEN, C.REQUEST): P.REQUESTED,
    (P.BROKEN, C.ACKNOWLEDGE): P.BROKEN,
    (P.BROKEN, C.FILL): P.LIVE,
    (P.BROKEN, C.INVALIDATE): P.BROKEN,
    (P.BROKEN, C.REFUSE): P.OFFLINE,
    (P.BROKEN, C.POSTPONE): P.POSTPONED,
    (P.BROKEN, C.HALT): P.HALTED,
    (P.POSTPONED, C.REQUEST): P.REQUESTED,
    (P.POSTPONED, C.ACKNOWLEDGE): P.POSTPONED,
    (P.POSTPONED, C.FILL): P.LIVE,
    (P.POSTPONED, C.INVALIDATE): P.POSTPONED,
    (P.POSTPONED, C.REFUSE): P.OFFLINE,
    (P.POSTPONED, C.POSTPONE): P.POSTPONED,
    (P.POSTPONED, C.HALT): P.HALTED,
    (P.OFFLINE, C.REQUEST): P.REQUESTED,
    (P.OFFLINE, C.ACKNOWLEDGE): P.OFFLINE,
    (P.OFFLINE, C.REFUSE): P.OFFLINE,
    (P.OFFLINE, C.POSTPONE): P.OFFLINE,
    (P.OFFLINE, C.HALT): P.OFFLINE,
    (P.OFFLINE, C.RESUME): P.OFFLINE,
    (P.HALTED, C.ACKNOWLEDGE): P.HALTED,
    (P.HALTED, C.REFUSE): P.OFFLINE,
    (P.HALTED, C.POSTPONE): P.HALTED,
    (P.HALTED, C.HALT): P.HALTED,
    (P.HALTED, C.RESUME): P.BROKEN,
    (P.ISOLATED, C.REQUEST): P.REQUESTED,
    (P.ISOLATED, C.ACKNOWLEDGE): P.ACCEPTED,
    (P.ISOLATED, C.FILL): P.LIVE,
    (P.ISOLATED, C.INVALIDATE): P.BROKEN,
    (P.ISOLATED, C.REFUSE): P.OFFLINE,
    (P.ISOLATED, C.POSTPONE): P.POSTPONED,
    (P.ISOLATED, C.HALT): P.HALTED,
}
WAITING: Final = (P.REQUESTED, P.ACCEPTED)  # phases that wait for a snapshot
RETRYING: Final = (P.BROKEN, P.POSTPONED, P.OFFLINE)


class NoTransition(Exception):
    """The table has no such transition: a bug in Onebook."""


class Tally:
    """Counts faults in a sliding window."""

    __slots__ = ("_count_max", "_times", "_window_s")

    def __init__(self, count_max: int, window_s: float = 60.0) -> None:
        self._count_max = max(1, count_max)
        self._window_s = window_s
        self._times: deque[float] = deque(maxlen=self._count_max)

    def hit(self, now: float) -> bool:
        """Count a fault; return whether `count_max` is reached within the window."""
        self._times.append(now)
        full = len(self._times) == self._count_max
        return full and now - self._times[0] <= self._window_s


class Cadence:
    """The longest recent gap between data, and the amount of evidence for it.

    The longest gap covers the last one to two `CADENCE_WINDOW_S`, including harmless silences
    (`learn`), so that a false alarm is not repeated. `shared` is set if the instrument's data
    counts as evidence for its connection.
    """

    __slots__ = (
        "_count",
        "_last_at",
        "_longest_s",
        "_observed_s",
        "_older_s",
        "_until",
        "shared",
    )

    def __init__(self) -> None:
        self.shared = False
        self.forget()

    def forget(self) -> None:
        """Drop the evidence; the next data starts again."""
        self._last_at = NEVER  # until the first data
        self._until = NEVER  # end of the current window; NEVER before the first gap
        self._longest_s = self._older_s = 0.0
        self._count = 0
        self._observed_s = 0.0

    def restart(self, data_at: float) -> None:
        """Start counting gaps at `data_at`; the time before is not a gap of the exchange."""
        self._last_at = data_at

    def observe(self, data_at: float) -> None:
        """Record when data last arrived."""
        if self._last_at == NEVER:
            self.restart(data_at)
        elif data_at > self._last_at:
            self.learn(data_at - self._last_at, data_at)
            self._last_at = data_at

    def learn(self, gap_s: float, now: float) -> None:
        """Count a gap."""
        if now >= self._until:
            # After a pause longer than a window, older gaps do not count.
            stale = now >= self._until + CADENCE_WINDOW_S
            self._older_s = 0.0 if stale else self._longest_s
            self._longest_s = 0.0
            self._until = now + CADENCE_WINDOW_S
        elif self._until == NEVER:
            self._until = now + CADENCE_WINDOW_S
        self._longest_s = max(self._longest_s, gap_s)
        self._count += 1
        self._observed_s += gap_s

    def limit_s(self, limits: FeedLimits, least_s: float) -> float:
        """Return the silence limit in seconds; `NEVER` while there is too little evidence."""
        if self._count < limits.cadence_gaps_min:
            return NEVER
        if self._observed_s < limits.cadence_evidence_s:
            return NEVER
        return max(least_s, limits.cadence_factor * max(self._longest_s, self._older_s))


class Cadences:
    """The cadences of one feed, which outlive its connections."""

    def __init__(self) -> None:
        self._of: dict[Instrument, Cadence] = {}
        self.connection = Cadence()

    def of(self, instrument: Instrument) -> Cadence:
        """Return the cadence of an instrument, created if needed."""
        cadence = self._of.get(instrument)
        if cadence is None:
            cadence = self._of[instrument] = Cadence()
        return cadence

    def forget(self, instrument: Instrument) -> None:
        """Drop the cadence of an instrument that left the feed."""
        cadence = self._of.pop(instrument, None)
        if cadence is not None:
            self.exclude(cadence)

    def exclude(self, cadence: Cadence) -> None:
        """Restart the connection's cadence without an instrument, which may be its busiest."""
        if cadence.shared:
            cadence.shared = False
            self.connection.forget()


class Watch:
    """State of one instrument's subscription; all times in monotonic seconds."""

    __slots__ = (
        "alive_at",
        "at",
        "book",
        "cadence",
        "checksums",
        "failures",
        "fetches",
        "fetching",
        "instrument",
        "phase",
        "postponements",
        "reason",
        "tries",
        "was_filled",
        "was_live",
    )

    def __init__(self, book: LiveBook, due_at: float, cadence: Cadence) -> None:
        self.instrument = book.instrument
        self.book = book
        self.cadence = cadence
        self.phase = Phase.REQUESTED
        self.at = due_at
        self.was_live = False  # whether it was live at the last check
        self.alive_at = 0.0
        self.tries = 0  # resyncs since the book was last live for `stable_s`
        self.failures = 0  # consecutive failed snapshot requests
        self.fetches = 0  # snapshots requested since the book was last filled
        self.fetching = 0  # requests in flight
        self.postponements = 0  # errors about this instrument alone, since its last acknowledgement
        self.reason: Reason | None = None  # of the last invalidation; None while live
        self.was_filled = False  # whether this connection has delivered the book before
        self.checksums = Tally(CHECKSUMS_MAX)

    def move(self, cause: Cause, at: float | None = None) -> None:
        """Change the phase by the table; `at` is the new deadline, None keeps the current one.

        Raises:
            NoTransition: The table has no such row.
        """
        phase = TRANSITIONS.get((self.phase, cause))
        if phase is None:
            raise NoTransition(f"{self.phase.name} has no {cause.name}")
        self.phase = phase
        if at is not None:
            self.at = at
