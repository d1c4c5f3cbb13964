"""Levels of protobuf messages, in both implementations: what is accepted and refused."""

from typing import Any

import pytest

from core.both import COMPILED, EACH, MESSAGE, book_of, field, needs_compiled, state_of, varint
from onebook.core.types import FRAME_LEVELS_MAX, NUMBER_BYTES_MAX, LevelError

each_core = pytest.mark.parametrize("core", EACH)

LEVEL = field(1, b"2.5") + field(2, b"10")
REFUSED = {
    "truncated tag": field(1, LEVEL) + b"\x80",
    "no value": varint(3 << 3),
    "truncated length": b"\x0a\x80",
    "length beyond the end": field(1, LEVEL)[:-1],
    "length of 64 bits": b"\x0a" + varint(2**64 - 1),
    "length beyond its level": field(1, b"\x0a\x05" + LEVEL[2:]) + bytes(9),
    "number of 65 bits": varint(3 << 3) + b"\xff" * 9 + b"\x02",
    "number of eleven bytes": varint(3 << 3) + b"\x80" * 10 + b"\x00",
    "field zero": b"\x00\x00",
    "field number too large": varint(2**32) + b"\x00",
    "group": varint(3 << 3 | 3) + varint(3 << 3 | 4),
    "unknown wire type": varint(3 << 3 | 6),
    "truncated eight bytes": varint(3 << 3 | 1) + bytes(7),
    "truncated four bytes": varint(3 << 3 | 5) + bytes(3),
    "level that is a number": varint(1 << 3) + b"\x01",
    "price that is a number": field(1, varint(1 << 3) + b"\x01" + field(2, b"1")),
    "no amount": field(1, field(1, b"1")),
    "no level": field(1, b""),
    "price twice": field(1, field(1, b"1") + LEVEL),
    "empty amount": field(1, field(1, b"1") + field(2, b"")),
    "quoted price": field(1, field(1, b'"1"') + field(2, b"1")),
    "blank behind a price": field(1, field(1, b"1 ") + field(2, b"1")),
    "bracket in a price": field(1, field(1, b"1]2") + field(2, b"1")),
    "price that is not ASCII": field(1, field(1, "１".encode()) + field(2, b"1")),
    "price zero": field(1, field(1, b"0") + field(2, b"1")),
    "long price": field(1, field(1, b"0." + b"0" * NUMBER_BYTES_MAX) + field(2, b"1")),
    "JSON": b"[]",
}


@each_core
@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_is_no_plain_message_of_levels_is_refused(core: Any, text: bytes) -> None:
    book = book_of(core, [("99.5", "1")], [("100", "2.25")])
    before = state_of(book)
    for change in (book.apply, book.replace):
        with pytest.raises(LevelError, match=r"^[A-Z].*\.$"):
            change(memoryview(text + b'9"]]')[: len(text)], text, MESSAGE)
        assert state_of(book) == before


@each_core
def test_numbers_of_a_message_end_with_their_field(core: Any) -> None:
    """The bytes of further fields follow the amount and may look like digits."""
    book = core.Book()
    text = field(2, LEVEL) + varint(6 << 3) + b"\x31" + field(1, LEVEL.replace(b"2.5", b"2.6"))
    book.replace(memoryview(text + b"000")[: len(text)], b"not read", MESSAGE)
    assert book.top(9) == ([("2.5", "10")], [("2.6", "10")])
    book.apply(b"", b"", MESSAGE)
    book.replace(b"", b"", MESSAGE)
    assert book.top(9) == ([], [])


@needs_compiled  # the reference implementation takes seconds
def test_a_message_has_at_most_as_many_levels_as_a_text() -> None:
    level = field(2, LEVEL)
    COMPILED.Book().apply(level * FRAME_LEVELS_MAX, b"", MESSAGE)
    with pytest.raises(LevelError):
        COMPILED.Book().apply(level * (FRAME_LEVELS_MAX + 1), b"", MESSAGE)
