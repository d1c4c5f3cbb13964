"""Checks of this machine: settings, versions, files and their permissions, limits, disk space."""

import os
import platform
import shutil
import sqlite3
import ssl
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from onebook import __version__, http, preflight
from onebook.accounts.usage import unlocked, usage_place
from onebook.build import missing_extensions
from onebook.config import Settings
from onebook.doctor.findings import Finding, fault, ok, warning
from onebook.drafts import abandoned
from onebook.errors import ConfigError
from onebook.store import Store

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
FREE_BYTES_MIN: Final = 1 << 30
CERTIFICATE_DAYS_MIN: Final = timedelta(days=14)
OTHERS: Final = 0o077
OTHERS_WRITE: Final = 0o022
# Packages whose version is worth knowing in a report of a fault.
PACKAGES: Final = ("uvloop", "picows", "uvicorn", "sqlalchemy", "cryptography")


def local_findings(settings: Settings, faults: list[str], file: Path | None) -> Iterator[Finding]:
    """Examine settings that were read with these faults, and this machine."""
    yield from _settings(settings, faults, file)
    yield from _versions()
    yield from _compiled()
    yield from _user()
    yield from _settings_file(file or Path("onebook.toml"))
    yield from _secrets(settings)
    yield from _folders(settings)
    yield from _usage_files(settings)
    yield from _files_limit(settings)
    yield from _certificate(settings)
    yield from _exposure(settings)


def _settings(settings: Settings, faults: list[str], file: Path | None) -> Iterator[Finding]:
    found = [*faults, *preflight.faults(settings)]
    for each in found:
        yield fault("settings", each, "Correct it and run onebook config check.")
    if not found:
        yield ok(
            "settings", f"{file or 'Defaults, onebook.toml and environment'}: no errors found."
        )


def _versions() -> Iterator[Finding]:
    packages = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    yield ok(
        "versions",
        f"Onebook {__version__}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {ssl.OPENSSL_VERSION}, {packages}.",
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _compiled() -> Iterator[Finding]:
    if missing := missing_extensions():
        yield warning(
            "compiled",
            f"The slower pure-Python version is used for: {', '.join(missing)}.",
            "Install a C compiler and reinstall Onebook.",
        )
    else:
        yield ok("compiled", "All extensions are compiled.")


def _user() -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield warning(
            "user",
            "This runs as root.",
            "Run the service under an account of its own, as deploy/systemd/onebook.service does.",
        )


def _settings_file(path: Path) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & OTHERS_WRITE:
        yield warning(
            "permissions", f"Others can write the settings file {path}.", f"chmod go-w {path}"
        )


def _secrets(settings: Settings) -> Iterator[Finding]:
    """Files that others may not read; the pepper and the master key are checked by preflight."""
    database = _database_file(settings)
    sensitive = {
        "the database": database,
        "its write-ahead log": database and database.with_name(f"{database.name}-wal"),
        "the TLS key": settings.server.tls_key_file,
    }
    for what, path in sensitive.items():
        if path is None:
            continue
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:  # not made yet, or in a folder that is examined below
            continue
        if mode & OTHERS:
            yield warning("permissions", f"Others can read {what} {path}.", f"chmod 600 {path}")
        elif not os.access(path, os.R_OK):
            advice = "Run this as the account of the service, which must own the file."
            yield fault("permissions", f"{path} cannot be read.", advice)


def _database_file(settings: Settings) -> Path | None:
    try:
        return Store(settings.store.url).database.path
    except ConfigError:
        return None  # reported already


def _folders(settings: Settings) -> Iterator[Finding]:
    database = _database_file(settings)
    files = [settings.store.pepper_file, settings.transactions.master_key_file]
    folders = {each.absolute().parent for each in (*files, *([database] if database else []))}
    if settings.store.usage_dir is not None:
        folders.add(settings.store.usage_dir.absolute())
    for folder in sorted(folders):
        yield from _folder(folder)
        yield from _abandoned(folder)


def _folder(folder: Path) -> Iterator[Finding]:
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))
    if not os.access(there, os.W_OK | os.X_OK):
        yield fault(
            "permissions",
            f"{there} cannot be written, and the service keeps files in {folder}.",
            f"Run this as the account of the service, which must own {folder}.",
        )
        return
    free_bytes = shutil.disk_usage(there).free
    room = f"{free_bytes / (1 << 30):.1f} GiB are free at {folder}."
    if free_bytes < FREE_BYTES_MIN:
        yield warning("disk", f"Only {room}", "Make room, or move store.url to another disk.")
    else:
        yield ok("disk", room)


def _abandoned(folder: Path) -> Iterator[Finding]:
    for each in abandoned(folder):
        yield warning(
            "leftovers",
            f"{each} was left by an onebook backup or restore that was killed, and may hold the "
            "pepper and the master key.",
            f"rm -r {each}; the next backup or restore to {folder} removes it too.",
        )


def _usage_files(settings: Settings) -> Iterator[Finding]:
    """Usage that no node has taken in: it is not billed."""
    try:
        folder, name = usage_place(settings.store, Store(settings.store.url))
    except ConfigError:
        return  # reported already
    for each in unlocked(folder, name):
        yield warning(
            "usage",
            f"{each} was left by a node that was killed; usage in it is not billed yet.",
            "Start a node with this store.usage_dir on this machine: it takes the file in. Do not "
            "delete it.",
        )


def _certificate(settings: Settings) -> Iterator[Finding]:
    """How long the certificate is valid; an expired one is a fault of the settings."""
    ends = preflight.tls_ends(settings.server)
    left = None if ends is None else ends - datetime.now(UTC)
    if left is None or left <= timedelta(0):
        return
    shown = f"The certificate in {settings.server.tls_cert_file} ends on {ends:%Y-%m-%d %H:%M} UTC"
    if left < CERTIFICATE_DAYS_MIN:
        yield warning(
            "certificate",
            f"{shown}, in {left.days} days.",
            "Renew it, then send the node SIGHUP (systemctl reload onebook).",
        )
    else:
        yield ok("certificate", f"{shown}.")


def _files_limit(settings: Settings) -> Iterator[Finding]:
    yield from _tried(
        "files",
        lambda: http.reserve_files(settings.server, settings.gateway.connections_max),
        "The process may open as many files as the limits need.",
        "Set LimitNOFILE= in the systemd unit or ulimit -Hn, or lower gateway.connections_max.",
    )


def _tried(
    check: str, action: Callable[[], object], message: str, advice: str
) -> Iterator[Finding]:
    try:
        action()
    except ConfigError as error:
        yield fault(check, error.message, advice)
    else:
        yield ok(check, message)


def _exposure(settings: Settings) -> Iterator[Finding]:
    server = settings.server
    if server.host in LOOPBACK:
        yield ok("exposure", f"The service listens on {server.host}, for this machine alone.")
        return
    if server.tls_cert_file is None:
        yield warning(
            "exposure",
            f"The service listens on {server.host} without TLS: API keys cross the network in "
            "clear text.",
            "Set server.tls_cert_file, or server.host = 127.0.0.1 behind a proxy (deploy/nginx).",
        )
    if server.metrics_port is None and not server.metrics_token.get_secret_value():
        yield warning(
            "exposure",
            f"/metrics at {server.host} port {server.port} is answered to this machine alone.",
            "Set server.metrics_port and server.metrics_host, or server.metrics_token.",
        )
