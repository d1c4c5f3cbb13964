import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from databases import KINDS, database
from onebook.store import Store
from onebook.store.tables import metadata
from store.samples import ALICE, KEY
from together import upgraded


@pytest.fixture(scope="session", params=KINDS)
def migrated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """One database of each kind for the whole run."""
    with database(request.param, tmp_path_factory.mktemp("db")) as url:
        asyncio.run(upgraded(url))
        yield url


@pytest_asyncio.fixture
async def store(migrated: str) -> AsyncIterator[Store]:
    """The contract suite's store, empty again before each test."""
    async with Store(migrated) as opened:
        async with opened.database.writing() as connection:
            for table in reversed(metadata.sorted_tables):
                await connection.execute(table.delete())
        yield opened


@pytest.fixture(params=KINDS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A separate empty database of each kind."""
    with database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
async def keyed(store: Store) -> Store:
    await store.accounts.create_account(ALICE)
    await store.accounts.create_key(KEY, b"first")
    return store
