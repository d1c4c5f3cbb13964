"""One database and its transactions, the base of every store.

Every method is one transaction, which runs to its end even if the caller is cancelled: a driver
that is cancelled in the middle may leave its transaction open, and with it SQLite's only write
lock.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from msgspec import Struct, convert
from sqlalchemy import Row, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from onebook.errors import ConfigError, DatabaseUnavailable
from onebook.store import outage
from onebook.store.engine import AT_ONCE, BEGIN, WRITES, DatabaseFile, open_engine
from onebook.store.faults import database_errors
from onebook.store.outage import Kind, Outage
from onebook.store.tables import facts

OPERATION_TIMEOUT_S: Final = 15.0
WAL_TRIES_MAX = 100
WAL_PAUSE_S = 0.05
WRITTEN_AT: Final = "written_at_ms"  # the fact that `probe` writes
BACKED_UP_AT: Final = "backed_up_at_ms"  # the fact that `onebook backup` writes

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Struct)
A = TypeVar("A", bound="Aggregate")


class Aggregate(Protocol):
    """Some tables of a database with their methods."""

    database: "Database"


def whole(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[A, P], Coroutine[Any, Any, R]]:
    """Run a method of an aggregate to its end in its own task, also if its caller is cancelled."""

    @functools.wraps(method)
    async def wrapped(aggregate: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await aggregate.database.finish(method(aggregate, *args, **kwargs))

    return wrapped


class Database:
    """A database: its connections, transactions and schema."""

    def __init__(self, url: str) -> None:
        self._engine: AsyncEngine = open_engine(url)
        self.on_postgres = self._engine.dialect.name == "postgresql"
        self._file = (
            None if self.on_postgres else DatabaseFile(Path(self._engine.url.database or ""))
        )
        self._outage = Outage()
        # A read is one statement and needs no transaction.
        alone = {"isolation_level": "AUTOCOMMIT"} if self.on_postgres else {BEGIN: AT_ONCE}
        self._reads = self._engine.execution_options(**alone)
        self._writes = self._engine.execution_options(**{BEGIN: WRITES})
        self.insert = postgresql.insert if self.on_postgres else sqlite.insert
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database."""
        return None if self._file is None else self._file.path

    @property
    def name(self) -> str:
        """What to call the database in the names of files about it."""
        return f"{self._engine.url.database}" if self._file is None else self._file.path.name

    async def close(self) -> None:
        """Close the connections, once the work under way has ended."""
        if self._running:
            await asyncio.wait(self._running, timeout=OPERATION_TIMEOUT_S)
        await self._engine.dispose()

    async def finish(self, work: Coroutine[Any, Any, R]) -> R:
        """Run work to its end, also if the caller is cancelled or waits no longer.

        Raises:
            DatabaseUnavailable: It takes too long.
        """
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finished)
        began = self._outage.began()
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT_S):
                return await asyncio.shield(task)
        except TimeoutError:
            reason = f"It did not answer within {OPERATION_TIMEOUT_S:g} s."
            self._outage.failed(outage.READS, reason, began)
            raise DatabaseUnavailable(reason) from None

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here as well: the caller may have been cancelled

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection that reads; each statement sees what is committed by then."""
        return self._begun(self._reads, outage.READS)

    def writing(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A connection in a transaction that writes."""
        return self._begun(self._writes, outage.WRITES)

    @asynccontextmanager
    async def _begun(self, engine: AsyncEngine, kind: Kind) -> AsyncIterator[AsyncConnection]:
        began = self._outage.began()
        try:
            async with self._connected(engine) as connection:
                yield connection
        except DatabaseUnavailable as error:
            self._outage.failed(kind, error.reason, began)
            raise
        self._outage.succeeded(kind, began)

    @asynccontextmanager
    async def _connected(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        """One transaction, its errors mapped.

        The file is checked before and after: commits to a deleted file are lost, and SQLite's own
        error would not name that cause.
        """
        async with database_errors(self._engine.url):
            self.check_file()
            try:
                async with engine.begin() as connection:
                    yield connection
            except Exception:
                self.check_file()
                raise
            self.check_file()

    def check_file(self) -> None:
        """Check that the file of a SQLite database is still the one that was opened.

        Raises:
            FileFault: It is missing, or another one.
        """
        if self._file is not None:
            self._file.check()

    async def rows(self, statement: Any) -> list[Row[Any]]:
        """Run a statement that reads, as a whole; return its rows."""
        return await self.finish(self._rows(statement))

    async def row(self, statement: Any) -> Row[Any] | None:
        """Run a statement that reads, as a whole; return its first row."""
        found = await self.rows(statement)
        return found[0] if found else None

    async def _rows(self, statement: Any) -> list[Row[Any]]:
        async with self.reading() as connection:
            return list((await connection.execute(statement)).all())

    async def upgrade(self, *, create: bool = True) -> None:
        """Migrate the schema to this release; several nodes may do so at once.

        Args:
            create: Whether to make the file of a SQLite database if there is none.

        Raises:
            ConfigError: The database cannot be used, or a newer release wrote it.
        """
        # Alembic costs a tenth of a second to import, which only this method should pay.
        from onebook.store import migrate

        if self._file is not None and create:
            self._file.create()
        try:
            if self._file is not None:
                await self._use_wal()
            async with self._connected(self._writes) as connection:
                await connection.run_sync(migrate.upgrade)
        except DatabaseUnavailable as error:
            raise ConfigError(error.reason) from error

    async def require_schema(self) -> None:
        """Check that the schema is that of this release; an empty database gets it.

        Nothing is migrated: running nodes may be of the release before.

        Raises:
            ConfigError: The schema is that of another release.
            DatabaseUnavailable: It cannot be read.
        """
        from onebook.store import migrate

        async with self._connected(self._reads) as connection:
            found = await connection.run_sync(migrate.require_current)
        if not found:
            await self.upgrade(create=False)

    async def revisions(self) -> tuple[str | None, str]:
        """The revision of the schema, None of an empty database, and that of this release."""
        from onebook.store import migrate

        async with self._connected(self._reads) as connection:
            return await connection.run_sync(migrate.revisions)

    async def tables(self) -> list[str]:
        """The tables of the database, of whatever program."""
        async with self._connected(self._reads) as connection:
            return sorted(await connection.run_sync(lambda its: inspect(its).get_table_names()))

    async def _use_wal(self) -> None:
        """Switch the file to WAL, which SQLite remembers in it.

        SQLite does not wait for a lock here (the busy timeout does not cover a change of the
        journal), so nodes that start together retry.
        """
        for _ in range(WAL_TRIES_MAX):
            async with database_errors(self._engine.url):
                self.check_file()
                try:
                    async with self._reads.connect() as connection:
                        await connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                        return
                except OperationalError as error:
                    if "locked" not in str(error.orig):
                        raise
            await asyncio.sleep(WAL_PAUSE_S)
        raise DatabaseUnavailable(f"The database {self.path} stays locked by another program.")


class FactStore:
    """Facts about the database as a whole, such as when it was last written."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @whole
    async def setdefault(self, name: str, value: str) -> str:
        """Store a fact unless there is one of this name; return the stored one."""
        new = self.database.insert(facts).values(name=name, value=value).on_conflict_do_nothing()
        async with self.database.writing() as connection:
            await connection.execute(new)
            kept = select(facts.c.value).where(facts.c.name == name)
            return str((await connection.execute(kept)).scalar_one())

    async def get(self, name: str) -> str | None:
        """Read a fact."""
        row = await self.database.row(select(facts.c.value).where(facts.c.name == name))
        return None if row is None else str(row.value)

    async def probe(self, now_ms: int) -> None:
        """Write a fact, to check that the database is writable."""
        await self.put(WRITTEN_AT, str(now_ms))

    @whole
    async def put(self, name: str, value: str) -> None:
        """Store a fact in place of the one before."""
        new = self.database.insert(facts).values(name=name, value=value)
        put = new.on_conflict_do_update(
            index_elements=[facts.c.name], set_={"value": new.excluded.value}
        )
        async with self.database.writing() as connection:
            await connection.execute(put)


def value_of(row: Row[Any], kind: type[T]) -> T:
    """One row as the value it stands for, its texts turned into enums."""
    return convert(row, kind, from_attributes=True)


def columns_of(value: Struct) -> dict[str, Any]:
    """A value as the columns of its row."""
    return {name: getattr(value, name) for name in value.__struct_fields__}
