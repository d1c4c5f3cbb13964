"""Who may come in: one test per row of the specification and the contract."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from onebook.accounts import Accounts, shared
from onebook.accounts.accounts import wall_clock_ms
from onebook.accounts.cache import CACHE_TTL_MS
from onebook.accounts.keys import Key, checksum, new_key
from onebook.accounts.sessions import new_token
from onebook.accounts.shared import SharedReads
from onebook.config import AccountsSettings, TierLimits, TierSettings
from onebook.errors import (
    AccountSuspended,
    ApiKeyDisabled,
    ApiKeyNotFound,
    InvalidApiKey,
    InvalidSession,
    MissingApiKey,
    MissingAuthorization,
    RateLimitExceeded,
    ServiceUnavailable,
    SessionExpired,
)
from onebook.model import DAY_MS, MINUTE_MS, KeyStatus, Tier
from onebook.store import KeyRow, SecretRow, Store
from steady import PATIENCE_S

from .conftest import PEPPER, START_MS, Clock, House

ADDRESS = "192.0.2.1"


def typo(text: str) -> str:
    return text[:-1] + ("a" if text[-1] != "a" else "b")


async def verify(house: House, text: str | None = None) -> Key:
    return await house.accounts.verify_key(text or house.text, house.clock.now_ms)


async def report(house: House, text: str | None = None, address: str = ADDRESS):
    return await house.accounts.usage_report(
        text or house.text, address=address, now_ms=house.clock.now_ms
    )


# Endpoint 1


async def test_authenticate_gives_a_session_of_24_hours(house: House) -> None:
    session = await house.accounts.authenticate(house.text, address=ADDRESS, now_ms=START_MS)
    assert session.expires_at_ms - session.created_at_ms == 86_400_000
    assert session.created_at_ms == START_MS
    assert session.token.startswith("obs_")
    assert (session.key.key_id, session.key.username) == (house.key_id, "alice")
    assert session.key.tier is Tier.BASIC


@pytest.mark.parametrize("text", [None, "", "  "])
async def test_400_missing_api_key(house: House, text: str | None) -> None:
    with pytest.raises(MissingApiKey):
        await house.accounts.authenticate(text, address=ADDRESS, now_ms=START_MS)


async def test_401_invalid_api_key(house: House) -> None:
    for text in ("nonsense", new_key(), typo(house.text)):
        with pytest.raises(InvalidApiKey) as caught:
            await house.accounts.authenticate(text, address=ADDRESS, now_ms=START_MS)
        assert text not in caught.value.message


async def test_a_typing_error_is_refused_without_asking_the_database(clock: Clock) -> None:
    async with Store("postgresql://nobody@127.0.0.1:1/none") as unreachable:
        accounts = Accounts(unreachable, PEPPER, clock_ms=clock)
        with pytest.raises(InvalidApiKey):
            await accounts.verify_key(typo(new_key()), START_MS)


@pytest.mark.parametrize("action", ["suspend", "expire"])
async def test_401_api_key_disabled(house: House, action: str) -> None:
    await house.admin.move_key(house.key_id, action, house.change())
    with pytest.raises(ApiKeyDisabled):
        await house.accounts.authenticate(house.text, address=ADDRESS, now_ms=START_MS)


async def test_a_resumed_key_authenticates_again(house: House) -> None:
    await house.admin.move_key(house.key_id, "suspend", house.change())
    await house.admin.move_key(house.key_id, "resume", house.change())
    assert await house.authenticate()


async def test_401_api_key_disabled_from_the_date_of_expiry_on(house: House) -> None:
    expires_at_ms = START_MS + 1_000
    made = await house.admin.create_key(
        "alice", Tier.BASIC, house.change(), expires_at_ms=expires_at_ms
    )
    house.clock.now_ms = expires_at_ms - 1
    await house.authenticate(made.text)
    house.clock.now_ms = expires_at_ms
    with pytest.raises(ApiKeyDisabled, match="expired"):
        await house.authenticate(made.text)


async def test_429_after_10_failed_attempts_from_one_address(house: House) -> None:
    for _ in range(10):
        with pytest.raises(InvalidApiKey):
            await house.authenticate(new_key())
    for text in (new_key(), house.text):
        with pytest.raises(RateLimitExceeded) as caught:
            await house.authenticate(text)
        assert caught.value.retry_after_s == 6.0
    house.clock.now_ms += 6_000
    assert await house.authenticate()


async def test_a_correct_key_from_another_address_is_not_affected(house: House) -> None:
    for _ in range(10):
        with pytest.raises(InvalidApiKey):
            await house.authenticate(new_key(), "2001:db8::1")
    assert await house.authenticate(address="2001:db8:0:1::1")
    with pytest.raises(RateLimitExceeded):
        await house.authenticate(address="2001:db8::2")


async def test_attempts_with_a_suspended_key_are_no_failed_ones(house: House) -> None:
    await house.admin.move_key(house.key_id, "suspend", house.change())
    for _ in range(20):
        with pytest.raises(ApiKeyDisabled):
            await house.authenticate()


async def test_60_wrong_keys_at_one_moment_get_10_verdicts(house: House) -> None:
    attempts = [house.authenticate(new_key()) for _ in range(60)]
    found = await asyncio.gather(*attempts, return_exceptions=True)
    assert Counter(map(type, found)) == {InvalidApiKey: 10, RateLimitExceeded: 50}


async def test_a_right_key_behind_60_wrong_ones_at_one_moment_is_not_confirmed(
    house: House,
) -> None:
    attempts = [house.authenticate(new_key()) for _ in range(60)] + [house.authenticate()]
    found = await asyncio.gather(*attempts, return_exceptions=True)
    assert isinstance(found[-1], RateLimitExceeded)


async def test_60_right_keys_at_one_moment_all_get_in(house: House) -> None:
    made = [await house.admin.create_key("alice", Tier.BASIC, house.change()) for _ in range(60)]
    found = await asyncio.gather(*(house.authenticate(key.text) for key in made))
    assert len(set(found)) == 60


async def test_correct_attempts_and_missing_keys_are_no_failed_ones(house: House) -> None:
    for _ in range(20):
        await house.authenticate()
        with pytest.raises(MissingApiKey):
            await house.accounts.authenticate(None, address=ADDRESS, now_ms=START_MS)


async def test_429_when_one_key_authenticates_more_often_than_its_tier_allows(
    house: House,
) -> None:
    settings = AccountsSettings(
        tiers=TierSettings(basic=TierLimits(requests_per_minute=3, connections_max=1))
    )
    house.accounts = Accounts(house.store, PEPPER, settings=settings)
    for _ in range(3):
        await house.authenticate()
    with pytest.raises(RateLimitExceeded, match="authentications with this key"):
        await house.authenticate()


async def test_a_new_session_does_not_end_older_ones(house: House) -> None:
    headers = [await house.authenticate() for _ in range(2)]
    for header in headers:
        assert await house.accounts.session(header, START_MS)


async def test_at_most_100_live_sessions_a_key_the_oldest_goes(house: House) -> None:
    assert house.accounts.settings.sessions_per_key_max == 100
    first = await house.authenticate()
    await house.accounts.session(first, START_MS)
    second = await house.authenticate()
    for _ in range(99):
        await house.authenticate()
    with pytest.raises(InvalidSession):
        await house.accounts.session(first, START_MS)
    assert await house.accounts.session(second, START_MS)


# Bearer endpoints


async def test_a_session_knows_its_key_and_times_and_not_its_token(house: House) -> None:
    header = await house.authenticate()
    session = await house.accounts.session(header, START_MS + 5)
    assert (session.key.key_id, session.token) == (house.key_id, "")
    assert (session.created_at_ms, session.expires_at_ms) == (START_MS, START_MS + DAY_MS)


async def test_401_missing_authorization(house: House) -> None:
    with pytest.raises(MissingAuthorization):
        await house.accounts.session(None, START_MS)


async def test_401_invalid_session(house: House) -> None:
    for header in ("Basic abc", "Bearer nonsense", f"Bearer {new_token()}", f"Bearer {house.text}"):
        with pytest.raises(InvalidSession):
            await house.accounts.session(header, START_MS)


async def test_401_session_expired_from_expires_at_on(house: House) -> None:
    header = await house.authenticate()
    assert await house.accounts.session(header, START_MS + DAY_MS - 1)
    for after_ms in (DAY_MS, DAY_MS + 1, 6 * DAY_MS):
        with pytest.raises(SessionExpired):
            await house.accounts.session(header, START_MS + after_ms)


async def test_401_api_key_disabled_when_the_key_was_suspended_since(house: House) -> None:
    header = await house.authenticate()
    await house.admin.move_key(house.key_id, "suspend", house.change())
    await house.accounts.poll(START_MS + 1_000)
    with pytest.raises(ApiKeyDisabled):
        await house.accounts.session(header, START_MS + 1_000)


async def test_an_account_that_is_suspended_suspends_the_use_of_its_keys(house: House) -> None:
    header = await house.authenticate()
    await house.admin.move_account("alice", "suspend", house.change())
    await house.accounts.poll(START_MS)
    with pytest.raises(ApiKeyDisabled):
        await house.accounts.session(header, START_MS)
    with pytest.raises(ApiKeyDisabled):
        await verify(house)
    with pytest.raises(AccountSuspended):
        await report(house)


# Endpoint 3


async def test_the_usage_report_holds_what_is_flushed_and_what_is_not(house: House) -> None:
    await verify(house)
    house.accounts.meter.add(house.key_id, 7)
    assert (await report(house)).data_usage.bytes_used == 7
    await house.accounts.meter.flush()
    assert (await report(house)).data_usage.bytes_used == 7
    other = Accounts(house.store, PEPPER, clock_ms=house.clock)
    await other.verify_key(house.text, START_MS)
    other.meter.add(house.key_id, 5)
    await other.meter.close()
    assert (await report(house)).data_usage.bytes_used == 12, "the other node's bytes are there"


async def test_404_api_key_not_found(house: House) -> None:
    for text in ("nonsense", new_key(), typo(house.text)):
        with pytest.raises(ApiKeyNotFound) as caught:
            await report(house, text)
        assert text not in caught.value.message


async def test_401_account_suspended(house: House) -> None:
    await house.admin.move_key(house.key_id, "suspend", house.change())
    with pytest.raises(AccountSuspended):
        await report(house)


async def test_an_expired_key_still_gets_its_report(house: House) -> None:
    await house.admin.move_key(house.key_id, "expire", house.change())
    answer = await report(house)
    assert (answer.api_key_active, answer.status.api_key_status) == (False, "expired")


async def test_60_unknown_keys_a_minute_from_one_address_get_429(house: House) -> None:
    for _ in range(60):
        with pytest.raises(ApiKeyNotFound):
            await report(house, "nonsense")
    with pytest.raises(RateLimitExceeded):
        await report(house, "nonsense")
    assert await report(house), "known keys are counted against nothing"
    with pytest.raises(ApiKeyNotFound):
        await report(house, "nonsense", "192.0.2.2")


async def test_over_the_limit_authenticate_session_and_usage_still_answer(house: House) -> None:
    house.accounts = Accounts(
        house.store, PEPPER, settings=AccountsSettings(allowance_bytes=10), clock_ms=house.clock
    )
    header = await house.authenticate()
    house.accounts.meter.add(house.key_id, 11)
    assert house.accounts.meter.over(house.key_id)
    assert await house.authenticate()
    assert await house.accounts.session(header, START_MS)
    assert (await report(house)).status.limit_exceeded


# Rotation


async def test_while_a_key_is_rotated_both_texts_work_and_use_is_one(house: House) -> None:
    header = await house.authenticate()
    made = await house.admin.rotate_key(house.key_id, house.change(), overlap_ms=1_000)
    await house.accounts.poll(START_MS)
    old, new = await verify(house), await verify(house, made.text)
    assert old.key_id == new.key_id == house.key_id
    house.clock.now_ms += 1_000
    with pytest.raises(InvalidApiKey):
        await verify(house)
    with pytest.raises(ApiKeyNotFound):
        await report(house)
    assert await verify(house, made.text)
    assert await house.accounts.session(header, house.clock.now_ms)


async def test_a_cached_text_ends_with_its_overlap(house: House) -> None:
    await verify(house)
    await house.admin.rotate_key(house.key_id, house.change(), overlap_ms=0)
    await house.accounts.poll(START_MS)
    with pytest.raises(InvalidApiKey):
        await verify(house)


# The cache and the watch


async def test_a_verified_key_is_served_from_memory(house: House) -> None:
    key = await verify(house)
    await house.admin.move_key(house.key_id, "suspend", house.change())
    assert await verify(house) is key


async def test_without_a_watch_the_cache_serves_for_its_time_and_no_longer(house: House) -> None:
    await verify(house)
    await house.admin.move_key(house.key_id, "suspend", house.change())
    house.clock.now_ms += CACHE_TTL_MS - 1
    assert await verify(house)
    house.clock.now_ms += 1
    with pytest.raises(ApiKeyDisabled):
        await verify(house)


async def test_a_watch_that_works_keeps_the_cache_fresh(house: House) -> None:
    await house.accounts.poll(START_MS)
    key = await verify(house)
    for _ in range(10):
        house.clock.now_ms += CACHE_TTL_MS - 1
        await house.accounts.poll(house.clock.now_ms)
        assert await verify(house) is key


async def test_a_suspension_is_told_with_the_next_poll(house: House) -> None:
    notified: list[str] = []
    house.accounts.on_disabled.subscribe(notified.append)
    await verify(house)
    await house.accounts.poll(START_MS)
    assert notified == []
    await house.admin.move_key(house.key_id, "suspend", house.change())
    await house.accounts.poll(START_MS)
    assert notified == [house.key_id]
    await house.accounts.poll(START_MS)
    assert notified == [house.key_id]


async def test_a_key_whose_date_comes_is_told_once(house: House) -> None:
    made = await house.admin.create_key(
        "alice", Tier.BASIC, house.change(), expires_at_ms=START_MS + 1_000
    )
    notified: list[str] = []
    house.accounts.on_disabled.subscribe(notified.append)
    await verify(house, made.text)
    for after_ms in (0, 999, 1_000, 1_001):
        await house.accounts.poll(START_MS + after_ms)
    assert notified == [made.row.key_id]


def suspended_while_read(house: House) -> list[int]:
    """Have the key suspended during a read, and the watch hear of it; what each read was of."""
    read = house.store.secrets
    reads: list[int] = []  # names

    async def slow(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        reads.append(len(digests))
        rows = await read(digests)
        moved = (KeyStatus.ACTIVE, KeyStatus.SUSPENDED)
        if await house.store.move_key(house.key_id, moved, house.change()):
            await house.accounts.poll(START_MS)
        return rows

    house.store.secrets = slow
    return reads


async def test_a_suspension_between_reading_a_key_and_caching_it_is_not_missed(
    house: House,
) -> None:
    suspended_while_read(house)
    with pytest.raises(ApiKeyDisabled):
        await verify(house)


async def test_a_change_while_many_keys_are_read_makes_that_read_happen_again(
    house: House,
) -> None:
    made = await house.admin.create_key("alice", Tier.BASIC, house.change())
    reads = suspended_while_read(house)
    found = await asyncio.gather(verify(house), verify(house, made.text), return_exceptions=True)
    assert isinstance(found[0], ApiKeyDisabled)
    assert found[1].key_id == made.row.key_id
    assert reads == [2, 2]


async def test_a_lone_key_costs_two_statements_and_then_none(
    house: House, statements: list[str]
) -> None:
    statements.clear()
    await verify(house)
    assert len(statements) == 2, "the secret with its key, and its usage"
    await verify(house)
    assert len(statements) == 2


async def test_who_comes_at_once_shares_reads_of_many_keys(
    house: House, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "NAMES_MAX", 4)
    made = [await house.admin.create_key("alice", Tier.BASIC, house.change()) for _ in range(10)]
    statements.clear()
    found = await asyncio.gather(*(verify(house, key.text) for key in made * 100))
    assert len(statements) == 2 * 3
    assert [key.key_id for key in found] == [key.row.key_id for key in made] * 100
    assert len({id(key) for key in found}) == 10
    assert all(house.accounts.meter.used(key.key_id, START_MS) == 0 for key in found)


async def test_who_comes_at_once_with_sessions_shares_reads_of_their_keys(
    house: House, statements: list[str]
) -> None:
    made = [await house.admin.create_key("alice", Tier.BASIC, house.change()) for _ in range(10)]
    headers = [await house.authenticate(key.text) for key in made] + [await house.authenticate()]
    for header in headers:
        await house.accounts.session(header, START_MS)
    house.clock.now_ms += CACHE_TTL_MS
    statements.clear()
    now_ms = house.clock.now_ms
    found = await asyncio.gather(*(house.accounts.session(each, now_ms) for each in headers))
    assert len(statements) == 2, "the sessions, and their keys; the usage of these is known"
    assert [each.key.key_id for each in found] == [key.row.key_id for key in made] + [house.key_id]


async def test_what_is_wrong_with_one_key_is_told_to_nobody_else(house: House) -> None:
    suspended, expired, retired = [
        await house.admin.create_key("alice", Tier.BASIC, house.change()) for _ in range(3)
    ]
    await house.admin.move_key(suspended.row.key_id, "suspend", house.change())
    await house.admin.move_key(expired.row.key_id, "expire", house.change())
    rotated = await house.admin.rotate_key(retired.row.key_id, house.change(), overlap_ms=0)
    made = (suspended, expired, retired, rotated)
    texts = [new_key(), typo(house.text), *(key.text for key in made), house.text]
    found = await asyncio.gather(*(verify(house, text) for text in texts), return_exceptions=True)
    assert [getattr(each, "key_id", type(each)) for each in found] == [
        InvalidApiKey,
        InvalidApiKey,
        ApiKeyDisabled,
        ApiKeyDisabled,
        InvalidApiKey,
        retired.row.key_id,
        house.key_id,
    ]


async def test_who_stops_waiting_does_not_stop_the_read_of_others(house: House) -> None:
    read, go_on = house.store.secrets, asyncio.Event()

    async def slow(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        await go_on.wait()
        return await read(digests)

    house.store.secrets = slow
    first, second = (asyncio.create_task(verify(house)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    go_on.set()
    assert (await second).key_id == house.key_id
    assert first.cancelled()


async def test_a_read_that_fails_fails_for_all_who_wait_and_is_tried_again(house: House) -> None:
    read, broken = house.store.secrets, True

    async def failing(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        if broken:
            raise ServiceUnavailable("The database does not answer.")
        return await read(digests)

    house.store.secrets = failing
    found = await asyncio.gather(*(verify(house) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(each, ServiceUnavailable) for each in found)
    broken = False
    assert (await verify(house)).key_id == house.key_id


def heard_before_waiters(
    house: House, reads: SharedReads[Any, Any], heard: list[list[KeyRow]]
) -> None:
    """Have the watch take over what it heard after a read ends and before its waiters' turn."""
    done = reads._done

    def done_and_heard(task: asyncio.Task[Any]) -> None:
        done(task)
        if heard:
            house.accounts._take_over(heard.pop(), set(), house.clock.now_ms)

    reads._done = done_and_heard


