"""Usage files at the start of a node: of its database, or none with a warning."""

import logging
from pathlib import Path

import pytest

from onebook.accounts.usage import Batch
from onebook.app.node import usage_file
from onebook.config import Settings
from onebook.errors import ConfigError
from onebook.store import Store, UsageCell
from together import upgraded

NOW_MS = 1_790_000_000_000


def settings_of(folder: Path, usage_dir: Path | None = None) -> Settings:
    url = f"sqlite:///{folder / 'onebook.db'}"
    return Settings.model_validate({"store": {"url": url, "usage_dir": usage_dir}})


async def test_the_file_stands_beside_the_database(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    await upgraded(settings.store.url)
    async with Store(settings.store.url) as store:
        file = await usage_file(settings, store, NOW_MS)
    assert file is not None
    file.release()
    assert file.path.parent == tmp_path


async def test_a_node_starts_where_no_file_can_be_made_and_says_what_it_may_lose(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    no_folder = tmp_path / "a file"
    no_folder.write_text("")
    settings = settings_of(tmp_path, no_folder)
    await upgraded(settings.store.url)
    async with Store(settings.store.url) as store:
        with caplog.at_level(logging.WARNING, "onebook.app"):
            assert await usage_file(settings, store, NOW_MS) is None
    assert f"Cannot create the usage file in {no_folder} (File exists)" in caplog.text
    assert "Set store.usage_dir" in caplog.text


async def test_a_database_without_tables_ends_the_start(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    left = await _left(settings, tmp_path)
    (tmp_path / "onebook.db").write_bytes(b"")
    async with Store(settings.store.url) as store:
        with pytest.raises(ConfigError):
            await usage_file(settings, store, NOW_MS)
    assert left.exists(), "what it holds is applied at a later start"


async def _left(settings: Settings, folder: Path) -> Path:
    """A usage file left by an earlier run."""
    await upgraded(settings.store.url)
    async with Store(settings.store.url) as store:
        file = await usage_file(settings, store, NOW_MS)
    assert file is not None
    file.put([Batch(1, {UsageCell("key_0f3a5c7e9b1d", NOW_MS): 10})])
    file.release()
    return file.path
