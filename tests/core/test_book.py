"""One book, in both implementations: what it takes, what it refuses, what it tells."""

from binascii import crc32
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from core.both import (
    DIGITS,
    EACH,
    OBJECTS,
    SIDED,
    SIDED_OBJECTS,
    TEXT,
    apply,
    bare,
    book_of,
    pairs,
    sided,
    state_of,
)
from onebook.core.types import (
    ABSURD,
    CROSSED,
    FRAME_LEVELS_MAX,
    LEVELS_MAX,
    NESTING_MAX,
    NUMBER_BYTES_MAX,
    PAIRS,
    LevelError,
    LevelShape,
)

pytestmark = pytest.mark.parametrize("core", EACH)

NUMBERS_REFUSED = {
    "negative": "-1",
    "negative zero": "-0",
    "plus": "+1",
    "not a number": "NaN",
    "infinite": "Infinity",
    "word": "abc",
    "hexadecimal": "0x10",
    "nothing before the point": ".5",
    "nothing behind the point": "5.",
    "two points": "1.2.3",
    "leading zeros": "007",
    "no exponent": "1e",
    "no digits in the exponent": "1e+",
    "fractional exponent": "1e1.5",
    "space": "1 2",
    "thousands": "1,000",
    "19 digits": "1234567890123456789",
    "19 digits with a point": "1234567890.123456789",
    "19 decimals": "0.0000000000000000001",
    "too large an exponent": "1e18",
    "far too large an exponent": "1e999999999999999999999",
    "far too small an exponent": "1e-999999999999999999999",
    "absurd length": "0." + "0" * NUMBER_BYTES_MAX + "1",
    "absurd length that is zero": "0." + "0" * NUMBER_BYTES_MAX,
}
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


def assert_refused(book: Any, text: bytes, shape: LevelShape) -> None:
    before = state_of(book)
    for change in (book.apply, book.replace):
        with pytest.raises(LevelError, match=r"^[A-Z].*\.$"):
            change(text, b"[]", shape)
        assert state_of(book) == before


@pytest.mark.parametrize("number", NUMBERS_REFUSED.values(), ids=NUMBERS_REFUSED)
@pytest.mark.parametrize("quote", ['"', ""], ids=["string", "bare"])
@pytest.mark.parametrize("row", ["[[{},1]]", "[[1,{}]]"], ids=["price", "amount"])
def test_bad_number_is_refused_and_changes_nothing(
    core: Any, number: str, quote: str, row: str
) -> None:
    book = book_of(core, [("99.5", "1")], [("100", "2.25")])
    assert_refused(book, row.format(quote + number + quote).encode(), PAIRS)


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


def test_an_error_late_in_the_asks_leaves_the_bids_unchanged(core: Any) -> None:
    book = book_of(core, [("99.5", "1")], [("100", "2.25")])
    before = state_of(book)
    for change in (book.apply, book.replace):
        with pytest.raises(LevelError):
            change(pairs([("98.125", "7")]), b'[["100","0"],["101","x"]]')
    assert state_of(book) == before


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


def test_an_unknown_shape_is_an_error_of_ours(core: Any) -> None:
    for shape in (3, None, DIGITS):
        with pytest.raises(TypeError, match="shape"):
            core.Book().apply(b"[]", b"[]", shape)


def test_text_must_be_bytes(core: Any) -> None:
    with pytest.raises(TypeError):
        core.Book().apply("[]", b"[]")


@pytest.mark.parametrize("levels_max", [0, -1, LEVELS_MAX + 1])
def test_a_book_keeps_a_bounded_number_of_levels(core: Any, levels_max: int) -> None:
    with pytest.raises(ValueError, match="levels_max"):
        core.Book(levels_max)


def test_every_buffer_is_read_without_what_lies_behind_it(core: Any) -> None:
    text = b'[["1.5","2"]]'
    behind = memoryview(b"9" + text + b'9"]]')[1:-4]
    for source in (text, bytearray(text), memoryview(text), behind, Raw(text)):
        book = core.Book()
        book.apply(source, source)
        assert book.top(2) == ([("1.5", "2")], [("1.5", "2")])


