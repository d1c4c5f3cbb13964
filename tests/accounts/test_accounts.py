"""Authentication: one test per row of the specification and the contract."""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from clocks import SteppedClock
from onebook.accounts import Accounts
from onebook.accounts.accounts import POLL_INTERVAL_S
from onebook.accounts.cache import CACHE_TTL_MS
from onebook.accounts.keys import Key, checksum, new_key
from onebook.accounts.sessions import SESSIONS_PER_KEY_MAX, new_token
from onebook.clock import SYSTEM_CLOCK
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

from .conftest import PEPPER, START_MS, Rig

ADDRESS = "192.0.2.1"


def typo(text: str) -> str:
    return text[:-1] + ("a" if text[-1] != "a" else "b")


async def verify(rig: Rig, text: str | None = None) -> Key:
    return await rig.accounts.verify_key(text or rig.text, rig.clock.now_ms)


async def report(rig: Rig, text: str | None = None, address: str = ADDRESS):
    return await rig.accounts.usage_report(
        text or rig.text, address=address, now_ms=rig.clock.now_ms
    )


# Endpoint 1


async def test_authenticate_gives_a_session_of_24_hours(rig: Rig) -> None:
    session = await rig.accounts.authenticate(rig.text, address=ADDRESS, now_ms=START_MS)
    assert session.expires_at_ms - session.created_at_ms == 86_400_000
    assert session.created_at_ms == START_MS
    assert session.token.startswith("obs_")
    assert (session.key.key_id, session.key.username) == (rig.key_id, "alice")
    assert session.key.tier is Tier.BASIC


@pytest.mark.parametrize("text", [None, "", "  "])
async def test_400_missing_api_key(rig: Rig, text: str | None) -> None:
    with pytest.raises(MissingApiKey):
        await rig.accounts.authenticate(text, address=ADDRESS, now_ms=START_MS)


async def test_401_invalid_api_key(rig: Rig) -> None:
    for text in ("nonsense", new_key(), typo(rig.text)):
        with pytest.raises(InvalidApiKey) as caught:
            await rig.accounts.authenticate(text, address=ADDRESS, now_ms=START_MS)
        assert text not in caught.value.message


async def test_a_typing_error_is_refused_without_asking_the_database(clock: SteppedClock) -> None:
    async with Store("postgresql://nobody@127.0.0.1:1/none") as unreachable:
        accounts = Accounts(unreachable, PEPPER, clock=clock)
        with pytest.raises(InvalidApiKey):
            await accounts.verify_key(typo(new_key()), START_MS)


@pytest.mark.parametrize("action", ["suspend", "expire"])
async def test_401_api_key_disabled(rig: Rig, action: str) -> None:
    await rig.admin.move_key(rig.key_id, action, rig.change())
    with pytest.raises(ApiKeyDisabled):
        await rig.accounts.authenticate(rig.text, address=ADDRESS, now_ms=START_MS)


async def test_a_resumed_key_authenticates_again(rig: Rig) -> None:
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    await rig.admin.move_key(rig.key_id, "resume", rig.change())
    assert await rig.authenticate()


async def test_401_api_key_disabled_from_the_date_of_expiry_on(rig: Rig) -> None:
    expires_at_ms = START_MS + 1_000
    made = await rig.admin.create_key(
        "alice", Tier.BASIC, rig.change(), expires_at_ms=expires_at_ms
    )
    rig.clock.now_ms = expires_at_ms - 1
    await rig.authenticate(made.text)
    rig.clock.now_ms = expires_at_ms
    with pytest.raises(ApiKeyDisabled, match="expired"):
        await rig.authenticate(made.text)


async def test_429_after_10_failed_attempts_from_one_address(rig: Rig) -> None:
    for _ in range(10):
        with pytest.raises(InvalidApiKey):
            await rig.authenticate(new_key())
    for text in (new_key(), rig.text):
        with pytest.raises(RateLimitExceeded) as caught:
            await rig.authenticate(text)
        assert caught.value.retry_after_s == 6.0
    rig.clock.now_ms += 6_000
    assert await rig.authenticate()


async def test_a_correct_key_from_another_address_is_not_affected(rig: Rig) -> None:
    for _ in range(10):
        with pytest.raises(InvalidApiKey):
            await rig.authenticate(new_key(), "2001:db8::1")
    assert await rig.authenticate(address="2001:db8:0:1::1")
    with pytest.raises(RateLimitExceeded):
        await rig.authenticate(address="2001:db8::2")


