"""One contract, two databases: what every method of the store promises."""

import asyncio

import pytest
from msgspec.structs import replace

from onebook.errors import InvalidRequest
from onebook.model import KeyStatus, Tier
from onebook.store import (
    AccountRow,
    Change,
    CredentialsRow,
    KeyRow,
    SecretRow,
    SessionRow,
    Store,
    UsageCell,
)

ACTIVE, SUSPENDED = KeyStatus.ACTIVE, KeyStatus.SUSPENDED
ALICE = AccountRow("id-alice", "alice", ACTIVE, 1_000, 1_000, "root", "new")
KEY = KeyRow(
    key_id="key_1",
    account_id="id-alice",
    username="alice",
    account_status=ACTIVE,
    tier=Tier.PREMIUM,
    status=ACTIVE,
    prefix="ob_live_abcd",
    created_at_ms=2_000,
    expires_at_ms=9_000,
    last_used_at_ms=None,
    changed_at_ms=2_000,
    changed_by="root",
    reason="",
)
JANUARY = UsageCell("key_1", 0)


@pytest.fixture
async def keyed(store: Store) -> Store:
    await store.create_account(ALICE)
    await store.create_key(KEY, b"first")
    return store


async def test_an_account_is_found_by_id_and_by_username(store: Store) -> None:
    await store.create_account(ALICE)
    assert await store.account("id-alice") == ALICE
    assert await store.account("alice") == ALICE
    assert await store.account("bob") is None
    assert await store.accounts() == [ALICE]


async def test_a_username_is_given_once(store: Store) -> None:
    await store.create_account(ALICE)
    with pytest.raises(InvalidRequest, match="'alice' already"):
        await store.create_account(replace(ALICE, account_id="another"))
    assert await store.accounts() == [ALICE]


async def test_a_key_is_found_by_id_by_digest_and_in_lists(keyed: Store) -> None:
    assert await keyed.key("key_1") == KEY
    assert await keyed.key("key_2") is None
    assert await keyed.secrets([b"first", b"other"]) == {b"first": SecretRow(KEY, None)}
    assert await keyed.keys() == [KEY]
    assert await keyed.keys("id-alice") == [KEY]
    assert await keyed.keys("id-bob") == []


async def test_many_keys_are_found_at_once_and_what_is_none_is_left_out(keyed: Store) -> None:
    for number in range(2, 8):
        await keyed.create_key(replace(KEY, key_id=f"key_{number}"), b"%d" % number)
    ids = [f"key_{number}" for number in range(1_000)]
    secrets = await keyed.secrets([b"%d" % number for number in range(1_000)])
    assert {digest: row.key.key_id for digest, row in secrets.items()} == {
        b"%d" % number: f"key_{number}" for number in range(2, 8)
    }
    found = await keyed.keys_by_id(ids)
    assert sorted(found) == ids[1:8]
    assert found["key_1"] == KEY
    assert (await keyed.keys_by_id([]), await keyed.secrets([])) == ({}, {})


async def test_a_status_moves_only_from_the_state_it_was_seen_in(keyed: Store) -> None:
    change = Change(5_000, "carol", "unpaid")
    assert await keyed.move_key("key_1", (ACTIVE, SUSPENDED), change)
    assert not await keyed.move_key("key_1", (ACTIVE, SUSPENDED), change)
    row = await keyed.key("key_1")
    assert row is not None
    assert (row.status, row.changed_at_ms, row.changed_by, row.reason) == (
        (SUSPENDED, 5_000, "carol", "unpaid")
    )


async def test_an_account_moves_only_from_the_state_it_was_seen_in(keyed: Store) -> None:
    change = Change(5_000, "carol", "unpaid")
    assert await keyed.move_account("id-alice", (ACTIVE, SUSPENDED), change)
    assert not await keyed.move_account("id-alice", (ACTIVE, SUSPENDED), change)
    row = await keyed.key("key_1")
    assert row is not None
    assert (row.status, row.account_status) == (ACTIVE, SUSPENDED)


async def test_a_watch_hears_of_changed_keys_and_changed_accounts(keyed: Store) -> None:
    begin = await keyed.newest_change()
    assert await keyed.changed_keys(begin) == ([], begin)
    await keyed.move_key("key_1", (ACTIVE, SUSPENDED), Change(5_000, "carol", ""))
    rows, stamp = await keyed.changed_keys(begin)
    assert [row.status for row in rows] == [SUSPENDED]
    assert stamp == await keyed.newest_change() == 5_000
    await keyed.move_account("id-alice", (ACTIVE, SUSPENDED), Change(6_000, "carol", ""))
    rows, stamp = await keyed.changed_keys(stamp)
    assert [row.account_status for row in rows] == [SUSPENDED]
    assert await keyed.changed_keys(stamp) == ([], 6_000)