def test_numbers_are_exact_in_every_spelling(core: Any) -> None:
    book = core.Book()
    book.replace(
        b'[["6195.00000000","9.121E-7"],[0.5e1,"1e3"],["1.20","12.50e-1"],[7,1E+2],["1000e-3",5]]',
        b'[[" 1","2"]]'.replace(b" ", b""),
    )
    assert book.top(9) == (
        [("6195", "0.0000009121"), ("7", "100"), ("5", "1000"), ("1.2", "1.25"), ("1", "5")],
        [("1", "2")],
    )
    assert (book.price_scale, book.amount_scale) == (1, 10)


def test_zeros_at_the_end_do_not_count_for_the_scale(core: Any) -> None:
    book = book_of(core, [("6195.00000000", "672.00000000")])
    assert (book.price_scale, book.amount_scale) == (0, 0)


def test_the_largest_and_smallest_numbers_are_held(core: Any) -> None:
    book = book_of(core, [("999999999999999999", "0.000000000000000001")])
    assert book.top(1)[0] == [("999999999999999999", "0.000000000000000001")]
    assert (book.price_scale, book.amount_scale) == (0, 18)


@pytest.mark.parametrize("zero", ["0", "0.00000", "0.0", "0e5", "0E-30", "0.0e+0"])
@pytest.mark.parametrize("quote", ['"', ""], ids=["string", "bare"])
def test_zero_in_any_spelling_removes(core: Any, zero: str, quote: str) -> None:
    book = book_of(core, [("1", "1"), ("2", "1")], [("3", "1")])
    book.apply(f"[[2,{quote}{zero}{quote}],[9,0]]".encode(), f"[[3.0,{zero}]]".encode())
    assert book.top(5) == ([("1", "1")], [])
    assert (book.bid_count, book.ask_count) == (1, 0)


def test_zero_amounts_of_a_whole_book_are_left_out(core: Any) -> None:
    book = book_of(core, [("1", "1"), ("1", "0"), ("2", "0")])
    assert book.top(5)[0] == [("1", "1")]


def test_the_same_price_twice_is_applied_in_order(core: Any) -> None:
    book = core.Book()
    apply(book, [("1", "1"), ("1.0", "2"), ("2", "5"), ("2", "0"), ("3", "0"), ("3", "4")])
    assert book.top(5)[0] == [("3", "4"), ("1", "2")]
    book.replace(pairs([("1", "1"), ("1.00", "3")]), b"")
    assert book.top(5)[0] == [("1", "3")]


def test_every_shape_gives_the_same_book(core: Any) -> None:
    bids, asks = [("1.5", "2"), ("1.25", "3")], [("1.75", "4.5")]
    books = [core.Book() for _ in range(5)]
    books[0].replace(pairs(bids), pairs(asks), PAIRS)
    books[1].replace(bare(bids), bare(asks), OBJECTS)
    books[2].replace(sided(bids, asks), b"garbage that nobody reads", SIDED)
    books[3].replace(
        b'[{"side":"offer","event_time":"2023-02-09T20:32:50Z","price_level":"1.75",'
        b'"new_quantity":"4.5"},{"side":"bid","price_level":1.5,"new_quantity":2.0},'
        b' { "new_quantity" : 3 , "price_level" : "1.25" , "side" : "buy" } ]',
        b"",
        SIDED_OBJECTS,
    )
    books[4].replace(
        b'[ [ "1.5" , 2.0 , "0", true , null, -1.5E-3, 0, {"a":{},"b":[1,{"c":false}]} ] ,\n'
        b'["1.25",3,[[[[[[[[]]]]]]]]]\t]\r\n',
        b' [["1.75",4.5,"2"]]',
    )
    assert len({str(book.top(9)) for book in books}) == 1


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


