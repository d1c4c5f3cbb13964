"""The shapes of an Authorization header, each with its one answer."""

import pytest

from onebook.accounts.keys import Key
from onebook.accounts.sessions import LIFETIME_MS, RestSession, new_token, token_of
from onebook.errors import InvalidSession, MissingAuthorization
from onebook.model import KeyStatus, Tier

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
