"""Messages by field number, and what is none."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from onebook.exchanges.kit.frames import UNREADABLE
from onebook.exchanges.kit.protobuf import BYTES, INT64, TEXT, reader

OUTER = reader(name=(1, TEXT), inner=(313, BYTES), at=(6, INT64))
INNER = reader(first=(4, BYTES))

# A tag is the varint of (number << 3) | wire type:
# https://protobuf.dev/programming-guides/encoding/
MESSAGE = (
    b"\x0a\x03abc"  # 1: "abc"
    b"\x30\x96\x01"  # 6: 150
    b"\x38\x05"  # 7, a varint that is not stated
    b"\xca\x13\x07"  # 313: 7 bytes
    b"\x12\x01x"  # 2 of the inner message, which is not stated
    b"\x22\x0242"  # 4 of the inner message: "42"
)


def test_stated_fields_are_read_and_others_skipped() -> None:
    message = OUTER(MESSAGE)
    assert (message.name, message.at) == ("abc", 150)
    assert message.inner == b"\x12\x01x\x22\x0242"
    assert INNER(message.inner).first == b"42"


def test_absent_fields_are_empty_and_the_last_of_several_counts() -> None:
    assert (OUTER(b"").name, OUTER(b"").inner, OUTER(b"").at) == ("", b"", 0)
    assert OUTER(b"\x0a\x01a\x0a\x01b").name == "b"
    assert OUTER(b"\x08\x05").name == "", "another wire type is another field"


@pytest.mark.parametrize(
    "frame",
    [
        MESSAGE[:-1],
        b"\x0a",
        b"\x0a\xff\xff\xff\xff\x0fx",  # a length of 4 GiB
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7fx",
        b"\x00\x00",  # there is no field 0
        b"\x0a\x01\xff",  # no UTF-8
        b"\x0b" * 100_000,  # groups inside each other
        b'{"id":0,"code":0,"msg":"PONG"}',
    ],
    ids=["cut", "no_length", "long", "longer", "zero", "utf8", "deep", "json"],
)
def test_what_is_no_message_is_the_one_error(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        OUTER(frame)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_unreadable(frame: bytes) -> None:
    try:
        message = OUTER(frame)
    except UNREADABLE:
        return
    assert len(message.inner) <= len(frame)
