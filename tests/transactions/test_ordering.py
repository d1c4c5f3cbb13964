"""Records stand in order, each once."""

from onebook.transactions.adapter import Page
from transactions.walking import Book, event, simple, source, walked


def test_records_of_one_millisecond_stand_by_id_over_pages() -> None:
    book = Book(*[(50, event(50, f"0x{index:040x}")) for index in range(10)])
    found, _ = walked(book, source(), 0, 99)
    assert [r.transactionId for r in found] == [f"0x{index:040x}" for index in range(10)]


def test_rows_that_repeat_pass_once() -> None:
    """A row that came in between two pages pushes the last of the first onto the second."""
    book = simple(90, 80, 70, 60)
    pages = {
        "": Page([event(90), event(80), event(70)], 3, "3"),
        "3": Page([event(70), event(60)], 2, "5"),
    }
    book.answers = lambda window, cursor: pages.get(cursor, Page([], 0, ""))
    found, walker = walked(book, source(), 0, 99)
    assert [r.timestamp for r in found] == [90, 80, 70, 60]
    assert walker.disordered == 0


def test_an_exchange_out_of_order_loses_nothing_and_is_reported() -> None:
    book = simple()
    pages = {"": Page([event(40), event(30)], 2, "2"), "2": Page([event(60), event(10)], 2, "")}
    book.answers = lambda window, cursor: pages[cursor]
    found, walker = walked(book, source(page_rows_least=0), 0, 99)
    assert sorted(r.timestamp for r in found) == [10, 30, 40, 60]
    assert walker.disordered == 1
