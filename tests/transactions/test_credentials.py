"""Exchange credentials: encrypted under two keys, bound to their place, never shown."""

import asyncio
import copy
import os
import pickle
from base64 import b64encode
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from onebook import config
from onebook.errors import ConfigError
from onebook.store import Store
from onebook.store.rows import CredentialsRow
from onebook.transactions.credentials import (
    Credentials,
    KeyRing,
    MasterKeys,
    Vault,
    key_id,
    masked,
    master_keys,
    new_master_key,
    parse_keys,
)
from together import forking
from transactions.bybit_support import MASTER_KEY, MemoryStore

API_KEY, SECRET = "abcdefghijklmnop", "a very secret secret"
MINE = Credentials(API_KEY, SECRET)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "master_key"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def vault(store: MemoryStore, file: Path) -> Vault:
    vault = Vault(store, MasterKeys(file))
    await vault.put("bybit", "mainnet", MINE, now_ms=5)
    return vault


async def test_what_goes_in_comes_out(vault: Vault, store: MemoryStore, file: Path) -> None:
    found = await vault.get("bybit", "mainnet")
    assert found is not None
    assert (found.api_key, found.secret) == (API_KEY, SECRET)
    assert await vault.has("bybit", "mainnet")
    assert await vault.get("bybit", "testnet") is None
    assert not await vault.has("bybit", "testnet")
    row = store.rows["bybit", "mainnet"]
    assert row.created_at_ms == 5
    assert API_KEY.encode() not in row.ciphertext
    assert SECRET.encode() not in row.ciphertext
    assert file.stat().st_mode & 0o777 == 0o600
    assert [listed.environment for listed in await vault.listed()] == ["mainnet"]


async def test_another_process_opens_it_with_the_same_file(
    vault: Vault, store: MemoryStore, file: Path
) -> None:
    found = await Vault(store, MasterKeys(file)).get("bybit", "mainnet")
    assert found is not None
    assert found.secret == SECRET


async def test_two_rows_of_the_same_secret_have_nothing_in_common(
    vault: Vault, store: MemoryStore
) -> None:
    first = store.rows["bybit", "mainnet"]
    await vault.put("bybit", "mainnet", MINE, now_ms=6)
    second = store.rows["bybit", "mainnet"]
    assert first.nonce != second.nonce
    assert first.ciphertext[:60] != second.ciphertext[:60]
    assert first.ciphertext[60:] != second.ciphertext[60:]


@pytest.mark.parametrize("place", [("bybit", "testnet"), ("okx", "mainnet")])
async def test_a_row_copied_to_another_place_does_not_open(
    vault: Vault, store: MemoryStore, place: tuple[str, str]
) -> None:
    row = store.rows["bybit", "mainnet"]
    store.rows[place] = CredentialsRow(*place, row.kek_id, row.ciphertext, row.nonce, 0)
    with pytest.raises(ConfigError, match="cannot be decrypted"):
        await vault.get(*place)


@pytest.mark.parametrize("at", [0, 20, 59, 61, -1])
async def test_a_damaged_row_does_not_open(vault: Vault, store: MemoryStore, at: int) -> None:
    row = store.rows["bybit", "mainnet"]
    damaged = bytearray(row.ciphertext)
    damaged[at] ^= 1
    store.rows["bybit", "mainnet"] = CredentialsRow(
        row.exchange, row.environment, row.kek_id, bytes(damaged), row.nonce, 0
    )
    with pytest.raises(ConfigError, match="cannot be decrypted") as caught:
        await vault.get("bybit", "mainnet")
    assert SECRET not in str(caught.value)


async def test_rotation_while_serving(vault: Vault, store: MemoryStore, file: Path) -> None:
    """`onebook credentials rotate` is another process: this one keeps answering."""
    await vault.put("bybit", "testnet", MINE, now_ms=1)
    before, key_before = dict(store.rows), file.read_text()
    operator = Vault(store, MasterKeys(file))
    assert await operator.rotate() == 2
    assert file.read_text() != key_before
    assert len(file.read_text().split()) == 1
    for place, row in store.rows.items():
        assert row.kek_id != before[place].kek_id
        assert row.ciphertext[60:] == before[place].ciphertext[60:]  # secrets were not touched
        found = await vault.get(*place)
        assert found is not None
        assert found.secret == SECRET
    assert await operator.rotate() == 2


async def test_a_reader_that_got_the_row_just_before_the_turn(
    vault: Vault, store: MemoryStore, file: Path
) -> None:
    """It holds a row whose key has left the file, so it reads the row again."""
    old = store.rows["bybit", "mainnet"]
    await Vault(store, MasterKeys(file)).rotate()
    answers = [old]

    class Behind(MemoryStore):
        async def credentials(self, exchange: str, environment: str) -> CredentialsRow | None:
            return answers.pop() if answers else store.rows[exchange, environment]

    found = await Vault(Behind(), MasterKeys(file)).get("bybit", "mainnet")
    assert found is not None
    assert found.secret == SECRET


