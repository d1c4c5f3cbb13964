"""The archive: a tar file with a manifest that names every member and its SHA-256.

It holds secrets, so only its owner can read it. It is written under a temporary name and renamed
when it is complete and on disk.
"""

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from msgspec import DecodeError, Struct, json

from onebook.errors import DISK_FULL, ConfigError

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
MODE: Final = 0o600
CHUNK_BYTES: Final = 1 << 20
MANIFEST_BYTES_MAX: Final = 1 << 20
HEADERS_MAX: Final = 64  # a backup has at most five members
PAX_BYTES_MAX: Final = 4_096  # of one header; a larger one states no size of ours

_PAX_SIZE: Final = re.compile(rb"^[0-9]{1,3} size=([0-9]{1,19})$", re.MULTILINE)
_NAME: Final = re.compile(r"[a-z][a-z_.]*")


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What an archive holds.

    Attributes:
        format: Of the archive.
        version: The Onebook that made it.
        created_at: When, ISO 8601 in UTC.
        database: `sqlite` or `postgresql`.
        schema: The revision of the database.
        members: SHA-256 in hex by name.
    """

    format: int
    version: str
    created_at: str
    database: str
    schema: str
    members: dict[str, str]


class Place(NamedTuple):
    """Where the content of a member is in the archive."""

    start: int
    length: int


def write_archive(path: Path, manifest: Manifest, members: Mapping[str, Path], draft: Path) -> None:
    """Write an archive of files, atomically: a draft on the same disk becomes the archive.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        with (
            open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE), "wb") as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            head = json.format(json.encode(manifest), indent=2)
            _add(tar, MANIFEST, io.BytesIO(head), len(head))
            for name, source in members.items():
                with source.open("rb") as content:
                    _add(tar, name, content, source.stat().st_size)
            tar.close()
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync_folder(path.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"The backup {path} cannot be written: {error.strerror}.") from None


def read_archive(path: Path, folder: Path) -> tuple[Manifest, dict[str, Path]]:
    """Unpack an archive into a folder, after a check of every byte.

    Only the plain files that `write_archive` writes are read: what else tar knows (links, sparse
    files, headers that refer to each other) makes a small archive fill the disk or never end.

    Raises:
        ConfigError: It is no backup, damaged, or of a newer format.
    """
    try:
        with path.open("rb") as file:
            places = _places(file)
            manifest = _manifest(file, places, path)
            return manifest, {
                name: _extract(file, places[name], name, expected, folder / name)
                for name, expected in manifest.members.items()
            }
    except (tarfile.TarError, KeyError, EOFError):
        raise ConfigError(f"{path} is no backup of Onebook, or it is damaged.") from None
    except OSError as error:
        if error.errno in DISK_FULL:
            reason = f"{folder} cannot take the unpacked backup: {error.strerror}."
            raise ConfigError(reason) from None
        raise ConfigError(f"The backup {path} cannot be read: {error.strerror}.") from None


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: io.BufferedIOBase, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, MODE
    tar.addfile(member, content)


def _places(file: BinaryIO) -> dict[str, Place]:
    """Find the members of an archive.

    Raises:
        tarfile.TarError, EOFError: It is damaged, or holds anything but a few plain files.
    """
    size = os.fstat(file.fileno()).st_size
    found: dict[str, Place] = {}
    stated: int | None = None  # by a pax header, where the size of a member needs one
    for _ in range(HEADERS_MAX):
        block = file.read(tarfile.BLOCKSIZE)
        if not any(block):
            return found
        head = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
        start = file.tell()
        length = head.size if stated is None else stated
        if not 0 <= length <= size - start:
            raise EOFError
        if head.type == tarfile.XHDTYPE:
            stated = _stated_size(file.read(min(length, PAX_BYTES_MAX)))
        elif head.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and head.name not in found:
            found[head.name], stated = Place(start, length), None
        else:
            raise tarfile.ReadError("a link, another kind of member, or a name that occurs twice")
        file.seek(start + -(-length // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
    raise tarfile.ReadError("too many members")


def _stated_size(records: bytes) -> int | None:
    """The size of the next member in the records of a pax header; None where none states it."""
    sizes = _PAX_SIZE.findall(records)
    return int(sizes[-1]) if sizes else None


def _manifest(file: BinaryIO, places: Mapping[str, Place], path: Path) -> Manifest:
    place = places[MANIFEST]
    file.seek(place.start)
    try:
        content = file.read(min(place.length, MANIFEST_BYTES_MAX))
        manifest = json.decode(content, type=Manifest)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        raise ConfigError(f"{path} has a manifest that this release cannot read.") from None
    if manifest.format != FORMAT:
        raise ConfigError(f"{path} has format {manifest.format}: install a newer Onebook.")
    if not all(_NAME.fullmatch(name) for name in manifest.members):
        raise ConfigError(f"{path} names files outside the archive.")
    return manifest


def _extract(file: BinaryIO, place: Place, name: str, expected: str, target: Path) -> Path:
    file.seek(place.start)
    left = place.length
    with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE), "wb") as copy:
        while left:
            chunk = file.read(min(left, CHUNK_BYTES))
            if not chunk:
                raise EOFError
            copy.write(chunk)
            left -= len(chunk)
    if digest_of(target) != expected:
        raise ConfigError(f"{name} in the backup is damaged: its checksum does not match.")
    return target


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