async def test_attempts_with_a_suspended_key_are_no_failed_ones(rig: Rig) -> None:
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    for _ in range(20):
        with pytest.raises(ApiKeyDisabled):
            await rig.authenticate()


async def test_60_wrong_keys_at_one_moment_get_10_verdicts(rig: Rig) -> None:
    attempts = [rig.authenticate(new_key()) for _ in range(60)]
    found = await asyncio.gather(*attempts, return_exceptions=True)
    assert Counter(map(type, found)) == {InvalidApiKey: 10, RateLimitExceeded: 50}


async def test_a_right_key_behind_60_wrong_ones_at_one_moment_is_not_confirmed(
    rig: Rig,
) -> None:
    attempts = [rig.authenticate(new_key()) for _ in range(60)] + [rig.authenticate()]
    found = await asyncio.gather(*attempts, return_exceptions=True)
    assert isinstance(found[-1], RateLimitExceeded)


async def test_60_right_keys_at_one_moment_all_get_in(rig: Rig) -> None:
    made = [await rig.admin.create_key("alice", Tier.BASIC, rig.change()) for _ in range(60)]
    found = await asyncio.gather(*(rig.authenticate(key.text) for key in made))
    assert len(set(found)) == 60


async def test_correct_attempts_and_missing_keys_are_no_failed_ones(rig: Rig) -> None:
    for _ in range(20):
        await rig.authenticate()
        with pytest.raises(MissingApiKey):
            await rig.accounts.authenticate(None, address=ADDRESS, now_ms=START_MS)


async def test_429_when_one_key_authenticates_more_often_than_its_tier_allows(
    rig: Rig,
) -> None:
    settings = AccountsSettings(
        tiers=TierSettings(basic=TierLimits(requests_per_minute=3, connections_max=1))
    )
    rig.accounts = Accounts(rig.store, PEPPER, settings=settings)
    for _ in range(3):
        await rig.authenticate()
    with pytest.raises(RateLimitExceeded, match="authentications with this key"):
        await rig.authenticate()


async def test_a_new_session_does_not_end_older_ones(rig: Rig) -> None:
    headers = [await rig.authenticate() for _ in range(2)]
    for header in headers:
        assert await rig.accounts.session(header, START_MS)


async def test_at_most_100_live_sessions_a_key_the_oldest_goes(rig: Rig) -> None:
    assert SESSIONS_PER_KEY_MAX == 100
    first = await rig.authenticate()
    await rig.accounts.session(first, START_MS)
    second = await rig.authenticate()
    for _ in range(99):
        await rig.authenticate()
    with pytest.raises(InvalidSession):
        await rig.accounts.session(first, START_MS)
    assert await rig.accounts.session(second, START_MS)


# Bearer endpoints


async def test_a_session_knows_its_key_and_times_and_not_its_token(rig: Rig) -> None:
    header = await rig.authenticate()
    session = await rig.accounts.session(header, START_MS + 5)
    assert (session.key.key_id, session.token) == (rig.key_id, "")
    assert (session.created_at_ms, session.expires_at_ms) == (START_MS, START_MS + DAY_MS)


async def test_401_missing_authorization(rig: Rig) -> None:
    with pytest.raises(MissingAuthorization):
        await rig.accounts.session(None, START_MS)


async def test_401_invalid_session(rig: Rig) -> None:
    for header in ("Basic abc", "Bearer nonsense", f"Bearer {new_token()}", f"Bearer {rig.text}"):
        with pytest.raises(InvalidSession):
            await rig.accounts.session(header, START_MS)


async def test_401_session_expired_from_expires_at_on(rig: Rig) -> None:
    header = await rig.authenticate()
    assert await rig.accounts.session(header, START_MS + DAY_MS - 1)
    for after_ms in (DAY_MS, DAY_MS + 1, 6 * DAY_MS):
        with pytest.raises(SessionExpired):
            await rig.accounts.session(header, START_MS + after_ms)


async def test_401_api_key_disabled_when_the_key_was_suspended_since(rig: Rig) -> None:
    header = await rig.authenticate()
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    await rig.accounts.poll(START_MS + 1_000)
    with pytest.raises(ApiKeyDisabled):
        await rig.accounts.session(header, START_MS + 1_000)


