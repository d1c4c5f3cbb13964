"""Merged books of past moments, read from the history of this node (`history.dir`) in threads."""

import asyncio
import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from onebook.archive.kept import KeptRows
from onebook.books import Books
from onebook.clock import Clock, iso_us, us_of_iso
from onebook.errors import HistoryNotFound, HistoryUnavailable, InvalidRequest, OnebookError
from onebook.fees import exchange_of
from onebook.model import Instrument
from onebook.orderbook import HistoryMissing
from onebook.streams.plays import Play, symbols_of
from onebook.streams.stream import BookRequest, StreamKey, members_of
from onebook.streams.streams import Publisher

log = logging.getLogger("onebook.streams")

READS_MAX: Final = 2  # concurrent reads; the others wait
READS_OPEN_MAX: Final = 64  # running and waiting reads of all clients
READ_TIMEOUT_S: Final = 10.0
NO_HISTORY: Final = "This node has no history of order books (history.dir)."
TOO_MANY: Final = "Too many parts of the history are being read; retry shortly."
UNREADABLE: Final = "This part of the history cannot be read; the log of the node says why."
TOO_SLOW: Final = f"The history was not read within {READ_TIMEOUT_S:g} s."
MUST_BE_MOMENT: Final = "must be ISO 8601 text such as 2026-11-27T14:03:00, or microseconds"

Span = tuple[int, int]  # from and to

P = ParamSpec("P")
R = TypeVar("R")


def moment_us(name: str, moment: str | int) -> int:
    """Return a moment of a request as microseconds since 1970.

    Raises:
        InvalidRequest: The text is not ISO 8601; `name` is the field.
    """
    if isinstance(moment, int):
        return moment
    try:
        return int(moment) if moment.isdecimal() else us_of_iso(moment)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{name}: {MUST_BE_MOMENT}.") from None


class QualityQuery(NamedTuple):
    """Which hours and books, and how they are grouped.

    Args:
        start_us: The first moment.
        end_us: The moment after the last one.
        exchanges: The exchanges; empty: all.
        symbols: The pairs; empty: all.
        by: One of `archive.quality.GROUPS`.
    """

    start_us: int
    end_us: int
    exchanges: Collection[str]
    symbols: Collection[str]
    by: str


class RecordedTimes(NamedTuple):
    """When books of a pair were recorded; times are microseconds since 1970.

    Args:
        first_us: The first recorded moment of the history, of any pair; None if there is none.
        last_us: The last one.
        recorded: The times in which any book of the pair was recorded.
        exchanges: The times of each exchange.
    """

    first_us: int | None
    last_us: int | None
    recorded: list[Span]
    exchanges: dict[str, list[Span]]


