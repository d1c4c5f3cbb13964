"""Files of a history in one folder: segments of the open hour, and closed hours.

    open/2026-11-27T14/RUN-FIRST-LAST-FROM-TO.parquet   segments, with all books
    2026/11/27/14/binance/BTC-USDT.parquet              one book's rows of a closed hour
    2026/11/27/14/coverage.parquet                      the times of the hour that were recorded

Files are written under another name, synced and renamed, so that every `.parquet` file is complete.
A segment that another one contains is ignored, and rows are unique by run and message, so a crash
between a rename and a deletion duplicates nothing. Times are Unix microseconds.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onebook.archive.format import DICTIONARIES, ENCODINGS, SCHEMA
from onebook.files import try_lock

HOUR_US: Final = 3_600_000_000
ROW_GROUP_ROWS: Final = 65_536
SEGMENT_LEVEL: Final = 1  # of zstd; segments live for an hour
HOUR_LEVEL: Final = 9
COVERAGE: Final = "coverage.parquet"
COVERAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("run", pa.int64(), nullable=False),
        pa.field("start", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("end", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
ORDER: Final = [("exchange", "ascending"), ("symbol", "ascending"), ("run", "ascending"),
                ("message", "ascending")]  # fmt: skip


class Interval(NamedTuple):
    """A time in which one run recorded everything."""

    run: int
    start_us: int
    end_us: int


class Segment(NamedTuple):
    """A segment by its name."""

    path: Path
    run: int
    first: int
    last: int
    start_us: int
    end_us: int


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
        root: The folder; created by `lock`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: int | None = None

    def lock(self) -> bool:
        """Become the only recorder of this folder; return whether it succeeded.

        Raises:
            OSError: The folder cannot be written.
        """
        (self.root / "open").mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not try_lock(descriptor):
            os.close(descriptor)
            return False
        self._lock = descriptor
        for partial in self.root.rglob("*.partial"):
            partial.unlink()
        return True

    @property
    def locked(self) -> bool:
        """Whether this object has the lock."""
        return self._lock is not None

    def unlock(self) -> None:
        """Let another recorder use this folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def hours(self) -> list[int]:
        """Return the start of each hour that has files."""
        closed = (
            datetime(*map(int, path.relative_to(self.root).parts), tzinfo=UTC)  # type: ignore[misc,arg-type]
            for path in self.root.glob("[0-9][0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]/[0-9][0-9]")
        )
        return sorted(
            {round(each.timestamp()) * 1_000_000 for each in closed} | {*self.open_hours()}
        )

    def open_hours(self) -> list[int]:
        """Return the start of each hour that has segments."""
        return sorted(
            round(datetime.strptime(path.name + "Z", "%Y-%m-%dT%H%z").timestamp()) * 1_000_000
            for path in self.root.glob("open/????-??-??T??")
        )

    def segments(self, hour_us: int) -> list[Segment]:
        """Return the segments of an hour, without those that others contain."""
        paths = self._open(hour_us).glob("*.parquet")
        found = [Segment(path, *map(int, path.stem.split("-"))) for path in paths]
        found.sort(key=lambda each: (each.run, each.first, -each.last))
        kept: list[Segment] = []
        for each in found:
            if not kept or kept[-1].run != each.run or each.last > kept[-1].last:
                kept.append(each)
        return kept

    def coverage(self, hours: Iterable[int]) -> list[Interval]:
        """Return the recorded times of these hours."""
        found: list[Interval] = []
        for hour_us in hours:
            found += [
                Interval(each.run, each.start_us, each.end_us) for each in self.segments(hour_us)
            ]
            path = self._closed(hour_us) / COVERAGE
            if path.exists():
                rows = pq.read_table(path)
                columns = [rows.column(at).cast(pa.int64()).to_pylist() for at in range(3)]
                found += map(Interval, *columns)
        return joined(found)

    def add_segment(self, table: pa.Table, segment: Segment) -> None:
        """Write a segment of one hour.

        Raises:
            OSError: It cannot be written.
        """
        self._write(table, self._segment_path(segment), SEGMENT_LEVEL)

    def merge_segments(self, hour_us: int, least: int) -> None:
        """Merge each run's segments into one file, if there are at least this many."""
        segments = self.segments(hour_us)
        for run in {each.run for each in segments}:
            some = [each for each in segments if each.run == run and each.first == each.last]
            if len(some) < least:
                continue
            merged = Segment(
                some[0].path, run, some[0].first, some[-1].last, some[0].start_us, some[-1].end_us
            )
            self._write(_read(some), self._segment_path(merged), SEGMENT_LEVEL)
            for each in some:
                each.path.unlink()

    def close_hour(self, hour_us: int) -> None:
        """Write the files of an hour from its segments, and delete these."""
        segments = self.segments(hour_us)
        coverage = self.coverage([hour_us])
        folder = self._closed(hour_us)
        names = pc.unique(_read(segments, columns=["exchange"]).column(0)).to_pylist()
        for exchange in names:
            rows = _read(segments, filters=[("exchange", "=", exchange)])
            for symbol in pc.unique(rows.column("symbol")).to_pylist():
                path = folder / exchange / f"{symbol.replace('/', '-')}.parquet"
                book = rows.filter(pc.equal(rows.column("symbol"), symbol))
                if path.exists():
                    book = _unseen(pq.read_table(path, schema=SCHEMA), book)
                self._write(book.sort_by(ORDER), path, HOUR_LEVEL)
        columns = [pa.array(column) for column in zip(*coverage, strict=True)] or [[], [], []]
        table = pa.table([*columns], names=COVERAGE_SCHEMA.names).cast(COVERAGE_SCHEMA)
        self._write(table, folder / COVERAGE, HOUR_LEVEL)
        shutil.rmtree(self._open(hour_us))

    def rows(self, hours: Sequence[int], symbol: str, start_us: int, end_us: int) -> pa.Table:
        """Return the rows of a symbol that were received in a time, each once and in order."""
        received = [pa.scalar(each, pa.timestamp("us", tz="UTC")) for each in (start_us, end_us)]
        wanted = [("received", ">=", received[0]), ("received", "<=", received[1])]
        tables = [SCHEMA.empty_table()]
        for hour_us in hours:
            paths = self._closed(hour_us).glob(f"*/{symbol.replace('/', '-')}.parquet")
            tables += [pq.read_table(path, schema=SCHEMA, filters=wanted) for path in paths]
            segments = [
                each
                for each in self.segments(hour_us)
                if each.start_us <= end_us and each.end_us >= start_us
            ]
            tables.append(_read(segments, filters=[*wanted, ("symbol", "=", symbol)]))
        table = pa.concat_tables(tables).sort_by(ORDER[2:] + ORDER[:2])
        return table

    def keep(self, bytes_max: int, oldest_us: int) -> int:
        """Delete the oldest closed hours beyond these limits; return how many were deleted."""
        hours = [each for each in self.hours() if self._closed(each).exists()]
        sizes = {
            each: sum(file.stat().st_size for file in self._closed(each).rglob("*.parquet"))
            for each in hours
        }
        total, deleted = sum(sizes.values()), 0
        for hour_us in hours:
            if total <= bytes_max and hour_us + HOUR_US > oldest_us:
                break
            shutil.rmtree(self._closed(hour_us))
            total -= sizes[hour_us]
            deleted += 1
        return deleted

    def _open(self, hour_us: int) -> Path:
        return self.root / "open" / f"{_moment(hour_us):%Y-%m-%dT%H}"

    def _closed(self, hour_us: int) -> Path:
        return self.root / f"{_moment(hour_us):%Y/%m/%d/%H}"

    def _segment_path(self, segment: Segment) -> Path:
        name = "-".join(map(str, segment[1:]))
        return self._open(segment.start_us // HOUR_US * HOUR_US) / f"{name}.parquet"

    @staticmethod
    def _write(table: pa.Table, path: Path, level: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        plain = table.schema != COVERAGE_SCHEMA
        try:
            with partial.open("wb") as file:
                pq.write_table(
                    table,
                    file,
                    row_group_size=ROW_GROUP_ROWS,
                    compression="zstd",
                    compression_level=level,
                    use_dictionary=DICTIONARIES if plain else False,
                    column_encoding=ENCODINGS if plain else None,
                )
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        partial.rename(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _moment(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us // 1_000_000, UTC)


def _read(segments: Sequence[Segment], **options: object) -> pa.Table:
    """Read segments, each run's in order."""
    tables = [pq.read_table(each.path, **options) for each in segments]
    if not tables:
        columns = options.get("columns")
        empty = SCHEMA.empty_table()
        return empty if columns is None else empty.select(columns)
    return pa.concat_tables(tables)


def _unseen(known: pa.Table, more: pa.Table) -> pa.Table:
    """Add the rows of messages that are not known yet."""
    seen = set(zip(known["run"].to_pylist(), known["message"].to_pylist(), strict=True))
    places = zip(more["run"].to_pylist(), more["message"].to_pylist(), strict=True)
    fresh = pa.array([place not in seen for place in places], pa.bool_())
    return pa.concat_tables([known, more.filter(fresh)])
