"""Usage: the bytes delivered to each key, their report, and the file for a database outage.

The meter counts in memory and flushes in idempotent batches: the store accepts each batch number
once, so that a retry after a timeout never counts twice. Every `FLUSH_INTERVAL_S` the delivered
bytes are collected from the connections and flushed; a crash loses the bytes delivered since the
last flush. Bytes count in the period in which their collection begins, so they are also collected
at midnight (UTC), when periods end. The meter does not close sockets: it calls `on_over` and
`on_warning`.

While the store is slow or unavailable, each round writes to the usage file instead, which the next
start applies. Each node has its own file, `<name>.usage-<epoch>`, locked while the node runs. The
file is preallocated, so that it can be written when the disk is full, and has two slots that are
written alternately, so that an interrupted write leaves the previous one intact. Batches keep their
database numbers, so that none is counted twice.
"""

import asyncio
import fcntl
import glob
import logging
import os
import secrets
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from struct import Struct as Layout
from typing import Annotated, Final, Self

from msgspec import DecodeError, Meta, Struct, msgpack
from pydantic import ConfigDict, Field
from sqlalchemy.exc import IntegrityError

from onebook.accounts.billing import Period, period_after, period_at
from onebook.accounts.keys import Key, status_at
from onebook.accounts.periodic import every
from onebook.clock import SYSTEM_CLOCK, Clock, iso_ms
from onebook.config import AccountsSettings, StoreSettings
from onebook.errors import OnebookError
from onebook.metrics import ALLOWANCE_MARKS, USAGE_FILE_FAILING, USAGE_FILE_IN_USE, USAGE_FLUSH_AGE
from onebook.model import DAY_MS, GIB_BYTES, SECOND_MS, KeyStatus, Tier
from onebook.signals import Signal
from onebook.store import Store, UsageCell

WARNING_PERCENT: Final = 80
GIB_DECIMALS: Final = 4  # smaller numbers are printed with an exponent; the byte counts are exact


# Standard dataclasses: pydantic derives the OpenAPI schema of GET /data-usage from them, and
# msgspec encodes them in WebSocket messages. For each application, pydantic would parse this file
# once a class to read docstrings of attributes.
_DOCUMENTED: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class DataUsage:
    """Usage of a key in this period. GB are GiB: 50 GB = 53,687,091,200 bytes."""

    __pydantic_config__ = _DOCUMENTED

    used_gb: float
    limit_gb: float
    remaining_gb: float
    usage_percentage: Annotated[float, Field(description="Percent of the limit, two decimals.")]
    bytes_used: int
    bytes_limit: int


@dataclass(frozen=True)
class BillingPeriod:
    """Calendar months in UTC, anchored on the day the key was created."""

    __pydantic_config__ = _DOCUMENTED

    reset_date: Annotated[str, Field(description="When the current period ends.")]
    days_until_reset: Annotated[int, Field(description="Whole days left.")]
    next_reset: Annotated[str, Field(description="One period later.")]


@dataclass(frozen=True)
class UsageStatus:
    """Status of the key and of its allowance."""

    __pydantic_config__ = _DOCUMENTED

    limit_exceeded: bool
    warning_threshold: Annotated[bool, Field(description="True from 80 percent of the limit on.")]
    api_key_status: KeyStatus


@dataclass(frozen=True)
class UsageReport:
    """The usage report: the body of GET /data-usage as specified."""

    __pydantic_config__ = _DOCUMENTED

    user_id: str
    username: str
    billing_tier: Tier
    api_key_active: bool
    data_usage: DataUsage
    billing_period: BillingPeriod
    status: UsageStatus
    timestamp: str


class UsageMark(IntEnum):
    """Share of the allowance that a key has used."""

    WITHIN = 0
    WARNING = 1
    OVER = 2


def mark_of(used_bytes: int, allowance_bytes: int) -> UsageMark:
    """Return the threshold that a number of bytes has passed in an allowance."""
    if used_bytes > allowance_bytes:
        return UsageMark.OVER
    if used_bytes * 100 >= allowance_bytes * WARNING_PERCENT:
        return UsageMark.WARNING
    return UsageMark.WITHIN


