"""One log line when the database stops working and one when it works again."""

import logging
import time
from collections.abc import Callable
from typing import Final, Literal

from onebook.metrics import DATABASE_UNAVAILABLE

Kind = Literal["reads", "writes"]
READS: Final = "reads"
WRITES: Final = "writes"

log = logging.getLogger("onebook.store")


class Outage:
    """Whether the database is available, from the results of all operations.


    Reads may succeed while writes fail (a locked file, a full disk), so an outage ends when each
    kind of work that failed has succeeded again; a write that succeeds stands for reads as well.

    Work that was under way when the database went away may still succeed, and work that began
    during an outage may fail after its end. Neither shows how the database is now: a success ends
    an outage only if its work began after the newest failure, and a failure begins one only if its
    work began after the end of the one before.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failing: set[Kind] = set()
        self._began_s = 0.0
        self._events = 0
        self._failed_at = 0  # the event of the newest failure
        self._ended_at = 0  # the event of the newest end

    def began(self) -> int:
        """Note that work begins; its result is reported with the returned value."""
        return self._events

    def failed(self, kind: Kind, reason: str, began: int) -> None:
        """Note that work of a kind failed."""
        if not self._failing:
            if began < self._ended_at:
                return
            self._began_s = self._monotonic()
            log.error("The database is unavailable: %s", reason)
        self._events += 1
        self._failed_at = self._events
        self._failing.add(kind)
        DATABASE_UNAVAILABLE.set(1)

    def succeeded(self, kind: Kind, began: int) -> None:
        """Note that work of a kind succeeded."""
        if not self._failing or began < self._failed_at:
            return
        if kind == WRITES:
            self._failing.clear()
        else:
            self._failing.discard(kind)
        if not self._failing:
            self._events += 1
            self._ended_at = self._events
            DATABASE_UNAVAILABLE.set(0)
            lasted_s = self._monotonic() - self._began_s
            log.info("The database is available again after %.1f s.", lasted_s)
