"""Recordings as order books: the same sessions and books, driven by recorded frames and times.

No socket and no clock: the recorded time is the time, so the same recording gives the same updates
on every run and every machine, as fast as this machine reads. `onebook replay` serves recordings to
clients instead.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Final

from onebook.books import Books
from onebook.clock import ManualClock
from onebook.config import FeedSettings, StreamSettings
from onebook.feeds.recording import Entry, RecordingError
from onebook.library.book import DEPTH, Exchanges, options_of
from onebook.library.consumers import Reading
from onebook.library.engine import names_of, symbols_of
from onebook.library.errors import UnknownSymbol
from onebook.library.source import BookOptions, BookSource, Wiring
from onebook.library.tapes import Tape, files_of, tapes_of
from onebook.library.update import BookUpdate
from onebook.model import Instrument

TICK_S: Final = 0.1  # as feeds tick
PAUSE_TICKED_S: Final = 600.0  # of a longer pause of the recording, such as between two files


def replay(
    recordings: str | PathLike[str] | Iterable[str | PathLike[str]],
    symbols: str | Iterable[str] | None = None,
    *,
    exchanges: Exchanges = None,
    merged: bool = True,
    depth: int = DEPTH,
    interval_ms: int = 0,
    group: str | None = None,
    split: bool = False,
    feeds: FeedSettings | None = None,
    streams: StreamSettings | None = None,
) -> Iterator[BookUpdate]:
    """Yield the updates of recorded order books; a plain `for` loop reads them, without waiting.

    Every frame that changes what is shown gives an update; `time_us` is the recorded time.

    Args:
        recordings: Files, or folders of `.rec` files as `record` of `order_book` makes them.
        symbols: The pairs; None for all that are recorded.
        exchanges: Those to read, of all that are recorded.
        merged: As in `order_books`, as are the other options.

    Raises:
        RecordingError: A file is no recording, or holds nothing that can be replayed.
        UnknownSymbol: A pair is not recorded.
        UnknownExchange: There is no exchange of a name.
        ValueError: An option is out of range.
    """
    options = options_of(depth, interval_ms, group, split=split)
    player = Player(
        tapes_of(files_of(recordings), names_of(exchanges)),
        None if symbols is None else symbols_of(symbols),
        options,
        merged=merged,
        feeds=feeds or FeedSettings(),
        streams=streams or StreamSettings(),
    )
    return player.updates()


class Played(Reading):
    """Readers that are read after each entry."""

    def _notify(self) -> None:
        """Do nothing: the player polls."""


class Player:
    """Plays tapes side by side into books."""

    def __init__(
        self,
        tapes: Sequence[Tape],
        symbols: Sequence[str] | None,
        options: BookOptions,
        *,
        merged: bool,
        feeds: FeedSettings,
        streams: StreamSettings,
    ) -> None:
        self._tapes = tapes
        self._clock = ManualClock()
        self._books = Books()
        self._wiring = Wiring(self._books, clock=self._clock, streams=streams)
        # All that is recorded, subscribed or not: requests are numbered as they were.
        for tape in tapes:
            tape.open_books(self._books)
        listed = {each.symbol: None for tape in tapes for each in tape.instruments}
        unknown = [each for each in symbols or () if each not in listed]
        if unknown:
            raise UnknownSymbol(
                f"{unknown[0]} is not recorded; recorded are {', '.join(listed) or 'no pairs'}.",
                details={"near": [*listed]},
            )
        names = tuple(tape.name for tape in tapes)
        groups = [names] if merged else [(name,) for name in names]
        sources = [
            source
            for symbol in dict.fromkeys(symbols or listed)
            for group in groups
            if (source := self._source(symbol, group)) is not None
        ]
        self._unborn = sources
        self._books_wanted = len(sources)
        self._reading = Played((), options, self._clock)

    def updates(self) -> Iterator[BookUpdate]:
        """Yield the updates of every entry, and of the time between entries.

        Raises:
            RecordingError: No book became live.
        """
        merged = heapq.merge(*(_placed(tape) for tape in self._tapes), key=lambda each: each[0].at)
        ticked_at = None
        for entry, tape in merged:
            now = max(entry.at, self._clock.now_s)
            ticked_at = now if ticked_at is None else ticked_at
            ends_at = min(now, ticked_at + PAUSE_TICKED_S)
            while ticked_at + TICK_S <= ends_at:
                ticked_at += TICK_S
                self._clock.move_to(ticked_at)
                for each in self._tapes:
                    each.tick(ticked_at)
                yield from self._taken()
            if ends_at < now:
                ticked_at = now
            self._clock.move_to(now)
            tape.play(entry, now, self._books)
            yield from self._taken()
        if len(self._unborn) == self._books_wanted:
            raise RecordingError(
                "No book of the recording became live. Where another program recorded it, "
                "`onebook replay` may play it: it answers requests as the exchange does."
            )

    def _taken(self) -> Iterator[BookUpdate]:
        """Read what is due; before its first data a book is not read."""
        for source in [each for each in self._unborn if each.members.live]:
            self._unborn.remove(source)
            self._reading.add(source)
        while (update := self._reading.take()) is not None:
            yield update

    def _source(self, symbol: str, names: Sequence[str]) -> BookSource | None:
        found: Mapping[str, Instrument] = {
            each.exchange: each
            for tape in self._tapes
            for each in tape.instruments
            if each.symbol == symbol and tape.name in names
        }
        if not found:
            return None
        source = BookSource(symbol, tuple(found), self._books, 0.0)
        for instrument in found.values():
            self._wiring.attach(source, instrument)
        return source


def _placed(tape: Tape) -> Iterator[tuple[Entry, Tape]]:
    return ((entry, tape) for entry in tape.entries)