async def test_a_change_is_heard_also_when_a_clock_runs_behind(keyed: Store) -> None:
    await keyed.move_key("key_1", (ACTIVE, SUSPENDED), Change(5_000, "carol", ""))
    stamp = await keyed.newest_change()
    await keyed.move_key("key_1", (SUSPENDED, ACTIVE), Change(4_000, "late clock", ""))
    rows, newest = await keyed.changed_keys(stamp)
    assert [row.changed_by for row in rows] == ["late clock"]
    assert newest == 5_001


async def test_the_newest_change_of_an_empty_store_is_zero(store: Store) -> None:
    assert await store.newest_change() == 0


async def test_a_rotated_key_has_two_secrets_until_the_old_retires(keyed: Store) -> None:
    change = Change(5_000, "carol", "yearly")
    await keyed.rotate_key("key_1", ("ob_live_wxyz", b"second"), change, retires_at_ms=6_000)
    found = await keyed.secrets([b"first", b"second"])
    first, second = found[b"first"], found[b"second"]
    assert (first.retires_at_ms, second.retires_at_ms) == (6_000, None)
    assert first.key == second.key
    assert second.key.prefix == "ob_live_wxyz"


async def test_rotating_again_never_lengthens_the_life_of_an_old_secret(keyed: Store) -> None:
    for number, retires_at_ms in enumerate((6_000, 5_500, 9_000)):
        secret = ("ob_live_wxyz", b"%d" % number)
        change = Change(5_000, "carol", "")
        await keyed.rotate_key("key_1", secret, change, retires_at_ms=retires_at_ms)
    digests = (b"first", b"0", b"1", b"2")
    found = await keyed.secrets(digests)
    retirements = [found[digest].retires_at_ms for digest in digests]
    assert retirements == [5_500, 5_500, 9_000, None]


async def test_when_a_key_was_used_last_is_noted(keyed: Store) -> None:
    await keyed.touch_keys({})
    await keyed.touch_keys({"key_1": 7_000})
    row = await keyed.key("key_1")
    assert row is not None
    assert row.last_used_at_ms == 7_000
    assert row.changed_at_ms == KEY.changed_at_ms, "being used is no change that a watch hears of"


async def test_a_session_is_found_by_the_digest_of_its_token(keyed: Store) -> None:
    session = SessionRow("session-1", "key_1", 3_000, 4_000)
    assert await keyed.create_session(session, b"token", secret=b"first", live_max=100) == []
    assert await keyed.session(b"token") == session
    assert await keyed.session(b"other") is None


async def test_the_oldest_live_session_beyond_the_limit_goes(keyed: Store) -> None:
    gone = [
        await keyed.create_session(
            SessionRow(f"session-{n}", "key_1", 3_000, 4_000),
            b"%d" % n,
            secret=b"first",
            live_max=2,
        )
        for n in range(4)
    ]
    assert gone == [[], [], [b"0"], [b"1"]]
    assert [await keyed.session(b"%d" % n) is not None for n in range(4)] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("ending", ["key", "account", "rotation"])
async def test_what_ends_a_key_ends_its_sessions_and_makes_no_new_one(
    keyed: Store, ending: str
) -> None:
    session, change = SessionRow("session-1", "key_1", 3_000, 4_000), Change(3_500, "root", "")
    assert await keyed.create_session(session, b"token", secret=b"first", live_max=9) == []
    if ending == "key":
        assert await keyed.move_key("key_1", (ACTIVE, SUSPENDED), change)
    elif ending == "account":
        assert await keyed.move_account("id-alice", (ACTIVE, SUSPENDED), change)
    else:
        await keyed.rotate_key("key_1", ("ob_live_wxyz", b"second"), change, retires_at_ms=0)
    assert await keyed.session(b"token") == replace(session, expires_at_ms=3_000)
    later = SessionRow("session-2", "key_1", 3_600, 4_600)
    assert await keyed.create_session(later, b"other", secret=b"first", live_max=9) is None
    assert await keyed.session(b"other") is None
    opened = {b"second"} if ending == "rotation" else {b"first"}
    assert await keyed.open_secrets(["key_1", "key_2"], 3_600) == opened


async def test_an_ended_session_takes_no_place(keyed: Store) -> None:
    for n in range(2):
        ended = SessionRow(f"session-{n}", "key_1", 1_000, 2_000)
        await keyed.create_session(ended, b"%d" % n, secret=b"first", live_max=2)
    new = SessionRow("session-2", "key_1", 2_000, 3_000)
    assert await keyed.create_session(new, b"2", secret=b"first", live_max=1) == []


async def test_usage_adds_up_and_its_totals_come_back(keyed: Store) -> None:
    assert await keyed.usage(JANUARY) == 0
    assert await keyed.apply_usage(("node", 1), {JANUARY: 5}, 1) == {JANUARY: 5}
    february = UsageCell("key_1", 9)
    totals = await keyed.apply_usage(("node", 2), {february: 1, JANUARY: 7}, 2)
    assert totals == {JANUARY: 12, february: 1}
    assert await keyed.usage(JANUARY) == 12


