"""Only a node and `onebook db upgrade` migrate a database: other commands refuse another schema."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, text
from typer.testing import CliRunner

from databases import KINDS, database
from disks import filled, small_disk
from onebook.cli.commands import app
from onebook.store import Store
from onebook.store.migrations.versions import (
    r0003_operator,
    r0004_peppers,
    r0005_collection,
    r0006_exports,
    r0007_fees,
    r0008_export_reference,
)

COMMANDS = (
    ("accounts", "create", "bob"),
    ("keys", "list"),
    ("usage", "key_1"),
    ("billing",),
    ("audit",),
    ("credentials", "list"),
)


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.stderr


@pytest.fixture(params=KINDS)
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A database of this release with an account."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEBOOK_STORE__PEPPER_FILE", str(tmp_path / "pepper"))
    monkeypatch.setenv("ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE", str(tmp_path / "master_key"))
    with database(request.param, tmp_path) as made:
        monkeypatch.setenv("ONEBOOK_STORE__URL", made)
        assert invoke("accounts", "create", "alice")[0] == 0
        yield made


def changed(url: str, revision: str, *, down: bool = False) -> None:
    """Set a database to another revision, with the tables of the previous release."""

    def older(connection: Connection) -> None:
        with Operations.context(MigrationContext.configure(connection)):
            r0008_export_reference.downgrade()
            r0007_fees.downgrade()
            r0006_exports.downgrade()
            r0005_collection.downgrade()
            r0004_peppers.downgrade()
            r0003_operator.downgrade()

    async def work() -> None:
        async with Store(url) as store, store.database.writing() as connection:
            if down:
                await connection.run_sync(older)
            await connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))

    asyncio.run(work())


def test_a_command_migrates_nothing_unasked(url: str) -> None:
    """Running nodes of the previous release could not be restarted."""
    changed(url, "0002", down=True)
    for words in COMMANDS:
        status, errors = invoke(*words)
        assert status == 2, words
        assert re.fullmatch(
            r"error: The database has schema 0002, older than 0008 of this release: .*`onebook db "
            r"upgrade`.*\n",
            errors,
        ), errors
    assert invoke("db", "upgrade")[0] == 0
    assert invoke("keys", "list")[0] == 0


def test_a_command_refuses_the_schema_of_a_newer_release(url: str) -> None:
    changed(url, "9999")
    for words in (*COMMANDS, ("db", "upgrade")):
        status, errors = invoke(*words)
        assert status == 2, words
        assert errors.startswith("error: The database has schema 9999, newer than 0008 of this")
        assert errors.count("\n") == 1


def test_a_command_that_cannot_write_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node logged its "database unavailable" line before the error."""
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setenv("ONEBOOK_STORE__URL", f"sqlite:///{disk}/onebook.db")
        monkeypatch.setenv("ONEBOOK_STORE__PEPPER_FILE", str(disk / "pepper"))
        assert invoke("accounts", "create", "alice")[0] == 0
        holder = sqlite3.connect(disk / "onebook.db", isolation_level=None)
        holder.execute("SELECT * FROM accounts").fetchall()  # as a node: keeps the -wal and -shm
        with filled(disk):
            got = subprocess.run(
                (sys.executable, "-m", "onebook", "accounts", "create", "bob"),
                # Dev mode makes asyncio report a slow step, which a busy machine has.
                env={**os.environ, "PYTHONDEVMODE": ""},
                capture_output=True,
                text=True,
            )
        holder.close()
    assert got.returncode == 2
    assert got.stderr == f"error: The database {disk}/onebook.db cannot grow: the disk is full.\n"
