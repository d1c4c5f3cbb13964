"""Accounts, keys, their secrets and the stamps of changes, on both databases."""

import pytest
from msgspec.structs import replace

from onebook.errors import InvalidRequest
from onebook.store import AuditedChange, SecretRow, Store
from store.samples import ACTIVE, ALICE, KEY, SUSPENDED


async def test_an_account_is_found_by_id_and_by_username(store: Store) -> None:
    await store.accounts.create_account(ALICE)
    assert await store.accounts.account("id-alice") == ALICE
    assert await store.accounts.account("alice") == ALICE
    assert await store.accounts.account("bob") is None
    assert await store.accounts.list_accounts() == [ALICE]


async def test_a_username_is_given_once(store: Store) -> None:
    await store.accounts.create_account(ALICE)
    with pytest.raises(InvalidRequest, match="'alice' already"):
        await store.accounts.create_account(replace(ALICE, account_id="another"))
    assert await store.accounts.list_accounts() == [ALICE]


async def test_a_key_is_found_by_id_by_digest_and_in_lists(keyed: Store) -> None:
    assert await keyed.accounts.key("key_1") == KEY
    assert await keyed.accounts.key("key_2") is None
    assert await keyed.accounts.secrets([b"first", b"other"]) == {b"first": SecretRow(KEY, None)}
    assert await keyed.accounts.list_keys() == [KEY]
    assert await keyed.accounts.list_keys("id-alice") == [KEY]
    assert await keyed.accounts.list_keys("id-bob") == []


async def test_many_keys_are_found_at_once_and_what_is_none_is_left_out(keyed: Store) -> None:
    for number in range(2, 8):
        await keyed.accounts.create_key(replace(KEY, key_id=f"key_{number}"), b"%d" % number)
    ids = [f"key_{number}" for number in range(1_000)]
    secrets = await keyed.accounts.secrets([b"%d" % number for number in range(1_000)])
    assert {digest: row.key.key_id for digest, row in secrets.items()} == {
        b"%d" % number: f"key_{number}" for number in range(2, 8)
    }
    found = await keyed.accounts.keys_by_id(ids)
    assert sorted(found) == ids[1:8]
    assert found["key_1"] == KEY
    assert (await keyed.accounts.keys_by_id([]), await keyed.accounts.secrets([])) == ({}, {})


async def test_a_status_moves_only_from_the_state_it_was_seen_in(keyed: Store) -> None:
    change = AuditedChange(5_000, "carol", "unpaid")
    assert await keyed.accounts.move_key("key_1", (ACTIVE, SUSPENDED), change)
    assert not await keyed.accounts.move_key("key_1", (ACTIVE, SUSPENDED), change)
    row = await keyed.accounts.key("key_1")
    assert row is not None
    assert (row.status, row.changed_at_ms, row.changed_by, row.reason) == (
        (SUSPENDED, 5_000, "carol", "unpaid")
    )


async def test_an_account_moves_only_from_the_state_it_was_seen_in(keyed: Store) -> None:
    change = AuditedChange(5_000, "carol", "unpaid")
    assert await keyed.accounts.move_account("id-alice", (ACTIVE, SUSPENDED), change)
    assert not await keyed.accounts.move_account("id-alice", (ACTIVE, SUSPENDED), change)
    row = await keyed.accounts.key("key_1")
    assert row is not None
    assert (row.status, row.account_status) == (ACTIVE, SUSPENDED)


async def test_a_watch_hears_of_changed_keys_and_changed_accounts(keyed: Store) -> None:
    begin = await keyed.accounts.newest_change()
    assert await keyed.accounts.changed_keys(begin) == ([], begin)
    await keyed.accounts.move_key("key_1", (ACTIVE, SUSPENDED), AuditedChange(5_000, "carol", ""))
    rows, stamp = await keyed.accounts.changed_keys(begin)
    assert [row.status for row in rows] == [SUSPENDED]
    assert stamp == await keyed.accounts.newest_change() == 5_000
    await keyed.accounts.move_account(
        "id-alice", (ACTIVE, SUSPENDED), AuditedChange(6_000, "carol", "")
    )
    rows, stamp = await keyed.accounts.changed_keys(stamp)
    assert [row.account_status for row in rows] == [SUSPENDED]
    assert await keyed.accounts.changed_keys(stamp) == ([], 6_000)


async def test_a_change_is_heard_also_when_a_clock_runs_behind(keyed: Store) -> None:
    await keyed.accounts.move_key("key_1", (ACTIVE, SUSPENDED), AuditedChange(5_000, "carol", ""))
    stamp = await keyed.accounts.newest_change()
    await keyed.accounts.move_key(
        "key_1", (SUSPENDED, ACTIVE), AuditedChange(4_000, "late clock", "")
    )
    rows, newest = await keyed.accounts.changed_keys(stamp)
    assert [row.changed_by for row in rows] == ["late clock"]
    assert newest == 5_001


async def test_the_newest_change_of_an_empty_store_is_zero(store: Store) -> None:
    assert await store.accounts.newest_change() == 0


async def test_a_rotated_key_has_two_secrets_until_the_old_retires(keyed: Store) -> None:
    change = AuditedChange(5_000, "carol", "yearly")
    await keyed.accounts.rotate_key(
        "key_1", ("ob_live_wxyz", b"second"), change, retires_at_ms=6_000
    )
    found = await keyed.accounts.secrets([b"first", b"second"])
    first, second = found[b"first"], found[b"second"]
    assert (first.retires_at_ms, second.retires_at_ms) == (6_000, None)
    assert first.key == second.key
    assert second.key.prefix == "ob_live_wxyz"


async def test_rotating_again_never_lengthens_the_life_of_an_old_secret(keyed: Store) -> None:
    for number, retires_at_ms in enumerate((6_000, 5_500, 9_000)):
        secret = ("ob_live_wxyz", b"%d" % number)
        change = AuditedChange(5_000, "carol", "")
        await keyed.accounts.rotate_key("key_1", secret, change, retires_at_ms=retires_at_ms)
    digests = (b"first", b"0", b"1", b"2")
    found = await keyed.accounts.secrets(digests)
    retirements = [found[digest].retires_at_ms for digest in digests]
    assert retirements == [5_500, 5_500, 9_000, None]


async def test_when_a_key_was_used_last_is_noted(keyed: Store) -> None:
    await keyed.accounts.touch_keys({})
    await keyed.accounts.touch_keys({"key_1": 7_000})
    row = await keyed.accounts.key("key_1")
    assert row is not None
    assert row.last_used_at_ms == 7_000
    assert row.changed_at_ms == KEY.changed_at_ms, "being used is no change that a watch hears of"
