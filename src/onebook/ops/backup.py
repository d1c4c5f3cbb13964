"""Backup and restore of a service: database, pepper, master key and settings in one archive.

A database is useless without its secrets: API keys cannot be verified without the pepper, and
exchange credentials cannot be decrypted without the master key. A backup is made while nodes run,
with SQLite's online backup (https://www.sqlite.org/backup.html) or with pg_dump
(https://www.postgresql.org/docs/current/app-pgdump.html), and is restored only to unused paths.

The archive is a tar file with a manifest that names every member and its SHA-256. It contains
secrets, so only its owner can read it. It is written under a temporary name, and renamed when it is
complete and synced to disk. Its parts are collected in a draft folder, which is locked while its
process runs: the next backup or restore to the same folder removes the drafts of killed processes,
and `onebook doctor` reports them.
"""

import asyncio
import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from msgspec import DecodeError, Struct, json
from sqlalchemy.engine import URL, make_url

from onebook import __version__
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.clock import iso_ms
from onebook.config import Settings
from onebook.errors import DISK_FULL, ConfigError, DatabaseUnavailable
from onebook.files import read_bounded
from onebook.store import Store
from onebook.store.database import BACKED_UP_AT, tls_variables, tls_words
from onebook.transactions.credentials import Vault, master_keys

DATABASE: Final = "database"
PEPPER: Final = "pepper"
MASTER_KEY: Final = "master_key"
SETTINGS: Final = "onebook.toml"
NAMES_SHOWN: Final = 5  # maximum tables named if they prevent a restore

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
MODE: Final = 0o600
CHUNK_BYTES: Final = 1 << 20
MANIFEST_BYTES_MAX: Final = 1 << 20
HEADERS_MAX: Final = 64  # a backup has at most five members
PAX_BYTES_MAX: Final = 4_096  # maximum of one header; ours are smaller

_PAX_SIZE: Final = re.compile(rb"^[0-9]{1,3} size=([0-9]{1,19})$", re.MULTILINE)
_NAME: Final = re.compile(r"[a-z][a-z_.]*")

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
PAGES_AT_ONCE: Final = 1_024  # pages per step; the node can write between steps
STEP_PAUSE_S: Final = 0.005
BUSY_S: Final = 30.0
ERROR_CHARS_MAX: Final = 300

PREFIX: Final = ".onebook-backup-"
LOCK: Final = "lock"


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an archive.

    Attributes:
        format: Format of the archive.
        version: The Onebook version that wrote it.
        created_at: Creation time, ISO 8601 in UTC.
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
    """The position of a member's content in the archive."""

    start: int
    length: int


class Backup(NamedTuple):
    """An archive that was written or restored, and the parts that are not in it."""

    path: Path
    manifest: Manifest
    missing: tuple[str, ...]


async def back_up(
    settings: Settings, folder: Path, *, file: Path | None, now_ms: int, timeout_s: float
) -> Backup:
    """Write an archive to a folder while nodes run.

    Args:
        settings: The settings of the service.
        folder: The folder of the archive.
        file: The settings file, if any.
        now_ms: The time, used in the archive's name.
        timeout_s: Timeout of pg_dump, in seconds.

    Raises:
        ConfigError: A part is missing or cannot be copied.
    """
    at = datetime.fromtimestamp(now_ms / 1_000, UTC)
    path = folder / f"onebook-{at:%Y%m%dT%H%M%SZ}.tar"
    if path.exists():
        raise ConfigError(f"The backup {path} already exists.")
    kind = kind_of(settings.store.url)
    pepper, master = settings.store.pepper_file, settings.transactions.master_key_file
    _make_folder(folder)
    remove_abandoned(folder)
    with draft(folder) as place:
        schema = await _schema(settings)
        members = {PEPPER: _copied(pepper, place / PEPPER, "the pepper")}
        if master.exists():
            members[MASTER_KEY] = _copied(master, place / MASTER_KEY, "the master key")
        if file is not None:
            members[SETTINGS] = _copied(file, place / SETTINGS, "the settings file")
        members[DATABASE] = place / DATABASE
        await asyncio.to_thread(_copy_database, settings.store.url, members[DATABASE], timeout_s)
        if master.exists() and (
            MASTER_KEY not in members or master.read_bytes() != members[MASTER_KEY].read_bytes()
        ):
            raise ConfigError("The master key was changed during the backup; run it again.")
        if pepper.read_bytes() != members[PEPPER].read_bytes():
            raise ConfigError("The pepper file was changed during the backup; run it again.")
        digests = {name: digest_of(member) for name, member in members.items()}
        manifest = Manifest(FORMAT, __version__, iso_ms(now_ms), kind, schema, digests)
        await asyncio.to_thread(write_archive, path, manifest, members, place / path.name)
    with suppress(DatabaseUnavailable):  # the archive is complete without its metric
        async with Store(settings.store.url) as store:
            await store.facts.put(BACKED_UP_AT, str(now_ms))
    return Backup(path, manifest, _missing(members, settings))