async def test_a_suspension_between_a_shared_read_and_its_waiters_is_not_missed(
    house: House,
) -> None:
    read = house.store.secrets
    heard: list[list[KeyRow]] = []

    async def slow(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        rows = await read(digests)
        moved = (KeyStatus.ACTIVE, KeyStatus.SUSPENDED)
        if await house.store.move_key(house.key_id, moved, house.change()):
            heard.append((await house.store.changed_keys(0))[0])
        return rows

    house.store.secrets = slow
    heard_before_waiters(house, house.accounts._keys._secrets._reads, heard)
    found = await asyncio.gather(*(verify(house) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [ApiKeyDisabled] * 3


async def test_a_text_that_ends_between_a_shared_read_and_its_waiters_opens_nothing(
    house: House,
) -> None:
    read = house.store.secrets
    heard: list[list[KeyRow]] = []

    async def slow(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        rows = await read(digests)
        if any(row.retires_at_ms is None for row in rows.values()):
            await house.admin.rotate_key(house.key_id, house.change(), overlap_ms=0)
            heard.append((await house.store.changed_keys(0))[0])
        return rows

    house.store.secrets = slow
    heard_before_waiters(house, house.accounts._keys._secrets._reads, heard)
    found = await asyncio.gather(*(verify(house) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [InvalidApiKey] * 3


async def test_a_suspension_between_the_read_of_a_session_s_key_and_its_waiters_is_not_missed(
    house: House,
) -> None:
    header = await house.authenticate()
    house.clock.now_ms += CACHE_TTL_MS
    read = house.store.keys_by_id
    heard: list[list[KeyRow]] = []

    async def slow(key_ids: Collection[str]) -> dict[str, KeyRow]:
        rows = await read(key_ids)
        moved = (KeyStatus.ACTIVE, KeyStatus.SUSPENDED)
        await house.store.move_key(house.key_id, moved, house.change())
        heard.append((await house.store.changed_keys(0))[0])
        return rows

    house.store.keys_by_id = slow
    heard_before_waiters(house, house.accounts._keys._keys._reads, heard)
    with pytest.raises(ApiKeyDisabled):
        await house.accounts.session(header, house.clock.now_ms)


async def test_reads_under_way_end_with_the_accounts(house: House) -> None:
    async def never(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        await asyncio.Event().wait()

    async with Accounts(house.store, PEPPER, clock_ms=house.clock) as accounts:
        house.store.secrets = never
        waiting = asyncio.create_task(accounts.verify_key(house.text, START_MS))
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_when_a_key_was_used_last_is_noted_each_minute(house: House) -> None:
    async def noted() -> int | None:
        return (await house.admin.key(house.key_id, START_MS)).last_used_at_ms

    await house.accounts.poll(START_MS)
    await verify(house)
    await house.accounts.poll(START_MS + MINUTE_MS - 1)
    assert await noted() is None
    await house.accounts.poll(START_MS + MINUTE_MS)
    assert await noted() == START_MS


async def test_sessions_that_ended_long_ago_are_forgotten(house: House) -> None:
    header = await house.authenticate()
    await house.accounts.poll(START_MS + 9 * DAY_MS)
    with pytest.raises(InvalidSession):
        await house.accounts.session(header, START_MS + 9 * DAY_MS)


async def test_a_running_node_hears_of_a_suspension_within_two_seconds(house: House) -> None:
    settings = AccountsSettings()
    assert settings.poll_interval_s == 1.0
    settings = AccountsSettings(poll_interval_s=0.01, flush_interval_s=0.01)
    async with Accounts(house.store, PEPPER, settings=settings) as accounts:
        notified = asyncio.Event()
        accounts.on_disabled.subscribe(lambda key_id: notified.set())
        await accounts.verify_key(house.text, START_MS)
        accounts.meter.add(house.key_id, 3)
        await house.admin.move_key(house.key_id, "suspend", house.change())
        await asyncio.wait_for(notified.wait(), PATIENCE_S)
    again = Accounts(house.store, PEPPER)
    await house.admin.move_key(house.key_id, "resume", house.change())
    await again.verify_key(house.text, wall_clock_ms())
    assert again.meter.used(house.key_id, wall_clock_ms()) == 3, "a clean stop loses nothing"


async def test_neither_keys_nor_tokens_reach_the_log_or_the_database(
    house: House, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.DEBUG):
        header = await house.authenticate()
        await house.accounts.session(header, START_MS)
        made = await house.admin.rotate_key(house.key_id, house.change(), overlap_ms=0)
        unknown = "ob_live_" + "q" * 43
        unknown += checksum(unknown)
        for text in (unknown, typo(house.text)):
            with pytest.raises(InvalidApiKey):
                await house.authenticate(text)
            with pytest.raises(ApiKeyNotFound):
                await report(house, text)
        await verify(house, made.text)
        house.accounts.meter.add(house.key_id, 1)
        await house.accounts.meter.close()
    secrets = [text[8:] for text in (house.text, made.text, unknown)]
    secrets.append(header.removeprefix("Bearer obs_"))
    files = list(tmp_path.iterdir())
    assert any(path.name.endswith("-wal") for path in files)
    for secret in secrets:
        assert secret[:16] not in caplog.text
        assert secret not in repr(made)
        for path in files:
            assert secret.encode() not in path.read_bytes(), path.name


async def test_a_store_that_stays_silent_is_told_after_five_seconds(house: House) -> None:
    await house.accounts.poll(START_MS)
    assert house.accounts.reachable(START_MS + 4_999)
    assert not house.accounts.reachable(START_MS + 5_000)


# Sessions that were ended


async def test_a_suspension_ends_the_sessions_for_good_on_every_node(house: House) -> None:
    other = Accounts(house.store, PEPPER, clock_ms=house.clock)
    header = await house.authenticate()
    assert await house.accounts.session(header, START_MS)
    assert await other.session(header, START_MS)
    await house.admin.move_key(house.key_id, "suspend", house.change())
    for node in (house.accounts, other):
        await node.poll(START_MS + 1_000)
        with pytest.raises(ApiKeyDisabled):
            await node.session(header, START_MS + 1_000)
    await house.admin.move_key(house.key_id, "resume", house.change())
    for node in (house.accounts, other):
        await node.poll(START_MS + 2_000)
        with pytest.raises(SessionExpired):
            await node.session(header, START_MS + 2_000)
    again = await house.authenticate()
    assert await other.session(again, START_MS + 2_000)


async def test_a_suspension_between_two_polls_ends_the_sessions_too(house: House) -> None:
    header = await house.authenticate()
    assert await house.accounts.session(header, START_MS)
    for action in ("suspend", "resume"):
        await house.admin.move_key(house.key_id, action, house.change())
    await house.accounts.poll(START_MS + 1_000)
    with pytest.raises(SessionExpired):
        await house.accounts.session(header, START_MS + 1_000)


async def test_a_suspended_account_ends_the_sessions_of_its_keys_and_no_others(
    house: House,
) -> None:
    await house.admin.create_account("bob", house.change())
    bobs = await house.admin.create_key("bob", Tier.BASIC, house.change())
    mine, his = await house.authenticate(), await house.authenticate(bobs.text)
    for action in ("suspend", "resume"):
        await house.admin.move_account("alice", action, house.change())
    await house.accounts.poll(START_MS)
    with pytest.raises(SessionExpired):
        await house.accounts.session(mine, START_MS)
    assert await house.accounts.session(his, START_MS)


async def test_an_immediate_rotation_ends_the_sessions_and_an_overlap_keeps_them(
    house: House,
) -> None:
    header = await house.authenticate()
    made = await house.admin.rotate_key(house.key_id, house.change(), overlap_ms=1_000)
    await house.accounts.poll(START_MS)
    assert await house.accounts.session(header, START_MS)
    await house.admin.rotate_key(made.text, house.change(), overlap_ms=0)
    await house.accounts.poll(START_MS)
    with pytest.raises(SessionExpired):
        await house.accounts.session(header, START_MS)


@pytest.mark.parametrize("action", ["suspend", "account", "rotate"])
async def test_a_node_that_has_not_heard_of_it_yet_makes_no_session(
    house: House, action: str
) -> None:
    await verify(house)
    if action == "rotate":
        await house.admin.rotate_key(house.key_id, house.change(), overlap_ms=0)
    elif action == "account":
        await house.admin.move_account("alice", "suspend", house.change())
    else:
        await house.admin.move_key(house.key_id, "suspend", house.change())
    assert await verify(house), "the node has it in its cache"
    with pytest.raises(ApiKeyDisabled):
        await house.authenticate()


async def test_a_session_read_while_its_key_is_suspended_is_not_kept(house: House) -> None:
    header = await house.authenticate()
    read = house.store.sessions

    async def slow(digests: Collection[bytes]) -> Any:
        rows = await read(digests)
        house.accounts._sessions._cache._read_all = read
        for action in ("suspend", "resume"):
            await house.admin.move_key(house.key_id, action, house.change())
        await house.accounts.poll(START_MS)
        return rows

    house.accounts._sessions._cache._read_all = slow
    with pytest.raises(SessionExpired):
        await house.accounts.session(header, START_MS)


async def test_a_session_that_went_as_the_oldest_is_over_on_another_node_within_2_s(
    house: House,
) -> None:
    settings = AccountsSettings(sessions_per_key_max=1)
    here = Accounts(house.store, PEPPER, settings=settings, clock_ms=house.clock)
    there = Accounts(house.store, PEPPER, settings=settings, clock_ms=house.clock)
    first = await here.authenticate(house.text, address="192.0.2.1", now_ms=START_MS)
    header = f"Bearer {first.token}"
    assert await there.session(header, START_MS)
    house.clock.now_ms += 1
    await here.authenticate(house.text, address="192.0.2.1", now_ms=house.clock.now_ms)
    house.clock.now_ms += 1_999
    await there.poll(house.clock.now_ms)
    with pytest.raises(InvalidSession):
        await there.session(header, house.clock.now_ms)
