"""Operator actions, and the error message of each refused one."""

import pytest

from onebook.accounts.keys import new_key
from onebook.errors import InvalidRequest, NotFound
from onebook.model import DAY_MS, KeyStatus, Tier

from .conftest import START_MS, Rig


async def test_an_account_has_a_uuid_and_its_keys(rig: Rig) -> None:
    account = await rig.admin.account("alice")
    assert len(account.account_id) == 36
    assert [row.key_id for row in await rig.admin.keys("alice", START_MS)] == [rig.key_id]
    assert [row.key_id for row in await rig.admin.keys(None, START_MS)] == [rig.key_id]


@pytest.mark.parametrize("username", ["", " alice", "alice ", "a\nb", "a\0b", "x" * 65])
async def test_a_username_that_cannot_be_used_is_refused(rig: Rig, username: str) -> None:
    with pytest.raises(InvalidRequest, match="A username"):
        await rig.admin.create_account(username, rig.change())


async def test_an_unknown_account_is_named(rig: Rig) -> None:
    with pytest.raises(NotFound, match="'bob'"):
        await rig.admin.create_key("bob", Tier.BASIC, rig.change())


async def test_a_key_that_would_be_expired_is_not_issued(rig: Rig) -> None:
    with pytest.raises(InvalidRequest, match="past"):
        await rig.admin.create_key("alice", Tier.BASIC, rig.change(), expires_at_ms=START_MS)


async def test_a_key_is_found_by_its_id_and_by_its_text(rig: Rig) -> None:
    by_id = await rig.admin.key(rig.key_id, START_MS)
    assert by_id == await rig.admin.key(rig.text, START_MS)
    assert rig.text.startswith(by_id.prefix)
    assert len(by_id.prefix) == 12


async def test_an_unknown_key_is_named_without_repeating_it(rig: Rig) -> None:
    with pytest.raises(NotFound, match="'key_0'"):
        await rig.admin.key("key_0", START_MS)
    unknown = new_key()
    with pytest.raises(NotFound) as caught:
        await rig.admin.key(unknown, START_MS)
    assert unknown[:12] in caught.value.message
    assert unknown[:16] not in caught.value.message


async def test_a_key_with_a_typing_error_is_said_so(rig: Rig) -> None:
    with pytest.raises(InvalidRequest, match="checksum"):
        await rig.admin.key(rig.text[:-1], START_MS)


async def test_who_moved_a_key_when_and_why_is_kept(rig: Rig) -> None:
    row = await rig.admin.move_key(rig.text, "suspend", rig.change())
    assert (row.status, row.changed_by, row.reason) == (KeyStatus.SUSPENDED, "operator", "test")
    assert row.changed_at_ms >= START_MS


async def test_expired_is_final(rig: Rig) -> None:
    await rig.admin.move_key(rig.key_id, "expire", rig.change())
    for action in ("resume", "suspend", "expire"):
        with pytest.raises(InvalidRequest, match=r"^Key key_\w+ is expired; "):
            await rig.admin.move_key(rig.key_id, action, rig.change())
    with pytest.raises(InvalidRequest, match="create a new one"):
        await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=0)


async def test_a_key_whose_date_has_come_is_expired_for_the_operator_too(rig: Rig) -> None:
    made = await rig.admin.create_key("alice", Tier.BASIC, rig.change(), expires_at_ms=START_MS + 1)
    rig.clock.now_ms += 1
    statuses = {row.key_id: row.status for row in await rig.admin.keys("alice", rig.clock.now_ms)}
    assert statuses == {rig.key_id: KeyStatus.ACTIVE, made.row.key_id: KeyStatus.EXPIRED}
    with pytest.raises(InvalidRequest, match=r"^Key key_\w+ is expired; "):
        await rig.admin.move_key(made.row.key_id, "suspend", rig.change())


@pytest.mark.parametrize("overlap_ms", [-1, 30 * DAY_MS + 1])
async def test_an_overlap_out_of_range_is_refused(rig: Rig, overlap_ms: int) -> None:
    with pytest.raises(InvalidRequest, match="0 to 30 days"):
        await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=overlap_ms)


async def test_a_move_that_someone_else_made_first_is_not_made_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> bool:
        return False

    monkeypatch.setattr(rig.store.accounts, "move_key", lost)
    monkeypatch.setattr(rig.store.accounts, "move_account", lost)
    with pytest.raises(InvalidRequest, match="changed concurrently"):
        await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    with pytest.raises(InvalidRequest, match="changed concurrently"):
        await rig.admin.move_account("alice", "suspend", rig.change())
