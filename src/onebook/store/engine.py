"""Opening a database: the drivers, what SQLite must be told, and foreign errors in our words.

SQLite runs in WAL mode with `synchronous=FULL`, because usage is billed and a commit must survive
a power cut (https://www.sqlite.org/wal.html, https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from onebook.errors import ConfigError, ServiceUnavailable

DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
BUSY_TIMEOUT_MS = 5_000
CONNECT_TIMEOUT_S = 5
COMMAND_TIMEOUT_S = 10
POOL_WAIT_S = 10
CONNECTIONS_MAX = 10
RETRY_AFTER_S = 1.0

# Execution option that says which statement begins a transaction on SQLite.
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
    try:
        return create_async_engine(
            url,
            hide_parameters=True,
            pool_size=CONNECTIONS_MAX,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            pool_pre_ping=True,
            connect_args={"timeout": CONNECT_TIMEOUT_S, "command_timeout": COMMAND_TIMEOUT_S},
        )
    except ModuleNotFoundError:
        raise ConfigError("PostgreSQL needs its driver: pip install 'onebook[postgres]'.") from None


def _sqlite(url: URL) -> AsyncEngine:
    if not url.database or url.database == ":memory:":
        raise ConfigError("store.url must name a file: several connections share the database.")
    _make_private(Path(url.database))
    engine = create_async_engine(
        url,
        hide_parameters=True,
        pool_size=CONNECTIONS_MAX,
        max_overflow=0,
        pool_timeout=POOL_WAIT_S,
    )
    event.listen(engine.sync_engine, "connect", _connected)
    event.listen(engine.sync_engine, "begin", _begun)
    return engine


def _make_private(path: Path) -> None:
    """Create the file so that only its owner reads it; SQLite gives -wal and -shm the same mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise ConfigError(f"The database {path} cannot be opened: {error.strerror}.") from None


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


@asynccontextmanager
async def database_errors() -> AsyncIterator[None]:
    """Map what drivers raise to `ServiceUnavailable`; a broken rule of the data passes through."""
    try:
        yield
    except IntegrityError:
        raise
    except (DBAPIError, SQLAlchemyError, OSError, TimeoutError) as error:
        raise ServiceUnavailable(
            "The database does not answer; try again in a moment.", retry_after_s=RETRY_AFTER_S
        ) from error
