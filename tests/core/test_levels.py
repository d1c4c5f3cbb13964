"""Level text, in both implementations: what is accepted and refused."""

from typing import Any

import pytest
from msgspec import Raw

from core.both import (
    EACH,
    OBJECTS,
    SIDED,
    SIDED_OBJECTS,
    assert_refused,
    book_of,
    state_of,
)
from onebook.core.types import FRAME_LEVELS_MAX, NESTING_MAX, PAIRS, LevelError, LevelShape

pytestmark = pytest.mark.parametrize("core", EACH)

TEXTS_REFUSED = {
    "garbage": b"garbage",
    "lone bracket": b"[",
    "lone closing bracket": b"]",
    "a number": b"1",
    "a string": b'"[]"',
    "an object": b"{}",
    "true": b"true",
    "cut short": b'[["1","2"',
    "row cut short": b'[["1","2"]',
    "row of one": b'[["1"]]',
    "empty row": b"[[]]",
    "comma at the end": b'[["1","2"],]',
    "comma at the end of a row": b'[["1","2",]]',
    "no comma": b'[["1","2"]["3","4"]]',
    "no comma in a row": b'[["1" "2"]]',
    "two arrays": b'[["1","2"]][["1","2"]]',
    "something behind": b'[["1","2"]] x',
    "open string": b'[["1","2]]',
    "quote inside a number": b'[["1"5","2"]]',
    "scalar row": b"[1]",
    "null row": b"[null]",
    "null price": b'[[null,"2"]]',
    "false price": b'[[false,"2"]]',
    "true amount": b'[["1",true]]',
    "nested price": b'[[["1"],"2"]]',
    "empty price": b'[["","2"]]',
    "empty amount": b'[["1",""]]',
    "zero price": b'[["0","2"]]',
    "zero price with decimals": b"[[0.00,2]]",
    "bare NaN": b"[[1,NaN]]",
    "bare Infinity": b"[[1,Infinity]]",
    "escape": b'[["\\u0031","2"]]',
    "not ASCII": '[["1","2","é"]]'.encode(),
    "not UTF-8": b'[["1","2","\xff"]]',
    "control character": b'[["1","2","\n"]]',
    "NUL": b'[["1","2"\x00]]',
    "form feed": b'[["1",\x0c"2"]]',
    "NaN that is ignored": b'[["1","2",NaN]]',
    "bad word that is ignored": b'[["1","2",nul]]',
    "bad number that is ignored": b'[["1","2",01]]',
    "bad fraction that is ignored": b'[["1","2",1.]]',
    "bad exponent that is ignored": b'[["1","2",1e]]',
    "lone minus that is ignored": b'[["1","2",-]]',
    "nothing that is ignored": b'[["1","2",,3]]',
    "bad array that is ignored": b'[["1","2",[1 2]]]',
    "open array that is ignored": b'[["1","2",[1]]',
    "comma in an array that is ignored": b'[["1","2",[1,]]]',
    "bad object that is ignored": b'[["1","2",{1:2}]]',
    "bad member that is ignored": b'[["1","2",{"a" 2}]]',
    "open object that is ignored": b'[["1","2",{"a":2]]',
    "too deep": b'[["1","2",' + b"[" * (NESTING_MAX + 1) + b"]" * (NESTING_MAX + 1) + b"]]",
    "far too deep": b"[" * 100_000 + b"]" * 100_000,
    "far too deep where it is ignored": b'[["1","2",' + b"[" * 9_000 + b"]" * 9_000 + b"]]",
    "object where a pair is promised": b'[{"price":"1","qty":"2"}]',
}
OBJECTS_REFUSED = {
    "pair": b'[["1","2"]]',
    "empty": b"[{}]",
    "no amount": b'[{"price":1}]',
    "no price": b'[{"qty":1}]',
    "price twice": b'[{"price":1,"price":1,"qty":1}]',
    "price twice, no amount": b'[{"price":1,"price":1}]',
    "name escaped": b'[{"pric\\u0065":1,"qty":1}]',
    "name not a string": b'[{price:1,"qty":1}]',
    "no colon": b'[{"price" 1,"qty":1}]',
    "no comma": b'[{"price":1"qty":1}]',
    "comma at the end": b'[{"price":1,"qty":1,}]',
    "closed as an array": b'[{"price":1,"qty":1]]',
    "bad member": b'[{"price":1,"qty":1,"a":nope}]',
    "bad price": b'[{"price":-1,"qty":1}]',
    "bad amount": b'[{"price":1,"qty":-1}]',
    "open name": b'[{"price]',
    "deep member": b'[{"price":1,"qty":1,"a":' + b"[" * 9 + b"]" * 9 + b"}]",
}
SIDED_REFUSED = {
    "no such side": b'[["up","1","2"]]',
    "no such side of five letters": b'[["offed","1","2"]]',
    "no such side of four letters": b'[["self","1","2"]]',
    "upper case": b'[["BUY","1","2"]]',
    "bare side": b"[[1,1,2]]",
    "null side": b'[[null,"1","2"]]',
    "side as a list": b'[[["buy"],"1","2"]]',
    "no amount": b'[["buy","1"]]',
    "no comma": b'[["buy" "1","2"]]',
    "scalar row": b"[7]",
    "object": b'[{"side":"bid","price_level":1,"new_quantity":2}]',
    "deep rest": b'[["buy","1","2",' + b"[" * 9 + b"]" * 9 + b"]]",
}
SIDED_OBJECTS_REFUSED = {
    "object without a side": b'[{"price_level":1,"new_quantity":2}]',
    "object with another's names": b'[{"side":"bid","price":1,"qty":2}]',
    "object with a bad side": b'[{"side":"up","price_level":1,"new_quantity":2}]',
    "object with a bare side": b'[{"side":1,"price_level":1,"new_quantity":2}]',
    "row": b'[["buy","1","2"]]',
}


