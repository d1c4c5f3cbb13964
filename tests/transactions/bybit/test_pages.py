"""Bybit's pages: query strings, rows, and what cannot be read."""

import pytest

from onebook.transactions.adapter import Page, Window
from onebook.transactions.bybit.endpoints import ENDPOINTS
from onebook.transactions.bybit.pages import cursor_parameter, owned, query_of, read_row, witnessed
from onebook.transactions.record import Holder, Status
from transactions.bybit.native import SPOT
from transactions.test_record import record

WINDOW = Window(1_000_000, 2_000_000, 1_999_999)


def test_a_page_is_asked_for_with_both_bounds_and_its_size() -> None:
    assert query_of(ENDPOINTS["spot_fills"], WINDOW, "") == (
        "category=spot&startTime=1000000&endTime=1999999&limit=100"
    )


def test_bounds_are_inclusive_at_the_precision_of_the_endpoint() -> None:
    query = query_of(ENDPOINTS["funding_ledger"], WINDOW, "", rows=20)
    assert query == "createTimeFrom=1000&createTimeTo=1999&limit=20"


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [("", ""), ("a%3D", "&cursor=a%3D"), ("a=", "&cursor=a%3D")],
)
def test_a_cursor_goes_back_as_it_came(cursor: str, expected: str) -> None:
    assert cursor_parameter(cursor) == expected


def test_a_row_that_cannot_be_read_is_shown_and_counted() -> None:
    found, read = read_row({"nothing": 1}, ENDPOINTS["spot_fills"], SPOT)
    assert not read
    assert (found.kind, found.status) == ("other", Status.UNKNOWN)


def test_a_holder_is_named_once() -> None:
    assert owned(record(account=Holder("FUND", None)), "7").account == Holder("FUND", "7")
    assert owned(record(account=Holder("FUND", "1")), "7").account == Holder("FUND", "1")
    assert owned(record(account=None), None).account is None


def test_a_witness_gives_no_record_but_the_time_below_which_more_was() -> None:
    page = witnessed(Page([record(timestamp=5, updated_at=9)], 1, "next"))
    assert (page.records, page.kept_from_ms, page.cursor) == ([], 10, "")
    pending = witnessed(Page([record(timestamp=5, status=Status.PENDING)], 1, "next"))
    assert (pending.kept_from_ms, pending.cursor) == (None, "next")