async def test_an_account_that_is_suspended_suspends_the_use_of_its_keys(rig: Rig) -> None:
    header = await rig.authenticate()
    await rig.admin.move_account("alice", "suspend", rig.change())
    await rig.accounts.poll(START_MS)
    with pytest.raises(ApiKeyDisabled):
        await rig.accounts.session(header, START_MS)
    with pytest.raises(ApiKeyDisabled):
        await verify(rig)
    with pytest.raises(AccountSuspended):
        await report(rig)


# Endpoint 3


async def test_the_usage_report_holds_what_is_flushed_and_what_is_not(rig: Rig) -> None:
    await verify(rig)
    rig.accounts.meter.add(rig.key_id, 7)
    assert (await report(rig)).data_usage.bytes_used == 7
    await rig.accounts.meter.flush()
    assert (await report(rig)).data_usage.bytes_used == 7
    other = Accounts(rig.store, PEPPER, clock=rig.clock)
    await other.verify_key(rig.text, START_MS)
    other.meter.add(rig.key_id, 5)
    await other.meter.close()
    assert (await report(rig)).data_usage.bytes_used == 12, "the other node's bytes are there"


async def test_404_api_key_not_found(rig: Rig) -> None:
    for text in ("nonsense", new_key(), typo(rig.text)):
        with pytest.raises(ApiKeyNotFound) as caught:
            await report(rig, text)
        assert text not in caught.value.message


async def test_401_account_suspended(rig: Rig) -> None:
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    with pytest.raises(AccountSuspended):
        await report(rig)


async def test_an_expired_key_still_gets_its_report(rig: Rig) -> None:
    await rig.admin.move_key(rig.key_id, "expire", rig.change())
    answer = await report(rig)
    assert (answer.api_key_active, answer.status.api_key_status) == (False, "expired")


async def test_60_unknown_keys_a_minute_from_one_address_get_429(rig: Rig) -> None:
    for _ in range(60):
        with pytest.raises(ApiKeyNotFound):
            await report(rig, "nonsense")
    with pytest.raises(RateLimitExceeded):
        await report(rig, "nonsense")
    assert await report(rig), "known keys are counted against nothing"
    with pytest.raises(ApiKeyNotFound):
        await report(rig, "nonsense", "192.0.2.2")


async def test_over_the_limit_authenticate_session_and_usage_still_answer(rig: Rig) -> None:
    rig.accounts = Accounts(
        rig.store, PEPPER, settings=AccountsSettings(allowance_bytes=10), clock=rig.clock
    )
    header = await rig.authenticate()
    rig.accounts.meter.add(rig.key_id, 11)
    assert rig.accounts.meter.over(rig.key_id)
    assert await rig.authenticate()
    assert await rig.accounts.session(header, START_MS)
    assert (await report(rig)).status.limit_exceeded


# Rotation


async def test_while_a_key_is_rotated_both_texts_work_and_use_is_one(rig: Rig) -> None:
    header = await rig.authenticate()
    made = await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=1_000)
    await rig.accounts.poll(START_MS)
    old, new = await verify(rig), await verify(rig, made.text)
    assert old.key_id == new.key_id == rig.key_id
    rig.clock.now_ms += 1_000
    with pytest.raises(InvalidApiKey):
        await verify(rig)
    with pytest.raises(ApiKeyNotFound):
        await report(rig)
    assert await verify(rig, made.text)
    assert await rig.accounts.session(header, rig.clock.now_ms)


async def test_a_cached_text_ends_with_its_overlap(rig: Rig) -> None:
    await verify(rig)
    await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=0)
    await rig.accounts.poll(START_MS)
    with pytest.raises(InvalidApiKey):
        await verify(rig)


# The cache and the watch


async def test_a_verified_key_is_served_from_memory(rig: Rig) -> None:
    key = await verify(rig)
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    assert await verify(rig) is key


async def test_without_a_watch_the_cache_serves_for_its_time_and_no_longer(rig: Rig) -> None:
    await verify(rig)
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    rig.clock.now_ms += CACHE_TTL_MS - 1
    assert await verify(rig)
    rig.clock.now_ms += 1
    with pytest.raises(ApiKeyDisabled):
        await verify(rig)


