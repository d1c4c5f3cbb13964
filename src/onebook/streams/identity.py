"""Detects books of another coin under the same symbol, by comparing prices.

Some exchanges use the same code for another coin, and no table of codes is complete
(`exchanges.kit.currencies`). A book whose mid is far from the median of at least three others is
probably of another coin: it is quarantined (left out of merged views) until it agrees again
for a while. If exchanges disagree without a majority, the books are marked and merged as
before. A book with the same levels as another has the same orders under another name: it is marked,
and left out of views that merge the other. The reasons for each rule: docs/explanation/identity.md.

The rules are pure functions. `IdentityGuard` schedules them: when a book becomes live, then once a
second, never per frame.
"""

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import Enum, auto
from typing import Final, NamedTuple

from onebook import metrics
from onebook.books import Books, IdentityMark, LiveBook
from onebook.clock import Clock, Handle
from onebook.config import StreamSettings
from onebook.model import Health, Instrument, Reason

OTHERS_MIN: Final = 3  # other books that a quarantine needs
RECOVERY_S: Final = 10.0  # for which a quarantined book must agree before it is merged again

CONFLICT: Final = Reason.IDENTITY_CONFLICT
UNCONFIRMED: Final = Reason.UNCONFIRMED_IDENTITY
SHARED: Final = Reason.SHARED_BOOK

TWIN_LEVELS: Final = 25  # best levels a side that are compared; all of them must be equal
TWIN_LEVELS_MIN: Final = 5  # a side with fewer levels proves nothing
# Two streams of one book are rarely at the same change when they are compared.
TWINS_FOR_S: Final = 60.0
DOLLARS: Final = ("USD", "USDC", "USDT")  # quotes under which an exchange may list one book

CHECK_S: Final = 1.0  # interval between checks of a symbol
SYMBOLS_PER_TURN_MAX: Final = 8  # then yield to the event loop ...
TURN_S: Final = 0.005  # ... for this time

log = logging.getLogger("onebook.streams")


Side = Sequence[tuple[str, str]]
Levels = tuple[Side, Side]


class PriceVerdict(Enum):
    """Comparison of a book's price with the other live books of its symbol."""

    ALONE = auto()  # no other book to compare with
    AGREES = auto()  # within half the limit
    AGREED = auto()  # within half the limit for `RECOVERY_S`
    NEAR = auto()  # within the limit
    DISPUTED = auto()  # beyond the limit, but no majority shows that this is the wrong one
    OUTVOTED = auto()  # beyond the limit of at least three others, and most books are not


# State machine: from None (trusted) or a mark, by a verdict, to None or a mark.
MOVES: Final[dict[tuple[Reason | None, PriceVerdict], Reason | None]] = {
    (None, PriceVerdict.ALONE): None,
    (None, PriceVerdict.AGREES): None,
    (None, PriceVerdict.AGREED): None,
    (None, PriceVerdict.NEAR): None,
    (None, PriceVerdict.DISPUTED): UNCONFIRMED,
    (None, PriceVerdict.OUTVOTED): CONFLICT,
    (UNCONFIRMED, PriceVerdict.ALONE): UNCONFIRMED,
    (UNCONFIRMED, PriceVerdict.AGREES): UNCONFIRMED,
    (UNCONFIRMED, PriceVerdict.AGREED): None,
    (UNCONFIRMED, PriceVerdict.NEAR): UNCONFIRMED,
    (UNCONFIRMED, PriceVerdict.DISPUTED): UNCONFIRMED,
    (UNCONFIRMED, PriceVerdict.OUTVOTED): CONFLICT,
    (CONFLICT, PriceVerdict.ALONE): CONFLICT,
    (CONFLICT, PriceVerdict.AGREES): CONFLICT,
    (CONFLICT, PriceVerdict.AGREED): None,
    (CONFLICT, PriceVerdict.NEAR): CONFLICT,
    (CONFLICT, PriceVerdict.DISPUTED): CONFLICT,
    (CONFLICT, PriceVerdict.OUTVOTED): CONFLICT,
    (SHARED, PriceVerdict.ALONE): SHARED,
    (SHARED, PriceVerdict.AGREES): SHARED,
    (SHARED, PriceVerdict.AGREED): SHARED,
    (SHARED, PriceVerdict.NEAR): SHARED,
    (SHARED, PriceVerdict.DISPUTED): UNCONFIRMED,
    (SHARED, PriceVerdict.OUTVOTED): CONFLICT,
}


class IdentityLimits(NamedTuple):
    """Rules for marking a book as another coin's, and for merging it again."""

    deviation_max: Decimal  # from the median, as a share of it
    recovery_s: float = RECOVERY_S


class Top(NamedTuple):
    """The best prices of a book and the middle between them."""

    bid: Decimal
    ask: Decimal
    mid: Decimal

    @classmethod
    def of(cls, bid: Decimal, ask: Decimal) -> "Top":
        """Create from best prices, computing the mid."""
        return cls(bid, ask, (bid + ask) / 2)

    def within(self, share: Decimal, price: Decimal) -> bool:
        """Return whether the mid is so near to a price, or the price lies within the spread.

        A wide spread bounds the price loosely and contradicts no price inside it.
        """
        return self.bid <= price <= self.ask or abs(self.mid - price) <= share * price


class Judgement(NamedTuple):
    """A verdict, and the price that the book was compared with."""

    verdict: PriceVerdict
    median: Decimal | None


