"""One book, in both implementations: its inputs, errors and results."""

from binascii import crc32
from typing import Any

import pytest
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
    LEVELS_MAX,
    PAIRS,
    LevelError,
)

pytestmark = pytest.mark.parametrize("core", EACH)


def test_an_error_late_in_the_asks_leaves_the_bids_unchanged(core: Any) -> None:
    book = book_of(core, [("99.5", "1")], [("100", "2.25")])
    before = state_of(book)
    for change in (book.apply, book.replace):
        with pytest.raises(LevelError):
            change(pairs([("98.125", "7")]), b'[["100","0"],["101","x"]]')
    assert state_of(book) == before


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


def test_clear_forgets_levels_and_scales(core: Any) -> None:
    book = book_of(core, [("1.5", "2.25")], [("2", "3")])
    assert book.nbytes > 0
    book.clear()
    assert state_of(book) == state_of(core.Book())


def test_crossed_is_above_and_not_equal(core: Any) -> None:
    assert book_of(core, [("2", "1")], [("1.5", "1")]).crossed is True
    assert book_of(core, [("2", "1")], [("2.0", "1")]).crossed is False
    assert book_of(core, [("2", "1")]).crossed is False


def test_a_crossed_book_is_reported_and_a_locked_one_is_not(core: Any) -> None:
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
def test_a_leap_of_the_top_is_reported_once(
    core: Any, bids: Any, asks: Any, doubt: str | None
) -> None:
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
