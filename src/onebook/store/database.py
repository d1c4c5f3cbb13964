"""A SQLite or PostgreSQL database: engine, transactions, TLS, outages and errors.

Every method is one transaction, which runs to its end even if the caller is cancelled. A cancelled
driver may leave its transaction open, and in SQLite an open transaction holds the only write lock.

SQLite runs in WAL mode with `synchronous=FULL`, because usage is billed and a commit must survive
a power cut (https://www.sqlite.org/wal.html, https://www.sqlite.org/pragma.html#pragma_synchronous).
`store.url` takes libpq's TLS parameters (https://www.postgresql.org/docs/current/libpq-ssl.html).
They are translated for the driver, which takes them as a separate URL with `ssl` for `sslmode`, and
to environment variables for programs such as pg_dump. Exceptions of the drivers, whether SQLAlchemy
wraps them or not, are recognized by SQLite's error name (https://www.sqlite.org/rescode.html) or
PostgreSQL's SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html).
"""

import asyncio
import errno
import functools
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, Final, Literal, ParamSpec, Protocol, TypeVar
from urllib.parse import quote

import aiosqlite
from msgspec import Struct, convert
from sqlalchemy import Connection, Row, delete, event, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, AdaptedConnection, make_url
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    InvalidatePoolError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.errors import ConfigError, DatabaseUnavailable
from onebook.metrics import DATABASE_UNAVAILABLE
from onebook.store.tables import facts

OPERATION_TIMEOUT_S: Final = 15.0
WAL_TRIES_MAX = 100
WAL_PAUSE_S = 0.05
WRITTEN_AT: Final = "written_at_ms"  # the fact written by `probe`
BACKED_UP_AT: Final = "backed_up_at_ms"  # the fact written by `onebook backup`

Kind = Literal["reads", "writes"]
READS: Final = "reads"
WRITES: Final = "writes"

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Struct)
A = TypeVar("A", bound="Aggregate")

log = logging.getLogger("onebook.store")


class Aggregate(Protocol):
    """Interface of the stores, each with the methods for some tables."""

    database: "Database"


