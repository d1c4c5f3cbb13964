"""Checks of the database: whether it answers, its schema, and the secrets that belong to it."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.config import Settings
from onebook.doctor.findings import Finding, fault, ok, warning
from onebook.errors import ConfigError, DatabaseUnavailable, file_problem
from onebook.store import Store
from onebook.times import iso_ms
from onebook.transactions.credentials import Vault, master_keys

SLOW_S: Final = 0.25  # a write that takes longer goes into the usage file as well


async def database_findings(
    settings: Settings, monotonic: Callable[[], float] = time.monotonic
) -> list[Finding]:
    """Examine the database that the settings name."""
    try:
        store = Store(settings.store.url)
    except ConfigError:
        return []  # a fault of the settings, which are examined elsewhere
    async with store:
        try:
            if store.database.path is not None and not store.database.path.exists():
                return [_absent(settings, store)]
            if store.database.path is not None:
                damage = await asyncio.to_thread(_damage, store.database.path)
                if damage:
                    return [_damaged(store.database.path, damage)]
            return [each async for each in _opened(settings, store, monotonic)]
        except DatabaseUnavailable as error:
            advice = "Start the database, and check store.url and the rights of its user."
            if store.database.path is not None:
                advice = (
                    "The account of the service must own the file, those beside it and the folder, "
                    "and their disk must have room."
                )
            return [fault("database", error.reason, advice)]
        except OSError as error:
            advice = "Check the owner and the mode of the file and of its folder."
            return [fault("database", file_problem(error), advice)]


def _damage(path: Path) -> str:
    """What SQLite finds wrong with a file; empty where it is sound, or cannot be opened at all."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as its:
            (found,) = its.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        return str(error) if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) else ""
    return "" if found == "ok" else str(found).replace("\n", " ")


def _damaged(path: Path, damage: str) -> Finding:
    return fault(
        "database",
        f"The database {path} is damaged: {damage}.",
        f"Stop the nodes, move {path} and the files beside it away (keep them), and restore the "
        "newest backup (onebook restore). Then check the disk: smartctl, dmesg.",
    )


def _absent(settings: Settings, store: Store) -> Finding:
    if settings.store.pepper_file.exists():
        return fault(
            "database",
            f"There is no database {store.database.path}, though its pepper is at "
            f"{settings.store.pepper_file}.",
            "Restore it (onebook restore), or correct store.url.",
        )
    return ok("database", f"The first start makes {store.database.path}.")


async def _opened(
    settings: Settings, store: Store, monotonic: Callable[[], float]
) -> AsyncIterator[Finding]:
    found, known = await store.database.revisions()
    if found is None:
        yield ok("database", "It answers and is empty; the first start makes its tables.")
        return
    if found > known:
        yield fault(
            "database",
            f"Its schema {found} is newer than {known} of this release.",
            "Install the newer Onebook.",
        )
        return
    if found < known:
        yield warning(
            "database",
            f"Its schema is {found}; this release has {known}.",
            "Make a backup (onebook backup), then run onebook db upgrade or start a node.",
        )
        return
    began_s = monotonic()
    await store.accounts.newest_change()  # the connection is open by now
    answered_s = monotonic() - began_s
    began_s = monotonic()
    await store.facts.probe(time.time_ns() // 1_000_000)
    written_s = monotonic() - began_s
    speed = f"a read took {answered_s * 1e3:.0f} ms, a write {written_s * 1e3:.0f} ms"
    if written_s > SLOW_S:
        yield warning(
            "database",
            f"It answers slowly: {speed}.",
            "Put it on a faster disk, or nearer to the node.",
        )
    else:
        yield ok("database", f"Schema {found}; {speed}.")
    async for each in _belonging(settings, store):
        yield each


async def _belonging(settings: Settings, store: Store) -> AsyncIterator[Finding]:
    """The pepper and the master key that the rows were written under."""
    accounts = await store.accounts.list_accounts()
    if accounts:
        if settings.store.pepper_file.exists():
            yield await _secret(
                "pepper",
                lambda: _pepper(settings, store),
                "The pepper belongs to this database.",
                "Restore the pepper file from the backup of this database: no key works without.",
            )
            async for each in _peppers(settings, store):
                yield each
        else:
            yield fault(
                "pepper",
                f"{settings.store.pepper_file} is missing, and {len(accounts)} accounts exist.",
                "Restore it from the backup of this database: no key works without.",
            )
    for row in await store.credentials.list_credentials():
        name = f"{row.exchange} {row.environment}"

        async def opened(exchange: str = row.exchange, environment: str = row.environment) -> None:
            await Vault(store.credentials, master_keys(settings.transactions)).get(
                exchange, environment
            )

        yield await _secret(
            "master key",
            opened,
            f"The credentials of {name} can be decrypted.",
            f"Restore the master key, or set them again: onebook credentials set {row.exchange}.",
        )


async def _peppers(settings: Settings, store: Store) -> AsyncIterator[Finding]:
    """Older peppers that are still in use, and retired ones that the file still holds."""
    rows = await store.accounts.list_peppers()
    old = [each.pepper_id for each in rows[:-1] if each.retired_at_ms is None]
    if old:
        left = await store.accounts.keys_under_old_peppers(time.time_ns() // 1_000_000)
        yield warning(
            "pepper",
            f"The old pepper {', '.join(old)} is still in use. Keys that were not used since the "
            f"rotation of {iso_ms(rows[-1].current_from_ms)}: {len(left)}.",
            "Restart the nodes so that clients connect again; then onebook keys rotate-pepper "
            "--retire ends it and revokes the keys that are left.",
        )
    retired = {each.pepper_id for each in rows if each.retired_at_ms is not None}
    with suppress(ConfigError):  # reported already
        held = retired.intersection(load_pepper(settings.store.pepper_file).ids)
        if held:
            yield warning(
                "pepper",
                f"{settings.store.pepper_file} holds the retired pepper {', '.join(sorted(held))}.",
                "Run onebook keys rotate-pepper --retire again, and copy the file to each machine.",
            )


async def _pepper(settings: Settings, store: Store) -> None:
    await require_same_pepper(store, load_pepper(settings.store.pepper_file))


async def _secret(
    check: str, action: Callable[[], Awaitable[None]], message: str, advice: str
) -> Finding:
    try:
        await action()
    except ConfigError as error:
        return fault(check, error.message, advice)
    return ok(check, message)