def usage_report(key: Key, used_bytes: int, *, allowance_bytes: int, now_ms: int) -> UsageReport:
    """Report the usage of a key in the period that contains `now_ms`.

    `allowance_bytes` applies to keys without their own allowance.
    """
    allowance_bytes = key.allowance_of(allowance_bytes)
    period = period_at(key.created_at_ms, now_ms)
    status = status_at(key, now_ms)
    mark = mark_of(used_bytes, allowance_bytes)
    return UsageReport(
        user_id=key.account_id,
        username=key.username,
        billing_tier=key.tier,
        api_key_active=status is KeyStatus.ACTIVE,
        data_usage=DataUsage(
            used_gb=gib(used_bytes),
            limit_gb=gib(allowance_bytes),
            remaining_gb=gib(max(0, allowance_bytes - used_bytes)),
            usage_percentage=round(used_bytes * 100 / allowance_bytes, 2),
            bytes_used=used_bytes,
            bytes_limit=allowance_bytes,
        ),
        billing_period=BillingPeriod(
            reset_date=iso_ms(period.end_ms),
            days_until_reset=(period.end_ms - now_ms) // DAY_MS,
            next_reset=iso_ms(period_after(key.created_at_ms, period).end_ms),
        ),
        status=UsageStatus(
            limit_exceeded=mark is UsageMark.OVER,
            warning_threshold=mark is not UsageMark.WITHIN,
            api_key_status=status,
        ),
        timestamp=iso_ms(now_ms),
    )


async def stored_usage(store: Store, key: Key, now_ms: int) -> int:
    """Return the bytes of a key's current period in the store, from all nodes."""
    period = period_at(key.created_at_ms, now_ms)
    return await store.usage.total(UsageCell(key.key_id, period.start_ms))


def gib(count: int) -> float:
    """Convert bytes to GiB, as reports print them."""
    return round(count / GIB_BYTES, GIB_DECIMALS)


SLOT_BYTES: Final = 1 << 20  # about 30,000 keys
SLOTS: Final = 2
FILE_MARK: Final = b"obusage1"
FILE_MODE: Final = 0o600

_HEADER: Final = Layout(">8sQII")  # mark, generation, length and CRC-32 of the rest

log = logging.getLogger("onebook.accounts")


class Batch(Struct, frozen=True, array_like=True):
    """Bytes by key and period, with the batch number that prevents double counting."""

    seq: int
    deltas: dict[UsageCell, int]


_Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]  # the range of a database integer


class _Content(Struct, frozen=True, array_like=True):
    epoch: str
    batches: list[tuple[_Number, list[tuple[str, _Number, _Number]]]]