async def test_a_watch_that_works_keeps_the_cache_fresh(rig: Rig) -> None:
    await rig.accounts.poll(START_MS)
    key = await verify(rig)
    for _ in range(10):
        rig.clock.now_ms += CACHE_TTL_MS - 1
        await rig.accounts.poll(rig.clock.now_ms)
        assert await verify(rig) is key


async def test_a_suspension_is_told_with_the_next_poll(rig: Rig) -> None:
    notified: list[str] = []
    rig.accounts.on_disabled.subscribe(notified.append)
    await verify(rig)
    await rig.accounts.poll(START_MS)
    assert notified == []
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    await rig.accounts.poll(START_MS)
    assert notified == [rig.key_id]
    await rig.accounts.poll(START_MS)
    assert notified == [rig.key_id]


async def test_a_key_whose_date_comes_is_told_once(rig: Rig) -> None:
    made = await rig.admin.create_key(
        "alice", Tier.BASIC, rig.change(), expires_at_ms=START_MS + 1_000
    )
    notified: list[str] = []
    rig.accounts.on_disabled.subscribe(notified.append)
    await verify(rig, made.text)
    for after_ms in (0, 999, 1_000, 1_001):
        await rig.accounts.poll(START_MS + after_ms)
    assert notified == [made.row.key_id]


