"""Recordings as order books: the same sessions and books, driven by recorded frames and times.

No socket and no clock: time is the recorded time, so the same recording yields the same updates on
every run and every machine, as fast as this machine reads. A `Tape` is the recorded connection of
one exchange; the `TapesPlayer` plays tapes side by side, and `past` plays histories. `onebook
replay` serves recordings to clients instead.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

from onebook.books import Books
from onebook.clock import ManualClock
from onebook.config import StreamSettings
from onebook.core.types import LEVELS_MAX
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit.contract import Exchange, Fetch
from onebook.feeds.outbox import Effect, Request, Transmit
from onebook.feeds.recording import (
    ConnectionOpened,
    Entry,
    Fetched,
    Received,
    RecordingError,
    Sent,
    read,
)
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.library.book import DEPTH, options_of
from onebook.library.engine import names_of
from onebook.library.history import microseconds_of
from onebook.library.past import PastPlayer, is_history, opened
from onebook.library.player import Pace, Player
from onebook.library.recorders import SUFFIX
from onebook.library.source import BookOptions
from onebook.library.update import BookUpdate
from onebook.model import Instrument
from onebook.orderbook import Names, symbols_of

TICK_S: Final = 0.1  # like feeds
PAUSE_TICKED_S: Final = 600.0  # for a longer pause of the recording, such as between two files
NEEDS_TABLE: Final = "fees must be a mapping: a recording has no published fees."


def replay(
    recordings: str | PathLike[str] | Iterable[str | PathLike[str]],
    symbols: str | Iterable[str] | None = None,
    *,
    exchanges: Names = None,
    merged: bool = True,
    depth: int = DEPTH,
    interval_ms: int = 0,
    group: str | None = None,
    split: bool = False,
    within: str | None = None,
    on: Literal["best", "crossing"] | None = None,
    times: bool = False,
    fees: Mapping[str, str] | None = None,
    net: bool = False,
    crossings: str | None = None,
    quotes: Iterable[str] = (),
    start: datetime | str | int | None = None,
    end: datetime | str | int | None = None,
    speed: float = 0,
    streams: StreamSettings | None = None,
) -> Iterator[BookUpdate]:
    """Yield the updates of recorded order books; a plain `for` loop reads them.

    Everything that changes the shown book yields an update; `time_us` is the recorded time. None is
    skipped: a slow loop delays the later ones.

    Args:
        recordings: Files, or folders of `.rec` files as `record` of `order_book` makes them; or the
            folder or URL of a history, as `history` reads it.
        symbols: The pairs; None for all recorded pairs.
        exchanges: The exchanges to read; all recorded ones by default.
        merged: As in `order_books`, as are the other options. With `quotes` the recordings must
            have the books that convert, too.
        fees: As in `order_books`, but not "published", because lists of pairs are not recorded.
        start: The first moment: a time with a zone, ISO 8601 text (UTC if without a zone), or
            microseconds since 1970. The first update is the book at this moment.
        end: The last moment; by default the end of the recording.
        speed: Recorded seconds per second: 1 waits between updates as long as the exchanges did,
            10 a tenth of it, and 0 not at all.
        streams: The limits of the identity guard. In a history its marks are recorded.

    Raises:
        HistoryMissing: The history does not have the first moment.
        MissingPackage: A history needs `pip install "onebook[history]"`.
        RecordingError: A file is not a recording, or contains nothing that can be replayed.
        UnknownSymbol: A pair is not recorded, with `quotes` in none of the quotes.
        UnknownExchange: A name is unknown.
        ValueError: An option is out of range.
    """
    if isinstance(fees, str):
        raise TypeError(NEEDS_TABLE)
    options = options_of(
        depth,
        interval_ms,
        group,
        split=split,
        within=within,
        on=on,
        times=times,
        fees=fees,
        net=net,
        crossings=crossings,
        quotes=quotes,
    )
    start_us = None if start is None else microseconds_of(start)
    pace = Pace(start_us, None if end is None else microseconds_of(end), speed)
    wanted = None if symbols is None else symbols_of(symbols)
    if isinstance(recordings, str | PathLike) and is_history(recordings):
        names = None if exchanges is None else names_of(exchanges)
        past = opened(recordings, wanted, options.quotes, pace, names)
        return PastPlayer(past, wanted, options, merged=merged, pace=pace).updates()
    tapes = tapes_of(files_of(recordings), names_of(exchanges))
    limits = streams or StreamSettings()
    return TapesPlayer(tapes, wanted, options, merged=merged, pace=pace, streams=limits).updates()


def files_of(recordings: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    """Return the recording files, including those in folders.

    Raises:
        RecordingError: No file was found.
    """
    one = isinstance(recordings, str | PathLike)
    paths = [Path(recordings)] if one else [*map(Path, recordings)]  # type: ignore[arg-type]
    files = [
        file
        for path in paths
        for file in (sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path])
    ]
    if not files:
        raise RecordingError(f"There are no {SUFFIX} files in {', '.join(map(str, paths))}.")
    return files


def tapes_of(files: Iterable[Path], names: Sequence[str]) -> "list[Tape]":
    """Read the recording of each exchange.

    Raises:
        RecordingError: A file is not a recording, or contains nothing of these exchanges.
    """
    # Only replays need the simulator, which identifies the subjects of recorded frames.
    from onebook.simulator.kit.replay import by_exchange

    found: dict[str, list[Entry]] = {}
    for file in files:
        for name, entries in by_exchange(read(file), file.name).items():
            if name in names:
                found.setdefault(name, []).extend(entries)
    if not found:
        raise RecordingError(f"The recordings have no data of {', '.join(names)}.")
    return [
        Tape(name, sorted(entries, key=lambda entry: entry.at)) for name, entries in found.items()
    ]


class Tape:
    """The recording of one exchange, and the connection that it plays.

    Args:
        name: The exchange.
        entries: The recorded traffic, in order of time.
    """

    def __init__(self, name: str, entries: Sequence[Entry]) -> None:
        from onebook.simulator.kit.replay import listing_of, message_of, native_of

        self.name = name
        self.entries = entries
        self.exchange: Exchange = EXCHANGES[name]
        self._native_of: Callable[[bytes], str | None] = lambda frame: native_of(
            name, message_of(frame)
        )
        frames = (each.frame for each in entries if isinstance(each, Received))
        natives = dict.fromkeys(filter(None, map(self._native_of, frames)))
        listings = [each for native in natives if (each := listing_of(name, native)) is not None]
        self.instruments = [Instrument(name, each.symbol, each.native) for each in listings]
        self._natives = {each.native for each in listings}
        self._foreign = False  # recorded by another program, using channels that we do not use
        self._session: FeedSession | None = None
        self._asked: list[Fetch] = []
        self._unasked: list[Fetched] = []  # bodies that have not been requested yet
        self._stats = ExchangeStats(name)

    def open_books(self, books: Books) -> None:
        """Open the book of every recorded instrument."""
        levels_max = self.exchange.depth if self.exchange.truncate else LEVELS_MAX
        for each in self.instruments:
            tops = self._stats.tops if self.exchange.tops else None
            books.open(each, levels_max=levels_max, window=self.exchange.depth, tops=tops)

    def play(self, entry: Entry, now: float, books: Books) -> None:
        """Play one entry."""
        session = self._session
        if isinstance(entry, Received):  # most entries
            if session is None or (
                self._foreign and self._native_of(entry.frame) not in self._natives
            ):
                return
            session.received(entry.frame, now)
            if not session.pending and not self._asked:
                return
        elif isinstance(entry, ConnectionOpened):
            self._open(now, books)
        elif isinstance(entry, Fetched):
            self._unasked.append(entry)
        self._execute(now)

    def tick(self, now: float) -> None:
        """Advance the time."""
        if self._session is not None:
            self._session.tick(now)
            self._execute(now)

    def _open(self, now: float, books: Books) -> None:
        if self._session is not None:
            self._session.closed(now)
        self._asked.clear()
        self._session = FeedSession(
            self.exchange,
            self.instruments,
            books=books,
            stats=self._stats,
            jitter=lambda: 0.0,
        )
        self._session.opened(now)
        asked = [sorted(each.frame) for each in self._execute(now) if isinstance(each, Transmit)]
        # The same names, possibly in another order
        sent = [sorted(each.frame) for each in self.entries if isinstance(each, Sent)]
        self._foreign = bool(asked) and not any(each in sent for each in asked)

    def _execute(self, now: float) -> list[Effect]:
        """Answer the session's requests with the recorded bodies.

        Returns:
            The remaining effects.
        """
        session, done = self._session, list[Effect]()
        while session is not None and (session.pending or self._answerable()):
            effects = session.drain(now)
            done += effects
            self._asked += [each.fetch for each in effects if isinstance(each, Request)]
            answer = self._answerable()
            if answer is not None:
                fetch, body = answer
                self._asked.remove(fetch)
                self._unasked.remove(body)
                session.fetched(fetch.instrument, body.body, now)
            elif session.ended is not None:
                break
        return done

    def _answerable(self) -> tuple[Fetch, Fetched] | None:
        """Find a request whose body was recorded."""
        for fetch in self._asked:
            for body in self._unasked:
                if _answers(body.url, fetch):
                    return fetch, body
        return None


def _answers(url: str, fetch: Fetch) -> bool:
    """Return whether a recorded body belongs to a request, whatever its limit was."""
    if url.endswith(fetch.path):
        return True
    recorded, asked = urlsplit(url), urlsplit(fetch.path)
    same_path = recorded.path.rstrip("/").endswith(asked.path.rstrip("/"))
    values = [value for each in parse_qs(recorded.query).values() for value in each]
    return same_path and bool(values) and fetch.instrument.native in values


class TapesPlayer(Player):
    """Plays tapes side by side into books."""

    def __init__(
        self,
        tapes: Sequence[Tape],
        symbols: Sequence[str] | None,
        options: BookOptions,
        *,
        merged: bool,
        pace: Pace,
        streams: StreamSettings,
    ) -> None:
        self._tapes = tapes
        self._pace = pace
        books = Books()
        # All recorded instruments, subscribed or not, so that requests get the recorded numbers.
        for tape in tapes:
            tape.open_books(books)
        super().__init__(
            books,
            {(tape.name, each.symbol): each for tape in tapes for each in tape.instruments},
            [tape.name for tape in tapes],
            symbols,
            options,
            merged=merged,
            clock=ManualClock(),
            streams=streams,
        )
        self._books_wanted = len(self._unread)

    def updates(self) -> Iterator[BookUpdate]:
        """Yield the updates of every entry, and of the time between entries.

        Raises:
            RecordingError: No book became live.
        """
        merged = heapq.merge(*(_placed(tape) for tape in self._tapes), key=lambda each: each[0].at)
        ticked_at = None
        for entry, tape in merged:
            now = max(entry.at, self._clock.now_s)
            if now > self._pace.end_s:
                break
            ticked_at = now if ticked_at is None else ticked_at
            ends_at = min(now, ticked_at + PAUSE_TICKED_S)
            while ticked_at + TICK_S <= ends_at:
                ticked_at += TICK_S
                yield from self._moved(ticked_at)
                for each in self._tapes:
                    each.tick(ticked_at)
                yield from self._taken()
            if ends_at < now:
                ticked_at = now
            yield from self._moved(now)
            tape.play(entry, now, self._books)
            yield from self._taken()
        if len(self._unread) == self._books_wanted:
            raise RecordingError(
                "No book of the recording became live in this time. If another program made the "
                "recording, try `onebook replay`, which answers requests as the exchange does."
            )

    def _moved(self, until_s: float) -> Iterator[BookUpdate]:
        """Move the clock, and read the books at the start if it is passed."""
        start_s = self._pace.start_s
        if self._clock.now_s < start_s < until_s:
            self._clock.move_to(start_s)
            yield from self._taken()
        if until_s > start_s:
            self._pace.wait(until_s)
        self._clock.move_to(until_s)

    def _taken(self) -> Iterator[BookUpdate]:
        """Read due books from the start on; a book is not read before its first data."""
        if self._clock.now_s < self._pace.start_s:
            return
        for source in [each for each in self._unread if each.members.live]:
            self._unread.remove(source)
            self._queue.add(source)
        yield from super()._taken()


def _placed(tape: Tape) -> Iterator[tuple[Entry, Tape]]:
    return ((entry, tape) for entry in tape.entries)
