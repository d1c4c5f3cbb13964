"""Databases for tests: a SQLite file, or a PostgreSQL database that is made and dropped here."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

KINDS = ("sqlite", "postgresql")
SERVER = "postgresql://postgres@127.0.0.1:5432"
CONNECT_TIMEOUT_S = 2


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
    """The address of an empty database of a kind; skips where there is no PostgreSQL."""
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
