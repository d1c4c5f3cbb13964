"""Level shapes and checksum layouts, in both implementations: what is accepted and refused."""

from binascii import crc32
from typing import Any

import pytest

from core.both import (
    COUNTED,
    EACH,
    EIGHT,
    FILLED,
    JAVASCRIPT,
    SHORT_NAMES,
    TWO_SIDED,
    book_of,
    state_of,
)
from onebook.core.types import (
    NAME_BYTES_MAX,
    PAIRS,
    ChecksumLayout,
    ChecksumNumber,
    ChecksumOrder,
    LevelError,
    LevelShape,
)

each_core = pytest.mark.parametrize("core", EACH)

REFUSED = {
    "zero amount has no side": (COUNTED, b"[1,1,0]"),
    "negative zero": (COUNTED, b"[1,1,-0.0]"),
    "two signs": (COUNTED, b"[1,1,--1]"),
    "sign alone": (COUNTED, b'[1,1,"-"]'),
    "open string behind a sign": (COUNTED, b'[1,1,"-1]'),
    "negative price": (COUNTED, b"[-1,1,1]"),
    "negative count": (COUNTED, b"[1,-1,1]"),
    "no count": (COUNTED, b"[1,null,1]"),
    "a bad amount that is removed": (COUNTED, b"[1,0,x]"),
    "short single row": (COUNTED, b"[1,1]"),
    "text behind a single row": (COUNTED, b"[1,1,1],[2,1,1]"),
    "single row and a list": (COUNTED, b"[1,1,1,[[2,1,1]]"),
    "single row where none is promised": (PAIRS, b'["1","2"]'),
    "zero price where no filler is promised": (COUNTED, b"[0,1,1]"),
    "short row before a filler": (FILLED, b'[["1",0,0],["0",0,0,"0"]]'),
    "bad amount of a filler": (FILLED, b'[["x",0,0,"0"]]'),
    "another's names": (SHORT_NAMES, b'[{"price":1,"qty":1}]'),
    "short name twice": (SHORT_NAMES, b'[{"p":1,"p":1,"s":1}]'),
    "one side of two": (TWO_SIDED, b'[{"ask_price":1,"ask_size":1}]'),
}


@each_core
@pytest.mark.parametrize(("shape", "text"), REFUSED.values(), ids=REFUSED)
def test_what_a_shape_does_not_promise_is_refused(
    core: Any, shape: LevelShape, text: bytes
) -> None:
    book = book_of(core, [("99.5", "1")], [("100", "2.25")])
    before = state_of(book)
    for change in (book.apply, book.replace):
        with pytest.raises(LevelError, match=r"^[A-Z].*\.$"):
            change(memoryview(text + b'9"]]')[: len(text)], text, shape)
        assert state_of(book) == before


@each_core
def test_a_count_of_zero_removes_and_a_sign_states_the_side(core: Any) -> None:
    book = core.Book()
    book.replace(b'[[99.5,2,1.25],[ 98,1,"3"],[100,4,-0.018],[101,1,"-2e-7"]]', b"", COUNTED)
    assert book.top(9) == (
        [("99.5", "1.25"), ("98", "3")],
        [("100", "0.018"), ("101", "0.0000002")],
    )
    book.apply(b" [99.5,0.0,1] ", b"not read", COUNTED)
    book.apply(b"[100,0,-1.5]", b"", COUNTED)
    assert book.top(9) == ([("98", "3")], [("101", "0.0000002")])


@each_core
def test_a_row_that_removes_or_is_ignored_needs_no_decimals(core: Any) -> None:
    book = book_of(core, [("999999999999", "999999999999")])
    book.apply(b"[1,0,0.000000000000000001]", b"", COUNTED)
    book.apply(b'[["0.000000000000000001",1,2,"0"]]', b"[]", FILLED)
    assert book.top(9) == ([("999999999999", "999999999999")], [])
    assert (book.price_scale, book.amount_scale) == (0, 0)


@each_core
def test_both_sides_may_be_in_one_object(core: Any) -> None:
    book = core.Book()
    text = b'[{"ask_price":51.5,"bid_price":51.25,"ask_size":0.5,"bid_size":2}]'
    book.replace(text, text, TWO_SIDED)
    assert book.top(9) == ([("51.25", "2")], [("51.5", "0.5")])


@each_core
def test_any_number_of_shapes_and_layouts_can_be_used_in_turn(core: Any) -> None:
    """More shapes than the cache of the compiled core holds."""
    book = core.Book()
    shapes = [LevelShape.objects(f"p{n}", "q" * NAME_BYTES_MAX) for n in range(100)]
    layouts = [
        ChecksumLayout(n, ChecksumOrder.BIDS_ASKS, ChecksumNumber.TEXT, "|") for n in range(100)
    ]
    for _ in range(2):
        for n, shape in enumerate(shapes):
            quantity = "q" * NAME_BYTES_MAX
            book.replace(f'[{{"p{n}":{n + 1},"{quantity}":2}}]'.encode(), b"", shape)
            assert book.best() == (str(n + 1), None)
            assert book.crc(layouts[n]) == (crc32(f"{n + 1}|2".encode()) if n else 0)
            book.apply(b'[["7","1"]]', b"", PAIRS)


@each_core
def test_a_book_has_no_checksum_of_a_shape(core: Any) -> None:
    for wrong in (PAIRS, None, 25):
        with pytest.raises(TypeError, match="layout"):
            core.Book().crc(wrong)


@each_core
def test_checksums_print_small_numbers_as_javascript_does(core: Any) -> None:
    bids = [("0.0000056", "21.5"), ("0.000001", "1000000"), ("0.00000099", "0.0000001")]
    asks = [("0.00000560", "0.00001234"), ("120", "0.000000017")]
    text = "0.0000056:21.5:0.0000056:-0.00001234:0.000001:1000000:120:-1.7e-8:9.9e-7:1e-7"
    assert book_of(core, bids, asks).crc(JAVASCRIPT) == crc32(text.encode())


@each_core
def test_checksums_print_as_many_decimals_as_their_layout_says(core: Any) -> None:
    book = book_of(core, [("64123.5", "0.018")], [("64124", "2.00000001")])
    assert book.crc(EIGHT) == crc32(b"641235000000018000006412400000000200000001")
    book = book_of(core, [("1", "0.0000000019")])  # finer than the layout: cut
    assert book.crc(EIGHT) == crc32(b"1000000000")
