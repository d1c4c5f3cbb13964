"""Files of exports in a directory with limits: rows in blocks that can be read page by page.

An export is verified and converted once, when it is downloaded, so stored files are complete. A
block is compressed JSON of some rows, newest first, encrypted if collected records are; an index at
the end of the file has the position and the times of each block. Readers need memory for only one
block.
"""

import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import MsgspecError, Struct, json

from onebook.model import DAY_MS, SECOND_MS
from onebook.transactions.credentials import NONCE_BYTES

BLOCK_ROWS: Final = 200  # decoded per turn of the event loop
MAGIC: Final = b"onebook export 1\n"
SEALED: Final = b"onebook sealed 1\n"
SUFFIX: Final = ".export"
PART: Final = ".part"  # suffix of a file that is being written
PART_S_MAX: Final = 86_400.0  # an older one was left by a killed process
LENGTH_BYTES: Final = 8
COMPRESSION: Final = 1
FILE_MODE: Final = 0o600
NEARLY_FULL: Final = 0.9  # of the limit; above it, `onebook doctor` warns

Row = dict[str, str]


class ExportFileError(Exception):
    """A stored export cannot be read: it is damaged, or its key is missing."""


class ExportsFull(Exception):
    """The directory of exports has no room for another file."""


class FileBlock(Struct, frozen=True, array_like=True):
    """The position of some rows in a file, and the times of the newest and oldest of them."""

    offset: int
    length: int
    newest_ms: int
    oldest_ms: int


class StoredExport(Struct, frozen=True):
    """A file of an export.

    Args:
        blocks: Its blocks, newest rows first.
        key: The key of a sealed file.
    """

    path: Path
    blocks: tuple[FileBlock, ...]
    rows: int
    key: bytes | None

    def read(self, number: int) -> list[Row]:
        """Decode the rows of a block, newest first.

        Raises:
            ExportFileError: The file is damaged or gone.
        """
        block = self.blocks[number]
        try:
            with self.path.open("rb") as file:
                file.seek(block.offset)
                body = file.read(block.length)
            return _rows.decode(_opened(body, self.key, self.path.name, block.offset))
        except (OSError, InvalidTag, zlib.error, MsgspecError) as error:
            raise ExportFileError(str(error)) from None


class _Index(Struct, frozen=True):
    """The index at the end of a file."""

    blocks: tuple[FileBlock, ...]
    rows: int


_rows = json.Decoder(list[Row])
_index = json.Decoder(_Index)


