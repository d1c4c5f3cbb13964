"""Files of a history in one folder: segments of the open hour, and closed hours.

    open/2026-11-27T14/RUN-FIRST-LAST-FROM-TO.arrow   segments: messages of all books
    2026/11/27/14/binance/BTC-USDT.parquet            one book's rows of a closed hour
    2026/11/27/14/coverage.parquet                    the times of the hour that were recorded
    2026/11/27/14/quality.parquet                     a row for each book (`quality`)
    2026/11/27/14/manifest.txt, proof/                hashes of the files, and their chain (`proof`)

A segment (`segments`) is an Arrow file of messages, because writing rows as Parquet costs several
times as much. Files are written under another name, synced and renamed, so that every file is
complete. A segment that another one contains is ignored, and rows are unique by run and message, so
a crash between a rename and a deletion duplicates nothing. Times are Unix microseconds.
"""

import os
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from onebook.archive import segments
from onebook.archive.format import (
    COMPRESSIONS,
    DICTIONARIES,
    ENCODINGS,
    HOUR_US,
    KINDS,
    READ_COLUMNS,
    SCHEMA,
    STATISTICS,
    ZSTD_LEVELS,
    HistoryKind,
    Interval,
    codes,
    file_name,
    hour_folder,
    integers,
    joined_array,
    levels_of,
)
from onebook.archive.proof import MANIFEST, Sealer, inclusion, sizes
from onebook.archive.quality import QUALITY, QUALITY_SCHEMA, measured, read_rows
from onebook.archive.segments import BookMessages, Messages, Segment
from onebook.archive.stores import FileStore
from onebook.core import TapeKind
from onebook.files import try_lock