def judge(tops: Sequence[Top], deviation_max: Decimal) -> list[Judgement]:
    """Compare each book with the median of the others; results are in the given order."""
    if len(tops) < 2:
        return [Judgement(PriceVerdict.ALONE, None) for _ in tops]
    mids = sorted(top.mid for top in tops)
    medians = [_median_without(mids, top.mid) for top in tops]
    far = [not top.within(deviation_max, median) for top, median in zip(tops, medians, strict=True)]
    if len(tops) == 2 and not all(far):
        far = [False, False]  # either of two books may be wrong: both contradict, or neither
    majority = len(tops) > OTHERS_MIN and 2 * sum(far) < len(tops)
    outside = PriceVerdict.OUTVOTED if majority else PriceVerdict.DISPUTED
    return [
        Judgement(outside if is_far else _nearness(top, median, deviation_max), median)
        for top, median, is_far in zip(tops, medians, far, strict=True)
    ]


def _nearness(top: Top, median: Decimal, deviation_max: Decimal) -> PriceVerdict:
    return PriceVerdict.AGREES if top.within(deviation_max / 2, median) else PriceVerdict.NEAR


def _median_without(mids: Sequence[Decimal], own: Decimal) -> Decimal:
    """Return the median of the sorted `mids` less `own`: of two middle prices the nearer to it."""
    place, others = bisect_left(mids, own), len(mids) - 1
    below, above = (others - 1) // 2, others // 2
    low, high = mids[below + (below >= place)], mids[above + (above >= place)]
    return low if own - low <= high - own else high


def review(books: Iterable[LiveBook], limits: IdentityLimits, now: float) -> list[LiveBook]:
    """Compare the live books of one symbol; returns the books with a changed mark."""
    judged: list[tuple[LiveBook, Top]] = []
    for book in books:
        top = top_of(book)
        if top is None:
            book.agreed_at = None  # a book that is not live, or has one side, is not compared
        else:
            judged.append((book, top))
    judgements = judge([top for _, top in judged], limits.deviation_max)
    return [
        book
        for (book, top), each in zip(judged, judgements, strict=True)
        if _moved(book, top, each, len(judged) - 1, limits.recovery_s, now)
    ]


def pooled(symbol: str) -> list[str]:
    """Return the same base in other dollar currencies; empty for other quotes."""
    base, _, quote = symbol.rpartition("/")
    return [f"{base}/{each}" for each in DOLLARS if each != quote] if quote in DOLLARS else []


def review_twins(books: Iterable[LiveBook], now: float) -> list[LiveBook]:
    """Find live books with the levels of another one; returns the books with a changed mark.

    Books of one symbol, and books of one exchange, are compared with each other. Of equal books the
    first by exchange and symbol stays unmarked.
    """
    changed = []
    ordered = sorted(books, key=lambda book: (book.instrument.exchange, book.instrument.symbol))
    alike: dict[tuple[str | None, str | None], list[LiveBook]] = {}
    for book in ordered:
        if book.health is Health.LIVE:
            alike.setdefault(book.core.best(), []).append(book)
    for some in alike.values():
        if len(some) > 1:  # levels are read only if the best prices are equal
            _compare([(book, book.core.top(TWIN_LEVELS)) for book in some], now)
    for book in ordered:
        if book.twins:
            book.twins = {each: at for each, at in book.twins.items() if now - at < TWINS_FOR_S}
        if book.twins and book.mark is None:
            names = sorted(f"{one.exchange} {one.symbol}" for one in map(_instrument, book.twins))
            book.mark = IdentityMark(SHARED, f"the same levels as {', '.join(names)}")
            changed.append(book)
        elif not book.twins and book.mark is not None and book.mark.reason is SHARED:
            book.mark = None
            changed.append(book)
    return changed


def _instrument(book: LiveBook) -> Instrument:
    return book.instrument


def _compare(books: Sequence[tuple[LiveBook, Levels]], now: float) -> None:
    """Record for each book which earlier ones are equal in price and amount."""
    for place, (book, top) in enumerate(books):
        for other, its in books[:place]:
            mine, that = book.instrument, other.instrument
            comparable = mine.symbol == that.symbol or mine.exchange == that.exchange
            if comparable and all(map(_same_side, top, its)):
                book.twins[other] = now


def _same_side(levels: Side, others: Side) -> bool:
    """Compare as many levels as the shorter side has: the channels may differ in depth."""
    count = min(len(levels), len(others))
    return count >= TWIN_LEVELS_MIN and levels[:count] == others[:count]


def top_of(book: LiveBook) -> Top | None:
    """Return the best prices of a book; None if it is not live or a side is empty."""
    if book.health is not Health.LIVE:
        return None
    bid, ask = book.core.best()
    return None if bid is None or ask is None else Top.of(Decimal(bid), Decimal(ask))


def _moved(
    book: LiveBook, top: Top, judgement: Judgement, others: int, recovery_s: float, now: float
) -> bool:
    """Move the mark of a book by a judgement; returns whether it changed."""
    verdict = judgement.verdict
    if verdict is not PriceVerdict.AGREES:
        book.agreed_at = None
    else:
        if book.agreed_at is None:
            book.agreed_at = now
        if now - book.agreed_at >= recovery_s:
            verdict = PriceVerdict.AGREED
    before = book.mark.reason if book.mark is not None else None
    after = MOVES[before, verdict]
    if after is before:
        return False
    book.mark = None if after is None else IdentityMark(after, _detail(top, judgement, others))
    return True


def _detail(top: Top, judgement: Judgement, others: int) -> str:
    return f"mid {top.mid:f}, median of the other {others} {judgement.median:f}"


class IdentityGuard:
    """Checks each symbol that has several comparable books.

    Args:
        books: The guard subscribes to their health.
        clock: Time and timers.
        settings: The maximum deviation of a price.
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
            self._books.marked(book)
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