async def restore(settings: Settings, archive: Path, *, timeout_s: float) -> Backup:
    """Restore an archive to the paths of database, pepper and master key in the settings.

    Existing files are never overwritten. The result is checked: the pepper must belong to the
    database, and the master key must decrypt its credentials.

    Raises:
        ConfigError: The archive is damaged, files or tables already exist, or parts do not match.
    """
    kind = kind_of(settings.store.url)
    _require_free(settings)
    targets = _targets(settings)
    for folder in {target.parent for target in targets.values()}:
        _make_folder(folder)
        remove_abandoned(folder)
    with draft(targets.get(DATABASE, targets[PEPPER]).parent) as place:
        manifest, members = await asyncio.to_thread(read_archive, archive, place)
        if manifest.database != kind:
            raise ConfigError(
                f"The backup is of a {manifest.database} database, but store.url names {kind}."
            )
        if lacking := [name for name in (DATABASE, PEPPER) if name not in members]:
            raise ConfigError(f"The backup {archive} lacks {' and '.join(lacking)}.")
        if kind == POSTGRESQL:
            await _require_empty(settings)
        placed = [name for name in (PEPPER, MASTER_KEY, DATABASE) if name in targets]
        with ExitStack() as undo:  # a failed restore changes nothing
            for name in placed:
                if name in members:
                    _place(members[name], targets[name])
                    undo.callback(_remove, targets[name])
            if kind == POSTGRESQL:
                url = settings.store.url
                await asyncio.to_thread(restore_postgresql, url, members[DATABASE], timeout_s)
            await _check(settings)
            undo.pop_all()
    return Backup(archive, manifest, _missing(members, settings))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"The folder {folder} cannot be created: {error.strerror}.") from None


async def _schema(settings: Settings) -> str:
    try:
        async with Store(settings.store.url) as store:
            found, _ = await store.database.revisions()
    except DatabaseUnavailable as error:
        raise ConfigError(error.reason) from None
    if found is None:
        raise ConfigError("The database is empty: there is nothing to back up.")
    return found


def _copied(source: Path, target: Path, what: str) -> Path:
    try:
        content = read_bounded(source)
    except OSError as error:
        raise ConfigError(f"{source}, {what}, cannot be read: {error.strerror}.") from None
    try:
        target.touch(0o600)
        target.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from None
    return target


def _copy_database(url: str, target: Path, timeout_s: float) -> None:
    if kind_of(url) == SQLITE:
        path = Store(url).database.path
        assert path is not None
        copy_sqlite(path, target)
    else:
        dump_postgresql(url, target, timeout_s)


def _missing(members: dict[str, Path], settings: Settings) -> tuple[str, ...]:
    missing = []
    if MASTER_KEY not in members and settings.transactions.master_key.get_secret_value():
        missing.append("the master key, which is in ONEBOOK_TRANSACTIONS__MASTER_KEY")
    if SETTINGS not in members:
        missing.append("settings from variables and flags")
    return tuple(missing)


def _targets(settings: Settings) -> dict[str, Path]:
    targets = {
        PEPPER: settings.store.pepper_file,
        MASTER_KEY: settings.transactions.master_key_file,
    }
    path = Store(settings.store.url).database.path
    if path is not None:
        targets[DATABASE] = path
    return targets


def _require_free(settings: Settings) -> None:
    taken = []
    for path in _targets(settings).values():
        taken += [str(each) for each in _with_companions(path) if each.exists()]
    if taken:
        raise ConfigError(
            f"A restore overwrites no files: stop the service, then move {', '.join(taken)} away."
        )


async def _require_empty(settings: Settings) -> None:
    try:
        async with Store(settings.store.url) as store:
            tables = await store.database.tables()
            ours, _ = await store.database.revisions()
    except DatabaseUnavailable as error:
        raise ConfigError(error.reason) from None
    if tables:
        whose = "those of Onebook" if ours else _some(tables)
        raise ConfigError(
            f"The database {store.database.name} is not empty: "
            f"it has {len(tables)} tables, {whose}. Restore into an empty one."
        )


def _some(names: list[str]) -> str:
    more = ", ..." if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _place(source: Path, target: Path) -> None:
    """Move an unpacked file into place atomically, and sync it to disk."""
    try:
        try:
            _link(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with draft(target.parent) as place:  # on the target's disk
                shutil.copy(source, place / target.name)
                _link(place / target.name, target)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from None


def _link(source: Path, target: Path) -> None:
    with source.open("rb") as file:
        os.fsync(file.fileno())
    os.link(source, target)  # fails if the file exists by now


def _remove(path: Path) -> None:
    for each in _with_companions(path):
        each.unlink(missing_ok=True)


def _with_companions(path: Path) -> tuple[Path, ...]:
    """List a file and, for a SQLite database, its -wal and -shm files."""
    return (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"))


async def _check(settings: Settings) -> None:
    """Check the restored files like a starting node."""
    try:
        async with Store(settings.store.url) as store:
            await store.database.upgrade(create=False)
            await require_same_pepper(store, load_pepper(settings.store.pepper_file))
            vault = Vault(store.credentials, master_keys(settings.transactions))
            for row in await store.credentials.list_credentials():
                await vault.get(row.exchange, row.environment)
    except DatabaseUnavailable as error:
        raise ConfigError(error.reason) from None


def write_archive(
    path: Path, manifest: Manifest, members: Mapping[str, Path], temporary: Path
) -> None:
    """Write an archive atomically: a draft on the same disk is renamed to the archive.

    Raises:
        ConfigError: The archive cannot be written.
    """
    try:
        with (
            open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, MODE), "wb") as file,
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
        temporary.rename(path)
        _sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"The backup {path} cannot be written: {error.strerror}.") from None


