"""What drivers raise, in sentences for the operator."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from databases import database
from disks import filled, small_disk
from onebook.errors import ConfigError, DatabaseUnavailable, ServiceUnavailable
from onebook.store import Store
from onebook.store import database as database_module


async def test_a_broken_reference_is_a_broken_rule_not_a_broken_database(store: Store) -> None:
    with pytest.raises(IntegrityError):
        async with store.database.writing() as connection:
            await connection.execute(
                text("INSERT INTO usage (key_id, period_start_ms, bytes) VALUES ('no key', 0, 1)")
            )


async def test_a_database_that_does_not_answer_is_service_unavailable(tmp_path: Path) -> None:
    url = "postgresql://nobody:secret-word@127.0.0.1:1/none"
    async with Store(url) as store:
        with pytest.raises(ServiceUnavailable, match="does not answer") as caught:
            await store.accounts.list_accounts()
    assert caught.value.retry_after_s == 1.0
    assert "secret-word" not in str(caught.value)


async def test_a_database_without_tables_is_service_unavailable(tmp_path: Path) -> None:
    async with Store(f"sqlite:///{tmp_path}/onebook.db") as store:
        with pytest.raises(ServiceUnavailable):
            await store.accounts.list_accounts()


async def test_a_full_disk_is_said_so_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        url = f"sqlite:///{disk}/onebook.db"
        async with Store(url) as store:
            await store.database.upgrade()
        full = f"The database {disk}/onebook.db cannot grow: the disk is full."
        for left_bytes in (0, 8_192):  # without room for the files beside it, and with little
            with filled(disk, left_bytes=left_bytes):
                async with Store(url) as store:
                    with pytest.raises(DatabaseUnavailable) as caught:
                        await store.facts.probe(1)
            assert caught.value.reason == full
        async with Store(url) as store:
            await store.facts.probe(2)


async def test_a_database_that_stays_locked_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "WAL_TRIES_MAX", 2)
    monkeypatch.setattr(database_module, "WAL_PAUSE_S", 0)
    url = f"sqlite:///{tmp_path}/onebook.db"
    async with Store(url) as other, Store(url) as store:
        other.database._file.create()
        async with other.database._writes.begin() as holder:
            await holder.exec_driver_sql("CREATE TABLE held (a)")
            with pytest.raises(ConfigError, match="stays locked"):
                await store.database.upgrade()
        await store.database.upgrade()


async def test_what_is_no_database_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "onebook.db").write_bytes(b"this is no database, " * 100)
    async with Store(f"sqlite:///{tmp_path}/onebook.db") as store:
        with pytest.raises(ConfigError, match="is not a SQLite database"):
            await store.database.upgrade()


async def refusal(url: str) -> str:
    async with Store(url) as store:
        with pytest.raises(ConfigError) as refused:
            await store.database.upgrade(create=False)
    return refused.value.message


async def test_each_fault_of_a_sqlite_file_has_its_own_sentence(tmp_path: Path) -> None:
    path = tmp_path / "onebook.db"
    assert "is missing: No such file or directory" in await refusal(f"sqlite:///{path}")
    assert not path.exists()
    path.write_bytes(b"this is no database, " * 100)
    assert "is not a SQLite database" in await refusal(f"sqlite:///{path}")
    path.unlink()
    path.mkdir()
    assert "cannot be opened" in await refusal(f"sqlite:///{path}")


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[str]:
    with database("postgresql", tmp_path) as url:
        yield url


async def test_each_fault_of_postgresql_has_its_own_sentence(postgresql: str) -> None:
    secret = "a-secret-word"
    good = make_url(postgresql)
    wrong_port = good.set(port=1, password=secret).render_as_string(hide_password=False)
    wrong_name = good.set(database="onebook_none").render_as_string(hide_password=False)
    wrong_host = good.set(host="no-such-host.invalid").render_as_string(hide_password=False)
    wrong_user = good.set(username="onebook_nobody", password=secret)
    said = {
        wrong_port: "at 127.0.0.1:1 refuses connections; check host and port",
        wrong_name: "has no database onebook_none; create it",
        wrong_host: "cannot be found",
        wrong_user.render_as_string(hide_password=False): "user onebook_nobody",
    }
    for url, words in said.items():
        message = await refusal(url)
        assert words in message
        assert secret not in message


async def test_a_connection_that_an_administrator_ends_is_said_so(postgresql: str) -> None:
    async with Store(postgresql) as store:

        async def ended() -> None:
            async with store.database.writing() as connection:
                await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

        with pytest.raises(DatabaseUnavailable) as fault:
            await ended()
        assert "ended the connection" in fault.value.reason


NOBODY = 65_534


@pytest.fixture
def folder_of_another_account() -> Iterator[Path]:
    """A folder that an account without rights of root owns, which this process is meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() != 0:
            yield Path(name)
            return
        os.chown(name, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


async def test_the_file_that_may_not_be_written_is_named(folder_of_another_account: Path) -> None:
    """SQLite's files beside a database keep the mode that it had when they were made."""
    path = folder_of_another_account / "onebook.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.database.upgrade()
    for mode, denied in ((0o400, path), (0o600, Path(f"{path}-shm"))):
        path.chmod(mode)
        async with Store(f"sqlite:///{path}") as store:
            with pytest.raises(DatabaseUnavailable) as caught:
                await store.facts.probe(1)
        assert f"the owner and the mode of {denied}." in caught.value.reason