def uninterrupted(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[A, P], Coroutine[Any, Any, R]]:
    """Run a method to its end in its own task, even if its caller is cancelled (decorator)."""

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
        # Reads are single statements and need no transaction.
        alone = {"isolation_level": "AUTOCOMMIT"} if self.on_postgres else {BEGIN_OPTION: NO_BEGIN}
        self._reads = self._engine.execution_options(**alone)
        self._writes = self._engine.execution_options(**{BEGIN_OPTION: BEGIN_WRITE})
        self.insert = postgresql.insert if self.on_postgres else sqlite.insert
        self._running: set[asyncio.Task[Any]] = set()
        self._writer = asyncio.Lock()

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database; None for PostgreSQL."""
        return None if self._file is None else self._file.path

    @property
    def name(self) -> str:
        """Name of the database, for use in file names."""
        return f"{self._engine.url.database}" if self._file is None else self._file.path.name

    async def close(self) -> None:
        """Finish running transactions, then close the connections."""
        if self._running:
            await asyncio.wait(self._running, timeout=OPERATION_TIMEOUT_S)
        await self._engine.dispose()

    async def finish(self, work: Coroutine[Any, Any, R]) -> R:
        """Run work to its end, even if the caller is cancelled or times out.

        Raises:
            DatabaseUnavailable: The work takes too long.
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
            self._outage.failed(READS, reason, began)
            raise DatabaseUnavailable(reason) from None

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # mark as retrieved, because the caller may have been cancelled

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection for reads; each statement sees the latest commits."""
        return self._begun(self._reads, READS)

    def writing(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Return a connection in a write transaction."""
        return self._begun(self._writes, WRITES)

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
        """Run one transaction and map its errors.

        The file is checked before and after, because commits to a deleted file are lost and
        SQLite's error would not name the cause.
        """
        async with database_errors(self._engine.url):
            self.check_file()
            try:
                async with self._turn(engine), engine.begin() as connection:
                    yield connection
            except Exception:
                self.check_file()
                raise
            self.check_file()

    @asynccontextmanager
    async def _turn(self, engine: AsyncEngine) -> AsyncIterator[None]:
        """Let this process's writers take turns in SQLite, which has one writer.

        They would wait no longer than `BUSY_TIMEOUT_MS` for each other, and on a busy machine the
        event loop may take longer to end a transaction.
        """
        if self.on_postgres or engine is not self._writes:
            yield
            return
        async with asyncio.timeout(POOL_WAIT_S):
            await self._writer.acquire()
        try:
            yield
        finally:
            self._writer.release()

    def check_file(self) -> None:
        """Check that the file of a SQLite database is still the one that was opened.

        Raises:
            FileFault: The file is missing or was replaced.
        """
        if self._file is not None:
            self._file.check()

    async def rows(self, statement: Any) -> list[Row[Any]]:
        """Run a read statement to its end; return its rows."""
        return await self.finish(self._rows(statement))

    async def row(self, statement: Any) -> Row[Any] | None:
        """Run a read statement to its end; return its first row."""
        found = await self.rows(statement)
        return found[0] if found else None

    async def _rows(self, statement: Any) -> list[Row[Any]]:
        async with self.reading() as connection:
            return list((await connection.execute(statement)).all())

    async def upgrade(self, *, create: bool = True) -> None:
        """Migrate the schema to this release; several nodes may do so at once.

        Args:
            create: Whether to create a missing SQLite file.

        Raises:
            ConfigError: The database is unusable or from a newer release.
        """
        # Imported here, because importing Alembic takes a tenth of a second.
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
        """Require the schema of this release; create it in an empty database.

        Does not migrate, because running nodes may still use the previous release.

        Raises:
            ConfigError: The schema is from another release.
            DatabaseUnavailable: The schema cannot be read.
        """
        from onebook.store import migrate

        async with self._connected(self._reads) as connection:
            found = await connection.run_sync(migrate.require_current)
        if not found:
            await self.upgrade(create=False)

    async def revisions(self) -> tuple[str | None, str]:
        """Return the revision of the schema (None: empty database) and that of this release."""
        from onebook.store import migrate

        async with self._connected(self._reads) as connection:
            return await connection.run_sync(migrate.revisions)

    async def tables(self) -> list[str]:
        """List all tables of the database, including those of other programs."""
        async with self._connected(self._reads) as connection:
            return sorted(await connection.run_sync(lambda its: inspect(its).get_table_names()))

    async def _use_wal(self) -> None:
        """Switch the file to WAL mode, which SQLite stores in it.

        SQLite does not wait for a lock here (the busy timeout does not apply to changes of the
        journal mode), so nodes that start together retry.
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

    @uninterrupted
    async def setdefault(self, name: str, value: str) -> str:
        """Store a fact unless its name exists; return the stored value."""
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
        """Write a fact to check that the database is writable."""
        await self.put(WRITTEN_AT, str(now_ms))

    @uninterrupted
    async def put(self, name: str, value: str) -> None:
        """Store or replace a fact."""
        new = self.database.insert(facts).values(name=name, value=value)
        put = new.on_conflict_do_update(
            index_elements=[facts.c.name], set_={"value": new.excluded.value}
        )
        async with self.database.writing() as connection:
            await connection.execute(put)

    @uninterrupted
    async def remove(self, names: Collection[str]) -> None:
        """Delete facts."""
        async with self.database.writing() as connection:
            await connection.execute(delete(facts).where(facts.c.name.in_(names)))


def value_of(row: Row[Any], kind: type[T]) -> T:
    """Convert a row to a value; texts become enums."""
    return convert(row, kind, from_attributes=True)


def columns_of(value: Struct) -> dict[str, Any]:
    """Convert a value to the columns of its row."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
