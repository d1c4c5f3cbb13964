"""Usage that could not be written to the database, in a file that the next start applies.

Each node has a file of its own, `<name>.usage-<epoch>`, locked while the node lives. The file is
preallocated, so that it can be written when the disk is full, and has two slots that are written
alternately, so that an interrupted write leaves the previous one intact. Batches keep the numbers
under which the database would have taken them, so that none is counted twice.
"""

import fcntl
import glob
import logging
import os
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from struct import Struct as Layout
from typing import Annotated, Final, Self

from msgspec import DecodeError, Meta, Struct, msgpack
from sqlalchemy.exc import IntegrityError

from onebook.config import StoreSettings
from onebook.store import Store, UsageCell

SLOT_BYTES: Final = 1 << 20  # about 30,000 keys
SLOTS: Final = 2
MARK: Final = b"obusage1"
MODE: Final = 0o600

_HEADER: Final = Layout(">8sQII")  # mark, generation, length and CRC-32 of what follows

log = logging.getLogger("onebook.accounts")


class Batch(Struct, frozen=True, array_like=True):
    """Bytes by key and period, under the number that makes them count once."""

    seq: int
    deltas: dict[UsageCell, int]


Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]  # as a database takes it


class _Content(Struct, frozen=True, array_like=True):
    epoch: str
    batches: list[tuple[Number, list[tuple[str, Number, Number]]]]


class UsageFile:
    """The file of one node, from `create` to `release`.

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
        """Make and lock the file of a node.

        Raises:
            OSError: The folder cannot be written, or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{name}.usage-{epoch}"
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        while True:
            descriptor = os.open(path, flags, MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is_at(path, descriptor):
                    os.posix_fallocate(descriptor, 0, SLOTS * SLOT_BYTES)
                    return cls(path, descriptor, epoch)
            except OSError:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
            os.close(descriptor)  # another node's start removed it before it was locked

    def put(self, batches: Sequence[Batch]) -> None:
        """Replace what the file holds.

        Raises:
            OSError: It cannot be written.
        """
        rows = [
            (batch.seq, [(*cell, count) for cell, count in batch.deltas.items()])
            for batch in batches
        ]
        payload = msgpack.encode(_Content(self.epoch, rows))
        if _HEADER.size + len(payload) > SLOT_BYTES:
            raise OSError(f"usage of so many keys does not fit in {self.path}")
        with self._turn:
            generation = self._generation + 1
            header = _HEADER.pack(MARK, generation, len(payload), zlib.crc32(payload))
            os.pwrite(self._descriptor, header + payload, generation % SLOTS * SLOT_BYTES)
            os.fdatasync(self._descriptor)
            self._generation = generation
            self.holds_usage = bool(batches)

    def release(self) -> None:
        """Unlock the file for the next start to take in; remove it if it holds nothing."""
        if not self.holds_usage:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


async def take_in(folder: Path, name: str, store: Store, now_ms: int) -> int:
    """Apply the files of ended nodes; return how many bytes were new.

    A file that belongs to a living node is left alone. One with keys that are not in this database
    is kept.

    Raises:
        DatabaseUnavailable: The database did not take them; they stay.
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
                total += await _take_in(path, descriptor, store, now_ms)
        except BlockingIOError:
            continue  # its node is running
        finally:
            os.close(descriptor)
    return total


def usage_place(settings: StoreSettings, store: Store) -> tuple[Path, str]:
    """The folder of usage files, and what their names begin with."""
    beside = settings.pepper_file if store.database.path is None else store.database.path
    return settings.usage_dir or beside.parent, store.database.name


def unlocked(folder: Path, name: str) -> list[Path]:
    """The usage files of nodes that are not running; `take_in` applies them at a start."""
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


async def _take_in(path: Path, descriptor: int, store: Store, now_ms: int) -> int:
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
            log.error("%s holds %d bytes of keys that this database lacks.", path, count_bytes)
            return total
        if applied is not None:
            total += sum(deltas.values())
    os.unlink(path)
    if total:
        log.info("Recovered %d bytes of usage from %s.", total, path)
    return total


def newest_content(descriptor: int) -> _Content | None:
    """The newest slot that is whole; None where slots were written and none is."""
    newest, found = 0, None
    written = False
    for slot in range(SLOTS):
        data = os.pread(descriptor, SLOT_BYTES, slot * SLOT_BYTES)
        if len(data) < _HEADER.size or not any(data[: _HEADER.size]):
            continue
        written = True
        mark, generation, length, checksum = _HEADER.unpack_from(data)
        payload = data[_HEADER.size : _HEADER.size + length]
        if mark != MARK or generation <= newest or zlib.crc32(payload) != checksum:
            continue
        try:
            found = msgpack.decode(payload, type=_Content)
        except (DecodeError, RecursionError, UnicodeDecodeError):
            continue
        newest = generation
    return found if written else _Content("", [])


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