class ExportFiles:
    """The directory of exports.

    Args:
        folder: Created when needed, readable only by its owner.
        bytes_max: Maximum bytes of all files.
        days: Days after which a file that no answer has used is deleted.
    """

    def __init__(self, folder: Path, *, bytes_max: int, days: int) -> None:
        self.folder = folder
        self.bytes_max = bytes_max
        self._age_s = days * DAY_MS / SECOND_MS

    def path(self, *names: str) -> Path:
        """The file of an export."""
        return self.folder / ("-".join(names) + SUFFIX)

    def used_bytes(self) -> int:
        """Bytes of all files, including those that are being written."""
        return sum(size for _, size, _ in self._files())

    def _files(self) -> list[tuple[Path, int, float]]:
        """Every file with its size and the time of its last use."""
        found = []
        try:
            entries = list(self.folder.iterdir())
        except FileNotFoundError:
            return []
        for path in entries:
            if path.suffix not in (SUFFIX, PART):
                continue
            try:
                facts = path.stat()
            except FileNotFoundError:  # another process deleted it
                continue
            found.append((path, facts.st_size, facts.st_mtime))
        return found

    def prune(self, now_s: float) -> int:
        """Delete files that have not been used for a long time; return their number."""
        count = 0
        for path, _, used_s in self._files():
            if now_s - used_s > (PART_S_MAX if path.suffix == PART else self._age_s):
                path.unlink(missing_ok=True)
                count += 1
        return count

    def forget(self, *names: str) -> int:
        """Delete the files with this prefix; return their number."""
        begin, count = "-".join(names) + "-", 0
        for path, _, _ in self._files():
            if path.name.startswith(begin):
                path.unlink(missing_ok=True)
                count += 1
        return count

    def make_room(self, more_bytes: int = 0) -> None:
        """Check that this many more bytes fit.

        Raises:
            ExportsFull: There is not enough room.
        """
        used = self.used_bytes()
        if used + more_bytes >= self.bytes_max:
            raise self._full(used)

    def _full(self, used: int) -> ExportsFull:
        return ExportsFull(
            f"The directory of exports, {self.folder}, is full: {used:,} of {self.bytes_max:,} "
            "bytes (transactions.exports_bytes_max)."
        )

    def open(self, path: Path, key: bytes | None) -> StoredExport | None:
        """Open a stored export; None if it is absent.

        Raises:
            ExportFileError: It is damaged, or its key is missing.
        """
        try:
            with path.open("rb") as file:
                sealed = file.read(len(MAGIC)) == SEALED
                if sealed and key is None:
                    raise ExportFileError("The key of the encrypted exports is missing.")
                found = self._index_of(file, path.name, key if sealed else None)
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, InvalidTag, zlib.error, MsgspecError) as error:
            raise ExportFileError(str(error)) from None
        return StoredExport(path, found.blocks, found.rows, key if sealed else None)

    def _index_of(self, file: BinaryIO, name: str, key: bytes | None) -> _Index:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - LENGTH_BYTES))
        offset = int.from_bytes(file.read(LENGTH_BYTES))
        file.seek(min(offset, end))
        return _index.decode(_opened(file.read(end - offset - LENGTH_BYTES), key, name, offset))

    def part(self) -> Path:
        """Create a temporary file; the caller deletes it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{secrets.token_hex(8)}{PART}"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        return path

    def write(
        self, path: Path, rows: Iterable[Row], at_ms: Callable[[Row], int], key: bytes | None
    ) -> None:
        """Store the rows of an export, given newest or oldest first.

        Args:
            at_ms: The time of a row.
            key: The key to encrypt them with.

        Raises:
            ExportsFull: There is not enough room.
        """
        part = self.part()
        try:
            room = self.bytes_max - self.used_bytes()
            with part.open("wb") as file:
                file.write(SEALED if key else MAGIC)
                blocks, count = [], 0
                for batch in _batches(rows, BLOCK_ROWS):
                    times = [at_ms(row) for row in batch]
                    rising = times[0] < times[-1]
                    body = json.encode(batch[::-1] if rising else batch)
                    blocks.append(_write(file, body, path.name, key, min(times), max(times)))
                    count += len(batch)
                    if file.tell() > room:
                        raise self._full(self.bytes_max)
                if len(blocks) > 1 and blocks[0].newest_ms < blocks[-1].newest_ms:
                    blocks.reverse()  # the exchange wrote the oldest first
                index = json.encode(_Index(tuple(blocks), count))
                end = _write(file, index, path.name, key, 0, 0)
                file.write(end.offset.to_bytes(LENGTH_BYTES))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _write(
    file: BinaryIO, plaintext: bytes, name: str, key: bytes | None, oldest_ms: int, newest_ms: int
) -> FileBlock:
    offset, body = file.tell(), zlib.compress(plaintext, COMPRESSION)
    if key is not None:
        nonce = os.urandom(NONCE_BYTES)
        body = nonce + AESGCM(key).encrypt(nonce, body, _bound_to(name, offset))
    file.write(body)
    return FileBlock(offset, len(body), newest_ms, oldest_ms)


def _opened(body: bytes, key: bytes | None, name: str, offset: int) -> bytes:
    if key is not None:
        nonce, body = body[:NONCE_BYTES], body[NONCE_BYTES:]
        body = AESGCM(key).decrypt(nonce, body, _bound_to(name, offset))
    return zlib.decompress(body)


def _bound_to(name: str, offset: int) -> bytes:
    return f"onebook export v1|{name}|{offset}".encode()
