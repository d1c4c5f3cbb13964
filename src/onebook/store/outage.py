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
    """Whether the database works, from the results of all that is asked of it.

    Reads may succeed while writes fail (a locked file, a full disk), so an outage ends when each
    kind of work that failed has succeeded again; a write that succeeds stands for reads as well.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._failing: set[Kind] = set()
        self._began_s = 0.0

    def failed(self, kind: Kind, reason: str) -> None:
        """Note that work of a kind failed."""
        if not self._failing:
            self._began_s = self._monotonic()
            log.error("The database is unavailable: %s", reason)
        self._failing.add(kind)
        DATABASE_UNAVAILABLE.set(1)

    def succeeded(self, kind: Kind) -> None:
        """Note that work of a kind succeeded."""
        if not self._failing:
            return
        if kind == WRITES:
            self._failing.clear()
        else:
            self._failing.discard(kind)
        if not self._failing:
            DATABASE_UNAVAILABLE.set(0)
            lasted_s = self._monotonic() - self._began_s
            log.info("The database is available again after %.1f s.", lasted_s)
