"""The two commands: make a backup beside a running node, restore one into an empty place."""

import asyncio
import errno
import os
import shutil
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from onebook import __version__
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.backup.archive import FORMAT, Manifest, digest_of, read_archive, write_archive
from onebook.backup.databases import (
    POSTGRESQL,
    SQLITE,
    copy_sqlite,
    dump_postgresql,
    kind_of,
    restore_postgresql,
)
from onebook.config import Settings
from onebook.drafts import draft, remove_abandoned
from onebook.errors import ConfigError, DatabaseUnavailable
from onebook.files import read_bounded
from onebook.store import Store
from onebook.store.database import BACKED_UP_AT
from onebook.times import iso_ms
from onebook.transactions.credentials import Vault, master_keys

DATABASE: Final = "database"
PEPPER: Final = "pepper"
MASTER_KEY: Final = "master_key"
SETTINGS: Final = "onebook.toml"
NAMES_SHOWN: Final = 5  # of the tables in the way of a restore


class Backup(NamedTuple):
    """An archive that was made or restored, and what it does not hold."""

    path: Path
    manifest: Manifest
    missing: tuple[str, ...]


async def back_up(
    settings: Settings, folder: Path, *, file: Path | None, now_ms: int, timeout_s: float
) -> Backup:
    """Make an archive in a folder, while nodes run.

    Args:
        settings: Of the service.
        folder: Where the archive goes.
        file: The settings file, if there is one.
        now_ms: The time, which names the archive.
        timeout_s: The longest that pg_dump may take.

    Raises:
        ConfigError: Something is missing or cannot be copied.
    """
    at = datetime.fromtimestamp(now_ms / 1_000, UTC)
    path = folder / f"onebook-{at:%Y%m%dT%H%M%SZ}.tar"
    if path.exists():
        raise ConfigError(f"There is a backup {path} already.")
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
            raise ConfigError("The master key was changed meanwhile; make the backup again.")
        if pepper.read_bytes() != members[PEPPER].read_bytes():
            raise ConfigError("The pepper file was changed meanwhile; make the backup again.")
        digests = {name: digest_of(member) for name, member in members.items()}
        manifest = Manifest(FORMAT, __version__, iso_ms(now_ms), kind, schema, digests)
        await asyncio.to_thread(write_archive, path, manifest, members, place / path.name)
    with suppress(DatabaseUnavailable):  # the archive is complete; its age is a metric alone
        async with Store(settings.store.url) as store:
            await store.facts.put(BACKED_UP_AT, str(now_ms))
    return Backup(path, manifest, _missing(members, settings))


async def restore(settings: Settings, archive: Path, *, timeout_s: float) -> Backup:
    """Restore an archive to the paths of database, pepper and master key in the settings.

    Existing files are never overwritten. The result is checked: the pepper must be that of the
    database, and the master key must open its credentials.

    Raises:
        ConfigError: The archive is damaged, something is in its way, or the parts do not fit.
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
                f"The backup is of a {manifest.database} database, and store.url names {kind}."
            )
        if lacking := [name for name in (DATABASE, PEPPER) if name not in members]:
            raise ConfigError(f"The backup {archive} lacks {' and '.join(lacking)}.")
        if kind == POSTGRESQL:
            await _require_empty(settings)
        placed = [name for name in (PEPPER, MASTER_KEY, DATABASE) if name in targets]
        with ExitStack() as undo:  # a failed restore leaves everything as it was
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
        raise ConfigError(f"The folder {folder} cannot be made: {error.strerror}.") from None


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
            f"A restore overwrites nothing: stop the service, then move away {', '.join(taken)}."
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
    """Put an unpacked file into place atomically, synced to disk."""
    try:
        try:
            _link(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with draft(target.parent) as place:  # on the disk of the target
                shutil.copy(source, place / target.name)
                _link(place / target.name, target)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from None


def _link(source: Path, target: Path) -> None:
    with source.open("rb") as file:
        os.fsync(file.fileno())
    os.link(source, target)  # fails where a file has appeared meanwhile


def _remove(path: Path) -> None:
    for each in _with_companions(path):
        each.unlink(missing_ok=True)


def _with_companions(path: Path) -> tuple[Path, ...]:
    """A file and, of a SQLite database, its -wal and -shm files."""
    return (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"))


async def _check(settings: Settings) -> None:
    """Check the restored files as a node would at its start."""
    try:
        async with Store(settings.store.url) as store:
            await store.database.upgrade(create=False)
            await require_same_pepper(store, load_pepper(settings.store.pepper_file))
            vault = Vault(store.credentials, master_keys(settings.transactions))
            for row in await store.credentials.list_credentials():
                await vault.get(row.exchange, row.environment)
    except DatabaseUnavailable as error:
        raise ConfigError(error.reason) from None
