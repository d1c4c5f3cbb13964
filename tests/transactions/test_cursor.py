"""Cursors: opaque, signed, and valid only for their query."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.errors import InvalidRequest
from onebook.transactions.cursor import (
    DONE,
    FIRST_PLACE,
    GIVEN_UP,
    Cursors,
    CursorState,
    as_key,
    key_digest,
)
from onebook.transactions.record import FIRST

SECRET = b"a secret"


def state(**fields: object) -> CursorState:
    base: dict[str, object] = {
        "digest": "d" * 16,
        "key": key_digest("key-1"),
        "account": Cursors(SECRET).account("theirs"),
        "now_ms": 3,
        "from_ms": 1,
        "to_ms": 2,
        "after": (-2, "0xabc"),
        "others": {"one": DONE, "two": GIVEN_UP, "three": (-5, "0xdef")},
    }
    return CursorState(**(base | fields))  # type: ignore[arg-type]


def test_a_cursor_survives_a_restart_and_keeps_every_place() -> None:
    text = Cursors(SECRET).seal(state())
    found = Cursors(SECRET).open(text, digest="d" * 16, key_id="key-1")
    assert found == state()
    assert found.place("one") == DONE
    assert found.place("three") == (-5, "0xdef")
    assert found.place("another") == (-2, "0xabc")
    assert as_key(FIRST_PLACE) == FIRST


@pytest.mark.parametrize(
    ("digest", "key_id", "says"),
    [("e" * 16, "key-1", "another query"), ("d" * 16, "key-2", "another API key")],
)
def test_a_cursor_of_another_query_or_key(digest: str, key_id: str, says: str) -> None:
    text = Cursors(SECRET).seal(state())
    with pytest.raises(InvalidRequest, match=says):
        Cursors(SECRET).open(text, digest=digest, key_id=key_id)


def test_an_account_has_a_name_that_shows_nothing_of_its_key() -> None:
    name = Cursors(SECRET).account("theirs")
    assert name == Cursors(SECRET).account("theirs")
    assert name not in (Cursors(SECRET).account("others"), Cursors(b"another").account("theirs"))
    assert "theirs" not in name


def test_a_cursor_of_another_service() -> None:
    text = Cursors(b"another secret").seal(state())
    with pytest.raises(InvalidRequest, match="not a cursor"):
        Cursors(SECRET).open(text, digest="d" * 16, key_id="key-1")


@given(st.one_of(st.text(), st.binary().map(lambda raw: urlsafe_b64encode(raw).decode())))
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        Cursors(SECRET).open(text, digest="d" * 16, key_id="key-1")


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_one_changed_bit_is_one_too_many(at: int, bits: int) -> None:
    from base64 import urlsafe_b64decode

    text = Cursors(SECRET).seal(state())
    raw = bytearray(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    raw[at % len(raw)] ^= bits
    with pytest.raises(InvalidRequest):
        Cursors(SECRET).open(
            urlsafe_b64encode(raw).decode().rstrip("="), digest="d" * 16, key_id="key-1"
        )