class UsageFile:
    """The usage file of one node, from `create` to `release`.

    The methods block on the disk; they may be called from any thread.
    """

    def __init__(self, path: Path, descriptor: int, epoch: str) -> None:
        self.path = path
        self.epoch = epoch
        self.holds_usage = False
        self._descriptor = descriptor
        self._generation = 0
        self._turn = threading.Lock()

    @classmethod
    def create(cls, folder: Path, name: str, epoch: str) -> Self:
        """Create and lock the file of a node.

        Raises:
            OSError: The folder cannot be written, or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{name}.usage-{epoch}"
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        while True:
            descriptor = os.open(path, flags, FILE_MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is_at(path, descriptor):
                    os.posix_fallocate(descriptor, 0, SLOTS * SLOT_BYTES)
                    return cls(path, descriptor, epoch)
            except OSError:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
            os.close(descriptor)  # the start of another node removed it before it was locked

    def put(self, batches: Sequence[Batch]) -> None:
        """Replace the content of the file.

        Raises:
            OSError: The file cannot be written.
        """
        rows = [
            (batch.seq, [(*cell, count) for cell, count in batch.deltas.items()])
            for batch in batches
        ]
        payload = msgpack.encode(_Content(self.epoch, rows))
        if _HEADER.size + len(payload) > SLOT_BYTES:
            raise OSError(f"the usage of all keys does not fit in {self.path}")
        with self._turn:
            generation = self._generation + 1
            header = _HEADER.pack(FILE_MARK, generation, len(payload), zlib.crc32(payload))
            os.pwrite(self._descriptor, header + payload, generation % SLOTS * SLOT_BYTES)
            os.fdatasync(self._descriptor)
            self._generation = generation
            self.holds_usage = bool(batches)

    def release(self) -> None:
        """Unlock the file for the next start to apply; remove it if it is empty."""
        if not self.holds_usage:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


async def apply_files(folder: Path, name: str, store: Store, now_ms: int) -> int:
    """Apply the files of ended nodes; return how many bytes were new.

    The file of a running node is skipped. A file with keys that are not in this database
    is kept.

    Raises:
        DatabaseUnavailable: The database is unavailable; the files are kept.
    """
    total = 0
    for path in _left_behind(folder, name):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            log.error("The usage file %s cannot be opened: %s.", path, error.strerror)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                total += await _apply_file(path, descriptor, store, now_ms)
        except BlockingIOError:
            continue  # its node is running
        finally:
            os.close(descriptor)
    return total


def usage_place(settings: StoreSettings, store: Store) -> tuple[Path, str]:
    """Return the folder of usage files, and the prefix of their names."""
    beside = settings.pepper_file if store.database.path is None else store.database.path
    return settings.usage_dir or beside.parent, store.database.name


def unlocked(folder: Path, name: str) -> list[Path]:
    """List the usage files of nodes that are not running; `apply_files` applies them at a start."""
    found = []
    for path in _left_behind(folder, name):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if _is_at(path, descriptor):
                found.append(path)
        except BlockingIOError:
            continue  # its node is running
        finally:
            os.close(descriptor)
    return found


def _left_behind(folder: Path, name: str) -> list[Path]:
    return sorted(folder.glob(f"{glob.escape(name)}.usage-*"))


async def _apply_file(path: Path, descriptor: int, store: Store, now_ms: int) -> int:
    content = newest_content(descriptor)
    if content is None:
        log.error("The usage file %s is damaged; it was kept for inspection.", path)
        return 0
    total = 0
    for seq, rows in content.batches:
        deltas = {UsageCell(key_id, start_ms): count for key_id, start_ms, count in rows}
        try:
            applied = await store.usage.apply((content.epoch, seq), deltas, now_ms)
        except IntegrityError:
            count_bytes = sum(deltas.values())
            log.error(
                "%s contains %d bytes of usage for keys that do not exist in this database.",
                path,
                count_bytes,
            )
            return total
        if applied is not None:
            total += sum(deltas.values())
    os.unlink(path)
    if total:
        log.info("Recovered %d bytes of usage from %s.", total, path)
    return total


def newest_content(descriptor: int) -> _Content | None:
    """Return the newest intact slot; None if slots were written but none is intact."""
    newest, found = 0, None
    written = False
    for slot in range(SLOTS):
        data = os.pread(descriptor, SLOT_BYTES, slot * SLOT_BYTES)
        if len(data) < _HEADER.size or not any(data[: _HEADER.size]):
            continue
        written = True
        mark, generation, length, checksum = _HEADER.unpack_from(data)
        payload = data[_HEADER.size : _HEADER.size + length]
        if mark != FILE_MARK or generation <= newest or zlib.crc32(payload) != checksum:
            continue
        try:
            found = msgpack.decode(payload, type=_Content)
        except (DecodeError, RecursionError, UnicodeDecodeError):
            continue
        newest = generation
    return found if written else _Content("", [])


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


FLUSH_INTERVAL_S: Final = 0.5
CLOSE_PAUSE_S: Final = 0.2
# A batch whose write takes longer is also written to the usage file: a crash loses at most the
# flush interval, this time, and the time of one write to that file.
SLOW_WRITE_S: Final = 0.25
MIDNIGHT_NEAR_MS: Final = SECOND_MS  # above the flush interval
MARKS_AT_ONCE: Final = 500  # keys compared with their allowance in one turn: 0.5 ms
PROBE_S: Final = 2.0  # interval at which an idle meter checks that the store is writable


class _Count:
    """Usage of one key in its current period, and the last reported threshold.

    The previous period is kept, because a fast clock may be set back into it.
    """

    __slots__ = ("_former", "cell", "end_ms", "key", "reported", "used_bytes")

    def __init__(self, key: Key, period: Period) -> None:
        self.key = key
        self.cell: UsageCell
        self.end_ms: int
        self.used_bytes: int
        self.reported: UsageMark
        self._former: tuple[UsageCell, int, int, UsageMark] | None = None
        self._begin(period)

    def holds(self, now_ms: int) -> bool:
        """Return whether a time is in the current period."""
        return self.cell.period_start_ms <= now_ms < self.end_ms

    def turn(self, period: Period) -> None:
        """Switch to another period."""
        former = self._former
        self._former = (self.cell, self.end_ms, self.used_bytes, self.reported)
        if former is not None and former[0].period_start_ms == period.start_ms:
            self.cell, self.end_ms, self.used_bytes, self.reported = former
        else:
            self._begin(period)

    def _begin(self, period: Period) -> None:
        self.cell = UsageCell(self.key.key_id, period.start_ms)
        self.end_ms = period.end_ms
        self.used_bytes = 0
        self.reported = UsageMark.WITHIN


class Meter:
    """Counts bytes per key and period.

    `on_over` and `on_warning` are called from a flush, at most one flush interval after the
    byte that crossed the threshold, and never from `add`, which runs during a fan-out.
    `collect` is called at the start of each flush, to `add` the bytes passed to connections since
    the last.

    Args:
        store: The store of the usage.
        clock: Wall time for periods, monotonic time for the age of the last flush.
        allowance_bytes: The allowance of a key per period.
        file: Keeps usage while the store is unavailable; without it, a crash then loses usage.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock = SYSTEM_CLOCK,
        *,
        allowance_bytes: int = AccountsSettings().allowance_bytes,
        file: UsageFile | None = None,
    ) -> None:
        self._portions: Callable[[int], Iterable[None]] = lambda _: ()
        self.on_over: Signal[[str]] = Signal()
        self.on_warning: Signal[[str, UsageReport]] = Signal()
        self.allowance_bytes = allowance_bytes
        self._store = store
        self._clock = clock
        self._file = file
        self._file_failing = False
        self._flushed_s = clock.monotonic()
        self._node_epoch = new_epoch() if file is None else file.epoch
        self._seq = 0
        self._counts: dict[str, _Count] = {}
        self._pending: defaultdict[UsageCell, int] = defaultdict(int)
        self._unconfirmed: Batch | None = None
        self._flushing = asyncio.Lock()
        self._keeping = asyncio.Lock()
        self._collecting = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self._midnight: asyncio.Task[None] | None = None

    def collect_from(self, portions: Callable[[int], Iterable[None]]) -> None:
        """Have delivered bytes added before each flush; the event loop may turn at each yield.

        `portions` is called with the time as of which the bytes count.
        """
        self._portions = portions

    async def open(self, *keys: Key) -> None:
        """Load the usage of keys; afterwards bytes can be added to them."""
        now_ms = self._clock.wall_ms()
        unknown = (key for key in keys if key.key_id not in self._counts)
        new = [_Count(key, period_at(key.created_at_ms, now_ms)) for key in unknown]
        if new:
            used_bytes = await self._store.usage.totals({count.cell for count in new})
            for count in new:
                self._begin(count, used_bytes.get(count.cell, 0))
        for key in keys:
            self.change(key)

    def change(self, key: Key) -> None:
        """Apply a change of a key; ignored if the key is not open."""
        count = self._counts.get(key.key_id)
        if count is not None:
            count.key = key
            count.reported = min(count.reported, self._mark(count))

    def change_allowance(self, allowance_bytes: int) -> None:
        """Set the allowance of keys without their own."""
        self.allowance_bytes = allowance_bytes
        for count in self._counts.values():
            count.reported = min(count.reported, self._mark(count))

    def _mark(self, count: _Count) -> UsageMark:
        return mark_of(count.used_bytes, count.key.allowance_of(self.allowance_bytes))

    def _begin(self, count: _Count, used_bytes: int) -> None:
        if self._counts.setdefault(count.key.key_id, count) is count:
            # A key that was over or warned before it was loaded is not reported again.
            count.used_bytes = used_bytes
            count.reported = self._mark(count)

    def add(self, key_id: str, count_bytes: int, as_of_ms: int | None = None) -> None:
        """Count bytes passed to connections of an open key, by default as of now."""
        count = self._current(key_id, self._clock.wall_ms() if as_of_ms is None else as_of_ms)
        count.used_bytes += count_bytes
        self._pending[count.cell] += count_bytes

    def used(self, key_id: str, now_ms: int) -> int:
        """Return the bytes used by an open key in the period that contains `now_ms`."""
        return self._current(key_id, now_ms).used_bytes

    def mark(self, key_id: str) -> UsageMark:
        """Return the threshold that an open key has passed."""
        return self._mark(self._current(key_id, self._clock.wall_ms()))

    def over(self, key_id: str) -> bool:
        """Return whether an open key has used more than its allowance."""
        return self.mark(key_id) is UsageMark.OVER

    def report(self, key_id: str, now_ms: int) -> UsageReport:
        """Return the usage of an open key in the form for clients."""
        count = self._current(key_id, now_ms)
        return usage_report(
            count.key, count.used_bytes, allowance_bytes=self.allowance_bytes, now_ms=now_ms
        )

    def pending_bytes(self) -> int:
        """Bytes that the store has not confirmed."""
        return sum(sum(batch.deltas.values()) for batch in self._unwritten())

    def flush_age_s(self) -> float:
        """Seconds since the last successful write to the store, or since nothing was pending."""
        return self._clock.monotonic() - self._flushed_s

    def _current(self, key_id: str, now_ms: int) -> _Count:
        count = self._counts[key_id]
        if not count.holds(now_ms):
            count.turn(period_at(count.key.created_at_ms, now_ms))
        return count

    async def flush(self) -> None:
        """Write the bytes counted since the last flush; report the keys that crossed a threshold.

        Raises:
            ServiceUnavailable: The store does not answer. Nothing is lost: the next flush writes
                the same batch under the same number.
        """
        await self._collect(self._clock.wall_ms())
        began_s = self._clock.monotonic()
        async with self._flushing:
            await self._deliver()
            self._unconfirmed = self._next_batch()
            await self._deliver()
            if self._file is not None and self._file.holds_usage:
                # Bytes counted during a fast write need not be in the file.
                await self._keep(all_of_it=self._clock.monotonic() - began_s >= SLOW_WRITE_S)

    async def _collect(self, as_of_ms: int) -> None:
        """Collect from the connections, and report the keys that crossed a threshold.

        Before any write, so that limits apply during a store outage. The number of connections or
        keys does not delay the event loop. One collection at a time, so that none adds bytes of a
        period that another is about to end.
        """
        async with self._collecting:
            for _ in self._portions(as_of_ms):
                await asyncio.sleep(0)
            for cells in _parts(list(self._pending)):
                self._report_marks(cells)
                await asyncio.sleep(0)

    def _next_batch(self) -> Batch | None:
        if not self._pending:
            return None
        deltas, self._pending = self._pending, defaultdict(int)
        self._seq += 1
        return Batch(self._seq, deltas)

    def _unwritten(self) -> list[Batch]:
        """Return the batches that a flush would write now, with their numbers."""
        batches = [self._unconfirmed] if self._unconfirmed else []
        if self._pending:
            batches.append(Batch(self._seq + 1, dict(self._pending)))
        return batches

    async def _deliver(self) -> None:
        batch = self._unconfirmed
        if batch is None:
            return
        number = (self._node_epoch, batch.seq)
        totals = await self._store.usage.apply(number, batch.deltas, self._clock.wall_ms())
        self._unconfirmed = None
        self._flushed_s = self._clock.monotonic()
        for cells in _parts(list(batch.deltas)):
            # The totals include bytes delivered to the same keys by other nodes.
            for cell in cells:
                count = self._counts[cell.key_id]
                if totals is not None and count.cell == cell:
                    count.used_bytes = totals[cell] + self._pending.get(cell, 0)
            self._report_marks(cells)
            await asyncio.sleep(0)

    def _report_marks(self, cells: Iterable[UsageCell]) -> None:
        for cell in cells:
            count = self._counts[cell.key_id]
            reached = self._mark(count)
            if reached <= count.reported:
                continue
            passed = [mark for mark in UsageMark if count.reported < mark <= reached]
            for mark in passed:  # usage that passes both thresholds in one step is warned first
                count.reported = mark
                ALLOWANCE_MARKS.labels(mark.name.lower()).inc()
                if mark is UsageMark.OVER:
                    self.on_over(cell.key_id)
                else:
                    self.on_warning(cell.key_id, self.report(cell.key_id, self._clock.wall_ms()))

    async def run(self, interval_s: float = FLUSH_INTERVAL_S) -> None:
        """Flush until cancelled."""
        await every(interval_s, self.round, what="Writing usage to the database")

    async def round(self) -> None:
        """Flush; write to the file what the store does not accept within `SLOW_WRITE_S`.

        Raises:
            ServiceUnavailable: The store does not answer.
        """
        USAGE_FLUSH_AGE.set(self.flush_age_s())
        self._await_midnight()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="usage-write")
        else:
            await self._collect(self._clock.wall_ms())
        done, _ = await asyncio.wait((self._writing,), timeout=SLOW_WRITE_S)
        if not done:
            await self._keep()
            return
        writing, self._writing = self._writing, None
        if writing.exception() is not None:
            await self._keep()
        writing.result()

    def _await_midnight(self) -> None:
        """Collect at a midnight before the next round, for the day that is ending."""
        now_ms = self._clock.wall_ms()
        left_ms = DAY_MS - now_ms % DAY_MS
        if left_ms <= MIDNIGHT_NEAR_MS:
            self._forget_midnight()
            self._midnight = asyncio.create_task(
                self._collect_at(now_ms + left_ms, left_ms / SECOND_MS), name="usage-midnight"
            )

    async def _collect_at(self, midnight_ms: int, left_s: float) -> None:
        await asyncio.sleep(left_s)
        await self._collect(midnight_ms - 1)

    def _forget_midnight(self) -> None:
        if self._midnight is not None:
            self._midnight.cancel()

    async def _write(self) -> None:
        await self.flush()
        if self.flush_age_s() >= PROBE_S:
            await self._store.facts.probe(self._clock.wall_ms())
            self._flushed_s = self._clock.monotonic()

    async def _keep(self, *, all_of_it: bool = True) -> bool:
        """Write unconfirmed usage to the file, or clear it; return whether that succeeded."""
        if self._file is None:
            return False
        try:
            # Serialized, because an older list must not overwrite a newer one.
            async with self._keeping:
                await asyncio.to_thread(self._file.put, self._unwritten() if all_of_it else [])
        except OSError as error:
            if not self._file_failing:
                log.error("The usage file %s cannot be written: %s.", self._file.path, error)
            self._file_failing = True
            USAGE_FILE_FAILING.set(1)
            return False
        self._file_failing = False
        USAGE_FILE_FAILING.set(0)
        USAGE_FILE_IN_USE.set(self._file.holds_usage)
        return True

    async def close(self, timeout_s: float = AccountsSettings().final_flush_timeout_s) -> int:
        """Flush until `timeout_s`; write the rest to the file.

        Returns:
            The bytes of usage that were lost, because neither could be written.
        """
        self._forget_midnight()
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._flushed():
                    await self._keep()
                    await asyncio.sleep(CLOSE_PAUSE_S)
        except TimeoutError:
            pass
        return await self._end()

    async def _end(self) -> int:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        left_bytes = self.pending_bytes()
        kept = not left_bytes or await self._keep()
        if kept:
            if left_bytes and self._file is not None:
                log.error(
                    "%d bytes of usage could not be written; the next start reads them from %s.",
                    left_bytes,
                    self._file.path,
                )
            return 0
        log.error("%d bytes of usage could not be written and are lost.", left_bytes)
        return left_bytes

    async def _flushed(self) -> bool:
        try:
            await self.flush()
        except OnebookError:
            return False
        return True


def _parts(cells: Sequence[UsageCell]) -> Iterator[Sequence[UsageCell]]:
    """Split the cells of many keys, for one turn of the event loop each."""
    return (cells[first : first + MARKS_AT_ONCE] for first in range(0, len(cells), MARKS_AT_ONCE))


def new_epoch() -> str:
    """Return a random name for this run of the node."""
    return secrets.token_hex(16)