def test_the_scale_grows_with_more_decimals_and_the_whole_side_with_it(core: Any) -> None:
    book = book_of(core, [("10", "1")], [("11", "2")])
    apply(book, [("10.125", "0.5")], [("11", "2.25")])
    assert (book.price_scale, book.amount_scale) == (3, 2)
    assert book.top(5) == ([("10.125", "0.5"), ("10", "1")], [("11", "2.25")])
    assert [*book.ladder(0)] == [(10125, 50), (10000, 100)]


@pytest.mark.parametrize(
    "level", [("0.0000000001", "1"), ("1", "0.0000000001"), ("0.0000000001", "0")]
)
def test_a_scale_that_would_overflow_the_held_levels_is_refused(
    core: Any, level: tuple[str, str]
) -> None:
    for bids, asks in (([("999999999", "999999999")], []), ([], [("999999999", "999999999")])):
        book = book_of(core, bids, asks)
        before = state_of(book)
        for sides in (([level], []), ([], [level])):
            with pytest.raises(LevelError):
                apply(book, *sides)
        assert state_of(book) == before


def test_a_number_that_needs_19_digits_at_the_books_scale_is_refused(core: Any) -> None:
    book = book_of(core, [("0.000001", "1")])
    apply(book, [("999999999999.999999", "1")])
    with pytest.raises(LevelError):
        apply(book, [("1000000000000", "1")])
    assert book.bid_count == 2


def test_a_whole_book_may_lower_the_scale_where_it_must(core: Any) -> None:
    book = book_of(core, [("0.000001", "0.000001")])
    book.replace(pairs([("1", "999999999999999999")]), b"")
    assert (book.price_scale, book.amount_scale) == (6, 0)
    with pytest.raises(LevelError):
        book.replace(pairs([("1", "999999999999999999"), ("2", "0.1")]), b"")
    assert book.top(1)[0] == [("1", "999999999999999999")]


def test_levels_beyond_the_depth_fall_off_after_each_frame(core: Any) -> None:
    book = core.Book(3)
    book.replace(
        pairs([(str(n), "1") for n in range(1, 8)]), pairs([(str(n), "1") for n in range(10, 17)])
    )
    assert book.top(9) == (
        [("7", "1"), ("6", "1"), ("5", "1")],
        [("10", "1"), ("11", "1"), ("12", "1")],
    )
    apply(book, [("5.5", "1"), ("7", "0"), ("1", "1")], [("9", "1"), ("20", "1")])
    assert book.top(9) == (
        [("6", "1"), ("5.5", "1"), ("5", "1")],
        [("9", "1"), ("10", "1"), ("11", "1")],
    )


def test_deep_books_keep_their_order_through_any_change(core: Any) -> None:
    book = core.Book(1_000)
    prices = [str(n * 7919 % 5003 + 1) for n in range(5_003)]
    for at in range(0, len(prices), 97):
        apply(
            book, [(p, "1") for p in prices[at : at + 97]], [(p, "2") for p in prices[at : at + 97]]
        )
    assert book.top(2_000)[0] == [(str(n), "1") for n in range(5_003, 4_003, -1)]
    assert book.top(2_000)[1] == [(str(n), "2") for n in range(1, 1_001)]
    for at in range(1, 1_001, 3):
        apply(book, [(str(5_003 - at), "0")], [(str(at + 1), "0"), (str(at), "0")])
    assert [p for p, _ in book.top(2_000)[0]] == [
        str(5_003 - n) for n in range(1_000) if n % 3 != 1
    ]
    assert [p for p, _ in book.top(2_000)[1]] == [str(n) for n in range(3, 1_000, 3)]


def test_clear_forgets_levels_and_scales(core: Any) -> None:
    book = book_of(core, [("1.5", "2.25")], [("2", "3")])
    assert book.nbytes > 0
    book.clear()
    assert state_of(book) == state_of(core.Book())


