"""The pepper file: created once, private, and bound to its database."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onebook.accounts import Accounts, Peppers
from onebook.accounts.pepper import load_pepper, require_same_pepper
from onebook.errors import ConfigError
from onebook.store import Store


def test_the_pepper_is_made_at_the_first_start_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "new" / "pepper"
    pepper = load_pepper(path)
    assert len(pepper.current) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_pepper(path).current == pepper.current
    assert pepper.current.hex() not in repr(pepper)
    assert [file.name for file in path.parent.iterdir()] == ["pepper"]


def test_nodes_that_start_at_once_share_one_pepper(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(load_pepper, [tmp_path / "pepper"] * 32))
    assert len({each.current for each in loaded}) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o610])
def test_a_pepper_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "pepper"
    load_pepper(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_pepper(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not hex",
        b"ab" * 31,
        b"ab" * 33,
        b"ab" * 32 + b"\ncd",
        b"\xff" * 64,
        (b"ab" * 32 + b"\n") * 17,
    ],
)
def test_a_file_that_is_no_pepper_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pepper"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="does not hold 32 bytes"):
        load_pepper(path)


def test_a_path_that_cannot_be_used_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "pepper"):
        with pytest.raises(ConfigError, match=r"pepper|Cannot use"):
            load_pepper(path)


async def test_a_pepper_of_another_database_is_refused(store: Store) -> None:
    await require_same_pepper(store, Peppers(b"a" * 32))
    await require_same_pepper(store, Peppers(b"a" * 32))
    with pytest.raises(ConfigError, match="does not belong"):
        async with Accounts(store, Peppers(b"b" * 32)):
            pass
