"""Addresses, files and what drivers raise."""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from databases import database
from onebook.errors import ConfigError, DatabaseUnavailable, ServiceUnavailable
from onebook.store import Store
from onebook.store import store as store_module
from onebook.store.engine import open_engine


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
        await store.upgrade()
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("onebook.db", "onebook.db-wal", "onebook.db-shm"), 0o600)


async def test_a_folder_that_cannot_be_made_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with Store(f"sqlite:///{tmp_path}/file/onebook.db") as store:
        with pytest.raises(ConfigError, match="cannot be made or opened"):
            await store.upgrade()


async def test_sqlite_is_durable_and_checks_references(tmp_path: Path) -> None:
    pragmas = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5_000}
    async with Store(f"sqlite:///{tmp_path}/onebook.db") as store:
        await store.upgrade()
        async with store._reads.connect() as connection:
            for name, value in pragmas.items():
                row = await connection.exec_driver_sql(f"PRAGMA {name}")
                assert row.scalar() == value, name


async def test_a_broken_reference_is_a_broken_rule_not_a_broken_database(store: Store) -> None:
    with pytest.raises(IntegrityError):
        async with store._begin(store._writes) as connection:
            await connection.execute(
                text("INSERT INTO usage (key_id, period_start_ms, bytes) VALUES ('no key', 0, 1)")
            )


async def test_a_database_that_does_not_answer_is_service_unavailable(tmp_path: Path) -> None:
    url = "postgresql://nobody:secret-word@127.0.0.1:1/none"
    async with Store(url) as store:
        with pytest.raises(ServiceUnavailable, match="does not answer") as caught:
            await store.accounts()
    assert caught.value.retry_after_s == 1.0
    assert "secret-word" not in str(caught.value)


async def test_a_database_without_tables_is_service_unavailable(tmp_path: Path) -> None:
    async with Store(f"sqlite:///{tmp_path}/onebook.db") as store:
        with pytest.raises(ServiceUnavailable):
            await store.accounts()


async def test_a_database_that_stays_locked_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WAL_TRIES_MAX", 2)
    monkeypatch.setattr(store_module, "WAL_PAUSE_S", 0)
    url = f"sqlite:///{tmp_path}/onebook.db"
    async with Store(url) as other, Store(url) as store:
        other._file.create()
        async with other._writes.begin() as holder:
            await holder.exec_driver_sql("CREATE TABLE held (a)")
            with pytest.raises(ConfigError, match="stays locked"):
                await store.upgrade()
        await store.upgrade()


async def test_what_is_no_database_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "onebook.db").write_bytes(b"this is no database, " * 100)
    async with Store(f"sqlite:///{tmp_path}/onebook.db") as store:
        with pytest.raises(ConfigError, match="is not a SQLite database"):
            await store.upgrade()


async def refusal(url: str) -> str:
    async with Store(url) as store:
        with pytest.raises(ConfigError) as refused:
            await store.upgrade(create=False)
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


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[str]:
    with database("postgresql", tmp_path) as url:
        yield url


async def test_a_file_that_is_deleted_or_replaced_is_an_error_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onebook.store")
    path, moved = tmp_path / "onebook.db", tmp_path / "moved.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.upgrade()
        path.rename(moved)
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable) as gone:
                await store.probe(1)
        assert "was deleted or moved" in gone.value.reason
        assert str(path) not in gone.value.message, "clients see the message"
        assert not path.exists()
        path.write_bytes(moved.read_bytes())
        with pytest.raises(DatabaseUnavailable) as replaced:
            await store.accounts()
        assert "was replaced" in replaced.value.reason
        moved.rename(path)
        await store.accounts()
        await store.probe(2)
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
        await store.upgrade()

        async def write() -> None:
            async with store._begin(store._writes) as connection:
                await connection.execute(text("INSERT INTO facts (name, value) VALUES ('a', 'b')"))
                path.rename(tmp_path / "elsewhere")
                with pytest.raises(DatabaseUnavailable):
                    await store.newest_change()

        with pytest.raises(DatabaseUnavailable) as gone:
            await write()
        assert "was deleted or moved" in gone.value.reason
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        (tmp_path / "elsewhere").rename(path)
        await store.probe(1)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
