"""The text of a key, its digest, and the table of its states."""

import zlib
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from onebook.accounts.keys import (
    ACCOUNT_MOVES,
    ALPHABET,
    KEY_MOVES,
    Key,
    base62,
    checksum,
    digest,
    following,
    key_of,
    new_key,
    require_enabled,
    status_at,
    well_formed,
)
from onebook.errors import ApiKeyDisabled, InvalidRequest
from onebook.model import KeyStatus, Tier
from onebook.store import KeyRow

ACTIVE, SUSPENDED, EXPIRED = KeyStatus.ACTIVE, KeyStatus.SUSPENDED, KeyStatus.EXPIRED
ROW = KeyRow(
    "key_1", "id", "alice", ACTIVE, Tier.BASIC, ACTIVE, "ob_live_abcd", 1, None, None, 1, "root", ""
)
KEY = Key("key_1", "id", "alice", Tier.BASIC, ACTIVE, "ob_live_abcd", 1, None)


def test_a_key_is_its_prefix_43_characters_and_6_of_checksum() -> None:
    key = new_key()
    assert key.startswith("ob_live_")
    assert len(key) == 8 + 43 + 6
    assert set(key[8:]) <= set(ALPHABET)
    assert well_formed(key)
    assert new_key() != key


def test_43_characters_hold_256_bits_and_6_hold_a_crc() -> None:
    assert base62(2**256 - 1, 43)[0] != "0"
    assert base62(2**32 - 1, 6)
    with pytest.raises(AssertionError):
        base62(62**6, 6)


@given(st.integers(0, 2**256 - 1))
def test_base62_reads_back(number: int) -> None:
    value = 0
    for character in base62(number, 43):
        value = value * 62 + ALPHABET.index(character)
    assert value == number


def test_the_checksum_is_the_crc_32_of_what_precedes_it() -> None:
    body = "ob_live_" + "a" * 43
    assert checksum(body) == base62(zlib.crc32(body.encode()), 6)


@given(st.integers(8, 56), st.sampled_from(ALPHABET))
def test_one_wrong_character_is_refused(position: int, character: str) -> None:
    key = "ob_live_" + "Ab3" * 14 + "z"
    key += checksum(key)
    changed = key[:position] + character + key[position + 1 :]
    assert well_formed(changed) is (changed == key)


@pytest.mark.parametrize(
    "text", ["", "ob_live_", "x" * 57, "ob_live_" + "é" * 49, "obs_" + "a" * 43]
)
def test_what_has_another_shape_is_refused(text: str) -> None:
    assert not well_formed(text)


@pytest.mark.parametrize("around", [" {}", "{} ", "{}\n", "\0{}"])
def test_nothing_may_stand_around_a_key(around: str) -> None:
    assert not well_formed(around.format(new_key()))


def test_the_digest_depends_on_the_pepper_and_says_nothing() -> None:
    key = new_key()
    assert len(digest(b"a", key)) == 32
    assert digest(b"a", key) == digest(b"a", key) != digest(b"b", key)
    assert key.encode() not in digest(b"a", key)


MOVES = {
    (ACTIVE, "suspend"): SUSPENDED,
    (SUSPENDED, "resume"): ACTIVE,
    (ACTIVE, "expire"): EXPIRED,
    (SUSPENDED, "expire"): EXPIRED,
}


@pytest.mark.parametrize(
    ("status", "action"), list(product(KeyStatus, ("suspend", "resume", "expire")))
)
def test_a_key_moves_as_the_contract_says_and_no_other_way(status: KeyStatus, action: str) -> None:
    if (status, action) in MOVES:
        assert following(KEY_MOVES, status, action, "Key key_1") is MOVES[status, action]
    else:
        with pytest.raises(InvalidRequest, match=f"Key key_1 is {status}"):
            following(KEY_MOVES, status, action, "Key key_1")


def test_an_account_is_suspended_and_resumed_and_never_expires() -> None:
    assert following(ACCOUNT_MOVES, ACTIVE, "suspend", "User alice") is SUSPENDED
    assert following(ACCOUNT_MOVES, SUSPENDED, "resume", "User alice") is ACTIVE
    with pytest.raises(InvalidRequest):
        following(ACCOUNT_MOVES, ACTIVE, "expire", "User alice")


@pytest.mark.parametrize(
    ("account", "key", "seen"),
    [
        (ACTIVE, ACTIVE, ACTIVE),
        (ACTIVE, SUSPENDED, SUSPENDED),
        (SUSPENDED, ACTIVE, SUSPENDED),
        (SUSPENDED, SUSPENDED, SUSPENDED),
        (SUSPENDED, EXPIRED, EXPIRED),
    ],
)
def test_a_suspended_account_suspends_the_use_of_its_keys(
    account: KeyStatus, key: KeyStatus, seen: KeyStatus
) -> None:
    assert key_of(replace(ROW, account_status=account, status=key)).status is seen


def test_a_reply_shows_the_first_12_characters() -> None:
    assert key_of(ROW) == KEY


@pytest.mark.parametrize(("now_ms", "status"), [(99, ACTIVE), (100, EXPIRED), (101, EXPIRED)])
def test_a_key_expires_on_its_date(now_ms: int, status: KeyStatus) -> None:
    assert status_at(replace(KEY, expires_at_ms=100), now_ms) is status
    assert status_at(KEY, now_ms) is ACTIVE


def test_only_an_active_key_may_be_used() -> None:
    require_enabled(KEY, 1)
    for status in (SUSPENDED, EXPIRED):
        with pytest.raises(ApiKeyDisabled, match=f"is {status}"):
            require_enabled(replace(KEY, status=status), 1)
