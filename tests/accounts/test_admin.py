"""What an operator may do, and what is refused with one clear sentence."""

import pytest

from onebook.accounts.keys import new_key
from onebook.errors import InvalidRequest, NotFound
from onebook.model import DAY_MS, KeyStatus, Tier
from onebook.store import Store

from .conftest import START_MS, House


async def test_an_account_has_a_uuid_and_its_keys(house: House) -> None:
    account = await house.admin.account("alice")
    assert len(account.account_id) == 36
    assert [row.key_id for row in await house.admin.keys("alice", START_MS)] == [house.key_id]
    assert [row.key_id for row in await house.admin.keys(None, START_MS)] == [house.key_id]


@pytest.mark.parametrize("username", ["", " alice", "alice ", "a\nb", "a\0b", "x" * 65])
async def test_a_username_that_cannot_be_used_is_refused(house: House, username: str) -> None:
    with pytest.raises(InvalidRequest, match="A username"):
        await house.admin.create_account(username, house.change())


async def test_an_unknown_account_is_named(house: House) -> None:
    with pytest.raises(NotFound, match="'bob'"):
        await house.admin.create_key("bob", Tier.BASIC, house.change())


async def test_a_key_that_would_be_expired_is_not_issued(house: House) -> None:
    with pytest.raises(InvalidRequest, match="past"):
        await house.admin.create_key("alice", Tier.BASIC, house.change(), expires_at_ms=START_MS)


async def test_a_key_is_found_by_its_id_and_by_its_text(house: House) -> None:
    by_id = await house.admin.key(house.key_id, START_MS)
    assert by_id == await house.admin.key(house.text, START_MS)
    assert house.text.startswith(by_id.prefix)
    assert len(by_id.prefix) == 12


async def test_an_unknown_key_is_named_without_repeating_it(house: House) -> None:
    with pytest.raises(NotFound, match="'key_0'"):
        await house.admin.key("key_0", START_MS)
    unknown = new_key()
    with pytest.raises(NotFound) as caught:
        await house.admin.key(unknown, START_MS)
    assert unknown[:12] in caught.value.message
    assert unknown[:16] not in caught.value.message


async def test_a_key_with_a_typing_error_is_said_so(house: House) -> None:
    with pytest.raises(InvalidRequest, match="checksum"):
        await house.admin.key(house.text[:-1], START_MS)


async def test_who_moved_a_key_when_and_why_is_kept(house: House) -> None:
    row = await house.admin.move_key(house.text, "suspend", house.change())
    assert (row.status, row.changed_by, row.reason) == (KeyStatus.SUSPENDED, "operator", "test")
    assert row.changed_at_ms >= START_MS


async def test_expired_is_final(house: House) -> None:
    await house.admin.move_key(house.key_id, "expire", house.change())
    for action in ("resume", "suspend", "expire"):
        with pytest.raises(InvalidRequest, match="It is expired"):
            await house.admin.move_key(house.key_id, action, house.change())
    with pytest.raises(InvalidRequest, match="create a new key"):
        await house.admin.rotate_key(house.key_id, house.change(), overlap_ms=0)


async def test_a_key_whose_date_has_come_is_expired_for_the_operator_too(house: House) -> None:
    made = await house.admin.create_key(
        "alice", Tier.BASIC, house.change(), expires_at_ms=START_MS + 1
    )
    house.clock.now_ms += 1
    statuses = {row.key_id: row.status for row in await house.admin.keys("alice", house.clock())}
    assert statuses == {house.key_id: KeyStatus.ACTIVE, made.row.key_id: KeyStatus.EXPIRED}
    with pytest.raises(InvalidRequest, match="It is expired"):
        await house.admin.move_key(made.row.key_id, "suspend", house.change())


@pytest.mark.parametrize("overlap_ms", [-1, 30 * DAY_MS + 1])
async def test_an_overlap_out_of_range_is_refused(house: House, overlap_ms: int) -> None:
    with pytest.raises(InvalidRequest, match="0 to 30 days"):
        await house.admin.rotate_key(house.key_id, house.change(), overlap_ms=overlap_ms)


async def test_a_move_that_someone_else_made_first_is_not_made_twice(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> bool:
        return False

    monkeypatch.setattr(Store, "move_key", lost)
    monkeypatch.setattr(Store, "move_account", lost)
    with pytest.raises(InvalidRequest, match="meanwhile"):
        await house.admin.move_key(house.key_id, "suspend", house.change())
    with pytest.raises(InvalidRequest, match="meanwhile"):
        await house.admin.move_account("alice", "suspend", house.change())
