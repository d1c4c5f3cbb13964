"""Decoding of frames and bodies: JSON, lenient control frames, protobuf by field number."""

import json
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field

from onebook.exchanges.kit.channel import Accepted, accepted_of
from onebook.exchanges.kit.codec import (
    BYTES,
    INT64,
    TEXT,
    TEXT_MAX_CHARS,
    UNREADABLE,
    ErrorBody,
    batches,
    control_reader,
    has_more_items,
    protobuf_reader,
    short,
    symbol_of,
    text_in,
)


def test_batches_keep_order_and_size() -> None:
    assert list(batches(range(5), 2)) == [range(0, 2), range(2, 4), range(4, 5)]
    assert list(batches([], 2)) == []


def test_the_words_of_an_exchange_are_cut() -> None:
    assert len(short("x" * 10_000)) == TEXT_MAX_CHARS


@pytest.mark.parametrize("items", [None, [], {}, [{}], [{"symbol": 1}], [{"symbol": "A"}] * 2])
def test_a_frame_that_names_none_or_several_has_no_symbol(items: object) -> None:
    assert symbol_of(items) == ""
    assert symbol_of([{"symbol": "A", "more": 1}]) == "A"


@pytest.mark.parametrize("value", [None, [], "A", {}, {"symbol": 1}, {"other": "A"}])
def test_a_member_that_is_no_text_is_empty(value: object) -> None:
    assert text_in(value, "symbol") == ""
    assert text_in({"symbol": "A", "more": 1}, "symbol") == "A"


JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text(',[]{}"\\:x\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(',[]{}"\\'), inner),
)


def longest(value: object) -> int:
    """Return how many items the longest list or object of a value has."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max([len(value), *map(longest, inner)])


@given(JSON_VALUES, st.integers(1, 6))
def test_items_are_counted_list_by_list(value: object, most: int) -> None:
    assert has_more_items(json.dumps(value).encode(), most) == (longest(value) > most)


@pytest.mark.parametrize(
    "body", [b'"' + b'\\"' * 100_000, b'"' * 100_001, b"[" * 100_000, b"]" * 100_000, b'["']
)
def test_what_is_no_json_is_left_to_its_decoder(body: bytes) -> None:
    assert not has_more_items(body, 1)


# Control frames


class Frame(Struct):
    """A frame with a member of each kind."""

    id: int | str | None = None
    code: int = 0
    ok: bool | None = None
    words: str = "none"
    name: str = field(name="T", default="")
    error: ErrorBody | None = None
    data: Any = None


read = control_reader(Frame)


def test_members_are_read_by_their_names_on_the_wire() -> None:
    frame = b'{"id":"1","code":3,"ok":true,"words":"a","T":"b","data":[1],"more":{"x":[]}}'
    assert read(frame) == Frame("1", 3, True, "a", "b", None, [1])
    assert read(b"{}") == Frame()


@pytest.mark.parametrize("member", ["id", "code", "ok", "words", "T", "error"])
@pytest.mark.parametrize("value", ["null", "[]", "{}", '""'])
def test_a_strange_member_is_absent_and_the_others_are_read(member: str, value: str) -> None:
    found = read(f'{{"{member}":{value},"data":7}}'.encode())
    empty = {("id", '""'): Frame("", data=7), ("words", '""'): Frame(words="", data=7)}
    if (member, value) == ("error", "{}"):
        assert found.error == ErrorBody()
    else:
        assert found == empty.get((member, value), Frame(data=7))


def test_a_number_and_its_text_count_as_each_other() -> None:
    assert read(b'{"code":"40","words":17,"T":1.50}') == Frame(code=40, words="17", name="1.50")
    assert read(b'{"ok":"true"}').ok is True
    assert read(b'{"words":true,"code":"x"}') == Frame()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ('{"code":7,"message":null}', ErrorBody(code=7)),
        ('{"code":[],"message":"bad"}', ErrorBody(message="bad")),
        ('"bad"', ErrorBody(message="bad")),
        ("7", ErrorBody(code=7)),
        ("true", ErrorBody()),
        ('["bad"]', ErrorBody()),
        ("0", None),
        ("false", None),
    ],
)
def test_an_error_of_another_type_stays_an_error(error: str, expected: ErrorBody | None) -> None:
    assert read(f'{{"error":{error}}}'.encode()).error == expected


@pytest.mark.parametrize("frame", [b"", b"[]", b"7", b'"x"', b"null", b'{"id":', b'{"id":NaN}'])
def test_what_is_no_json_object_is_refused(frame: bytes) -> None:
    with pytest.raises(UNREADABLE):
        read(frame)


@pytest.mark.parametrize("items", [None, "A", {"A": 1}, ["A", None]])
def test_an_answer_that_is_no_list_of_names_refuses_none(items: Any) -> None:
    assert not accepted_of(items, 1).lists_all
    assert accepted_of(["A"], 1) == Accepted(["A"], 1, lists_all=True)


# Protobuf

OUTER = protobuf_reader(name=(1, TEXT), inner=(313, BYTES), at=(6, INT64))
INNER = protobuf_reader(first=(4, BYTES))

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