# Messages and levels of a row group, at least: it ends before a keyframe, so that a past moment
# needs only one.
ROW_GROUP_SIZE: Final = 16_384
LAST_US: Final = 253_402_300_799_999_999  # the end of the year 9999
LOOK_BACK_US: Final = 130_000_000  # two keyframes and a late one
READ_TRIES: Final = 5  # while the recorder replaces files that were listed
COVERAGE: Final = "coverage.parquet"
T = TypeVar("T")
COVERAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("run", pa.int64(), nullable=False),
        pa.field("start", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("end", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


class BookRows(NamedTuple):
    """Rows of a book, and the file of a closed hour that has them."""

    exchange: str
    rows: pa.Table
    file: str = ""


class RecordedMoment(NamedTuple):
    """What is recorded around a moment.

    Args:
        coverage: The recorded times.
        rows: Those of each book since its last keyframe, by exchange.
        files: The files of closed hours that have the rows.
    """

    coverage: list[Interval]
    rows: dict[str, pa.Table]
    files: list[str]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Join intervals of a run that touch."""
    found: list[Interval] = []
    for each in sorted(intervals):
        if found and found[-1].run == each.run and each.start_us <= found[-1].end_us:
            end_us = max(found[-1].end_us, each.end_us)
            found[-1] = Interval(each.run, found[-1].start_us, end_us)
        else:
            found.append(each)
    return found


class HistoryFolder:
    """The files of a history.

    Args:
        root: The folder; created by `lock`. Or the URL of an object store, which is only read.
        signing_key: Signs the manifests of closed hours, if given.

    Raises:
        ValueError: The URL is invalid.
    """

    def __init__(
        self, root: str | os.PathLike[str], signing_key: Ed25519PrivateKey | None = None
    ) -> None:
        self.files = FileStore(root)
        self.root = Path(root)  # of segments and of everything that is written
        self._sealer = Sealer(self.root, _write_file, signing_key)
        self._lock: int | None = None

    def lock(self) -> bool:
        """Become the only recorder of this folder; return whether it succeeded.

        Files that were not completed are deleted, and segments of earlier builds are converted.

        Raises:
            OSError: The folder cannot be written.
        """
        (self.root / "open").mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not try_lock(descriptor):
            os.close(descriptor)
            return False
        self._lock = descriptor
        for path in self.root.rglob("*.partial"):
            path.unlink()
        for path in self.root.glob("open/*/*-*-*-*-*.arrow"):
            with suppress(ValueError):  # a damaged one is reported when its hour is closed
                self._convert(path)
        return True

    @staticmethod
    def _convert(path: Path) -> None:
        """Write a segment of an earlier build as a merged one of this build."""
        messages = segments.read_earlier(path)
        if messages is not None:
            header, batches = segments.merged([messages])
            with _complete(path) as file:
                segments.write(file, header, batches)

    @property
    def locked(self) -> bool:
        """Whether this object has the lock."""
        return self._lock is not None

    def unlock(self) -> None:
        """Let another recorder use this folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def hours(self, start_us: int = 0, end_us: int = LAST_US) -> list[int]:
        """Return the start of each hour that has files and a part of this time."""
        first, last = (hour_folder(min(max(each, 0), LAST_US)) for each in (start_us, end_us))
        folders = [each for each in self.files.folders() if len(each) == 4 and each.isdigit()]
        for _ in ("month", "day", "hour"):
            folders = [each for each in folders if first[: len(each)] <= each <= last]
            names = self.files.each(self.files.folders, folders)
            folders = [
                f"{folder}/{name}"
                for folder, some in zip(folders, names, strict=True)
                for name in some
            ]
        found = {*(_start_us(*each.split("/")) for each in folders), *self.open_hours()}
        return sorted(each for each in found if start_us - HOUR_US < each <= end_us)

    def open_hours(self) -> list[int]:
        """Return the start of each hour that has segments."""
        if self.files.remote:
            return []
        return sorted(
            _start_us(*path.name.replace("T", "-").split("-"))
            for path in self.root.glob("open/????-??-??T??")
        )

    def segments(self, hour_us: int) -> list[Segment]:
        """Return the segments of an hour, without those that others contain."""
        paths = [] if self.files.remote else self.open_folder(hour_us).glob("*.arrow")
        found = [Segment.at(path) for path in paths]
        found.sort(key=lambda each: (each.run, each.first, -each.last, not each.merged))
        kept: list[Segment] = []
        for each in found:
            if not kept or kept[-1].run != each.run or each.last > kept[-1].last:
                kept.append(each)
        return kept

    def coverage(self, hours: Iterable[int]) -> list[Interval]:
        """Return the recorded times of these hours."""
        return joined(each for some in self.files.each(self._coverage, hours) for each in some)

    def _coverage(self, hour_us: int) -> list[Interval]:
        found = [Interval(each.run, each.start_us, each.end_us) for each in self.segments(hour_us)]
        with suppress(FileNotFoundError):
            rows = self._table(_coverage_path(hour_us))
            columns = [rows.column(at).cast(pa.int64()).to_pylist() for at in range(3)]
            found += map(Interval, *columns)
        return found

    def quality(self, start_us: int, end_us: int) -> pa.Table:
        """Return the quality of each book in the closed hours that begin in this time."""
        hours = [each for each in self.hours(start_us, end_us) if start_us <= each < end_us]
        found = self.files.each(self._quality, hours)
        return pa.concat_tables([QUALITY_SCHEMA.empty_table(), *found])

    def _quality(self, hour_us: int) -> pa.Table:
        try:
            return self._table(f"{hour_folder(hour_us)}/{QUALITY}").cast(QUALITY_SCHEMA)
        except FileNotFoundError:
            return QUALITY_SCHEMA.empty_table()

    def _table(self, path: str) -> pa.Table:
        """Read a small Parquet file: two requests to a store."""
        return pq.read_table(pa.BufferReader(self.files.read(path)))

    def add_segment(self, messages: Messages, segment: Segment) -> None:
        """Write a segment of one hour.

        Raises:
            OSError: It cannot be written.
        """
        with _complete(segment.path) as file:
            segments.write(file, messages.header, [messages.batch])

    def merge_segments(self, hour_us: int, least: int = 1) -> None:
        """Merge each run's segments into one by book, if there are at least this many.

        Raises:
            OSError: A file cannot be read or written.
            ValueError: A file is damaged.
        """
        small = [each for each in self.segments(hour_us) if not each.merged]
        for _, of_run in groupby(small, lambda each: each.run):
            some = [*of_run]
            if len(some) < least:
                continue
            first, last = some[0], some[-1]
            merged = first._replace(last=last.last, end_us=last.end_us, merged=True)
            header, batches = segments.merged([segments.read(each.path) for each in some])
            with _complete(merged.path) as file:
                segments.write(file, header, batches)
            for each in some:
                each.path.unlink()

    def close_hour(self, hour_us: int, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Write the files of an hour book by book and its manifest, then delete its segments.

        Returns:
            False if it was cancelled; the next call completes it.
        """
        self.merge_segments(hour_us)
        coverage = self.coverage([hour_us])
        folder = self._closed(hour_us)
        quality = measured(self.files, hour_us, coverage, self._written(hour_us), cancelled)
        if quality is None:
            return False
        with _complete(folder / QUALITY) as file:
            pq.write_table(quality, file)
        columns = [pa.array(column) for column in zip(*coverage, strict=True)] or [[], [], []]
        table = pa.table([*columns], names=COVERAGE_SCHEMA.names).cast(COVERAGE_SCHEMA)
        with _complete(folder / COVERAGE) as file:
            pq.write_table(table, file)
        self._sealer.seal(hour_us)
        shutil.rmtree(self.open_folder(hour_us))
        return True

    def adopt_hours(self, other: "HistoryFolder") -> list[int]:
        """Move the closed hours of another folder on this disk here; return them.

        Raises:
            OSError: An hour exists here, or the folder cannot be written.
        """
        hours = other.hours()
        for hour_us in hours:
            place = self._closed(hour_us)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(other._closed(hour_us), place)
            self._sealer.seal(hour_us)
        return hours

    def _written(self, hour_us: int) -> Iterator[pa.Table]:
        """Write the file of each book of an hour, and yield its rows in order of the symbol."""
        folder = self._closed(hour_us)
        parts: dict[tuple[str, str], list[BookMessages]] = {}
        for path in folder.glob("*/*.parquet"):  # that an earlier close wrote
            parts[path.stem, path.parent.name] = []
        for segment in self.segments(hour_us):
            for each in segments.read_merged(segment.path):
                parts.setdefault((file_name(each.symbol), each.exchange), []).append(each)
        for (name, exchange), some in sorted(parts.items()):
            path = folder / exchange / f"{name}.parquet"
            if some:
                yield self._write_book(segments.rows_of(some), path)
            else:
                yield read_rows(self.files, f"{hour_folder(hour_us)}/{exchange}/{path.name}")

    @staticmethod
    def _write_book(rows: pa.Table, path: Path) -> pa.Table:
        """Write and return the rows of a book's hour, with those that an earlier close wrote."""
        if path.exists():
            known = pq.read_table(path).cast(rows.schema)
            rows = pa.concat_tables([known, _unseen(known, rows)]).unify_dictionaries()
            rows = rows.sort_by([("run", "ascending"), ("message", "ascending")])
        with (
            _complete(path) as file,
            pq.ParquetWriter(
                file,
                rows.schema,
                compression=COMPRESSIONS,
                compression_level=ZSTD_LEVELS,
                use_dictionary=DICTIONARIES,
                column_encoding=ENCODINGS,
                write_statistics=STATISTICS,
                store_schema=False,
            ) as writer,
        ):
            for start, stop in _row_groups(rows):
                writer.write_table(rows.slice(start, stop - start), row_group_size=stop - start)
        return rows

    def moment(
        self,
        hours: Sequence[int],
        symbol: str,
        at_us: int,
        exchanges: Collection[str] | None = None,
    ) -> RecordedMoment:
        """Return the recorded times of these hours, and rows as `rows` does without a start.

        Coverage is read before the rows, or only of hours whose files were all listed, so that no
        rows of a covered time are missing.
        """
        if not self.files.remote:
            known = self.coverage(hours)
            read = partial(self._rows, hours, symbol, None, at_us, exchanges)
            return RecordedMoment(known, *_retried(read))
        listed = dict(zip(hours, self.files.each(self.closed_files, hours), strict=True))
        complete = [each for each in hours if _coverage_path(each) in listed[each]]
        with ThreadPoolExecutor(1, "history-coverage") as pool:
            coverage = pool.submit(self.coverage, complete)
            found = self._rows(complete, symbol, None, at_us, exchanges, listed)
        return RecordedMoment(coverage.result(), *found)

    def rows(
        self,
        hours: Sequence[int],
        symbol: str,
        start_us: int | None,
        end_us: int,
        exchanges: Collection[str] | None = None,
    ) -> dict[str, pa.Table]:
        """Return the rows of each book of a symbol by its exchange, each once and in order.

        All that were received in this time are returned, and some from before and after; without
        a start, all since the last keyframe before the end.
        """
        return _retried(partial(self._rows, hours, symbol, start_us, end_us, exchanges))[0]

    def _rows(
        self,
        hours: Sequence[int],
        symbol: str,
        start_us: int | None,
        end_us: int,
        exchanges: Collection[str] | None,
        listed: Mapping[int, Mapping[str, int]] = MappingProxyType({}),
    ) -> tuple[dict[str, pa.Table], list[str]]:
        """Return the rows of each book, and the files of closed hours that have them."""
        since_us = end_us - LOOK_BACK_US if start_us is None else start_us
        reads: list[Callable[[], list[BookRows]]] = []
        for hour_us in hours:  # before the files of books, for which segments are deleted
            of_hour = [
                each
                for each in self.segments(hour_us)
                if each.start_us <= end_us and each.end_us >= since_us
            ]
            for (_, merged), some in groupby(of_hour, lambda each: (each.run, each.merged)):
                paths = [each.path for each in some]
                if merged:
                    reads += [partial(_merged_rows, path, symbol, exchanges) for path in paths]
                else:
                    reads.append(partial(_small_rows, paths, symbol, exchanges))
        books: dict[str, dict[str, int]] = {}
        for files in self.files.each(
            lambda each: self.book_files(each, symbol, exchanges, listed.get(each)), hours
        ):
            for path, size in files.items():
                books.setdefault(PurePosixPath(path).parent.name, {})[path] = size
        reads += [
            partial(_read_book, self.files, exchange, files, start_us, end_us)
            for exchange, files in books.items()
        ]
        found: dict[str, list[pa.Table]] = {}
        with ThreadPoolExecutor(self.files.threads, "history-read") as pool:
            read = [each for some in pool.map(lambda read: read(), reads) for each in some]
        for each in read:
            found.setdefault(each.exchange, []).append(each.rows)
        return (
            {exchange: _joined_rows(tables) for exchange, tables in found.items()},
            [each.file for each in read if each.file],
        )

    def closed_files(self, hour_us: int) -> dict[str, int]:
        """Return the bytes of each Parquet file of a closed hour by its path.

        Of a store they are read from the manifest, because it lists a thousand files a request.
        """
        folder = hour_folder(hour_us)
        if self.files.remote:
            with suppress(FileNotFoundError):
                return sizes(self.files.read(f"{folder}/{MANIFEST}"))
        return {
            path: size
            for path, size in self.files.files(folder).items()
            if path.endswith(".parquet")
        }

    def book_files(
        self,
        hour_us: int,
        symbol: str,
        exchanges: Collection[str] | None = None,
        listed: Mapping[str, int] | None = None,
    ) -> dict[str, int]:
        """Return the bytes of each file of a symbol in a closed hour, by path.

        Args:
            hour_us: The hour.
            symbol: The symbol.
            exchanges: Their books; None for all.
            listed: `closed_files` of the hour, if they are known.
        """
        name = f"{file_name(symbol)}.parquet"
        if self.files.remote:
            listed = self.closed_files(hour_us) if listed is None else listed
        else:
            listed = self.files.named(hour_folder(hour_us), name)
        return {
            path: size
            for path, size in listed.items()
            if path.endswith(f"/{name}")
            and (exchanges is None or PurePosixPath(path).parent.name in exchanges)
        }

    def books(self, hours: Iterable[int]) -> set[tuple[str, str]]:
        """Return exchange and symbol of each book that was recorded in these hours."""
        found: set[tuple[str, str]] = set()
        hours = [*hours]
        for hour_us, files in zip(hours, self.files.each(self.closed_files, hours), strict=True):
            for path in map(PurePosixPath, files):
                if str(path.parent) != hour_folder(hour_us):
                    base, _, quote = path.stem.rpartition("-")
                    found.add((path.parent.name, f"{base}/{quote}"))
            for each in self.segments(hour_us):
                with suppress(FileNotFoundError):  # merged meanwhile: the next one has its books
                    found |= segments.books_in(each)
        return found

    def proof(self, hours: Sequence[int], files: Sequence[str]) -> dict[str, Any]:
        """Return a proof that files of these hours are in the chain (`inclusion`).

        Raises:
            LookupError: An hour is not closed yet.
        """
        return inclusion(self.files, hours, [*map(_coverage_path, hours), *files])

    def keep(self, bytes_max: int, oldest_us: int, needed: Collection[int] = ()) -> int:
        """Delete the oldest closed hours beyond these limits; return how many were deleted.

        Args:
            bytes_max: Size of all closed hours.
            oldest_us: Hours that ended before are deleted.
            needed: The oldest of these hours and all after it are kept.
        """
        hours = [each for each in self.hours() if self._closed(each).exists()]
        sizes = {each: sum(self.files.files(hour_folder(each)).values()) for each in hours}
        total, deleted = sum(sizes.values()), []
        for hour_us in hours:
            within = total <= bytes_max and hour_us + HOUR_US > oldest_us
            if within or hour_us >= min(needed, default=hour_us + 1):
                break
            deleted.append(hour_us)
            total -= sizes[hour_us]
        if deleted:  # said first, so that a missing hour is never unannounced
            self._sealer.announce_deletion(deleted[-1] + HOUR_US)
        for hour_us in deleted:
            shutil.rmtree(self._closed(hour_us))
        return len(deleted)

    def open_folder(self, hour_us: int) -> Path:
        """Return the folder of an open hour's segments."""
        return self.root / "open" / f"{_moment(hour_us):%Y-%m-%dT%H}"

    def _closed(self, hour_us: int) -> Path:
        return self.root / hour_folder(hour_us)


def _coverage_path(hour_us: int) -> str:
    return f"{hour_folder(hour_us)}/{COVERAGE}"


def _moment(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us // 1_000_000, UTC)


def _start_us(*parts: str) -> int:
    year, month, day, hour = map(int, parts)
    return round(datetime(year, month, day, hour, tzinfo=UTC).timestamp()) * 1_000_000


@contextmanager
def _complete(path: Path) -> Iterator[pa.NativeFile]:
    """Open a file for writing that has its name only when it is complete and synced.

    It is a file of pyarrow, which calls the interpreter for each buffer written to one of Python.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    try:
        with pa.OSFile(str(unfinished), "wb") as file:
            yield file
        _sync(unfinished)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_file(path: Path, content: bytes) -> None:
    with _complete(path) as file:
        file.write(content)


def _retried(read: Callable[[], T]) -> T:
    """Read again if the recorder replaced a file that was listed."""
    for _ in range(READ_TRIES - 1):
        with suppress(FileNotFoundError):
            return read()
    return read()


# Rows of books


def _merged_rows(path: Path, symbol: str, exchanges: Collection[str] | None) -> list[BookRows]:
    return _segment_rows(segments.read_merged(path, symbol, exchanges))


def _small_rows(
    paths: Sequence[Path], symbol: str, exchanges: Collection[str] | None
) -> list[BookRows]:
    return _segment_rows(segments.read_small(paths, symbol, exchanges))


def _segment_rows(books: Iterable[BookMessages]) -> list[BookRows]:
    return [
        BookRows(each.exchange, segments.rows_of([each]).select(READ_COLUMNS)) for each in books
    ]


def _row_groups(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield the row groups of a book: from a keyframe to another."""
    kinds = joined_array(rows["kind"])
    keyframes = pc.equal(kinds.indices, pc.index(kinds.dictionary, HistoryKind.KEYFRAME))
    bids, asks = (levels_of(rows[side])[0] for side in ("bids", "asks"))
    start = size = 0
    for at in pc.indices_nonzero(keyframes).to_pylist():
        size_at = at + bids[at] + asks[at] - bids[0] - asks[0]
        if size_at - size >= ROW_GROUP_SIZE:
            yield start, at
            start, size = at, size_at
    yield start, len(rows)


def _read_book(
    files: FileStore,
    exchange: str,
    sizes: Mapping[str, int],
    start_us: int | None,
    end_us: int,
) -> list[BookRows]:
    """Return the row groups of a book's files, in order, that were received in this time.

    Without a start, files before the last keyframe are not read.
    """
    found: list[BookRows] = []
    for path, size in sorted(sizes.items(), reverse=True):
        rows = _read_row_groups(files, path, size, partial(_wanted, start_us, end_us))
        found.insert(0, BookRows(exchange, rows, path))
        if start_us is None and len(found) < len(sizes) and _has_keyframe(rows, end_us):
            break
    return found


def _read_row_groups(
    files: FileStore,
    path: str,
    size: int | None,
    wanted: Callable[[pq.FileMetaData], list[int]],
) -> pa.Table:
    columns, texts = [*READ_COLUMNS], ["kind"]
    if not files.remote:
        file = pq.ParquetFile(files.open(path), read_dictionary=texts)
        return file.read_row_groups(wanted(file.metadata), columns=columns, use_threads=False)
    fragment = files.fragment(path, size, texts)
    try:
        groups = fragment.subset(row_group_ids=wanted(fragment.metadata))
        return groups.to_table(columns=columns, use_threads=False)
    except pa.ArrowInvalid:
        if size is None:
            raise
        # Replaced by a longer one after it was listed.
        return _read_row_groups(files, path, None, wanted)


def _wanted(start_us: int | None, end_us: int, metadata: pq.FileMetaData) -> list[int]:
    """Return the row groups that were received in this time.

    Without a start it is the last of them, because every row group but the first of an hour begins
    with a keyframe.
    """
    place = SCHEMA.get_field_index("received")
    found = []
    for at in range(metadata.num_row_groups):
        times = metadata.row_group(at).column(place).statistics
        first, last = (round(each.timestamp() * 1_000_000) for each in (times.min, times.max))
        if first <= end_us and (start_us is None or last >= start_us):
            found.append(at)
    return found if start_us is not None else found[-1:]


def _has_keyframe(rows: pa.Table, until_us: int) -> bool:
    """Return whether a keyframe was received until a time."""
    rows = rows.slice(0, bisect_right(integers(rows["received"], pa.int64()), until_us))
    return TapeKind.KEYFRAME in bytes(codes(rows["kind"], KINDS))


def _unseen(known: pa.Table, more: pa.Table) -> pa.Table:
    """Return the rows of messages that are not known yet; each run is known up to a message."""
    for last in known.group_by("run").aggregate([("message", "max")]).to_pylist():
        run, message = last["run"], last["message_max"]
        seen = pc.and_(pc.equal(more["run"], run), pc.less_equal(more["message"], message))
        more = more.filter(pc.invert(seen))
    return more


def _joined_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """Join tables of one book in order, without what an earlier one has."""
    joined, last = [], (-1, -1)
    for table in sorted((each for each in tables if len(each)), key=_first):
        runs, messages = (integers(table[name], pa.int64()) for name in ("run", "message"))
        start = bisect_left(runs, last[0])
        start = bisect_right(messages, last[1], start, bisect_right(runs, last[0], start))
        if start < len(runs):
            joined.append(table.slice(start))
            last = runs[-1], messages[-1]
    return pa.concat_tables(joined or tables[:1], promote_options="permissive")


def _first(rows: pa.Table) -> tuple[int, int]:
    """Return run and message of the first of some rows."""
    return rows["run"][0].as_py(), rows["message"][0].as_py()
