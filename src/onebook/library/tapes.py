"""Recordings of one exchange as a connection: its session, fed with recorded frames and bodies."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from onebook.books import Books
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
from onebook.library.recorders import SUFFIX
from onebook.model import Instrument


def files_of(recordings: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    """Return the files that are meant, those of folders too.

    Raises:
        RecordingError: There are none.
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
    """Read what is recorded of each exchange.

    Raises:
        RecordingError: A file is no recording, or holds nothing of these exchanges.
    """
    # Only replays need the simulator, which knows what recorded frames are about.
    from onebook.simulator.kit.replay import by_exchange

    found: dict[str, list[Entry]] = {}
    for file in files:
        for name, entries in by_exchange(read(file), file.name).items():
            if name in names:
                found.setdefault(name, []).extend(entries)
    if not found:
        raise RecordingError(f"Nothing is recorded of {', '.join(names)}.")
    return [
        Tape(name, sorted(entries, key=lambda entry: entry.at)) for name, entries in found.items()
    ]


class Tape:
    """The recording of one exchange, and the connection that it plays.

    Args:
        name: The exchange.
        entries: What passed, by time.
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
        self._foreign = False  # recorded by another program, with channels that we never ask for
        self._session: FeedSession | None = None
        self._asked: list[Fetch] = []
        self._unasked: list[Fetched] = []  # bodies that nothing asked for yet
        self._stats = ExchangeStats(name)

    def open_books(self, books: Books) -> None:
        """Open the book of every instrument that is recorded."""
        levels_max = self.exchange.depth if self.exchange.truncate else LEVELS_MAX
        for each in self.instruments:
            books.open(each, levels_max=levels_max, window=self.exchange.depth)

    def play(self, entry: Entry, now: float, books: Books) -> None:
        """Let one entry happen."""
        if isinstance(entry, ConnectionOpened):
            self._open(now, books)
        elif isinstance(entry, Fetched):
            self._unasked.append(entry)
        elif isinstance(entry, Received) and self._session is not None and self._wants(entry.frame):
            self._session.received(entry.frame, now)
        self._execute(now)

    def _wants(self, frame: bytes) -> bool:
        return not self._foreign or self._native_of(frame) in self._natives

    def tick(self, now: float) -> None:
        """Let time pass."""
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
        # The same names, perhaps in another order.
        sent = [sorted(each.frame) for each in self.entries if isinstance(each, Sent)]
        self._foreign = bool(asked) and not any(each in sent for each in asked)

    def _execute(self, now: float) -> list[Effect]:
        """Answer the session's requests with the bodies that were recorded for them.

        Returns:
            All that it wanted done.
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
        """Find a request whose body is there."""
        for fetch in self._asked:
            for body in self._unasked:
                if _answers(body.url, fetch):
                    return fetch, body
        return None


def _answers(url: str, fetch: Fetch) -> bool:
    """Whether a recorded body is that of a request, whatever its limit was."""
    if url.endswith(fetch.path):
        return True
    recorded, asked = urlsplit(url), urlsplit(fetch.path)
    same_path = recorded.path.rstrip("/").endswith(asked.path.rstrip("/"))
    values = [value for each in parse_qs(recorded.query).values() for value in each]
    return same_path and bool(values) and fetch.instrument.native in values
