"""REST sessions, on both databases."""

import pytest
from msgspec.structs import replace

from onebook.store import AuditedChange, SessionRow, Store
from store.samples import ACTIVE, SUSPENDED, session_of


async def test_a_session_is_found_by_the_digest_of_its_token(keyed: Store) -> None:
    session = SessionRow("session-1", "key_1", 3_000, 4_000)
    assert await keyed.sessions.create(session, b"token", secret=b"first", live_max=100) == []
    assert await session_of(keyed, b"token") == session
    assert await session_of(keyed, b"other") is None


async def test_the_oldest_live_session_beyond_the_limit_goes(keyed: Store) -> None:
    gone = [
        await keyed.sessions.create(
            SessionRow(f"session-{n}", "key_1", 3_000, 4_000),
            b"%d" % n,
            secret=b"first",
            live_max=2,
        )
        for n in range(4)
    ]
    assert gone == [[], [], [b"0"], [b"1"]]
    assert [await session_of(keyed, b"%d" % n) is not None for n in range(4)] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("ending", ["key", "account", "rotation"])
async def test_what_ends_a_key_ends_its_sessions_and_makes_no_new_one(
    keyed: Store, ending: str
) -> None:
    session, change = (
        SessionRow("session-1", "key_1", 3_000, 4_000),
        AuditedChange(3_500, "root", ""),
    )
    assert await keyed.sessions.create(session, b"token", secret=b"first", live_max=9) == []
    if ending == "key":
        assert await keyed.accounts.move_key("key_1", (ACTIVE, SUSPENDED), change)
    elif ending == "account":
        assert await keyed.accounts.move_account("id-alice", (ACTIVE, SUSPENDED), change)
    else:
        await keyed.accounts.rotate_key(
            "key_1", ("ob_live_wxyz", b"second"), change, retires_at_ms=0
        )
    assert await session_of(keyed, b"token") == replace(session, expires_at_ms=3_000)
    later = SessionRow("session-2", "key_1", 3_600, 4_600)
    assert await keyed.sessions.create(later, b"other", secret=b"first", live_max=9) is None
    assert await session_of(keyed, b"other") is None
    opened = {b"second"} if ending == "rotation" else {b"first"}
    assert await keyed.accounts.open_secrets(["key_1", "key_2"], 3_600) == opened


async def test_an_ended_session_takes_no_place(keyed: Store) -> None:
    for n in range(2):
        ended = SessionRow(f"session-{n}", "key_1", 1_000, 2_000)
        await keyed.sessions.create(ended, b"%d" % n, secret=b"first", live_max=2)
    new = SessionRow("session-2", "key_1", 2_000, 3_000)
    assert await keyed.sessions.create(new, b"2", secret=b"first", live_max=1) == []
