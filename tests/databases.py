"""Databases for tests: a SQLite file, or a PostgreSQL database, created and dropped here."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from onebook.store import Store
from steady import PATIENCE_S

KINDS = ("sqlite", "postgresql")
SERVER = "postgresql://postgres@127.0.0.1:5432"
CONNECT_TIMEOUT_S = 2

_migrated: list[bytes] = []  # the first file of this process


async def migrated(folder: Path) -> str:
    """The URL of an empty SQLite database with this release's schema.

    The first of a process is made by the migrations, the others are copies of it: hundreds of
    tests have one of their own, and migrating costs more CPU than most of them.
    """
    path = folder / "onebook.db"
    url = f"sqlite:///{path}"
    if _migrated:
        path.touch(0o600)
        path.write_bytes(_migrated[0])
    else:
        async with Store(url) as store:
            await store.database.upgrade()
        _migrated.append(path.read_bytes())
    return url


def _run(statement: str) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(f"{SERVER}/postgres", timeout=CONNECT_TIMEOUT_S)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(work())


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database; skips if there is no PostgreSQL."""
    name = f"onebook_test_{secrets.token_hex(6)}"
    if kind == "sqlite":
        yield f"sqlite:///{folder / name}.db"
        return
    try:
        _run(f"CREATE DATABASE {name}")
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        pytest.skip(f"no PostgreSQL that lets us in at 127.0.0.1:5432 ({type(error).__name__})")
    try:
        yield f"{SERVER}/{name}"
    finally:
        _run(f"DROP DATABASE {name} WITH (FORCE)")


class DatabaseProxy:
    """A TCP proxy in front of PostgreSQL that can be cut, or drop the traffic of connections."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = 0
        self._carries: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The URL of the database through this proxy, once it has listened."""
        return self._url._replace(netloc=f"{self._url.username}@127.0.0.1:{self._port}").geturl()

    async def up(self) -> None:
        """Listen; after a cut on the same port, once it is free."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(OSError):
                    self._server = await asyncio.start_server(
                        self._accepted, "127.0.0.1", self._port
                    )
                    break
                await asyncio.sleep(0.1)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse connections and reset those that are open."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    def lose(self) -> None:
        """Silently drop all traffic of open connections, like a firewall that forgot them."""
        for carrying in self._carries:
            carrying.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection(
                self._url.hostname, self._url.port
            )
            self._writers |= {writer, inner_writer}
            carries = {
                asyncio.create_task(self._carry(reader, inner_writer)),
                asyncio.create_task(self._carry(inner_reader, writer)),
            }
            self._carries |= carries
            await asyncio.wait(carries)
            self._carries -= carries
            if not any(carrying.cancelled() for carrying in carries):
                self._writers -= {writer, inner_writer}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()