class PastBooks:
    """Reads the merged books of past moments, a few at a time.

    Args:
        root: The folder of the history.
        clock: The time.
        stamp: Writes the times of messages from microseconds since 1970.
    """

    def __init__(self, root: Path, *, clock: Clock, stamp: Callable[[int], str] = iso_us) -> None:
        self.root = root
        self._clock = clock
        self._stamp = stamp
        self._threads = ThreadPoolExecutor(READS_MAX, "past")
        self._open: set[Future[Any]] = set()
        self._kept = KeptRows()

    def close(self) -> None:
        """Cancel the reads that have not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def fetch(
        self, key: StreamKey, at_us: int, message_id: str | int | float | None
    ) -> bytes:
        """Return the book of a view at a moment as `aggregated_orderbook_data`.

        Raises:
            InvalidRequest: The moment is in the future.
            HistoryNotFound: The moment was not recorded.
            HistoryUnavailable: There are too many reads, this one lasted too long, or a file is
                damaged.
        """
        if at_us > self._clock.wall_us():
            raise InvalidRequest("as_of: must not be in the future.")
        what = f"The book of {key.symbol} at {iso_us(at_us)}"
        return await self._read(what, self._book, key, at_us, message_id)

    async def play(self, key: StreamKey, start_us: int, publisher: Publisher) -> Play:
        """Open a view of the past, whose windows are read with `load`.

        Raises:
            HistoryNotFound: The moment was not recorded.
            HistoryUnavailable: As `fetch`.
        """

        def opened() -> Play:
            # pyarrow is an extra
            from onebook.archive.folder import HistoryFolder

            return Play(HistoryFolder(self.root), key, start_us, publisher, self._stamp)

        return await self._read(f"The history of {key.symbol} from {iso_us(start_us)}", opened)

    async def load(self, play: Play) -> bool:
        """Read the next window of a play; return False at the present end of the history.

        Raises:
            HistoryUnavailable: As `fetch`.
        """
        what = f"The history of {play.key.symbol} after {iso_us(play.at_us)}"
        return await self._read(what, play.load)

    async def quality(self, query: QualityQuery) -> list[dict[str, Any]]:
        """Return the quality of the closed hours that begin in a time, by group.

        Raises:
            HistoryUnavailable: As `fetch`.
        """
        what = f"The quality of {iso_us(query.start_us)} to {iso_us(query.end_us)}"
        return await self._read(what, self._quality, query)

    async def recorded(self, symbol: str, start_us: int, end_us: int) -> RecordedTimes:
        """Return when books of a pair were recorded within a time.

        Raises:
            HistoryUnavailable: As `fetch`.
        """
        return await self._read(f"The recorded times of {symbol}", self._recorded, symbol,
                                start_us, end_us)  # fmt: skip

    async def _read(
        self, what: str, function: Callable[P, R], *args: P.args, **named: P.kwargs
    ) -> R:
        """Call a function in a thread."""
        if len(self._open) >= READS_OPEN_MAX:
            raise HistoryUnavailable(TOO_MANY, retry_after_s=1.0)
        read = self._threads.submit(function, *args, **named)
        self._open.add(read)
        read.add_done_callback(self._open.discard)  # a late read keeps its place until it ends
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await asyncio.wrap_future(read)
        except TimeoutError:
            raise HistoryUnavailable(TOO_SLOW, retry_after_s=1.0) from None
        except HistoryMissing as error:
            raise HistoryNotFound(str(error).replace(str(self.root), "The node")) from None
        except OnebookError:
            raise
        except Exception as error:  # a damaged file raises errors of many kinds
            log.exception("%s cannot be read.", what)
            raise HistoryUnavailable(UNREADABLE) from error

    # In a thread

    def _quality(self, query: QualityQuery) -> list[dict[str, Any]]:
        # pyarrow is an extra
        from onebook.archive.folder import HistoryFolder
        from onebook.archive.quality import selected, summary

        rows = HistoryFolder(self.root).quality(query.start_us, query.end_us)
        return summary(selected(rows, query.exchanges, query.symbols), query.by)

    def _recorded(self, symbol: str, start_us: int, end_us: int) -> RecordedTimes:
        # pyarrow is an extra
        from onebook.archive.folder import HistoryFolder
        from onebook.archive.reader import merged_spans, recorded_times

        folder = HistoryFolder(self.root)
        exchanges = recorded_times(folder, symbol, start_us, end_us)
        recorded = merged_spans(span for spans in exchanges.values() for span in spans)
        hours = folder.hours()
        ends = [span for hour_us in hours[:1] + hours[-1:] for span in folder.coverage([hour_us])]
        return RecordedTimes(
            min((each.start_us for each in ends), default=None),
            max((each.end_us for each in ends), default=None),
            recorded,
            exchanges,
        )

    def _book(self, key: StreamKey, at_us: int, message_id: str | int | float | None) -> bytes:
        # pyarrow is an extra
        from onebook.archive.folder import HistoryFolder
        from onebook.archive.reader import kept_books_at

        folder, books = HistoryFolder(self.root), Books()
        exchanges = sorted({exchange_of(each) for each in key.exchanges})
        for symbol in symbols_of(key):
            for book in kept_books_at(folder, symbol, at_us, exchanges, self._kept):
                books.adopt(book)

        instruments = {
            (each.instrument.exchange, each.instrument.symbol): each.instrument for each in books
        }

        def lookup(exchange: str, symbol: str) -> Instrument | None:
            return instruments.get((exchange, symbol))  # instruments are equal by identity

        if not len(books):
            raise HistoryMissing(f"No book of {key.symbol} was recorded at {iso_us(at_us)}.")
        members, now = members_of(key, lookup), at_us / 1_000_000
        members.refresh(books)
        request = BookRequest(
            key, members, now, message_id=message_id, answer=lambda _: None, stamp=self._stamp
        )
        return request.encode(at_us, now, past=books)
