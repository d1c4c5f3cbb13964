"""Schedules identity checks: when a book becomes live, then once a second, never per frame.

`identity` decides.
"""

import logging
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from onebook import metrics
from onebook.books import Books, LiveBook
from onebook.clock import Clock, Handle
from onebook.config import StreamSettings
from onebook.model import Health
from onebook.streams.identity import CONFLICT, IdentityLimits, pooled, review, review_twins

CHECK_S: Final = 1.0  # interval between checks of a symbol
SYMBOLS_PER_TURN_MAX: Final = 8  # then yield to the event loop ...
TURN_S: Final = 0.005  # ... for this time

log = logging.getLogger("onebook.streams")


class IdentityGuard:
    """Checks every symbol that has several comparable books.

    Args:
        books: The guard subscribes to their health.
        clock: Time and timers.
        settings: The limit of deviation.
        on_status: Called with each book whose health or mark changed.
    """

    def __init__(
        self,
        books: Books,
        *,
        clock: Clock,
        settings: StreamSettings,
        on_status: Callable[[LiveBook], None],
    ) -> None:
        self._books = books
        self._clock = clock
        self.limits = IdentityLimits(Decimal(str(settings.identity_deviation_max)))
        self._on_status = on_status
        self._due: deque[tuple[float, str]] = deque()  # the earliest first
        self._watched: set[str] = set()
        self._handle: Handle | None = None
        books.subscribe(on_health=self._health_changed)

    def stop(self) -> None:
        """Cancel the callbacks."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _health_changed(self, book: LiveBook, previous: Health) -> None:
        """Report a book, and those whose mark changes because it became live."""
        marked = self._entered(book) if book.health is Health.LIVE else []
        for each in (book, *(other for other in marked if other is not book)):
            self._on_status(each)

    def _entered(self, book: LiveBook) -> list[LiveBook]:
        """Check the symbol of a book that became live; returns the books whose mark changed."""
        symbol = book.instrument.symbol
        if not self._comparable(symbol):
            return []
        now = self._clock.monotonic()
        if symbol not in self._watched:
            self._watched.add(symbol)
            self._due.append((now + CHECK_S, symbol))
            self._arm(now)
        return self._reviewed(symbol, now)

    def _check(self) -> None:
        """Check the due symbols, at most `SYMBOLS_PER_TURN_MAX`."""
        self._handle = None
        now = self._clock.monotonic()
        for _ in range(SYMBOLS_PER_TURN_MAX):
            if not self._due or self._due[0][0] > now:
                break
            _, symbol = self._due.popleft()
            for book in self._reviewed(symbol, now):
                self._on_status(book)
            if self._comparable(symbol):
                self._due.append((now + CHECK_S, symbol))
            else:
                self._watched.discard(symbol)
        self._arm(now)

    def _arm(self, now: float) -> None:
        if self._due and self._handle is None:
            at = max(self._due[0][0], now + TURN_S)
            self._handle = self._clock.call_at(at, self._check)

    def _comparable(self, symbol: str) -> bool:
        """Return whether a symbol has two open books, or its base has one in another dollar."""
        books = self._books.of(symbol)
        return len(books) > 1 or (bool(books) and any(map(self._books.of, pooled(symbol))))

    def _reviewed(self, symbol: str, now: float) -> list[LiveBook]:
        books = self._books.of(symbol)
        names = {book.instrument.exchange for book in books}
        others = [
            book
            for each in pooled(symbol)
            for book in self._books.of(each)
            if book.instrument.exchange in names
        ]
        marked = review(books, self.limits, now)
        changed = list(dict.fromkeys([*marked, *review_twins([*books, *others], now)]))
        for book in changed:
            _report(book)
        return changed


def _report(book: LiveBook) -> None:
    """Log a changed mark and count conflicts."""
    name, symbol, mark = book.instrument.exchange, book.instrument.symbol, book.mark
    if mark is None:
        log.info("%s: the identity of %s is confirmed again.", name, symbol)
        return
    log.warning("%s: %s is marked %s: %s.", name, symbol, mark.reason, mark.detail)
    if mark.reason is CONFLICT:
        metrics.BOOK_INVALIDATIONS.labels(name, CONFLICT).inc()
