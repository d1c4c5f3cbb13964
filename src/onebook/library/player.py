"""Plays recorded books into readers, at the recorded times: the base of both kinds of replay."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from onebook.books import Books
from onebook.clock import ManualClock
from onebook.config import StreamSettings
from onebook.library.book import require_fee
from onebook.library.errors import UnknownSymbol
from onebook.library.source import (
    UNKNOWN_FEE,
    BasketSource,
    BookOptions,
    BookSource,
    ReaderQueue,
    Wiring,
)
from onebook.library.update import BookUpdate
from onebook.model import Instrument, Reason


class Pace:
    """The part of a recording that is played, and how fast.

    Args:
        start_us: The first moment, in microseconds since 1970; None for the beginning.
        end_us: The last moment; None for the end.
        speed: Recorded seconds per second; 0 for as fast as possible.

    Raises:
        ValueError: The speed is negative or not a number, or the end is before the start.
    """

    def __init__(self, start_us: int | None, end_us: int | None, speed: float) -> None:
        if not 0 <= speed < math.inf:
            raise ValueError(f"speed must be 0 or more, not {speed!r}.")
        if start_us is not None and end_us is not None and end_us < start_us:
            raise ValueError("end must not be before start.")
        self.start_us, self.end_us = start_us, end_us
        self.start_s = -math.inf if start_us is None else start_us / 1_000_000
        # What was recorded within the last microsecond belongs to it, like the time of its update.
        self.end_s = math.inf if end_us is None else (end_us + 0.5) / 1_000_000
        self._speed = speed
        self._began: tuple[float, float] | None = None  # recorded, and on this machine

    def wait(self, recorded_s: float) -> None:
        """Sleep until this recorded time is due."""
        if not self._speed:
            return
        now = time.monotonic()
        began, began_at = self._began = self._began or (recorded_s, now)
        time.sleep(max(0.0, began_at + (recorded_s - began) / self._speed - now))


class Player:
    """The views of a replay.

    Args:
        books: The recorded books.
        recorded: The recorded instruments by exchange and symbol.
        names: The exchanges, in the order of the updates.
        symbols: The pairs; None for all recorded ones.
        options: The options of the views.
        merged: Whether the exchanges of a pair are merged.
        clock: The recorded time.
        streams: The limits of the identity guard; None if the marks of the books are recorded.

    Raises:
        UnknownSymbol: A pair is not recorded.
    """

    def __init__(
        self,
        books: Books,
        recorded: Mapping[tuple[str, str], Instrument],
        names: Sequence[str],
        symbols: Sequence[str] | None,
        options: BookOptions,
        *,
        merged: bool,
        clock: ManualClock,
        streams: StreamSettings | None,
    ) -> None:
        self._clock = clock
        self._books = books
        self._recorded = recorded
        self._wiring = Wiring(books, clock=clock, streams=streams)
        listed = {symbol: None for _, symbol in recorded}
        unknown = [each for each in symbols or () if not self._places(each, options.quotes)]
        if unknown:
            raise UnknownSymbol(
                f"{unknown[0]} is not recorded; recorded: {', '.join(listed) or 'no pairs'}.",
                details={"near": [*listed]},
            )
        groups = [names] if merged else [(name,) for name in names]
        require_fee(options, tuple(names))
        self._unread = [
            self._source(symbol, found, options)
            for symbol in dict.fromkeys(symbols or listed)
            for group in groups
            if (found := [each for each in self._places(symbol, options.quotes) if each in group])
        ]
        self._queue = ReaderQueue((), options, clock)

    def _taken(self) -> Iterator[BookUpdate]:
        """Read due books."""
        while (update := self._queue.next()) is not None:
            yield update

    def _places(self, symbol: str, quotes: Sequence[str]) -> list[str]:
        """Return the exchanges that recorded a pair, or its base in one of the further quotes."""
        base, _, own = symbol.partition("/")
        pairs = {f"{base}/{quote}" for quote in (own, *quotes)}
        return [*dict.fromkeys(name for name, pair in self._recorded if pair in pairs)]

    def _source(self, symbol: str, names: Sequence[str], options: BookOptions) -> BookSource:
        if options.quotes:
            basket = BasketSource(symbol, names, self._books, 0.0, self._instrument, options)
            for instrument in basket.read_lists(lambda _: (Reason.NOT_LISTED, "")):
                self._wiring.follow(basket, instrument)
            basket.refresh()
            return basket
        assert not isinstance(options.fees, str), options.fees
        source = BookSource(symbol, names, self._books, 0.0, options.fees)
        for name in names:
            if source.missing[name] != UNKNOWN_FEE:
                self._wiring.attach(source, self._recorded[name, symbol])
        return source

    def _instrument(self, exchange: str, symbol: str) -> Instrument | None:
        return self._recorded.get((exchange, symbol))
