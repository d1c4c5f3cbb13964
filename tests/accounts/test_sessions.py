"""REST sessions: created, found by their header, and ended with their key."""

from collections.abc import AsyncIterator

import pytest

from onebook.accounts.keys import Key, key_of
from onebook.accounts.sessions import (
    LIFETIME_MS,
    RestSession,
    Sessions,
    is_over,
    new_token,
    token_of,
)
from onebook.errors import ApiKeyDisabled, InvalidSession, MissingAuthorization
from onebook.model import KeyStatus, Tier

from .conftest import PEPPER, Rig

TOKEN = "obs_" + "aB3" * 14 + "z"

MISSING = [None, "", " ", "   ", "\t", "\r\n"]
GOOD = [
    f"Bearer {TOKEN}",
    f"bearer {TOKEN}",
    f"BEARER {TOKEN}",
    f"bEaReR {TOKEN}",
    f"Bearer    {TOKEN}",
    f"  Bearer {TOKEN}  ",
]
MALFORMED = [
    "Bearer",
    "Bearer ",
    TOKEN,
    f"Bearer{TOKEN}",
    f"Bearer\t{TOKEN}",
    f"Bearer\n{TOKEN}",
    f"Bearer {TOKEN}\n",
    f"Bearer {TOKEN} extra",
    f"Bearer {TOKEN}, Bearer {TOKEN}",
    f"Bearer {TOKEN},",
    f'Bearer "{TOKEN}"',
    f"Bearer <{TOKEN}>",
    f"Bearer token={TOKEN}",
    f"Bearer: {TOKEN}",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN}a",
    f"Bearer {TOKEN.upper()}",
    f"Bearer {TOKEN[:-1]}é",
    f"Bearer {TOKEN[:-1]}-",
    f"Bearer {TOKEN[4:]}",
    "Bearer ob_live_" + "a" * 49,
    "Bearer null",
    "Bearer " + "a" * 100_000,
    f"Basic {TOKEN}",
    "Basic dXNlcjpwYXNz",
    f"Token {TOKEN}",
    f"Bearer Bearer {TOKEN}",
    "\0",
    f"Bearer {TOKEN}\0",
]


@pytest.mark.parametrize("header", MISSING)
def test_no_header_or_an_empty_one_is_missing_authorization(header: str | None) -> None:
    with pytest.raises(MissingAuthorization):
        token_of(header)


@pytest.mark.parametrize("header", GOOD)
def test_the_scheme_may_be_written_in_any_case(header: str) -> None:
    assert token_of(header) == TOKEN


@pytest.mark.parametrize("header", MALFORMED)
def test_another_scheme_or_a_malformed_token_is_invalid_session(header: str) -> None:
    with pytest.raises(InvalidSession) as caught:
        token_of(header)
    assert TOKEN not in caught.value.message


def test_a_token_is_its_prefix_and_43_characters() -> None:
    token = new_token()
    assert token.startswith("obs_")
    assert len(token) == 4 + 43
    assert token_of(f"Bearer {token}") == token != new_token()


def test_a_session_lasts_86_400_000_milliseconds() -> None:
    assert LIFETIME_MS == 86_400_000


def test_the_repr_of_a_session_hides_its_token() -> None:
    key = Key("key_1", "id", "alice", Tier.BASIC, KeyStatus.ACTIVE, "ob_live_", 1, None)
    assert TOKEN not in repr(RestSession(key, "session-1", TOKEN, 1, 2))


@pytest.fixture
async def key(rig: Rig) -> Key:
    return key_of(await rig.admin.key(rig.key_id, rig.clock.now_ms))


@pytest.fixture
async def sessions(rig: Rig) -> AsyncIterator[Sessions]:
    found = Sessions(rig.store, PEPPER, clock=rig.clock, per_key_max=2)
    yield found
    await found.close()


async def test_a_session_is_found_by_its_token_until_it_is_over(
    rig: Rig, sessions: Sessions, key: Key
) -> None:
    now_ms = rig.clock.now_ms
    made = await sessions.create(key, PEPPER.digest(rig.text), now_ms)
    found = await sessions.find(f"Bearer {made.token}", now_ms)
    assert (found.session_id, found.key_id) == (made.session_id, rig.key_id)
    assert not is_over(found, now_ms + LIFETIME_MS - 1)
    assert is_over(found, now_ms + LIFETIME_MS)
    with pytest.raises(InvalidSession):
        await sessions.find(f"Bearer {new_token()}", now_ms)


async def test_the_oldest_session_beyond_the_limit_ends_at_once(
    rig: Rig, sessions: Sessions, key: Key
) -> None:
    made = []
    for _ in range(3):
        made.append(await sessions.create(key, PEPPER.digest(rig.text), rig.clock.now_ms))
        await sessions.find(f"Bearer {made[-1].token}", rig.clock.now_ms)
        rig.clock.now_ms += 1
    with pytest.raises(InvalidSession):
        await sessions.find(f"Bearer {made[0].token}", rig.clock.now_ms)
    for each in made[1:]:
        found = await sessions.find(f"Bearer {each.token}", rig.clock.now_ms)
        assert not is_over(found, rig.clock.now_ms)


async def test_a_key_that_was_suspended_since_it_was_verified_gets_no_session(
    rig: Rig, sessions: Sessions, key: Key
) -> None:
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    with pytest.raises(ApiKeyDisabled):
        await sessions.create(key, PEPPER.digest(rig.text), rig.clock.now_ms)


async def test_a_changed_key_s_sessions_are_read_again(
    rig: Rig, sessions: Sessions, key: Key
) -> None:
    made = await sessions.create(key, PEPPER.digest(rig.text), rig.clock.now_ms)
    header = f"Bearer {made.token}"
    assert not is_over(await sessions.find(header, rig.clock.now_ms), rig.clock.now_ms)
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    assert not is_over(await sessions.find(header, rig.clock.now_ms), rig.clock.now_ms), "cached"
    sessions.change({rig.key_id})
    assert is_over(await sessions.find(header, rig.clock.now_ms), rig.clock.now_ms)