async def test_usage_of_many_is_found_at_once_each_in_its_own_period(keyed: Store) -> None:
    await keyed.create_key(replace(KEY, key_id="key_2"), b"second")
    cells = [UsageCell(key_id, start_ms) for key_id in ("key_1", "key_2") for start_ms in (0, 9)]
    deltas = {cell: number for number, cell in enumerate(cells, start=1)}
    await keyed.apply_usage(("node", 1), deltas, 1)
    unused = [UsageCell(f"key_{number}", number) for number in range(1_000)]
    assert await keyed.usage_of([cells[0], cells[3], *unused]) == {cells[0]: 1, cells[3]: 4}
    assert await keyed.usage_of([cells[1], cells[3]]) == {cells[1]: 2, cells[3]: 4}
    assert await keyed.usage_of([]) == {}


async def test_a_batch_counts_once_however_often_it_comes(keyed: Store) -> None:
    assert await keyed.apply_usage(("node", 1), {JANUARY: 5}, 1) == {JANUARY: 5}
    assert await keyed.apply_usage(("node", 1), {JANUARY: 5}, 2) is None
    assert await keyed.apply_usage(("other node", 1), {JANUARY: 5}, 2) == {JANUARY: 10}
    assert await keyed.usage(JANUARY) == 10


async def test_a_late_batch_counts(keyed: Store) -> None:
    await keyed.apply_usage(("node", 2), {JANUARY: 5}, 1)
    assert await keyed.apply_usage(("node", 1), {JANUARY: 1}, 2) == {JANUARY: 6}
    assert await keyed.apply_usage(("node", 3), {}, 3) == {}


async def test_batches_at_once_lose_nothing(keyed: Store) -> None:
    batches = [keyed.apply_usage(("node", n), {JANUARY: 1}, n) for n in range(20)]
    await asyncio.gather(*batches)
    assert await keyed.usage(JANUARY) == 20


async def test_what_ended_long_ago_is_pruned(keyed: Store) -> None:
    for n in (0, 1):
        ends = SessionRow(f"session-{n}", "key_1", 1_000, 2_000 + n)
        await keyed.create_session(ends, b"%d" % n, secret=b"first", live_max=100)
        await keyed.apply_usage(("node", n), {JANUARY: 1}, 5_000 + n)
    await keyed.prune(sessions_before_ms=2_001, batches_before_ms=5_001)
    assert [await keyed.session(b"0"), await keyed.session(b"1") is not None] == [None, True]
    assert await keyed.apply_usage(("node", 1), {JANUARY: 1}, 6_000) is None
    assert await keyed.usage(JANUARY) == 2, "what was counted stays"


async def test_credentials_are_kept_one_per_exchange_environment(store: Store) -> None:
    main = CredentialsRow("bybit", "mainnet", "kek-1", b"\x00secret", b"nonce", 1)
    test = replace(main, environment="testnet", ciphertext=b"other")
    await store.put_credentials(test)
    await store.put_credentials(main)
    assert await store.credentials("bybit", "mainnet") == main
    assert await store.credentials("okx", "mainnet") is None
    assert await store.list_credentials() == [main, test]
    newer = replace(main, ciphertext=b"newer", created_at_ms=2)
    await store.put_credentials(newer)
    assert await store.credentials("bybit", "mainnet") == newer
    assert await store.delete_credentials("bybit", "mainnet")
    assert not await store.delete_credentials("bybit", "mainnet")
    assert await store.list_credentials() == [test]


async def test_credentials_are_rewrapped_only_if_nobody_changed_them(store: Store) -> None:
    old = CredentialsRow("bybit", "mainnet", "kek-1", b"under one", b"nonce", 1)
    new = replace(old, kek_id="kek-2", ciphertext=b"under two", nonce=b"another")
    await store.put_credentials(old)
    assert await store.rewrap_credentials(old, new)
    assert await store.credentials("bybit", "mainnet") == new
    assert not await store.rewrap_credentials(old, new)


async def test_a_fact_stays_what_it_was_first(store: Store) -> None:
    assert await store.fact("pepper", "a") == "a"
    assert await store.fact("pepper", "b") == "a"


async def test_what_has_begun_is_finished_and_leaves_no_lock_however_it_is_cancelled(
    keyed: Store,
) -> None:
    for turns in range(40):
        task = asyncio.create_task(keyed.apply_usage(("node", turns), {JANUARY: 1}, 0))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await keyed.apply_usage(("node", turns), {JANUARY: 1}, 0)
    assert await keyed.usage(JANUARY) == 40


async def test_a_store_that_closes_finishes_what_has_begun(migrated: str, keyed: Store) -> None:
    async with Store(migrated) as closing:
        task = asyncio.create_task(closing.apply_usage(("node", 1), {JANUARY: 1}, 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    assert await keyed.usage(JANUARY) == 1