def read_archive(path: Path, folder: Path) -> tuple[Manifest, dict[str, Path]]:
    """Verify every byte of an archive and unpack it into a folder.

    Only plain files as written by `write_archive` are accepted: with other features of tar (links,
    sparse files, headers that refer to each other), a small archive can fill the disk or never end.

    Raises:
        ConfigError: The archive is not a backup, is damaged, or has a newer format.
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
        raise ConfigError(f"{path} is not an Onebook backup, or is damaged.") from None
    except OSError as error:
        if error.errno in DISK_FULL:
            reason = f"The backup cannot be unpacked to {folder}: {error.strerror}."
            raise ConfigError(reason) from None
        raise ConfigError(f"The backup {path} cannot be read: {error.strerror}.") from None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: io.BufferedIOBase, size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, MODE
    tar.addfile(member, content)


def _places(file: BinaryIO) -> dict[str, Place]:
    """Find the members of an archive.

    Raises:
        tarfile.TarError, EOFError: The archive is damaged, or contains more than a few plain files.
    """
    size = os.fstat(file.fileno()).st_size
    found: dict[str, Place] = {}
    stated: int | None = None  # from the pax header of a large member
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
    """Return the size of the next member from the records of a pax header; None if absent."""
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


def kind_of(url: str) -> str:
    """Return the kind of database that a URL names.

    Raises:
        ConfigError: The kind of database is not supported.
    """
    return POSTGRESQL if Store(url).database.path is None else SQLITE


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database that may be in use, and check the copy.

    Raises:
        ConfigError: The database cannot be read, or the copy is damaged.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as theirs,
            closing(sqlite3.connect(target)) as copy,
        ):
            theirs.execute(f"PRAGMA busy_timeout={round(BUSY_S * 1_000)}")
            theirs.backup(copy, pages=PAGES_AT_ONCE, sleep=STEP_PAUSE_S)
            copy.execute("PRAGMA journal_mode=DELETE")  # a single file, without -wal
            (found,) = copy.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.Error as error:
        raise ConfigError(f"The database {source} cannot be copied to {target}: {error}.") from None
    if found != "ok":
        raise ConfigError(f"The database {source} is damaged: {found}.")


def dump_postgresql(url: str, target: Path, timeout_s: float) -> None:
    """Write a dump in PostgreSQL's custom format.

    Raises:
        ConfigError: pg_dump is not installed or fails.
    """
    words = ["--format=custom", "--no-owner", "--no-privileges", "--file", str(target)]
    _run("pg_dump", words, url, timeout_s)


def restore_postgresql(url: str, dump: Path, timeout_s: float) -> None:
    """Restore a dump into an empty database in one transaction.

    Raises:
        ConfigError: pg_restore is not installed or fails.
    """
    name = str(make_url(url).database)
    words = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
    _run("pg_restore", [*words, "--dbname", name, str(dump)], url, timeout_s)


def _run(program: str, words: list[str], url: str, timeout_s: float) -> None:
    path = shutil.which(program)
    if path is None:
        raise ConfigError(
            f"{program} is not installed here; install PostgreSQL's client programs "
            "(Debian: apt-get install postgresql-client)."
        )
    try:
        done = subprocess.run(  # noqa: S603 - a program found on PATH, no shell
            [path, "--no-password", *words],
            env={**os.environ, **_environment(make_url(url))},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{program} did not end within {timeout_s:g} s.") from None
    if done.returncode:
        reason = " ".join(done.stderr.split())[:ERROR_CHARS_MAX] or f"status {done.returncode}"
        raise ConfigError(f"{program} failed: {reason}")


def _environment(url: URL) -> dict[str, str]:
    """Return the connection as libpq variables, because arguments are visible to all users."""
    values = {
        "PGHOST": url.host,
        "PGPORT": url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.database,
    }
    given = {name: str(value) for name, value in values.items() if value is not None}
    return {**given, **tls_variables(tls_words(url))}


@contextmanager
def draft(folder: Path) -> Iterator[Path]:
    """Create a draft folder in `folder`, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=folder) as name:
        place = Path(name)
        with (place / LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield place


def abandoned(folder: Path) -> list[Path]:
    """List the readable drafts in a folder whose processes have ended."""
    return [each for each in sorted(folder.glob(f"{PREFIX}*")) if _unlocked(each / LOCK)]


def remove_abandoned(folder: Path) -> None:
    """Remove abandoned drafts, which contain secrets and use disk space."""
    for each in abandoned(folder):
        with suppress(OSError):
            shutil.rmtree(each)


def _unlocked(path: Path) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True  # its process was killed before creating the lock
    except OSError:
        return False
    return True
