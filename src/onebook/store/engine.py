"""Opening a database: the drivers, the settings of SQLite, and its file.

SQLite runs in WAL mode with `synchronous=FULL`, because usage is billed and a commit must survive
a power cut (https://www.sqlite.org/wal.html, https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

import asyncio
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiosqlite
from sqlalchemy import Connection, event
from sqlalchemy.engine import URL, AdaptedConnection, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from onebook.errors import ConfigError
from onebook.store import tls
from onebook.store.faults import FileFault

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

# A pooler of transactions (PgBouncer) runs what follows a transaction on any of its connections to
# PostgreSQL, where a statement that was prepared under a name is not known.
UNNAMED_STATEMENTS: Final[dict[str, Any]] = {
    "statement_cache_size": 0,  # of asyncpg
    "prepared_statement_cache_size": 0,  # of SQLAlchemy's dialect
    "prepared_statement_name_func": lambda: "",
}

# Execution option: the statement that begins a transaction on SQLite.
BEGIN = "onebook_begin"
AT_ONCE, WRITES = "", "BEGIN IMMEDIATE"

_UNUSABLE = "store.url must look like sqlite:///PATH or postgresql://USER@HOST/NAME."


def open_engine(text: str) -> AsyncEngine:
    """Make the engine for an address; nothing connects yet.

    Raises:
        ConfigError: The address cannot be used. Its text is not repeated: it may hold a password.
    """
    url = _parsed(text)
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    return _postgres(url)


def _parsed(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(_UNUSABLE) from None
    driver = DRIVERS.get(url.drivername.partition("+")[0])
    if driver is None:
        raise ConfigError(_UNUSABLE)
    return url.set(drivername=driver)


def _postgres(url: URL) -> AsyncEngine:
    words = tls.tls_words(url)
    options: dict[str, Any] = {
        "timeout": CONNECT_TIMEOUT_S,
        "command_timeout": COMMAND_TIMEOUT_S,
        **UNNAMED_STATEMENTS,
    }
    if words:
        options["dsn"] = tls.as_address(words)
    try:
        engine = create_async_engine(
            tls.without_tls(url),
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
    """Check that a connection of the pool answers, before it is used.

    Where one does not, none of the pool is used again. SQLAlchemy's own ping (pool_pre_ping) has
    no timeout of its own, and one that times out fails its transaction and drops that connection
    alone: after a loss of the network the others would be found one by one.

    Raises:
        InvalidatePoolError: SQLAlchemy opens another one in its place.
    """
    try:
        connection.run_async(lambda driver: driver.execute("SELECT 1", timeout=PING_TIMEOUT_S))
    except Exception as error:
        connection.driver_connection.terminate()
        raise InvalidatePoolError from error


def _closed(connection: AdaptedConnection, _record: Any) -> None:
    """Close a connection; SQLAlchemy's own close then finds it closed.

    That one waits 2 to 10 s for the server, which has nothing to answer with once it is away, and
    closes the connections of a pool one after another.
    """
    try:
        connection.run_async(lambda driver: driver.close(timeout=CLOSE_TIMEOUT_S))
    except Exception:
        connection.driver_connection.terminate()


def _sqlite(url: URL) -> AsyncEngine:
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
    event.listen(engine.sync_engine, "connect", _connected)
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
        """Make the file, for its owner only, if there is none; -wal and -shm take its mode.

        Raises:
            ConfigError: It cannot be made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except OSError as error:
            reason = f"The database {self.path} cannot be made or opened: {error.strerror}."
            raise ConfigError(reason) from None

    def check(self) -> None:
        """Compare the file at the path with the one that was opened first.

        Raises:
            FileFault: It is missing, or another one.
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
    """Open without creating: a file that is missing is an error, never an empty database."""
    args[0] = f"file:{quote(args[0])}?mode=rw"
    options["uri"] = True
    options["async_creator_fn"] = _open


async def _open(*args: Any, **options: Any) -> aiosqlite.Connection:
    """Open a connection; if that fails, wait for the end of its thread.

    The driver abandons that thread, which then fails, on stderr, if it outlives the loop.
    """
    connection = aiosqlite.connect(*args, **options)
    thread: Any = getattr(connection, "_thread", connection)  # before 0.22 it was the thread
    thread.daemon = True
    try:
        return await connection
    except BaseException:
        await asyncio.to_thread(thread.join, THREAD_END_S)
        raise


def _connected(connection: Any, _record: Any) -> None:
    # The driver would begin transactions on its own, and later than we need: we begin them.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begun(connection: Connection) -> None:
    begin = connection.get_execution_options().get(BEGIN, WRITES)
    if begin:
        connection.exec_driver_sql(begin)