@pytest.mark.parametrize("text", TEXTS_REFUSED.values(), ids=TEXTS_REFUSED)
def test_bad_text_is_refused_and_changes_nothing(core: Any, text: bytes) -> None:
    assert_refused(book_of(core, [("99.5", "1")], [("100", "2.25")]), text, PAIRS)


@pytest.mark.parametrize("text", OBJECTS_REFUSED.values(), ids=OBJECTS_REFUSED)
def test_bad_object_is_refused_and_changes_nothing(core: Any, text: bytes) -> None:
    assert_refused(book_of(core, [("99.5", "1")]), text, OBJECTS)


@pytest.mark.parametrize("text", SIDED_REFUSED.values(), ids=SIDED_REFUSED)
def test_bad_sided_row_is_refused_and_changes_nothing(core: Any, text: bytes) -> None:
    assert_refused(book_of(core, [("99.5", "1")]), text, SIDED)


@pytest.mark.parametrize("text", SIDED_OBJECTS_REFUSED.values(), ids=SIDED_OBJECTS_REFUSED)
def test_bad_sided_object_is_refused_and_changes_nothing(core: Any, text: bytes) -> None:
    assert_refused(book_of(core, [("99.5", "1")]), text, SIDED_OBJECTS)


def test_more_rows_than_a_frame_may_have_are_refused(core: Any) -> None:
    book = core.Book()
    book.apply(b"[" + b"[1,1]," * (FRAME_LEVELS_MAX - 1) + b"[1,1]]", b"")
    assert book.bid_count == 1
    with pytest.raises(LevelError):
        book.apply(b"[" + b"[1,1]," * FRAME_LEVELS_MAX + b"[1,1]]", b"")


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b" [ ] ", b" \n\t\r", b" null "])
@pytest.mark.parametrize(
    "shape", [PAIRS, OBJECTS, SIDED, SIDED_OBJECTS], ids=["pairs", "objects", "sided", "named"]
)
def test_no_levels_change_nothing_and_replace_by_nothing(
    core: Any, text: bytes, shape: LevelShape
) -> None:
    book = book_of(core, [("1", "2")], [("3", "4")])
    before = state_of(book)
    book.apply(text, text, shape)
    assert state_of(book) == before
    book.replace(text, text, shape)
    assert book.top(5) == ([], [])
    assert book.best() == (None, None)
    assert book.crossed is False


def test_every_buffer_is_read_without_what_lies_behind_it(core: Any) -> None:
    text = b'[["1.5","2"]]'
    behind = memoryview(b"9" + text + b'9"]]')[1:-4]
    for source in (text, bytearray(text), memoryview(text), behind, Raw(text)):
        book = core.Book()
        book.apply(source, source)
        assert book.top(2) == ([("1.5", "2")], [("1.5", "2")])


def test_other_members_of_an_object_are_ignored(core: Any) -> None:
    book = core.Book()
    text = b'[{"qty":2,"side":"x","price":1,"price_level":[1,{"price":3}],"x":1,"x":2}]'
    book.apply(text, b"", OBJECTS)
    assert book.top(1)[0] == [("1", "2")]


@pytest.mark.parametrize("side", ["ask", "sell", "offer"])
def test_every_name_of_the_ask_side_is_known(core: Any, side: str) -> None:
    book = core.Book()
    book.apply(f'[["{side}",1,2]]'.encode(), b"", SIDED)
    assert (book.bid_count, book.ask_count) == (0, 1)
