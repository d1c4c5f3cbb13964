"""Operations on several tables of the store, on both databases."""

from onebook.store import SessionRow, Store
from store.samples import JANUARY, session_of


async def test_what_ended_long_ago_is_pruned(keyed: Store) -> None:
    for n in (0, 1):
        ends = SessionRow(f"session-{n}", "key_1", 1_000, 2_000 + n)
        await keyed.sessions.create(ends, b"%d" % n, secret=b"first", live_max=100)
        await keyed.usage.apply(("node", n), {JANUARY: 1}, 5_000 + n)
    await keyed.prune(sessions_before_ms=2_001, batches_before_ms=5_001)
    assert [await session_of(keyed, b"0"), await session_of(keyed, b"1") is not None] == [
        None,
        True,
    ]
    assert await keyed.usage.apply(("node", 1), {JANUARY: 1}, 6_000) is None
    assert await keyed.usage.total(JANUARY) == 2, "what was counted stays"
