"""Executes the decisions of `reseeds`: REST bodies for live books, and the end of dead streams."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from onebook.config import FeedSettings
from onebook.exchanges.kit import Output, ProtocolError, Seeded
from onebook.feeds.outbox import Outbox
from onebook.feeds.phases import Watch
from onebook.feeds.recovery import Ending, Recovery
from onebook.feeds.reseeds import ReseedNeed, Reseeds
from onebook.model import Health, Instrument, Reason

log = logging.getLogger("onebook.feeds")

NO_CHANGES: Final = "books move by REST, and their streams bring nothing"

Execute = Callable[[Callable[[], Iterable[Output]], float], None]


class Reseeding:
    """The REST bodies of one connection's live books.

    Args:
        connector: Where bodies are asked for and read.
        settings: Limits and waits.
        recovery: Resyncs a book whose stream is dead, or that the exchange refuses.
        outbox: How long a request on the socket waits until it leaves.
        execute: Executes outputs.
        end: Ends the connection, for a reason and its detail.
    """

    def __init__(
        self,
        connector: Seeded,
        settings: FeedSettings,
        *,
        recovery: Recovery,
        outbox: Outbox,
        execute: Execute,
        end: Ending,
    ) -> None:
        self._connector = connector
        self._reseeds = Reseeds(connector, settings)
        self._settings = settings
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
                due_at = now + self._outbox.wait_s(now) + self._settings.reseed_total_s
                self._reseeds.due(instrument, due_at)
        elif need is ReseedNeed.UNANSWERED:
            self.put_off(watch, now)
            if self._reseeds.unanswered(instrument) >= self._settings.reseed_tries_max:
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
