"""The keys of a node: found by text and by id, changed by the watch, expired by their date."""

from collections.abc import Awaitable, Callable

import pytest

from onebook.accounts.cache import CACHE_TTL_MS
from onebook.accounts.keycache import KeyCache
from onebook.accounts.keys import Key, key_of
from onebook.model import KeyStatus, Tier

from .conftest import PEPPER, START_MS, Rig


@pytest.fixture
def read() -> list[str]:
    """The ids of the keys that were read from the store."""
    return []


@pytest.fixture
def keys(rig: Rig, read: list[str]) -> KeyCache:
    return KeyCache(rig.store, rig.clock, on_read=noting(read))


def noting(read: list[str]) -> Callable[..., Awaitable[None]]:
    async def note(*keys: Key) -> None:
        read.extend(key.key_id for key in keys)

    return note


async def changed(rig: Rig, keys: KeyCache) -> None:
    """What the watch does with all that was changed."""
    rows, _ = await rig.store.accounts.changed_keys(0)
    keys.change({row.key_id: key_of(row) for row in rows}, rig.clock.now_ms)


async def test_a_key_that_its_text_opened_is_known_by_its_id_too(
    rig: Rig, keys: KeyCache, read: list[str]
) -> None:
    key = await keys.opened_by(PEPPER.digest(rig.text), START_MS)
    assert key is not None
    assert key.key_id == rig.key_id
    assert await keys.by_id(rig.key_id, START_MS) is key
    assert read == [rig.key_id]
    assert await keys.opened_by(b"another digest", START_MS) is None


async def test_a_change_replaces_the_key_and_its_texts_are_read_again(
    rig: Rig, keys: KeyCache, read: list[str]
) -> None:
    text = PEPPER.digest(rig.text)
    assert await keys.opened_by(text, START_MS)
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    await changed(rig, keys)
    assert (await keys.by_id(rig.key_id, START_MS)).status is KeyStatus.SUSPENDED
    assert read == [rig.key_id], "the watch brought it"
    await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=0)
    await changed(rig, keys)
    assert await keys.opened_by(text, START_MS) is None


async def test_a_text_opens_until_it_retires(rig: Rig, keys: KeyCache) -> None:
    await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=1_000)
    text = PEPPER.digest(rig.text)
    assert await keys.opened_by(text, START_MS + 999)
    assert await keys.opened_by(text, START_MS + 1_000) is None


async def test_keys_stay_fresh_while_the_watch_works(
    rig: Rig, keys: KeyCache, read: list[str]
) -> None:
    await keys.by_id(rig.key_id, START_MS)
    for _ in range(5):
        rig.clock.now_ms += CACHE_TTL_MS - 1
        keys.polled(rig.clock.now_ms)
        await keys.by_id(rig.key_id, rig.clock.now_ms)
    assert keys.polled_at_ms == rig.clock.now_ms
    assert len(read) == 1
    rig.clock.now_ms += CACHE_TTL_MS
    await keys.by_id(rig.key_id, rig.clock.now_ms)
    assert len(read) == 2


async def test_a_key_expires_once_and_again_where_the_clock_was_set_back(
    rig: Rig, keys: KeyCache
) -> None:
    made = await rig.admin.create_key(
        "alice", Tier.BASIC, rig.change(), expires_at_ms=START_MS + 1_000
    )
    await keys.by_id(made.row.key_id, START_MS)
    keys.polled(START_MS)
    assert [keys.expired(START_MS + after) for after in (999, 1_000, 1_001)] == [
        [],
        [made.row.key_id],
        [],
    ]
    keys.polled(START_MS + 1_001)
    keys.polled(START_MS)
    assert keys.expired(START_MS + 1_000) == [made.row.key_id]


async def test_a_key_that_was_ended_otherwise_does_not_expire(rig: Rig, keys: KeyCache) -> None:
    made = await rig.admin.create_key(
        "alice", Tier.BASIC, rig.change(), expires_at_ms=START_MS + 1_000
    )
    await keys.by_id(made.row.key_id, START_MS)
    await rig.admin.move_key(made.row.key_id, "suspend", rig.change())
    await changed(rig, keys)
    assert keys.expired(START_MS + 1_000) == []