def test_crossed_is_above_and_not_equal(core: Any) -> None:
    assert book_of(core, [("2", "1")], [("1.5", "1")]).crossed is True
    assert book_of(core, [("2", "1")], [("2.0", "1")]).crossed is False
    assert book_of(core, [("2", "1")]).crossed is False


def test_a_crossed_book_is_told_and_a_locked_one_is_not(core: Any) -> None:
    book = book_of(core, [("100", "1")], [("101", "1")])
    assert book.apply(pairs([("101", "1")]), b"[]") is None
    assert book.apply(b"[]", pairs([("100.5", "1")])) == CROSSED
    assert book.replace(pairs([("3", "1")]), pairs([("2", "1")])) == CROSSED
    assert book.replace(pairs([("3", "1")]), b"[]") is None


LEAPS = [
    ([("1005", "1")], [("101", "0"), ("1006", "1")], None),  # ten times, but not more
    ([("1005.1", "1")], [("101", "0"), ("1006", "1")], ABSURD),
    ([("100", "0"), ("9", "1")], [("10.05", "1")], None),
    ([("100", "0"), ("9", "1")], [("10.04999999", "1")], ABSURD),
    ([("100", "0")], [("101", "0"), ("10.04", "1")], ABSURD),
    ([("100", "0"), ("0.001", "1")], [("101", "0"), ("99999", "1")], None),  # both sides thin out
]


@pytest.mark.parametrize(("bids", "asks", "doubt"), LEAPS)
def test_a_leap_of_the_top_is_told_once(core: Any, bids: Any, asks: Any, doubt: str | None) -> None:
    book = book_of(core, [("100", "1")], [("101", "1")])
    assert book.apply(pairs(bids), pairs(asks)) == doubt
    assert book.apply(pairs(bids), pairs(asks)) is None


def test_what_prices_were_like_outlives_the_levels_and_their_scale(core: Any) -> None:
    book = book_of(core, [("0.0000100", "1")], [("0.0000101", "1")])
    book.apply(pairs([("0.0000100", "0")]), b"[]")
    book.clear()
    assert book.price_scale == 0
    assert book.replace(pairs([("1", "1")]), pairs([("2", "1")])) == ABSURD
    assert book.replace(pairs([("1", "1")]), pairs([("2", "1")])) is None


def test_top_and_ladder_have_bounds(core: Any) -> None:
    book = book_of(core, [("2", "1"), ("1", "3")])
    assert book.top(0) == ([], [])
    assert book.top(-1) == ([], [])
    assert book.top(1) == ([("2", "1")], [])
    assert [*book.ladder(1)] == []
    with pytest.raises(IndexError):
        book.ladder(2)


def test_digits_checksum_uses_the_decimals_of_the_wire(core: Any) -> None:
    book = book_of(
        core, [("0.05000", "0.00000500"), ("0.04", "7")], [("0.05005", "0.0000040"), ("6", "1e-3")]
    )
    text = "5005" + "400" + "600000" + "100000" + "5000" + "500" + "4000" + "700000000"
    assert book.crc(DIGITS) == crc32(text.encode())
    assert book.crc(replace(DIGITS, levels=1)) == crc32(b"50054005000500")
    assert book.crc(replace(DIGITS, levels=0)) == 0
    # A zero amount says nothing about the wire's decimals.
    apply(book, [("0.04", "0.0000000000")])
    assert book.crc(replace(DIGITS, levels=1)) == crc32(b"50054005000500")
    # After a whole book with fewer decimals the scale stays, the wire's decimals do not.
    book.replace(pairs([("0.5", "3.0")]), pairs([("0.6", "2")]))
    assert book.crc(DIGITS) == crc32(b"620530")


def test_text_checksum_goes_on_with_the_longer_side(core: Any) -> None:
    book = book_of(core, [("3366.1", "7"), ("3366", "6")], [("3366.8", "9")])
    assert book.crc(TEXT) == crc32(b"3366.1:7:3366.8:9:3366:6")
    assert core.Book().crc(TEXT) == 0
