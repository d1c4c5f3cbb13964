"""The archive: a tar file with a manifest that names every member and its SHA-256.

It holds secrets, so only its owner can read it. It is written under a temporary name and renamed
when it is complete and on disk.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, json

from onebook.errors import DISK_FULL, ConfigError

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
MODE: Final = 0o600
CHUNK_BYTES: Final = 1 << 20
MANIFEST_BYTES_MAX: Final = 1 << 20


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

    Raises:
        ConfigError: It is no backup, damaged, or of a newer format.
    """
    try:
        with tarfile.open(path, mode="r:") as tar:
            manifest = _manifest(tar, path)
            return manifest, {
                name: _extract(tar, name, expected, folder / name)
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


def _manifest(tar: tarfile.TarFile, path: Path) -> Manifest:
    file = tar.extractfile(MANIFEST)
    if file is None:
        raise KeyError(MANIFEST)
    try:
        manifest = json.decode(file.read(MANIFEST_BYTES_MAX), type=Manifest)
    except DecodeError:
        raise ConfigError(f"{path} has a manifest that this release cannot read.") from None
    if manifest.format != FORMAT:
        raise ConfigError(f"{path} has format {manifest.format}: install a newer Onebook.")
    if any("/" in name or name.startswith(".") for name in manifest.members):
        raise ConfigError(f"{path} names files outside the archive.")
    return manifest


def _extract(tar: tarfile.TarFile, name: str, expected: str, target: Path) -> Path:
    source = tar.extractfile(name)
    if source is None:
        raise KeyError(name)
    with source, open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE), "wb") as file:
        while chunk := source.read(CHUNK_BYTES):
            file.write(chunk)
    if digest_of(target) != expected:
        raise ConfigError(f"{name} in the backup is damaged: its checksum does not fit.")
    return target


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
