"""Addresses, drivers and the file of a database."""

import asyncio
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from databases import DatabaseProxy, database
from onebook.errors import ConfigError, DatabaseUnavailable
from onebook.store import Store
from onebook.store.engine import CONNECTIONS_MAX, open_engine


@pytest.mark.parametrize(
    "url",
    ["", "no address", "mysql://host/name", "sqlite://", "sqlite:///:memory:", "://", "sqlite:///"],
)
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"store\.url must"):
        open_engine(url)


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgresql://u@h/n", "postgresql+asyncpg"),
        ("postgres://u@h/n", "postgresql+asyncpg"),
        ("postgresql+asyncpg://u@h/n", "postgresql+asyncpg"),
    ],
)
def test_postgresql_is_spoken_to_by_asyncpg(url: str, driver: str) -> None:
    assert open_engine(url).url.drivername == driver


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"onebook\[postgres\]"):
        open_engine("postgresql://u@h/n")


async def test_the_sqlite_file_and_its_journal_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "onebook.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.database.upgrade()
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("onebook.db", "onebook.db-wal", "onebook.db-shm"), 0o600)


async def test_a_folder_that_cannot_be_made_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with Store(f"sqlite:///{tmp_path}/file/onebook.db") as store:
        with pytest.raises(ConfigError, match="cannot be made or opened"):
            await store.database.upgrade()


async def test_sqlite_is_durable_and_checks_references(tmp_path: Path) -> None:
    pragmas = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5_000}
    async with Store(f"sqlite:///{tmp_path}/onebook.db") as store:
        await store.database.upgrade()
        async with store.database.reading() as connection:
            for name, value in pragmas.items():
                row = await connection.exec_driver_sql(f"PRAGMA {name}")
                assert row.scalar() == value, name


async def test_a_file_that_is_deleted_or_replaced_is_an_error_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onebook.store")
    path, moved = tmp_path / "onebook.db", tmp_path / "moved.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.database.upgrade()
        path.rename(moved)
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable) as gone:
                await store.facts.probe(1)
        assert "was deleted or moved" in gone.value.reason
        assert str(path) not in gone.value.message, "clients see the message"
        assert not path.exists()
        path.write_bytes(moved.read_bytes())
        with pytest.raises(DatabaseUnavailable) as replaced:
            await store.accounts.list_accounts()
        assert "was replaced" in replaced.value.reason
        moved.rename(path)
        await store.accounts.list_accounts()
        await store.facts.probe(2)
    assert [message.partition(" after ")[0] for message in caplog.messages] == [
        f"The database is unavailable: The database {path} was deleted or moved while the node "
        "runs; put it back.",
        "The database is available again",
    ]


async def test_a_transaction_that_was_under_way_when_the_file_went_fails_and_ends_no_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onebook.store")
    path = tmp_path / "onebook.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.database.upgrade()

        async def write() -> None:
            async with store.database.writing() as connection:
                await connection.execute(text("INSERT INTO facts (name, value) VALUES ('a', 'b')"))
                path.rename(tmp_path / "elsewhere")
                with pytest.raises(DatabaseUnavailable):
                    await store.accounts.newest_change()

        with pytest.raises(DatabaseUnavailable) as gone:
            await write()
        assert "was deleted or moved" in gone.value.reason
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        (tmp_path / "elsewhere").rename(path)
        await store.facts.probe(1)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    with database("postgresql", tmp_path) as url:
        yield url


async def test_connections_that_the_network_lost_are_opened_again_and_fail_nothing(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were found one by one, each by the timeout of a statement that then failed."""
    monkeypatch.setattr("onebook.store.engine.PING_TIMEOUT_S", 0.2)
    line = DatabaseProxy(postgres)
    await line.up()
    async with Store(line.url) as store:
        await store.database.upgrade()
        for _ in range(3):  # until every connection is open
            await asyncio.gather(*(store.accounts.list_keys() for _ in range(3 * CONNECTIONS_MAX)))
        line.lose()
        for now_ms in range(2):
            await store.facts.probe(now_ms)
            assert await store.accounts.list_keys() == []
    await line.cut()
