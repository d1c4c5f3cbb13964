"""Transactions of a database, finished despite cancellation; facts about a database."""

import asyncio
import gc
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from databases import DatabaseProxy, database
from disks import filled, small_disk
from onebook.clock import ManualClock
from onebook.errors import ConfigError, DatabaseUnavailable, ServiceUnavailable
from onebook.store import Store
from onebook.store.database import CONNECTIONS_MAX, READS, WRITES, Outage, open_engine
from store.samples import JANUARY


async def test_a_fact_stays_what_it_was_first(store: Store) -> None:
    assert await store.facts.setdefault("pepper", "a") == "a"
    assert await store.facts.setdefault("pepper", "b") == "a"


async def test_what_has_begun_is_finished_and_leaves_no_lock_however_it_is_cancelled(
    keyed: Store,
) -> None:
    for turns in range(40):
        task = asyncio.create_task(keyed.usage.apply(("node", turns), {JANUARY: 1}, 0))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await keyed.usage.apply(("node", turns), {JANUARY: 1}, 0)
    assert await keyed.usage.total(JANUARY) == 40


async def test_a_store_that_closes_finishes_what_has_begun(migrated: str, keyed: Store) -> None:
    async with Store(migrated) as closing:
        task = asyncio.create_task(closing.usage.apply(("node", 1), {JANUARY: 1}, 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    assert await keyed.usage.total(JANUARY) == 1


async def test_work_that_fails_after_its_caller_was_cancelled_is_no_defect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop during an outage printed the traceback of an unretrieved exception."""
    path = tmp_path / "onebook.db"
    async with Store(f"sqlite:///{path}") as store:
        await store.database.upgrade()
        task = asyncio.create_task(store.facts.probe(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        path.rename(tmp_path / "elsewhere")
        await asyncio.gather(task, return_exceptions=True)
    del task
    gc.collect()
    assert [record.name for record in caplog.records] == ["onebook.store"]


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
        with pytest.raises(ConfigError, match="cannot be created or opened"):
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
    """Broken connections were found one by one, each by a statement that timed out."""
    monkeypatch.setattr("onebook.store.database.PING_TIMEOUT_S", 0.2)
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


@pytest.fixture
def outage(caplog: pytest.LogCaptureFixture) -> Outage:
    caplog.set_level("INFO", "onebook.store")
    return Outage(ManualClock())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


def test_an_outage_is_logged_once_and_its_end_once(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        outage.failed(WRITES, "gone", outage.began())
    assert said(caplog) == ["ERROR"]
    outage.succeeded(WRITES, outage.began())
    outage.succeeded(WRITES, outage.began())
    assert said(caplog) == ["ERROR", "INFO"]


def test_what_began_before_a_failure_does_not_end_the_outage(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = outage.began()
    outage.failed(READS, "gone", outage.began())
    outage.succeeded(WRITES, earlier)
    assert said(caplog) == ["ERROR"]
    outage.succeeded(WRITES, outage.began())
    assert said(caplog) == ["ERROR", "INFO"]


def test_reads_do_not_end_an_outage_of_writes(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    outage.failed(WRITES, "full", outage.began())
    outage.failed(READS, "full", outage.began())
    outage.succeeded(READS, outage.began())
    assert said(caplog) == ["ERROR"]
    outage.succeeded(WRITES, outage.began())
    assert said(caplog) == ["ERROR", "INFO"]


def test_what_began_before_the_end_of_an_outage_begins_no_other(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    slow = outage.began()
    outage.failed(WRITES, "gone", outage.began())
    slower = outage.began()
    outage.succeeded(WRITES, outage.began())
    for each in (slow, slower):
        outage.failed(READS, "no answer", each)
    assert said(caplog) == ["ERROR", "INFO"]
    outage.failed(READS, "gone", outage.began())
    assert said(caplog) == ["ERROR", "INFO", "ERROR"]


def test_what_failed_first_of_all_is_an_outage(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    slow = outage.began()
    outage.succeeded(WRITES, outage.began())
    outage.failed(READS, "no answer", slow)
    assert said(caplog) == ["ERROR"]


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
    monkeypatch.setattr("onebook.store.database.WAL_TRIES_MAX", 2)
    monkeypatch.setattr("onebook.store.database.WAL_PAUSE_S", 0)
    url = f"sqlite:///{tmp_path}/onebook.db"
    async with Store(url) as other, Store(url) as store:
        other.database._file.create()
        async with other.database._writes.begin() as holder:
            await holder.exec_driver_sql("CREATE TABLE held (a)")
            with pytest.raises(ConfigError, match="stays locked"):
                await store.database.upgrade()
        await store.database.upgrade()


async def test_writers_of_one_process_do_not_lock_each_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop of a busy machine ends a transaction late, not the database."""
    monkeypatch.setattr("onebook.store.database.BUSY_TIMEOUT_MS", 1)
    async with Store(f"sqlite:///{tmp_path / 'onebook.db'}") as store:
        await store.database.upgrade()

        async def write(number: int) -> None:
            async with store.database.writing() as connection:
                await connection.execute(text("UPDATE facts SET value = value"))
                await asyncio.to_thread(time.sleep, 0.02)
                await connection.execute(
                    text("INSERT INTO facts (name, value) VALUES (:name, '')"), {"name": number}
                )

        await asyncio.gather(*(write(number) for number in range(2 * CONNECTIONS_MAX)))
        found = await store.database.rows(text("SELECT name FROM facts WHERE value = ''"))
        assert len(found) == 2 * CONNECTIONS_MAX


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
        assert "closed the connection" in fault.value.reason


NOBODY = 65_534


@pytest.fixture
def folder_of_another_account() -> Iterator[Path]:
    """A folder of an unprivileged account, as which this process runs meanwhile."""
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
