"""A view of the past, played as live: the streams, pacing and messages of the present.

A play has its own books, clock and `Streams`, so that numbers, deltas, statuses and intervals
follow the same rules as those of live books. Between two moments at which the view may change, all
books are played in one go. Only `load` reads files; it may run in a thread.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from onebook.clock import ManualClock, iso_us
from onebook.fees import exchange_of, symbol_of
from onebook.model import Instrument
from onebook.signals import Signal
from onebook.streams.basket import conversion_pairs
from onebook.streams.stream import Stream, StreamKey
from onebook.streams.streams import Publisher, Streams

if TYPE_CHECKING:
    from onebook.archive.folder import HistoryFolder


class Play:
    """One view, from a moment on.

    Args:
        folder: The history.
        key: The view.
        start_us: The first moment.
        publisher: Gets the updates.
        stamp: Writes the times of messages from microseconds since 1970.

    Raises:
        HistoryMissing: The first moment was not recorded.
    """

    def __init__(
        self,
        folder: "HistoryFolder",
        key: StreamKey,
        start_us: int,
        publisher: Publisher,
        stamp: Callable[[int], str] = iso_us,
    ) -> None:
        # pyarrow is an extra
        from onebook.archive.player import HistoryPlayer

        exchanges = sorted({exchange_of(each) for each in key.exchanges})
        self.key = key
        self._publisher = publisher
        self._player = HistoryPlayer(folder, symbols_of(key), start_us, None, exchanges)
        self._clock = ManualClock(start_us / 1_000_000)
        self._streams = Streams(
            books=self._player.books,
            supervisor=_NoFeeds(),
            catalogue=_Recorded(self._player.instruments),
            publisher=publisher,
            clock=self._clock,
            stamp=stamp,
            guarded=False,
        )
        self._loading = False  # in a thread, which alone may use the player
        self.stream: Stream | None = None  # after the state at the start was played

    @property
    def at_us(self) -> int:
        """The moment that is shown."""
        return self._clock.wall_us()

    @property
    def until_us(self) -> int:
        """The end of the window that was read."""
        return self._player.until_us

    def load(self) -> bool:
        """Read the next window of the history; return False at its present end."""
        self._loading = True
        try:
            return self._player.load()
        finally:
            self._loading = False

    @property
    def due_us(self) -> int | None:
        """The next moment at which the view may change in this window; None if it does not."""
        stop_us, timer_s = self._player.stop_us(self._streams.awaits), self._clock.due_at
        if stop_us is None:
            return None
        return stop_us if timer_s is None else min(stop_us, round(timer_s * 1_000_000))

    def advance(self) -> None:
        """Go to `due_us`: the ends of intervals first, and then what was received."""
        due_us = self.due_us
        if due_us is None:
            return
        self._begin(due_us)
        self._player.play(due_us - 1)
        now_s, timer_s = due_us / 1_000_000, self._clock.due_at
        if timer_s is not None and round(timer_s * 1_000_000) <= due_us:
            now_s = max(now_s, timer_s)  # within the same microsecond
        self._clock.move_to(now_s)
        if self._player.due_us == due_us:
            self._player.play(due_us)
            self._begin(due_us + 1)
            self._clock.move_to(self._clock.now_s)  # publish what has no interval

    def resend(self, now_us: int, message_id: str | int | float | None) -> bytes:
        """Return the whole book, merged at a moment within what was read."""
        assert self.stream is not None
        due_us = None if self._loading else self.due_us
        until_us = self.at_us if due_us is None else min(now_us, due_us - 1)
        if until_us > self.at_us:
            self._player.play(until_us)
            self._clock.move_to(until_us / 1_000_000)
        self._streams.publish_now(self.stream)
        return self.stream.full_for(message_id)

    def close(self) -> None:
        """Stop the timers."""
        self._streams.stop()

    def _begin(self, before_us: int) -> None:
        """Open the stream once the state at the start was played."""
        if self.stream is None and before_us > self._player.start_us:
            self.stream = self._streams.open(self.key)
            for status in self._streams.marks(self.stream):
                self._publisher.status(self.stream, status)


class _NoFeeds:
    """The supervisor of recorded books, which need no subscription."""

    def acquire(self, instrument: Instrument) -> None:
        """Subscribe to a book."""

    def release(self, instrument: Instrument) -> None:
        """Drop one subscription to a book."""


class _Recorded:
    """The list of recorded instruments, which never changes."""

    def __init__(self, instruments: dict[tuple[str, str], Instrument]) -> None:
        self.on_read: Signal[[str]] = Signal()
        self._instruments = instruments

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        """Return the instrument of a symbol on an exchange."""
        return self._instruments.get((exchange, symbol))


def symbols_of(key: StreamKey) -> list[str]:
    """Return the symbols whose books a view may need."""
    found = {symbol_of(each, key.symbol) for each in key.exchanges}
    own = key.symbol.partition("/")[2]
    for quote in sorted({each.partition("/")[2] for each in found} - {own}):
        found.update(pair for pair, _ in conversion_pairs(quote, own))
    return sorted(found)
