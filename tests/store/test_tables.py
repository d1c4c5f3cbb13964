"""Constraints of the tables beyond their columns."""

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from onebook.store import AuditedChange, SessionRow, Store, UsageCell
from onebook.store.tables import key_secrets, metadata, open_after
from store.samples import ALICE, KEY


@pytest.mark.parametrize(
    ("at_ms", "opening"), [(5_999, {b"first", b"second"}), (6_000, {b"second"})]
)
async def test_a_secret_opens_until_it_retires(
    keyed: Store, at_ms: int, opening: set[bytes]
) -> None:
    change = AuditedChange(5_000, "carol", "")
    await keyed.accounts.rotate_key(
        "key_1", ("ob_live_wxyz", b"second"), change, retires_at_ms=6_000
    )
    rows = await keyed.database.rows(select(key_secrets.c.digest).where(open_after(at_ms)))
    assert {row.digest for row in rows} == opening


async def test_nothing_refers_to_a_key_that_is_not_there(store: Store) -> None:
    await store.accounts.create_account(ALICE)
    with pytest.raises(IntegrityError):
        await store.usage.apply(("node", 1), {UsageCell("nobody", 0): 1}, 1)
    session = SessionRow("session-1", "nobody", 1, 2)
    assert await store.sessions.create(session, b"token", secret=b"first", live_max=9) is None


async def test_a_key_id_is_given_once(keyed: Store) -> None:
    with pytest.raises(IntegrityError):
        await keyed.accounts.create_key(KEY, b"another")
    assert await keyed.accounts.list_keys() == [KEY]


def test_every_table_has_a_primary_key() -> None:
    assert [table.name for table in metadata.sorted_tables if not table.primary_key.columns] == []