def suspended_while_read(rig: Rig) -> list[int]:
    """Suspend the key during a read and notify the watch; return the result of each read."""
    read = rig.store.accounts.secrets
    reads: list[int] = []  # names

    async def slow(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        reads.append(len(digests))
        rows = await read(digests)
        moved = (KeyStatus.ACTIVE, KeyStatus.SUSPENDED)
        if await rig.store.accounts.move_key(rig.key_id, moved, rig.change()):
            await rig.accounts.poll(START_MS)
        return rows

    rig.store.accounts.secrets = slow
    return reads


async def test_a_suspension_between_reading_a_key_and_caching_it_is_not_missed(
    rig: Rig,
) -> None:
    suspended_while_read(rig)
    with pytest.raises(ApiKeyDisabled):
        await verify(rig)


async def test_a_change_while_many_keys_are_read_makes_that_read_happen_again(
    rig: Rig,
) -> None:
    made = await rig.admin.create_key("alice", Tier.BASIC, rig.change())
    reads = suspended_while_read(rig)
    found = await asyncio.gather(verify(rig), verify(rig, made.text), return_exceptions=True)
    assert isinstance(found[0], ApiKeyDisabled)
    assert found[1].key_id == made.row.key_id
    assert reads == [2, 2]


async def test_a_lone_key_costs_two_statements_and_then_none(
    rig: Rig, statements: list[str]
) -> None:
    statements.clear()
    await verify(rig)
    assert len(statements) == 2, "the secret with its key, and its usage"
    await verify(rig)
    assert len(statements) == 2


async def test_who_comes_at_once_shares_reads_of_many_keys(
    rig: Rig, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.accounts.cache.NAMES_MAX", 4)
    made = [await rig.admin.create_key("alice", Tier.BASIC, rig.change()) for _ in range(10)]
    statements.clear()
    found = await asyncio.gather(*(verify(rig, key.text) for key in made * 100))
    assert len(statements) == 2 * 3
    assert [key.key_id for key in found] == [key.row.key_id for key in made] * 100
    assert len({id(key) for key in found}) == 10
    assert all(rig.accounts.meter.used(key.key_id, START_MS) == 0 for key in found)


async def test_who_comes_at_once_with_sessions_shares_reads_of_their_keys(
    rig: Rig, statements: list[str]
) -> None:
    made = [await rig.admin.create_key("alice", Tier.BASIC, rig.change()) for _ in range(10)]
    headers = [await rig.authenticate(key.text) for key in made] + [await rig.authenticate()]
    for header in headers:
        await rig.accounts.session(header, START_MS)
    rig.clock.now_ms += CACHE_TTL_MS
    statements.clear()
    now_ms = rig.clock.now_ms
    found = await asyncio.gather(*(rig.accounts.session(each, now_ms) for each in headers))
    assert len(statements) == 2, "the sessions, and their keys; the usage of these is known"
    assert [each.key.key_id for each in found] == [key.row.key_id for key in made] + [rig.key_id]


async def test_what_is_wrong_with_one_key_is_told_to_nobody_else(rig: Rig) -> None:
    suspended, expired, retired = [
        await rig.admin.create_key("alice", Tier.BASIC, rig.change()) for _ in range(3)
    ]
    await rig.admin.move_key(suspended.row.key_id, "suspend", rig.change())
    await rig.admin.move_key(expired.row.key_id, "expire", rig.change())
    rotated = await rig.admin.rotate_key(retired.row.key_id, rig.change(), overlap_ms=0)
    made = (suspended, expired, retired, rotated)
    texts = [new_key(), typo(rig.text), *(key.text for key in made), rig.text]
    found = await asyncio.gather(*(verify(rig, text) for text in texts), return_exceptions=True)
    assert [getattr(each, "key_id", type(each)) for each in found] == [
        InvalidApiKey,
        InvalidApiKey,
        ApiKeyDisabled,
        ApiKeyDisabled,
        InvalidApiKey,
        retired.row.key_id,
        rig.key_id,
    ]


async def test_who_stops_waiting_does_not_stop_the_read_of_others(rig: Rig) -> None:
    read, go_on = rig.store.accounts.secrets, asyncio.Event()

    async def slow(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        await go_on.wait()
        return await read(digests)

    rig.store.accounts.secrets = slow
    first, second = (asyncio.create_task(verify(rig)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    go_on.set()
    assert (await second).key_id == rig.key_id
    assert first.cancelled()


async def test_a_read_that_fails_fails_for_all_who_wait_and_is_tried_again(rig: Rig) -> None:
    read, broken = rig.store.accounts.secrets, True

    async def failing(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        if broken:
            raise ServiceUnavailable("The database does not answer.")
        return await read(digests)

    rig.store.accounts.secrets = failing
    found = await asyncio.gather(*(verify(rig) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(each, ServiceUnavailable) for each in found)
    broken = False
    assert (await verify(rig)).key_id == rig.key_id


class Hearing:
    """A poll that has read the changes and completes in the same turn as `end` is called."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._go: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._poll: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Let the poll read the changes."""
        read, has_read = self._rig.store.accounts.open_secrets, asyncio.Event()

        async def held(key_ids: Collection[str], now_ms: int) -> Any:
            found = await read(key_ids, now_ms)
            has_read.set()
            await self._go
            return found

        self._rig.store.accounts.open_secrets = held
        self._poll = asyncio.create_task(self._rig.accounts.poll(self._rig.clock.now_ms))
        await has_read.wait()
        self._rig.store.accounts.open_secrets = read

    def end(self) -> None:
        """Apply the change in the next turn, before tasks that await a read ending now."""
        self._go.set_result(None)

    async def done(self) -> None:
        """Wait for the poll."""
        assert self._poll is not None
        await self._poll


async def known_and_not_fresh(rig: Rig) -> Hearing:
    """A key with cached usage, so that reading it needs only the store."""
    await verify(rig)
    rig.clock.now_ms += CACHE_TTL_MS
    return Hearing(rig)


async def test_a_suspension_between_a_shared_read_and_its_waiters_is_not_missed(
    rig: Rig,
) -> None:
    read, hearing = rig.store.accounts.secrets, await known_and_not_fresh(rig)

    async def slow(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        rows = await read(digests)
        moved = (KeyStatus.ACTIVE, KeyStatus.SUSPENDED)
        if await rig.store.accounts.move_key(rig.key_id, moved, rig.change()):
            await hearing.begin()
            hearing.end()
        return rows

    rig.store.accounts.secrets = slow
    found = await asyncio.gather(*(verify(rig) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [ApiKeyDisabled] * 3
    await hearing.done()


async def test_a_text_that_ends_between_a_shared_read_and_its_waiters_opens_nothing(
    rig: Rig,
) -> None:
    read, hearing = rig.store.accounts.secrets, await known_and_not_fresh(rig)

    async def slow(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        rows = await read(digests)
        if any(row.retires_at_ms is None for row in rows.values()):
            await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=0)
            await hearing.begin()
            hearing.end()
        return rows

    rig.store.accounts.secrets = slow
    found = await asyncio.gather(*(verify(rig) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [InvalidApiKey] * 3
    await hearing.done()


async def test_a_suspension_between_the_read_of_a_session_s_key_and_its_waiters_is_not_missed(
    rig: Rig,
) -> None:
    header = await rig.authenticate()
    rig.clock.now_ms += CACHE_TTL_MS
    read, hearing = rig.store.accounts.keys_by_id, Hearing(rig)

    async def slow(key_ids: Collection[str]) -> dict[str, KeyRow]:
        rows = await read(key_ids)
        moved = (KeyStatus.ACTIVE, KeyStatus.SUSPENDED)
        if await rig.store.accounts.move_key(rig.key_id, moved, rig.change()):
            await hearing.begin()
            hearing.end()
        return rows

    rig.store.accounts.keys_by_id = slow
    with pytest.raises(ApiKeyDisabled):
        await rig.accounts.session(header, rig.clock.now_ms)
    await hearing.done()


async def test_reads_under_way_end_with_the_accounts(rig: Rig) -> None:
    async def never(digests: Collection[bytes]) -> dict[bytes, SecretRow]:
        await asyncio.Event().wait()

    async with Accounts(rig.store, PEPPER, clock=rig.clock) as accounts:
        rig.store.accounts.secrets = never
        waiting = asyncio.create_task(accounts.verify_key(rig.text, START_MS))
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_when_a_key_was_used_last_is_noted_each_minute(rig: Rig) -> None:
    async def noted() -> int | None:
        return (await rig.admin.key(rig.key_id, START_MS)).last_used_at_ms

    await rig.accounts.poll(START_MS)
    await verify(rig)
    await rig.accounts.poll(START_MS + MINUTE_MS - 1)
    assert await noted() is None
    await rig.accounts.poll(START_MS + MINUTE_MS)
    assert await noted() == START_MS


async def test_sessions_that_ended_long_ago_are_forgotten(rig: Rig) -> None:
    header = await rig.authenticate()
    await rig.accounts.poll(START_MS + 9 * DAY_MS)
    with pytest.raises(InvalidSession):
        await rig.accounts.session(header, START_MS + 9 * DAY_MS)


async def test_a_running_node_hears_of_a_suspension_within_two_seconds(rig: Rig) -> None:
    assert POLL_INTERVAL_S == 1.0
    async with Accounts(rig.store, PEPPER, poll_interval_s=0.01) as accounts:
        notified = asyncio.Event()
        accounts.on_disabled.subscribe(lambda key_id: notified.set())
        await accounts.verify_key(rig.text, START_MS)
        accounts.meter.add(rig.key_id, 3)
        await rig.admin.move_key(rig.key_id, "suspend", rig.change())
        await asyncio.wait_for(notified.wait(), PATIENCE_S)
    again = Accounts(rig.store, PEPPER)
    await rig.admin.move_key(rig.key_id, "resume", rig.change())
    await again.verify_key(rig.text, SYSTEM_CLOCK.wall_ms())
    assert again.meter.used(rig.key_id, SYSTEM_CLOCK.wall_ms()) == 3, "a clean stop loses nothing"


async def test_neither_keys_nor_tokens_reach_the_log_or_the_database(
    rig: Rig, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.DEBUG):
        header = await rig.authenticate()
        await rig.accounts.session(header, START_MS)
        made = await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=0)
        unknown = "ob_live_" + "q" * 43
        unknown += checksum(unknown)
        for text in (unknown, typo(rig.text)):
            with pytest.raises(InvalidApiKey):
                await rig.authenticate(text)
            with pytest.raises(ApiKeyNotFound):
                await report(rig, text)
        await verify(rig, made.text)
        rig.accounts.meter.add(rig.key_id, 1)
        await rig.accounts.meter.close()
    secrets = [text[8:] for text in (rig.text, made.text, unknown)]
    secrets.append(header.removeprefix("Bearer obs_"))
    files = list(tmp_path.iterdir())
    assert any(path.name.endswith("-wal") for path in files)
    for secret in secrets:
        assert secret[:16] not in caplog.text
        assert secret not in repr(made)
        for path in files:
            assert secret.encode() not in path.read_bytes(), path.name


async def test_a_store_that_stays_silent_is_told_after_five_seconds(rig: Rig) -> None:
    await rig.accounts.poll(START_MS)
    assert rig.accounts.reachable(START_MS + 4_999)
    assert not rig.accounts.reachable(START_MS + 5_000)


# Sessions that were ended


async def test_a_suspension_ends_the_sessions_for_good_on_every_node(rig: Rig) -> None:
    other = Accounts(rig.store, PEPPER, clock=rig.clock)
    header = await rig.authenticate()
    assert await rig.accounts.session(header, START_MS)
    assert await other.session(header, START_MS)
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    for node in (rig.accounts, other):
        await node.poll(START_MS + 1_000)
        with pytest.raises(ApiKeyDisabled):
            await node.session(header, START_MS + 1_000)
    await rig.admin.move_key(rig.key_id, "resume", rig.change())
    for node in (rig.accounts, other):
        await node.poll(START_MS + 2_000)
        with pytest.raises(SessionExpired):
            await node.session(header, START_MS + 2_000)
    again = await rig.authenticate()
    assert await other.session(again, START_MS + 2_000)


async def test_a_suspension_between_two_polls_ends_the_sessions_too(rig: Rig) -> None:
    header = await rig.authenticate()
    assert await rig.accounts.session(header, START_MS)
    for action in ("suspend", "resume"):
        await rig.admin.move_key(rig.key_id, action, rig.change())
    await rig.accounts.poll(START_MS + 1_000)
    with pytest.raises(SessionExpired):
        await rig.accounts.session(header, START_MS + 1_000)


async def test_a_suspended_account_ends_the_sessions_of_its_keys_and_no_others(
    rig: Rig,
) -> None:
    await rig.admin.create_account("bob", rig.change())
    bobs = await rig.admin.create_key("bob", Tier.BASIC, rig.change())
    mine, his = await rig.authenticate(), await rig.authenticate(bobs.text)
    for action in ("suspend", "resume"):
        await rig.admin.move_account("alice", action, rig.change())
    await rig.accounts.poll(START_MS)
    with pytest.raises(SessionExpired):
        await rig.accounts.session(mine, START_MS)
    assert await rig.accounts.session(his, START_MS)


async def test_an_immediate_rotation_ends_the_sessions_and_an_overlap_keeps_them(
    rig: Rig,
) -> None:
    header = await rig.authenticate()
    made = await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=1_000)
    await rig.accounts.poll(START_MS)
    assert await rig.accounts.session(header, START_MS)
    await rig.admin.rotate_key(made.text, rig.change(), overlap_ms=0)
    await rig.accounts.poll(START_MS)
    with pytest.raises(SessionExpired):
        await rig.accounts.session(header, START_MS)


@pytest.mark.parametrize("action", ["suspend", "account", "rotate"])
async def test_a_node_that_has_not_heard_of_it_yet_makes_no_session(rig: Rig, action: str) -> None:
    await verify(rig)
    if action == "rotate":
        await rig.admin.rotate_key(rig.key_id, rig.change(), overlap_ms=0)
    elif action == "account":
        await rig.admin.move_account("alice", "suspend", rig.change())
    else:
        await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    assert await verify(rig), "the node has it in its cache"
    with pytest.raises(ApiKeyDisabled):
        await rig.authenticate()


async def test_a_session_read_while_its_key_is_suspended_is_not_kept(rig: Rig) -> None:
    header = await rig.authenticate()
    read, first = rig.store.sessions.find, True

    async def slow(digests: Collection[bytes]) -> Any:
        nonlocal first
        rows = await read(digests)
        if not first:
            return rows
        first = False
        for action in ("suspend", "resume"):
            await rig.admin.move_key(rig.key_id, action, rig.change())
        await accounts.poll(START_MS)
        return rows

    rig.store.sessions.find = slow
    accounts = Accounts(rig.store, PEPPER, clock=rig.clock)  # reads by what the store has now
    with pytest.raises(SessionExpired):
        await accounts.session(header, START_MS)


async def test_a_session_that_went_as_the_oldest_is_over_on_another_node_within_2_s(
    rig: Rig,
) -> None:
    here = Accounts(rig.store, PEPPER, clock=rig.clock, sessions_per_key_max=1)
    there = Accounts(rig.store, PEPPER, clock=rig.clock)
    first = await here.authenticate(rig.text, address="192.0.2.1", now_ms=START_MS)
    header = f"Bearer {first.token}"
    await there.poll(START_MS)  # the key itself is new: the next poll has nothing to report
    assert await there.session(header, START_MS)
    rig.clock.now_ms += 1
    await here.authenticate(rig.text, address="192.0.2.1", now_ms=rig.clock.now_ms)
    await there.poll(rig.clock.now_ms)
    assert await there.session(header, rig.clock.now_ms), "cached, though ended elsewhere"
    rig.clock.now_ms += 1_999
    await there.poll(rig.clock.now_ms)
    with pytest.raises(InvalidSession):
        await there.session(header, rig.clock.now_ms)