BUSY_TIMEOUT_MS = 5_000
CONNECT_TIMEOUT_S = 5
COMMAND_TIMEOUT_S = 10
PING_TIMEOUT_S = 2
CLOSE_TIMEOUT_S = 0.5
POOL_WAIT_S = 10
CONNECTIONS_MAX = 10
THREAD_END_S = 5

# A transaction pooler (PgBouncer) may run each transaction on a different connection, where a named
# prepared statement does not exist.
UNNAMED_STATEMENTS: Final[dict[str, Any]] = {
    "statement_cache_size": 0,  # an option of asyncpg
    "prepared_statement_cache_size": 0,  # an option of SQLAlchemy's dialect
    "prepared_statement_name_func": lambda: "",
}

# Execution option: the statement that begins a transaction on SQLite.
BEGIN_OPTION = "onebook_begin"
NO_BEGIN, BEGIN_WRITE = "", "BEGIN IMMEDIATE"

_UNUSABLE = "store.url must look like sqlite:///PATH or postgresql://USER@HOST/NAME."


def open_engine(text: str) -> AsyncEngine:
    """Create the engine for an address, without connecting.

    Raises:
        ConfigError: The address is invalid. The message omits it, because it may contain a
        password.
    """
    url = _parsed(text)
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url)
    return _postgres_engine(url)


