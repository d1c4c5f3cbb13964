"""Levels of groups in Simple Binary Encoding, in both implementations."""

import struct
from typing import Any

import pytest

from core.both import EACH, GROUP, book_of, group, state_of
from onebook.core.types import LevelError, LevelShape

pytestmark = pytest.mark.parametrize("core", EACH)

LEVELS = [(6_425_010_000_000, 1_500_000), (6_425_020_000_000, 1)]
REFUSED = {
    "truncated header": b"\x10\x00\x00",
    "truncated level": group(LEVELS)[:-1],
    "more than the group": group(LEVELS) + b"\x00",
    "one level too many stated": struct.pack("<HH", 16, 3) + group(LEVELS)[4:],
    "one level too few stated": struct.pack("<HH", 16, 1) + group(LEVELS)[4:],
    "entries without an amount": struct.pack("<HHq", 8, 1, 5),
    "entries without bytes": struct.pack("<HH", 0, 7),
    "entries of 15 bytes": struct.pack("<HH", 15, 1) + bytes([1] * 15),
    "largest group": b"\xff" * 4,
    "negative price": group([(-1, 1)]),
    "negative amount": group([(1, -1)]),
    "least integer": group([(-(2**63), 1)]),
    "price zero": group([*LEVELS, (0, 1)]),
    "price of 19 digits": group([(2**63 - 1, 1)]),
    "amount of 19 digits": group([(1, 2**63 - 1)]),
    "JSON": b"[]",
    "null": b"null",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_group_that_does_not_have_its_levels_is_refused(core: Any, text: bytes) -> None:
    book = book_of(core, [("99.5", "1")], [("100", "2.25")])
    before = state_of(book)
    for change in (book.apply, book.replace):
        for sides in ((memoryview(text + bytes(40))[: len(text)], b""), (b"", text)):
            with pytest.raises(LevelError, match=r"^[A-Z].*\.$"):
                change(*sides, GROUP)
            assert state_of(book) == before
    for sides in ((text, b""), (b"", text)):
        with pytest.raises(LevelError):
            book.overlay(*sides, GROUP)


def test_mantissas_are_exact_at_the_scale_of_the_shape(core: Any) -> None:
    book = core.Book()
    book.replace(group(LEVELS), group([(6_425_030_000_001, 20)]), GROUP)
    assert book.top(9) == (
        [("64250.2", "0.000001"), ("64250.1", "1.5")],
        [("64250.30000001", "0.00002")],
    )
    book.apply(group([(6_425_010_000_000, 0)]), b"", GROUP)
    assert book.top(9)[0] == [("64250.2", "0.000001")]
    book.apply(b"", b"", GROUP)
    assert book.bid_count == 1


def test_a_group_without_levels_is_an_empty_side_whatever_its_entries_have(core: Any) -> None:
    book = core.Book()
    for width in (0, 1, 16, 2**16 - 1):
        book.replace(struct.pack("<HH", width, 0), b"", GROUP)
        assert book.top(9) == ([], [])


def test_bytes_that_the_shape_does_not_name_are_skipped(core: Any) -> None:
    shape = LevelShape.group(price=10, amount=1, price_scale=2)
    book = core.Book()
    book.replace(group([(101, 5), (100, 7)], shape, rest=9), b"", shape)
    assert book.top(9) == ([("1.01", "5"), ("1", "7")], [])


@pytest.mark.parametrize("power", range(19))
def test_powers_of_ten_are_read_at_every_scale(core: Any, power: int) -> None:
    for scale in range(power // 18, 19):
        shape = LevelShape.group(price_scale=scale, amount_scale=scale)
        book = core.Book()
        book.apply(group([(10**power, 10**power)], shape), b"", shape)
        text = f"1{'0' * (power - scale)}" if power >= scale else f"0.{'1':0>{scale - power}}"
        assert book.top(9) == ([(text, text)], [])


def test_a_finer_level_makes_the_scale_grow_and_keeps_the_others(core: Any) -> None:
    book = core.Book()
    coarse, fine = LevelShape.group(price_scale=1), LevelShape.group(price_scale=7, amount_scale=3)
    book.apply(group([(1_005, 4)], coarse), b"", coarse)
    assert (book.price_scale, book.amount_scale) == (1, 0)
    book.apply(group([(1_005_000_000, 0), (1_005_000_001, 250)], fine), b"", fine)
    assert (book.price_scale, book.amount_scale) == (7, 2)
    assert book.top(9) == ([("100.5000001", "0.25")], [])


def test_a_frame_of_the_largest_count_of_levels_is_read(core: Any) -> None:
    count = 2**16 - 1
    book = core.Book(20_000)
    book.replace(group([(each, 1) for each in range(1, count + 1)]), b"", GROUP)
    assert book.bid_count == 20_000
    assert book.top(1)[0] == [("0.00065535", "0.000001")]
