"""Amounts, balances, and pages of history."""

from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.simulator.accounts.history import (
    SCALE,
    UNIT,
    BadCursor,
    CursorCodec,
    HistoryTable,
    Pager,
    WalletBalances,
    product,
    quotient,
    shown,
)

UNITS = st.integers(-(10**30), 10**30)


@given(UNITS)
def test_text_is_exact_and_plain(units):
    text = shown(units)
    assert Fraction(text) * 10**SCALE == units
    assert "E" not in text
    assert not ("." in text and text.endswith("0"))


def test_zero_has_no_sign():
    assert shown(0) == "0"


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_products_of_few_decimals_are_exact(left, right):
    assert product(left * 10**6, right * 10**6) == left * right


def test_a_quotient_is_cut_to_8_decimals():
    assert shown(quotient(UNIT, 3 * UNIT)) == "0.33333333"
    assert shown(quotient(2 * UNIT, 3 * UNIT)) == "0.66666666"


@given(st.lists(st.integers()))
def test_every_balance_is_the_one_before_plus_the_change(changes):
    wallet = WalletBalances()
    wallet.book("ETH", 7)
    assert [wallet.book("BTC", each) for each in changes] == [*accumulate(changes)]
    assert wallet.held["ETH"] == 7


CODEC = CursorCodec(
    write=lambda _, last: f"{last.at_ms}.{last.seq}",
    read=lambda text: tuple(int(part) for part in text.split(".")),
)


def table_of(times):
    table = HistoryTable()
    for seq, at_ms in enumerate(sorted(times)):
        table.append(at_ms, seq, f"row {seq}")
    return table


def read(pager, table, bounds, limit, **options):
    pages, cursor = [], ""
    while True:
        rows, cursor = pager.page(
            table, bounds, query="q", cursor=cursor, limit=limit, codec=CODEC, **options
        )
        if not rows:
            return pages
        pages.append(rows)


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 7), st.booleans(), st.booleans())
def test_pages_hold_every_row_once(times, limit, oldest_first, by_offset):
    table = table_of(times)
    pager = Pager(oldest_first=oldest_first, by_offset=by_offset)
    pages = read(pager, table, (0, len(table)), limit)
    rows = [row for page in pages for row in page]
    assert rows == (table.entries if oldest_first else table.entries[::-1])
    assert all(len(page) == limit for page in pages[:-1])


def test_bounds_are_inclusive_at_their_precision():
    table = table_of([999, 1_000, 1_999, 2_000, 2_999, 3_000])
    assert table.between(1_500, 2_100, 1_000) == (1, 5)
    assert table.between(1_000, 2_000, 1) == (1, 4)


def test_rows_that_come_in_between_repeat_only_where_cursors_are_offsets():
    for by_offset, repeated in ((False, 0), (True, 1)):
        table, pager = table_of(range(6)), Pager(by_offset=by_offset)
        first, cursor = pager.page(table, (0, 6), query="q", cursor="", limit=3, codec=CODEC)
        table.append(100, 6, "new")
        second, _ = pager.page(table, (0, 7), query="q", cursor=cursor, limit=3, codec=CODEC)
        assert len(set(first) & set(second)) == repeated


def test_a_row_may_be_inserted_in_the_past():
    table = table_of([1, 3])
    table.insert(2, 9, "late")
    assert [each.at_ms for each in table.entries] == [1, 2, 3]


def test_rows_that_are_not_wanted_do_not_count():
    rows = read(Pager(), table_of(range(10)), (0, 10), 2, wanted=lambda row: row.seq % 2 == 0)
    assert [[each.seq for each in page] for page in rows] == [[8, 6], [4, 2], [0]]


@pytest.mark.parametrize("cursor", ["x", "1", "%%%"])
def test_what_is_no_cursor_is_refused(cursor):
    with pytest.raises(BadCursor):
        Pager().page(table_of([1]), (0, 1), query="q", cursor=cursor, limit=1, codec=CODEC)


def test_a_cursor_of_another_query_is_refused():
    table, pager = table_of(range(4)), Pager()
    _, cursor = pager.page(table, (0, 4), query="a", cursor="", limit=2, codec=CODEC)
    with pytest.raises(BadCursor):
        pager.page(table, (0, 4), query="b", cursor=cursor, limit=2, codec=CODEC)