def _parsed(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(_UNUSABLE) from None
    driver = DRIVERS.get(url.drivername.partition("+")[0])
    if driver is None:
        raise ConfigError(_UNUSABLE)
    return url.set(drivername=driver)


def _postgres_engine(url: URL) -> AsyncEngine:
    words = tls_words(url)
    options: dict[str, Any] = {
        "timeout": CONNECT_TIMEOUT_S,
        "command_timeout": COMMAND_TIMEOUT_S,
        **UNNAMED_STATEMENTS,
    }
    if words:
        options["dsn"] = tls_address(words)
    try:
        engine = create_async_engine(
            without_tls(url),
            hide_parameters=True,
            pool_size=CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            connect_args=options,
        )
    except ModuleNotFoundError:
        raise ConfigError("PostgreSQL needs its driver: pip install 'onebook[postgres]'.") from None
    event.listen(engine.sync_engine, "checkout", _pinged)
    event.listen(engine.sync_engine, "close", _closed)
    return engine


def _pinged(connection: AdaptedConnection, _record: Any, _proxy: Any) -> None:
    """Ping a pooled connection before use; if it does not answer, discard the whole pool.

    SQLAlchemy's own ping (pool_pre_ping) has no timeout and drops only the failed connection, so
    that after a network outage each dead connection would fail one more transaction.

    Raises:
        InvalidatePoolError: There was no answer; SQLAlchemy then opens a new connection.
    """
    try:
        connection.run_async(lambda driver: driver.execute("SELECT 1", timeout=PING_TIMEOUT_S))
    except Exception as error:
        connection.driver_connection.terminate()
        raise InvalidatePoolError from error


def _closed(connection: AdaptedConnection, _record: Any) -> None:
    """Abort a connection before SQLAlchemy closes it.

    SQLAlchemy's close waits 2 to 10 s per connection for a server that may be down.
    """
    try:
        connection.run_async(lambda driver: driver.close(timeout=CLOSE_TIMEOUT_S))
    except Exception:
        connection.driver_connection.terminate()


def _sqlite_engine(url: URL) -> AsyncEngine:
    if not url.database or url.database == ":memory:":
        raise ConfigError("store.url must name a file: several connections share the database.")
    engine = create_async_engine(
        url.set(database=str(Path(url.database).absolute())),
        hide_parameters=True,
        pool_size=CONNECTIONS_MAX,
        max_overflow=0,
        pool_timeout=POOL_WAIT_S,
    )
    event.listen(engine.sync_engine, "do_connect", _existing_only)
    event.listen(engine.sync_engine, "connect", _configured)
    event.listen(engine.sync_engine, "begin", _begun)
    return engine


class DatabaseFile:
    """The file of a SQLite database; detects that it was deleted or replaced.

    SQLite continues to use a deleted or replaced file, and its commits are lost:
    https://www.sqlite.org/howtocorrupt.html, section 2.4.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None

    def create(self) -> None:
        """Create a missing file with mode 0600, which -wal and -shm inherit.

        Raises:
            ConfigError: The file cannot be created.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except OSError as error:
            reason = f"The database {self.path} cannot be created or opened: {error.strerror}."
            raise ConfigError(reason) from None

    def check(self) -> None:
        """Check that the path still names the file that was opened first.

        Raises:
            FileFault: The file is missing or was replaced.
        """
        try:
            found = os.stat(self.path)
        except OSError as error:
            if self._identity is None:
                raise FileFault(f"The database {self.path} is missing: {error.strerror}.") from None
            raise FileFault(
                f"The database {self.path} was deleted or moved while the node runs; put it back."
            ) from None
        identity = (found.st_dev, found.st_ino)
        if self._identity is None:
            self._identity = identity
        elif identity != self._identity:
            raise FileFault(
                f"The database {self.path} was replaced while the node runs; restart the node."
            )


def _existing_only(_dialect: Any, _record: Any, args: list[Any], options: dict[str, Any]) -> None:
    """Keep SQLite from creating a missing file, which would be an empty database."""
    args[0] = f"file:{quote(args[0])}?mode=rw"
    options["uri"] = True
    options["async_creator_fn"] = _open_sqlite


async def _open_sqlite(*args: Any, **options: Any) -> aiosqlite.Connection:
    """Open a connection; on failure, wait until its thread has ended.

    The driver abandons the thread, which prints an error if it outlives the loop.
    """
    connection = aiosqlite.connect(*args, **options)
    thread: Any = getattr(connection, "_thread", connection)  # aiosqlite < 0.22: itself
    thread.daemon = True
    try:
        return await connection
    except BaseException:
        await asyncio.to_thread(thread.join, THREAD_END_S)
        raise


def _configured(connection: Any, _record: Any) -> None:
    # The driver would begin transactions itself, and too late, so we begin them.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begun(connection: Connection) -> None:
    begin = connection.get_execution_options().get(BEGIN_OPTION, BEGIN_WRITE)
    if begin:
        connection.exec_driver_sql(begin)


TLS_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
TLS_MODES_VERIFYING: Final = ("verify-ca", "verify-full")
TLS_VARIABLES: Final = {
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslcrl": "PGSSLCRL",
}
DEFAULT_CA_FILE: Final = ".postgresql/root.crt"  # in the user's home folder
_SSLMODE_ALIAS: Final = "ssl"


def without_tls(url: URL) -> URL:
    """Return the address without the TLS parameters."""
    return url.difference_update_query((*TLS_VARIABLES, _SSLMODE_ALIAS))


def tls_words(url: URL) -> dict[str, str]:
    """Return the TLS parameters of an address.

    Raises:
        ConfigError: A parameter is invalid: an unknown mode, or an unreadable file.
    """
    found = {name: str(value) for name, value in url.query.items() if name in TLS_VARIABLES}
    if _SSLMODE_ALIAS in url.query:
        found.setdefault("sslmode", str(url.query[_SSLMODE_ALIAS]))
    mode = found.get("sslmode", "")
    if mode and mode not in TLS_MODES:
        raise ConfigError(f"sslmode in store.url must be one of {', '.join(TLS_MODES)}.")
    for name, path in found.items():
        if name != "sslmode":
            _require_readable(name, path)
    if mode in TLS_MODES_VERIFYING and not _has_ca(found):
        raise ConfigError(
            f"sslmode={mode} in store.url needs sslrootcert: the file of the certificate "
            "authority that signed PostgreSQL's certificate."
        )
    return found


def tls_address(words: dict[str, str]) -> str:
    """Return the TLS parameters as the separate URL that the driver expects."""
    return URL.create("postgresql", query=words).render_as_string()


def tls_variables(words: dict[str, str]) -> dict[str, str]:
    """Return the TLS parameters as environment variables of libpq programs."""
    return {TLS_VARIABLES[name]: value for name, value in words.items()}


def _require_readable(name: str, path: str) -> None:
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        reason = f"{name} in store.url: {path} cannot be read: {error.strerror}."
        raise ConfigError(reason) from None


def _has_ca(words: dict[str, str]) -> bool:
    if "sslrootcert" in words or os.environ.get(TLS_VARIABLES["sslrootcert"]):
        return True
    return (Path.home() / DEFAULT_CA_FILE).exists()


class Outage:
    """Detects the start and end of a database outage from the results of all operations.

    Reads may succeed while writes fail (locked file, full disk), so an outage ends only when every
    kind of operation that failed has succeeded again; a successful write also counts as a read.

    Results of overlapping operations are ignored: a success ends an outage only if its operation
    started after the latest failure, and a failure starts an outage only if its operation started
    after the previous outage ended.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._failing: set[Kind] = set()
        self._began_s = 0.0
        self._events = 0
        self._failed_at = 0  # number of the last failure's event
        self._ended_at = 0  # number of the event that ended the last outage

    def began(self) -> int:
        """Record the start of an operation; pass the returned number to `failed` or `succeeded`."""
        return self._events

    def failed(self, kind: Kind, reason: str, began: int) -> None:
        """Record that an operation of a kind failed."""
        if not self._failing:
            if began < self._ended_at:
                return
            self._began_s = self._clock.monotonic()
            log.error("The database is unavailable: %s", reason)
        self._events += 1
        self._failed_at = self._events
        self._failing.add(kind)
        DATABASE_UNAVAILABLE.set(1)

    def succeeded(self, kind: Kind, began: int) -> None:
        """Record that an operation of a kind succeeded."""
        if not self._failing or began < self._failed_at:
            return
        if kind == WRITES:
            self._failing.clear()
        else:
            self._failing.discard(kind)
        if not self._failing:
            self._events += 1
            self._ended_at = self._events
            DATABASE_UNAVAILABLE.set(0)
            lasted_s = self._clock.monotonic() - self._began_s
            log.info("The database is available again after %.1f s.", lasted_s)


SHM_BYTES: Final = 1 << 15  # minimum size of a database's -shm file


class FileFault(OSError):
    """The file of a SQLite database is missing or was replaced; the message is the reason."""


_SQLITE: Final = (
    ("SQLITE_NOTADB", "is not a SQLite database; restore it from a backup"),
    ("SQLITE_CORRUPT", "is damaged; restore it from a backup"),
    ("SQLITE_FULL", "cannot grow: the disk is full"),
    ("SQLITE_BUSY", "stays locked by another program"),
    ("SQLITE_LOCKED", "stays locked by another program"),
    ("SQLITE_READONLY", "is read-only; check the owner and the mode of {place}"),
    ("SQLITE_PERM", "may not be opened; check the owner and the mode of {place}"),
    ("SQLITE_CANTOPEN", "cannot be opened; check the owner and the mode of {place}"),
    ("SQLITE_IOERR", "cannot be read or written: the disk reports an error"),
)
_POSTGRES: Final = {
    "28P01": "refuses the password of user {user}; check store.url",
    "28000": "refuses user {user}; check pg_hba.conf, and sslmode in store.url if it requires TLS",
    "3D000": "has no database {name}; create it",
    "42501": "does not allow user {user} to do this; grant it",
    "53100": "has a full disk",
    "53300": "has no free connection; raise max_connections",
    "57P01": "closed the connection: an administrator closed it, or the server stops",
    "57P03": "is starting up or shutting down",
    "25006": "is read-only: it is a standby",
}
_NO_TLS: Final = "rejected SSL upgrade"  # message of asyncpg, which has no type or code for it
_CONNECTING: Final = {
    errno.ECONNREFUSED: "refuses connections; check host and port, and that it runs",
    errno.EHOSTUNREACH: "cannot be reached; check the host and the network",
    errno.ENETUNREACH: "cannot be reached; check the host and the network",
    errno.ECONNRESET: "closed the connection",
}


@asynccontextmanager
async def database_errors(url: URL) -> AsyncIterator[None]:
    """Map driver exceptions to `DatabaseUnavailable`, except violated constraints."""
    try:
        yield
    except IntegrityError:
        raise
    except Exception as error:
        if not _of_database(error):
            raise
        raise DatabaseUnavailable(reason_of(error, url)) from error


def reason_of(error: BaseException, url: URL) -> str:
    """Describe a database error, without the password."""
    if isinstance(error, FileFault):
        return str(error)
    if url.get_backend_name() == "sqlite":
        return _sqlite_reason(error, url.database or "")
    return _postgres_reason(error, url)


def _of_database(error: Exception) -> bool:
    # asyncpg's exceptions while connecting are not wrapped, but have an SQLSTATE.
    return isinstance(error, SQLAlchemyError | OSError | TimeoutError) or hasattr(error, "sqlstate")


def _sqlite_reason(error: BaseException, path: str) -> str:
    for cause in _causes(error):
        name = getattr(cause, "sqlite_errorname", None) or ""
        if name.startswith("SQLITE_IOERR") and _is_full(path):
            name = "SQLITE_FULL"  # no space for the companion files, which reading needs too
        for prefix, words in _SQLITE:
            if name.startswith(prefix):
                return f"The database {path} {words.format(place=_denied(path))}."
        if name and "no such table" in str(cause):
            return f"The database {path} has no Onebook tables; run `onebook db upgrade`."
    return f"The database {path} does not answer in time."


def _denied(path: str) -> str:
    """Return the database file, companion file or folder that this account cannot write.

    SQLite creates the -wal and -shm files with the database's mode and does not change it later.
    """
    for beside in ("", "-wal", "-shm"):
        file = path + beside
        if os.path.exists(file) and not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
            return file
    folder = os.path.dirname(path) or "."
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return f"its folder {folder}"
    return "file and folder"


def _is_full(path: str) -> bool:
    try:
        disk = os.statvfs(Path(path).parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < SHM_BYTES


def _postgres_reason(error: BaseException, url: URL) -> str:
    place = f"PostgreSQL at {url.host or 'localhost'}:{url.port or 5432}"
    for cause in _causes(error):
        words = _POSTGRES.get(getattr(cause, "sqlstate", None) or "")
        if words:
            return f"{place} {words.format(user=url.username, name=url.database)}."
        if getattr(cause, "sqlstate", None) == "42P01":
            return f"{place} has no Onebook tables in {url.database}; run `onebook db upgrade`."
        if found := _tls_reason(cause):
            return f"{place} {found}."
        if isinstance(cause, socket.gaierror):
            return f"{place} cannot be found: the host name has no address."
        if isinstance(cause, OSError) and cause.errno in _CONNECTING:
            return f"{place} {_CONNECTING[cause.errno]}."
        if isinstance(cause, TimeoutError):
            return f"{place} does not answer in time; check host, port and firewall."
    return f"{place} does not answer."


def _tls_reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        return (
            f"has a certificate that is not trusted: {why}; check host and sslrootcert in store.url"
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"cannot be reached by TLS ({error.reason or 'no reason given'}); "
            "check sslrootcert, sslcert and sslkey in store.url"
        )
    if isinstance(error, ConnectionError) and _NO_TLS in str(error):
        return "does not offer TLS, which sslmode in store.url requires"
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes: `__cause__`, SQLAlchemy's `orig`, members of a group."""
    seen: list[BaseException] = [error]
    for each in seen:
        yield each
        members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        for inner in (getattr(each, "orig", None), each.__cause__, each.__context__, *members):
            if isinstance(inner, BaseException) and inner not in seen:
                seen.append(inner)
