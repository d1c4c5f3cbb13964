"""Copies of a database that runs: SQLite's online backup, pg_dump for PostgreSQL.

https://www.sqlite.org/backup.html, https://www.postgresql.org/docs/current/app-pgdump.html
"""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL, make_url

from onebook.errors import ConfigError
from onebook.store import Store
from onebook.store.database import tls_variables, tls_words

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
PAGES_AT_ONCE: Final = 1_024  # between two steps, writers of the node go on
STEP_PAUSE_S: Final = 0.005
BUSY_S: Final = 30.0
ERROR_CHARS_MAX: Final = 300


def kind_of(url: str) -> str:
    """The kind of database that an address names.

    Raises:
        ConfigError: None that we know.
    """
    return POSTGRESQL if Store(url).database.path is None else SQLITE


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a database that may be in use, and check the copy.

    Raises:
        ConfigError: It cannot be read, or the copy is not sound.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as theirs,
            closing(sqlite3.connect(target)) as copy,
        ):
            theirs.execute(f"PRAGMA busy_timeout={round(BUSY_S * 1_000)}")
            theirs.backup(copy, pages=PAGES_AT_ONCE, sleep=STEP_PAUSE_S)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without -wal
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
    """Restore a dump into an empty database, whole or not at all.

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
    """The connection as libpq's variables: arguments are readable by every user."""
    values = {
        "PGHOST": url.host,
        "PGPORT": url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.database,
    }
    given = {name: str(value) for name, value in values.items() if value is not None}
    return {**given, **tls_variables(tls_words(url))}
