"""State machine of one instrument's subscription: the phases up to a live book, and its resyncs.

Pure: a transition table. A missing row is an error; a test prints the table.
"""

from collections import deque
from enum import Enum, auto
from typing import Final

from onebook.books import LiveBook
from onebook.feeds.liveness import Cadence
from onebook.model import Reason


class Phase(Enum):
    """What is awaited of an instrument; `Watch.at` is until or from when."""

    ASKED = auto()  # a subscription that nothing answered yet; its snapshot is due at `at`
    AWAITED = auto()  # it was acknowledged; its snapshot is due at `at`
    LIVE = auto()  # where its subscription was renewed, its acknowledgement is due at `at`
    BROKEN = auto()  # to be asked for again at `at`
    POSTPONED = auto()  # the same, because the exchange asked for fewer requests
    OFFLINE = auto()  # refused or beyond repair; tried again at `at`
    HALTED = auto()  # the exchange matches no orders
    ALONE = auto()  # queued to be requested alone


LIVE_PHASE: Final = Phase.LIVE  # a constant: Python 3.11 looks a member of an enum up by a call


class Cause(Enum):
    """Cause of a transition between phases."""

    ASK = auto()  # it is asked for (again)
    ACKNOWLEDGE = auto()
    FILL = auto()  # a snapshot made the book live
    INVALIDATE = auto()  # the book cannot be trusted, or did not come
    REFUSE = auto()  # the exchange will not give it, or it was given up
    POSTPONE = auto()  # "slow down"
    HALT = auto()
    RESUME = auto()
    SET_ASIDE = auto()  # an error without a name may be about it


P, C = Phase, Cause
TRANSITIONS: Final[dict[tuple[Phase, Cause], Phase]] = {
    (P.ASKED, C.ASK): P.ASKED,
    (P.ASKED, C.ACKNOWLEDGE): P.AWAITED,
    (P.ASKED, C.FILL): P.LIVE,
    (P.ASKED, C.INVALIDATE): P.BROKEN,
    (P.ASKED, C.REFUSE): P.OFFLINE,
    (P.ASKED, C.POSTPONE): P.POSTPONED,
    (P.ASKED, C.HALT): P.HALTED,
    (P.ASKED, C.SET_ASIDE): P.ALONE,
    (P.AWAITED, C.ACKNOWLEDGE): P.AWAITED,
    (P.AWAITED, C.FILL): P.LIVE,
    (P.AWAITED, C.INVALIDATE): P.BROKEN,
    (P.AWAITED, C.REFUSE): P.OFFLINE,
    (P.AWAITED, C.POSTPONE): P.AWAITED,
    (P.AWAITED, C.HALT): P.HALTED,
    (P.LIVE, C.ACKNOWLEDGE): P.LIVE,
    (P.LIVE, C.FILL): P.LIVE,
    (P.LIVE, C.INVALIDATE): P.BROKEN,
    (P.LIVE, C.REFUSE): P.OFFLINE,
    (P.LIVE, C.POSTPONE): P.LIVE,
    (P.LIVE, C.HALT): P.HALTED,
    (P.BROKEN, C.ASK): P.ASKED,
    (P.BROKEN, C.ACKNOWLEDGE): P.BROKEN,
    (P.BROKEN, C.FILL): P.LIVE,
    (P.BROKEN, C.INVALIDATE): P.BROKEN,
    (P.BROKEN, C.REFUSE): P.OFFLINE,
    (P.BROKEN, C.POSTPONE): P.POSTPONED,
    (P.BROKEN, C.HALT): P.HALTED,
    (P.POSTPONED, C.ASK): P.ASKED,
    (P.POSTPONED, C.ACKNOWLEDGE): P.POSTPONED,
    (P.POSTPONED, C.FILL): P.LIVE,
    (P.POSTPONED, C.INVALIDATE): P.POSTPONED,
    (P.POSTPONED, C.REFUSE): P.OFFLINE,
    (P.POSTPONED, C.POSTPONE): P.POSTPONED,
    (P.POSTPONED, C.HALT): P.HALTED,
    (P.OFFLINE, C.ASK): P.ASKED,
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
    (P.ALONE, C.ASK): P.ASKED,
    (P.ALONE, C.ACKNOWLEDGE): P.AWAITED,
    (P.ALONE, C.FILL): P.LIVE,
    (P.ALONE, C.INVALIDATE): P.BROKEN,
    (P.ALONE, C.REFUSE): P.OFFLINE,
    (P.ALONE, C.POSTPONE): P.POSTPONED,
    (P.ALONE, C.HALT): P.HALTED,
}
WAITING: Final = (P.ASKED, P.AWAITED)  # for a snapshot
RETRYING: Final = (P.BROKEN, P.POSTPONED, P.OFFLINE)


class NoTransition(Exception):
    """The table has no such transition: a defect of ours."""


class Tally:
    """Counts faults in a sliding window; whether there were too many."""

    __slots__ = ("_count_max", "_times", "_window_s")

    def __init__(self, count_max: int, window_s: float = 60.0) -> None:
        self._count_max = max(1, count_max)
        self._window_s = window_s
        self._times: deque[float] = deque(maxlen=self._count_max)

    def hit(self, now: float) -> bool:
        """Count one, and return whether that makes `count_max` within the window."""
        self._times.append(now)
        full = len(self._times) == self._count_max
        return full and now - self._times[0] <= self._window_s


class Watch:
    """What is awaited of one instrument; all times in monotonic seconds."""

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

    def __init__(self, book: LiveBook, checksums_max: int, due_at: float, cadence: Cadence) -> None:
        self.instrument = book.instrument
        self.book = book
        self.cadence = cadence
        self.phase = Phase.ASKED
        self.at = due_at
        self.was_live = False  # at the last check
        self.alive_at = 0.0
        self.tries = 0  # resyncs since it was last well for a while
        self.failures = 0  # requests for its snapshot in a row that failed
        self.fetches = 0  # bodies since its last snapshot
        self.fetching = 0  # under way now
        self.postponements = 0  # by errors about it alone, since it was last accepted
        self.reason: Reason | None = None  # why its book was last invalidated, until it is live
        self.was_filled = False  # this connection has brought its book before
        self.checksums = Tally(checksums_max)

    def move(self, cause: Cause, at: float | None = None) -> None:
        """Follow the table; `at` is the time of the new phase, None keeps what there is.

        Raises:
            NoTransition: The table has no such row.
        """
        phase = TRANSITIONS.get((self.phase, cause))
        if phase is None:
            raise NoTransition(f"{self.phase.name} has no {cause.name}")
        self.phase = phase
        if at is not None:
            self.at = at
