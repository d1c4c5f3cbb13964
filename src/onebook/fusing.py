"""Combines an exchange's fast best bid and ask with its depth, by the exchange's own numbers.

Some exchanges send their best prices at once and their depth every 100 ms. If both channels number
the states of a market with one counter, the newest top can be shown over the levels without losing
exactness: the higher number is the later state, whichever message arrived first. The levels are not
changed, so their chain and checksums depend only on the depth channel.

`Fusing` decides which top is shown over a book, and `core.Book` stores it (`overlay`). No clock.
The evidence for each exchange is in docs/explanation/freshness.md.
"""

from typing import Final

from onebook.core import Book
from onebook.core.types import LevelError
from onebook.exchanges.kit import TopOfBook

# A top that is still ahead after this many changes of the depth has another counter.
AHEAD_MAX: Final = 5
DISAGREED_MAX: Final = 2  # states with the same number in which the channels differ

OTHER_COUNTER: Final = f"its numbers stayed ahead of the depth for {AHEAD_MAX} changes"
DISAGREED: Final = f"it differed from the depth in {DISAGREED_MAX} states of the same number"


class TopCounts:
    """Counts of an exchange's tops by result, since the start of the process."""

    __slots__ = ("agreed", "ahead", "disagreed", "late", "off", "refused", "shown", "unproven")

    def __init__(self) -> None:
        self.shown = 0
        self.late = 0  # not newer than the known state
        self.refused = 0  # crossed, absurd or unreadable
        self.agreed = 0  # equal to the depth at the same number
        self.disagreed = 0
        self.ahead = 0  # apparently of another counter
        self.off = 0  # books whose tops are ignored from then on
        self.unproven = 0  # before both channels were seen to have one counter

    def counts(self) -> tuple[int, ...]:
        """Return the counts in the order of their names."""
        return (
            self.agreed,
            self.ahead,
            self.disagreed,
            self.late,
            self.off,
            self.refused,
            self.shown,
            self.unproven,
        )


class Fusing:
    """Decides which top may be shown over one book.

    Tops are shown only once both channels have proven to share a counter: a change of the depth
    passed the number of a top. This excludes tops of another counter, and tops from before the
    exchange restarted its counter.

    Attributes:
        depth: Number of the last state of the depth; 0 before it is known.
        off: Why tops of this book are ignored; empty while they are used.
        reported: Whether that was logged.
    """

    __slots__ = ("_ahead", "_counts", "_disagreed", "_proven", "_top", "depth", "off", "reported")

    def __init__(self, counts: TopCounts) -> None:
        self.off = ""
        self.reported = False
        self._counts = counts
        self.depth = 0
        self._top = 0  # number of the newest top
        self._proven = False  # both channels have one counter
        self._ahead = 0  # changes of the depth that the top outlived
        self._disagreed = 0

    def top(self, book: Book, top: TopOfBook) -> bool:
        """Show a newer top; return whether the book may look different now."""
        counts = self._counts
        if self.off or top.sequence <= self._top or top.sequence <= self.depth:
            counts.late += 1
            return False
        self._top = top.sequence
        self._ahead = 0
        if not self._proven:
            counts.unproven += 1
            return False
        try:
            refused = book.overlay(top.bids, top.asks, top.shape)
        except LevelError:
            book.uncover()
            refused = ""
        if refused is None:
            counts.shown += 1
        else:
            counts.refused += 1
        return True

    def changed(self, book: Book, sequence: int) -> None:
        """Drop the top that the depth has passed, by a change or by a whole book."""
        before, self.depth = self.depth, sequence
        if sequence < before:  # the exchange restarted its counter, or the body of a REST request
            self._top = 0
            self._proven = False
            book.uncover()
        elif self._top > before and not self.off:
            if sequence < self._top:
                self._outlived(book)
                return
            self._proven = True
            if book.overlaid:
                if sequence == self._top:
                    self._compare(book)
                book.uncover()

    def _outlived(self, book: Book) -> None:
        self._ahead += 1
        if self._ahead < AHEAD_MAX:
            return
        if not self._proven:  # it was not shown, and may be of before a restart
            self._top = self._ahead = 0
            return
        self._counts.ahead += 1
        self._end(book, OTHER_COUNTER)

    def _compare(self, book: Book) -> None:
        """Check the rule itself: both channels must agree at the same number."""
        if book.overlay_agrees():
            self._counts.agreed += 1
            return
        self._counts.disagreed += 1
        self._disagreed += 1
        if self._disagreed >= DISAGREED_MAX:
            self._end(book, DISAGREED)

    def _end(self, book: Book, why: str) -> None:
        book.uncover()
        self._counts.off += 1
        self.off = why
