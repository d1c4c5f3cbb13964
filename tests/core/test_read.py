"""The text of a frame read at a book's scales, in both implementations."""

from typing import Any

import pytest
from msgspec import Raw

from core.both import EACH, pairs
from onebook.core.types import LevelError

pytestmark = pytest.mark.parametrize("core", EACH)

NONE = b"[]"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, Raw])
def test_any_buffer_is_read_as_bytes_are(core: Any, kind: Any) -> None:
    book = core.Book()
    book.replace(kind(b'[["2","1"]]'), kind(b'[["3","4"]]'))
    assert book.top(9) == ([("2", "1")], [("3", "4")])


def test_a_frame_with_more_decimals_is_read_again_at_its_scales(core: Any) -> None:
    book = core.Book()
    book.replace(pairs([("2.5", "1")]), NONE)
    book.apply(pairs([("2.125", "0.001"), ("2", "7")]), NONE)
    assert (book.price_scale, book.amount_scale) == (3, 3)
    assert book.top(9)[0] == [("2.5", "1"), ("2.125", "0.001"), ("2", "7")]


def test_a_new_book_may_have_coarser_scales_and_a_change_may_not(core: Any) -> None:
    book = core.Book()
    book.replace(pairs([("0.000000000001", "1")]), NONE)
    long = pairs([("999999999999", "1")])
    with pytest.raises(LevelError):
        book.apply(long, NONE)
    assert book.top(9)[0] == [("0.000000000001", "1")]
    book.replace(long, NONE)
    assert (book.price_scale, book.top(9)[0]) == (0, [("999999999999", "1")])


@pytest.mark.parametrize("tail", ['"3"', '"12345678"', '"123456789"', '""', '"a"', '"1a"', "4"])
def test_cells_behind_the_amount_are_stepped_over(core: Any, tail: str) -> None:
    rows = ",".join(f'["{price}","1","0",{tail}]' for price in (9, 8, 7)).encode()
    book = core.Book()
    book.replace(b"[" + rows + b"]", NONE)
    assert [price for price, _ in book.top(9)[0]] == ["9", "8", "7"]


@pytest.mark.parametrize("tail", ['"3', '"3\\u0031"', '"12345678', "01", '"1"2'])
def test_cells_that_are_not_plain_json_are_refused_behind_the_amount_too(
    core: Any, tail: str
) -> None:
    rows = f'[["9","1","0",{tail}],["8","1","0","5"],["7","1","0","5"]]'.encode()
    with pytest.raises(LevelError):
        core.Book().replace(rows, NONE)
