"""The audit trail, on both databases."""

from onebook.store import AuditedChange, Store
from store.samples import ACTIVE, SUSPENDED

EVER = {"since_ms": 0, "until_ms": 1 << 50, "rows_max": 100}


async def test_a_change_and_its_row_are_written_together(keyed: Store) -> None:
    before = await keyed.audit.changes("key_1", **EVER)
    assert await keyed.accounts.move_key(
        "key_1", (ACTIVE, SUSPENDED), AuditedChange(3_500, "root", "abuse")
    )
    (row, *rest) = await keyed.audit.changes("key_1", **EVER)
    assert rest == before
    assert (row.changed_at_ms, row.changed_by, row.subject) == (3_500, "root", "key_1")
    assert (row.before, row.after, row.reason) == ("active", "suspended", "abuse")
    assert not await keyed.accounts.move_key(
        "key_1", (ACTIVE, SUSPENDED), AuditedChange(3_600, "root", "")
    )
    assert await keyed.audit.changes("key_1", **EVER) == [row, *rest], "nothing was changed"


async def test_the_trail_of_an_account_has_that_of_its_keys_newest_first(keyed: Store) -> None:
    assert await keyed.accounts.move_key(
        "key_1", (ACTIVE, SUSPENDED), AuditedChange(3_500, "root", "")
    )
    assert await keyed.accounts.move_account(
        "id-alice", (ACTIVE, SUSPENDED), AuditedChange(3_600, "eve", "")
    )
    newest, older = (await keyed.audit.changes("id-alice", **EVER))[:2]
    assert (newest.subject, newest.changed_by) == ("id-alice", "eve")
    assert older.subject == "key_1"
    assert (await keyed.audit.changes("key_1", **EVER))[0] == older


async def test_a_span_and_a_number_of_rows_bound_the_trail(keyed: Store) -> None:
    for moment in range(4_000, 4_005):
        await keyed.audit.record(AuditedChange(moment, "root", ""), "credentials set", "bybit")
    found = await keyed.audit.changes("bybit", since_ms=4_001, until_ms=4_004, rows_max=2)
    assert [row.changed_at_ms for row in found] == [4_003, 4_002]