async def test_an_interrupted_rotation_loses_nothing(
    vault: Vault, store: MemoryStore, file: Path
) -> None:
    await vault.put("bybit", "testnet", MINE, now_ms=1)
    rewrap, done = store.rewrap_credentials, 0

    async def only_once(before: CredentialsRow, after: CredentialsRow) -> bool:
        nonlocal done
        done += 1
        return await rewrap(before, after) if done == 1 else False

    store.rewrap_credentials = only_once  # type: ignore[method-assign]
    assert await Vault(store, MasterKeys(file)).rotate() == 1
    assert len(file.read_text().split()) == 2  # the old key is still needed, and still there
    for place in store.rows:
        assert await Vault(store, MasterKeys(file)).get(*place) is not None
    store.rewrap_credentials = rewrap  # type: ignore[method-assign]
    await Vault(store, MasterKeys(file)).rotate()
    assert len(file.read_text().split()) == 1


async def test_rotations_at_once_lose_no_credentials(tmp_path: Path, file: Path) -> None:
    """Two operators and one who sets credentials: processes, because locks are files."""
    url = f"sqlite:///{tmp_path}/onebook.db"
    async with Store(url) as stored:
        await stored.database.upgrade()
        await Vault(stored.credentials, MasterKeys(file)).put("bybit", "mainnet", MINE, now_ms=1)
    with ProcessPoolExecutor(3, mp_context=forking()) as processes:
        work = [processes.submit(rotate_often, url, file) for _ in range(2)]
        work.append(processes.submit(set_often, url, file))
    for each in work:
        each.result()
    async with Store(url) as stored:
        for environment in ("mainnet", "testnet"):
            found = await Vault(stored.credentials, MasterKeys(file)).get("bybit", environment)
            assert found is not None
            assert found.secret == SECRET


async def test_a_change_that_never_ends_is_not_waited_for_for_ever(
    tmp_path: Path, file: Path
) -> None:
    async with MasterKeys(file).exclusive():
        waiting = MasterKeys(file, lock_wait_s=0.01)
        with pytest.raises(ConfigError, match=r"Another command .*\.lock"):
            async with waiting.exclusive():
                pass
    async with waiting.exclusive():
        pass


TIMES = 15


def rotate_often(url: str, file: Path) -> None:
    async def work() -> None:
        async with Store(url) as store:
            for _ in range(TIMES):
                await Vault(store.credentials, MasterKeys(file)).rotate()

    asyncio.run(work())


def set_often(url: str, file: Path) -> None:
    async def work() -> None:
        async with Store(url) as store:
            for number in range(TIMES):
                await Vault(store.credentials, MasterKeys(file)).put(
                    "bybit", "testnet", MINE, now_ms=number
                )

    asyncio.run(work())


async def test_there_is_no_rotation_without_a_master_key(store: MemoryStore, file: Path) -> None:
    with pytest.raises(ConfigError, match="`onebook credentials set` makes one"):
        await Vault(store, MasterKeys(file)).rotate()


async def test_keys_from_the_settings_are_turned_by_their_order(store: MemoryStore) -> None:
    fresh = b64encode(new_master_key()).decode()
    old = Vault(store, MasterKeys(None, value=MASTER_KEY))
    await old.put("bybit", "mainnet", MINE, now_ms=1)
    both = Vault(store, MasterKeys(None, value=f"{fresh} {MASTER_KEY}"))
    assert await both.rotate() == 1
    found = await Vault(store, MasterKeys(None, value=fresh)).get("bybit", "mainnet")
    assert found is not None
    with pytest.raises(ConfigError, match="is missing"):
        await old.get("bybit", "mainnet")


async def test_removal(vault: Vault) -> None:
    assert await vault.remove("bybit", "mainnet")
    assert not await vault.remove("bybit", "mainnet")
    assert await vault.get("bybit", "mainnet") is None


def test_a_key_file_that_others_can_read_is_refused(file: Path) -> None:
    MasterKeys(file).read_or_make()
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="0600"):
        MasterKeys(file).read()


def test_a_key_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(ConfigError, match="no master key"):
        MasterKeys(file).read()
    with pytest.raises(ConfigError, match="no master key"):
        MasterKeys(None).read()


@pytest.mark.parametrize("text", ["", "????", b64encode(b"short").decode()])
def test_a_key_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KeyRing(parse_keys(text))
    assert text == "" or text not in str(caught.value)


def test_nothing_shows_a_secret(file: Path) -> None:
    """Contract: not in a log, error, repr or answer."""
    ring = MasterKeys(file).read_or_make()
    shown = (
        f"{MINE!r} {MINE} {ring!r} {MasterKeys(file)!r} {Vault(MemoryStore(), MasterKeys(file))!r}"
    )
    assert SECRET not in shown
    assert API_KEY not in shown
    assert file.read_text().strip() not in shown
    assert masked("short") == "..."
    for way in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError):
            way(MINE)


def test_the_name_of_a_key_states_nothing_of_it() -> None:
    key = os.urandom(32)
    assert key_id(key) == key_id(key)
    assert key.hex()[:8] not in key_id(key)


def test_the_environment_may_hold_the_master_key_instead_of_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = b64encode(bytes(range(32))).decode()
    monkeypatch.setenv("ONEBOOK_TRANSACTIONS__MASTER_KEY", text)
    settings = config.load().transactions
    masters = master_keys(settings)
    assert not masters.rotatable
    assert masters.read().current_id
    assert text not in repr(settings)
