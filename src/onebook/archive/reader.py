"""Rebuilds the books of a symbol as they were at a past moment."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from pathlib import PurePosixPath

import pyarrow as pa
from msgspec import Struct

from onebook.archive.folder import LOOK_BACK_US, HistoryFolder
from onebook.archive.format import HOUR_US, Interval
from onebook.archive.kept import KeptRows
from onebook.archive.playback import BookReplay
from onebook.books import Books, LiveBook
from onebook.clock import iso_us
from onebook.model import Instrument
from onebook.orderbook import HistoryMissing


class Past(Struct):
    """The books of a moment; their times are seconds since 1970."""

    books: Books
    at_us: int
    hours: list[int]  # that were read
    files: list[str]  # that have the rows of these books


def books_at(
    folder: HistoryFolder, symbol: str, at_us: int, exchanges: Collection[str] | None = None
) -> Past:
    """Return the books of a symbol after the last message received until `at_us`.

    Raises:
        HistoryMissing: This moment was not recorded.
    """
    hours = hours_of(at_us - LOOK_BACK_US, at_us)
    coverage, rows, files = folder.moment(hours, symbol, at_us, exchanges)
    interval = covering(folder, coverage, at_us)
    replays = {exchange: BookReplay(rows[exchange], interval.run) for exchange in sorted(rows)}
    books = _played(replays, symbol, at_us)
    hours = [each for each in hours if each + HOUR_US > interval.start_us]
    found = {each.instrument.exchange for each in books}
    return Past(
        books, at_us, hours, [each for each in files if PurePosixPath(each).parent.name in found]
    )


def kept_books_at(
    folder: HistoryFolder, symbol: str, at_us: int, exchanges: Collection[str], kept: KeptRows
) -> Books:
    """Return the books of `books_at`, reading only rows that were not read for another moment.

    Raises:
        HistoryMissing: This moment was not recorded.
    """
    hours = hours_of(at_us - LOOK_BACK_US, at_us)
    interval = covering(folder, folder.coverage(hours), at_us)  # before the rows
    replays: dict[str, BookReplay] = {}
    for exchange in exchanges:
        rows = kept.get(symbol, exchange)
        replay = None if rows is None else BookReplay(rows, interval.run)
        if replay is not None and replay.has(at_us):
            replays[exchange] = replay
    missing = [each for each in exchanges if each not in replays]
    if missing:
        for exchange, found in folder.rows(hours, symbol, None, at_us, missing).items():
            # A copy, because rows of the open hour are a part of a whole file.
            rows = pa.concat_tables([found, found.slice(0, 0)]).combine_chunks()
            kept.put(symbol, exchange, rows)
            replays[exchange] = BookReplay(rows, interval.run)
    return _played(replays, symbol, at_us)


def _played(replays: dict[str, BookReplay], symbol: str, at_us: int) -> Books:
    """Return the books of a moment; those without a keyframe are left out."""
    books, twins = Books(), dict[LiveBook, str]()
    for exchange in sorted(replays):
        replay = replays[exchange]
        if replay.seek(at_us):
            book = replay.open(Instrument(exchange, symbol, symbol))
            books.adopt(book)
            replay.play(book, at_us)
            twins[book] = replay.twins
    for book, names in twins.items():
        book.twins = dict.fromkeys(twins_of(names, books), 0.0)
    return books


def recorded_times(
    folder: HistoryFolder, symbol: str, start_us: int, end_us: int
) -> dict[str, list[tuple[int, int]]]:
    """Return the times in which each book of a pair was recorded, by exchange.

    A book that was opened within an hour has all recorded times of this hour.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    open_hours = {*folder.open_hours()}

    def read(hour_us: int) -> tuple[set[str], list[Interval]]:
        names = {PurePosixPath(path).parent.name for path in folder.book_files(hour_us, symbol)}
        if hour_us in open_hours:
            names |= {name for name, pair in folder.books([hour_us]) if pair == symbol}
        return names, folder.coverage([hour_us]) if names else []

    for names, intervals in folder.files.each(read, folder.hours(start_us, end_us)):
        for each in intervals:
            span = max(start_us, each.start_us), min(end_us, each.end_us)
            if span[0] < span[1]:
                for name in names:
                    found.setdefault(name, []).append(span)
    return {name: merged_spans(found[name]) for name in sorted(found)}


def merged_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join times that touch, in order."""
    found: list[tuple[int, int]] = []
    for start_us, end_us in sorted(spans):
        if found and start_us <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end_us)
        else:
            found.append((start_us, end_us))
    return found


def twins_of(names: str, books: Books) -> list[LiveBook]:
    """Return the open books among recorded names such as `okx BTC/USDT,okxus BTC/USDT`."""
    found = {(each.instrument.exchange, each.instrument.symbol): each for each in books}
    pairs = (each.partition(" ") for each in names.split(",") if each)
    return [found[name, symbol] for name, _, symbol in pairs if (name, symbol) in found]


def hours_of(start_us: int, end_us: int) -> list[int]:
    """Return the start of each hour that has a part of this time."""
    return [*range(start_us // HOUR_US * HOUR_US, end_us + 1, HOUR_US)]


def covering(folder: HistoryFolder, intervals: list[Interval], at_us: int) -> Interval:
    """Return the one of these recorded times that a moment is in.

    Raises:
        HistoryMissing: This moment was not recorded.
    """
    found = [each for each in intervals if each.start_us <= at_us <= each.end_us]
    if found:
        return found[-1]
    hours = folder.hours()
    begun = bisect_right(hours, at_us)
    earlier, later = hours[:begun][::-1], hours[max(begun - 1, 0) :]
    before = _nearest(folder, earlier, lambda each: each.end_us < at_us)
    after = _nearest(folder, later, lambda each: each.start_us > at_us)
    sides = [f"recorded until {iso_us(max(each.end_us for each in before))}"] if before else []
    if after:
        sides.append(f"recorded again from {iso_us(min(each.start_us for each in after))}")
    if not sides:
        raise HistoryMissing(f"{folder.files.name} has no history.")
    raise HistoryMissing(f"The history has a gap at {iso_us(at_us)}: {' and '.join(sides)}.")


def _nearest(
    folder: HistoryFolder, hours: Iterable[int], wanted: Callable[[Interval], bool]
) -> list[Interval]:
    """Return the wanted times of the first hour that has any."""
    for hour_us in hours:
        if found := [each for each in folder.coverage([hour_us]) if wanted(each)]:
            return found
    return []
