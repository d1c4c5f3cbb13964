"""One view, in both implementations: the documents of the contract, section 2."""

import json
import random
from binascii import crc32
from decimal import Decimal
from typing import Any

import pytest

from core.both import EACH, apply, book_of, pairs
from onebook.core.types import DEPTH_MAX, MEMBERS_MAX

pytestmark = pytest.mark.parametrize("core", EACH)


def members(core: Any) -> list[Any]:
    return [
        book_of(core, [("100.5", "1.50"), ("100", "2")], [("101", "3")]),
        book_of(core, [("100.50", "0.25")], [("101.000", "1"), ("102", "0.125")]),
    ]


def document(view: Any, document: bytes | None = None) -> Any:
    text = view.full(b"{", b"}") if document is None else document
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def merged(core: Any, books: list[Any], **options: Any) -> Any:
    view = core.View([f"x{n}" for n in range(len(books))], **{"depth": 20} | options)
    assert view.merge(books) is True
    return view


def test_object_levels_to_the_byte(core: Any) -> None:
    view = merged(core, members(core))
    assert view.full(b'{"type":"update",', b',"tail":1}') == (
        b'{"type":"update","bids":['
        b'{"price":100.5,"amount":1.75,"exchanges":["x0","x1"],"exchange_count":2,"value":175.875},'
        b'{"price":100,"amount":2,"exchanges":["x0"],"exchange_count":1,"value":200}'
        b'],"asks":['
        b'{"price":101,"amount":4,"exchanges":["x0","x1"],"exchange_count":2,"value":404},'
        b'{"price":102,"amount":0.125,"exchanges":["x1"],"exchange_count":1,"value":12.75}'
        b'],"market_stats":{"best_bid":100.5,"best_ask":101,"spread":0.5,"spread_percent":0.4963,'
        b'"mid_price":100.75,"total_bid_volume":3.75,"total_ask_volume":4.125,'
        b'"participating_exchanges":2,"crossed":false},"tail":1}'
    )


@pytest.mark.parametrize(
    ("options", "bid"),
    [
        (
            {"split": True},
            b'{"price":100.5,"amount":1.75,"exchanges":["x0","x1"],"exchange_count":2,'
            b'"value":175.875,"amounts":[1.5,0.25]}',
        ),
        ({"arrays": True}, b"[100.5,1.75]"),
        ({"arrays": True, "split": True}, b'[100.5,1.75,[["x0",1.5],["x1",0.25]]]'),
    ],
)
def test_other_level_forms_to_the_byte(core: Any, options: dict[str, bool], bid: bytes) -> None:
    view = merged(core, members(core), depth=1, **options)
    assert view.full(b"", b"").startswith(b'"bids":[' + bid + b'],"asks":[')


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (
            {},
            b'{"price":100.5,"amount":0,"exchanges":[],"exchange_count":0,"value":0}',
        ),
        (
            {"split": True},
            b'{"price":100.5,"amount":0,"exchanges":[],"exchange_count":0,"value":0,"amounts":[]}',
        ),
        ({"arrays": True}, b"[100.5,0]"),
        ({"arrays": True, "split": True}, b"[100.5,0,[]]"),
    ],
)
def test_levels_that_are_gone_to_the_byte(core: Any, options: dict[str, bool], gone: bytes) -> None:
    books = members(core)
    view = merged(core, books, **options)
    for book in books:
        apply(book, [("100.5", "0")])
    assert view.merge(books) is True
    text = view.delta(b"{", b"}")
    assert text.startswith(b'{"bids":[' + gone + b'],"asks":[],"market_stats":{"best_bid":100,')


def test_delta_holds_changed_new_and_gone_levels_best_first(core: Any) -> None:
    books = members(core)
    view = merged(core, books, arrays=True)
    assert view.delta(b"", b"") is None
    apply(books[0], [("100.5", "3"), ("99", "7"), ("100", "0")], [("100.75", "4")])
    assert view.merge(books) is True
    data = document(view, view.delta(b"{", b"}"))
    assert data["bids"] == [[Decimal("100.5"), Decimal("3.25")], [100, 0], [99, 7]]
    assert data["asks"] == [[Decimal("100.75"), 4]]


def test_levels_that_leave_and_enter_the_depth_are_gone_and_new(core: Any) -> None:
    book = book_of(core, [("5", "1"), ("4", "1"), ("3", "1")])
    view = merged(core, [book], depth=2, arrays=True)
    apply(book, [("6", "2")])
    view.merge([book])
    assert document(view, view.delta(b"{", b"}"))["bids"] == [[6, 2], [4, 0]]
    apply(book, [("6", "0")])
    view.merge([book])
    assert document(view, view.delta(b"{", b"}"))["bids"] == [[6, 0], [4, 1]]


@pytest.mark.parametrize(
    "options", [{}, {"arrays": True}, {"split": True}, {"arrays": True, "split": True}]
)
def test_the_delta_of_an_unchanged_merge_has_no_levels(core: Any, options: dict[str, bool]) -> None:
    books = members(core)
    view = merged(core, books, **options)
    for amount in ("2", "9", "7"):  # the first is what the book has
        apply(books[0], [("100", amount)])
        assert view.merge(books) is (amount != "2")
        same = view.full(b"", b""), view.checksum()
        apply(books[0], [("100", amount + ".0")])
        assert view.merge(books) is False
        data = document(view, view.delta(b"{", b"}"))
        assert (data["bids"], data["asks"]) == ([], [])
        assert (view.full(b"", b""), view.checksum()) == same
    apply(books[0], [("100", "8")])
    assert view.merge(books) is True
    assert len(document(view, view.delta(b"{", b"}"))["bids"]) == 1


@pytest.mark.parametrize(
    ("options", "seen"),
    [({"arrays": True}, False), ({}, True), ({"split": True, "arrays": True}, True)],
)
def test_who_has_a_level_is_a_change_where_it_is_shown(
    core: Any, options: dict[str, bool], seen: bool
) -> None:
    books = [book_of(core, [("1", "2")]), book_of(core, [("2", "1")])]
    view = core.View(["a", "b", "c"], depth=9, **options)
    view.merge([books[0], books[1], None])
    assert view.merge([None, books[1], books[0]]) is seen
    if seen:
        assert document(view, view.delta(b"{", b"}"))["bids"]


def test_parts_that_move_are_a_change_where_they_are_split(core: Any) -> None:
    one, two = book_of(core, [("1", "2")]), book_of(core, [("1", "3")])
    for split in (False, True):
        view = core.View(["a", "b"], depth=9, split=split)
        view.merge([one, two])
        assert view.merge([two, one]) is split


def test_fewer_participants_are_a_change_although_no_level_is(core: Any) -> None:
    view = core.View(["a", "b"], depth=9, arrays=True)
    view.merge([book_of(core, [("1", "2")]), book_of(core, [("1", "3")])])
    assert view.merge([book_of(core, [("1", "5")]), None]) is True
    data = document(view, view.delta(b"{", b"}"))
    assert data["bids"] == []
    assert data["market_stats"]["participating_exchanges"] == 1


def test_members_that_are_not_live_are_left_out(core: Any) -> None:
    books = members(core)
    view = core.View(["a", "b"], depth=9)
    assert view.merge([None, books[1]]) is True
    assert {name for level in document(view)["bids"] for name in level["exchanges"]} == {"b"}
    assert view.merge([None, None]) is True
    assert view.full(b"", b"") == (
        b'"bids":[],"asks":[],"market_stats":{"best_bid":null,"best_ask":null,"spread":null,'
        b'"spread_percent":null,"mid_price":null,"total_bid_volume":null,"total_ask_volume":null,'
        b'"participating_exchanges":0,"crossed":false}'
    )
    assert view.merge([None, None]) is False


def test_the_first_merge_is_a_change_even_of_nothing(core: Any) -> None:
    view = core.View(["a"], depth=1)
    assert view.full(b"<", b">").startswith(b'<"bids":[],')
    assert view.checksum() == 0
    assert view.merge([None]) is True
    assert view.delta(b"", b"") is None


def test_one_empty_side_gives_nulls(core: Any) -> None:
    for books, best in (
        ([book_of(core, [("1", "2")])], ("1", None)),
        ([book_of(core, [], [("3", "2")])], (None, "3")),
    ):
        stats = document(merged(core, books))["market_stats"]
        assert (stats["best_bid"], stats["best_ask"]) == tuple(b and Decimal(b) for b in best)
        assert [stats[key] for key in ("spread", "spread_percent", "mid_price")] == [None] * 3
        assert stats["crossed"] is False


@pytest.mark.parametrize(
    ("bid", "ask", "spread", "percent", "mid", "crossed"),
    [
        ("100", "100", "0", "0", "100", True),
        ("101", "100", "-1", "-0.995", "100.5", True),
        ("100", "101", "1", "0.995", "100.5", False),
        ("1", "1.000001", "0.000001", "0.0001", "1.0000005", False),
        ("1", "1.0000004", "0.0000004", "0", "1.0000002", False),
        ("1.0000004", "1", "-0.0000004", "0", "1.0000002", True),
        ("0.000000000000000001", "999", "998.999999999999999999", "200", None, False),
        ("3999", "4001", "2", "0.05", "4000", False),
        ("39999", "40001", "2", "0.005", "40000", False),
        # 0.00125 and 0.00005: half goes up, on both sides of zero.
        ("7999.9", "8000.1", "0.2", "0.0025", "8000", False),
        ("1999999", "2000001", "2", "0.0001", "2000000", False),
        ("2000001", "1999999", "-2", "-0.0001", "2000000", True),
    ],
)
def test_stats_are_exact_and_the_percentage_is_rounded_half_up(
    core: Any, bid: str, ask: str, spread: str, percent: str, mid: str | None, crossed: bool
) -> None:
    books = [book_of(core, [(bid, "1")]), book_of(core, [], [(ask, "1")])]
    text = merged(core, books).full(b"", b"").decode()
    assert f'"spread":{spread},"spread_percent":{percent},' in text
    if mid is not None:
        assert f'"mid_price":{mid},' in text
    assert f'"crossed":{str(crossed).lower()}}}' in text


@pytest.mark.parametrize(
    ("price", "amount", "value"),
    [
        ("0.00000000009", "1", "0"),
        ("0.33333333333", "1", "0.3333333333"),
        ("0.99999999999", "2", "1.9999999999"),
        ("123456789.123456789", "987654321.987654321", "121932631356500531.3472031691"),
        ("999999999999999999", "999999999999999999", "999999999999999998000000000000000001"),
        ("0.000000000000000001", "0.000000000000000001", "0"),
        ("0.999999999999999999", "0.999999999999999999", "0.9999999999"),
        ("12345678.5", "1000000000", "12345678500000000"),
        ("1", "9999999999999999", "9999999999999999"),
        ("1", "10000000000000000", "10000000000000000"),
    ],
)
def test_value_is_price_times_amount_cut_to_ten_decimals(
    core: Any, price: str, amount: str, value: str
) -> None:
    text = merged(core, [book_of(core, [(price, amount)])]).full(b"", b"").decode()
    assert f'"price":{price},"amount":{amount},' in text
    assert f'"value":{value}}}' in text


def test_grouping_bins_bids_down_and_asks_up(core: Any) -> None:
    books = [
        book_of(
            core,
            [("100.9", "1"), ("100.5", "2"), ("100.49", "4"), ("99.9", "8"), ("0.3", "16")],
            [("101", "1"), ("101.01", "2"), ("101.5", "4"), ("101.51", "8")],
        ),
        book_of(core, [("100.51", "32")], [("101.3", "64")]),
    ]
    data = document(merged(core, books, group="0.50", split=True, arrays=True))
    assert data["bids"] == [
        [Decimal("100.5"), 35, [["x0", 3], ["x1", 32]]],
        [100, 4, [["x0", 4]]],
        [Decimal("99.5"), 8, [["x0", 8]]],
    ]
    assert data["asks"] == [
        [101, 1, [["x0", 1]]],
        [Decimal("101.5"), 70, [["x0", 6], ["x1", 64]]],
        [102, 8, [["x0", 8]]],
    ]
    assert len(document(merged(core, books, group="0.5", depth=2))["bids"]) == 2


def test_a_step_finer_than_the_prices_changes_nothing(core: Any) -> None:
    books = members(core)
    finer = merged(core, books, group="0.00000001")
    assert finer.full(b"", b"") == merged(core, books).full(b"", b"")


def test_a_step_that_needs_wide_numbers_is_exact(core: Any) -> None:
    books = [book_of(core, [("100000.000000000001", "1")], [("100000.000000000002", "1")])]
    data = document(merged(core, books, group="500000000000", arrays=True))
    assert data["bids"] == []
    assert data["asks"] == [[500000000000, 1]]


@pytest.mark.parametrize("amount", ["1", "9" * 18])  # the larger: sums beyond 64 bits
def test_a_book_below_one_step_has_no_bid(core: Any, amount: str) -> None:
    rows = [("0.4", amount), ("0.3", amount), ("0.2", amount), ("0.1", amount)]
    books = [book_of(core, rows, [("0.5", amount)]) for _ in range(5)]
    data = document(merged(core, books, group="1"))
    assert data["bids"] == []
    assert [level["price"] for level in data["asks"]] == [1]
    stats = data["market_stats"]
    assert (stats["best_bid"], stats["best_ask"], stats["spread"]) == (None, 1, None)
    assert (stats["total_bid_volume"], stats["crossed"]) == (None, False)
    assert stats["participating_exchanges"] == 5


def test_bids_that_fall_below_one_step_leave_the_view(core: Any) -> None:
    book = book_of(core, [("1.1", "1")], [("1.2", "1")])
    view = merged(core, [book], group="1", arrays=True)
    book.replace(pairs([("0.9", "1")]), pairs([("1.2", "1")]))
    assert view.merge([book])
    assert json.loads(b"{" + view.delta(b"", b"") + b"}")["bids"] == [[1, 0]]


def test_depth_cuts_each_side_of_the_merge(core: Any) -> None:
    books = [
        book_of(
            core,
            [(str(n), "1") for n in range(k, 900, 3)],
            [(str(900 + n), "1") for n in range(k, 900, 3)],
        )
        for k in (1, 2, 3)
    ]
    data = document(merged(core, books, depth=500, arrays=True))
    assert data["bids"] == [[n, 1] for n in range(899, 399, -1)]
    assert data["asks"] == [[n, 1] for n in range(901, 1401)]
    assert data["market_stats"]["total_bid_volume"] == 500


@pytest.mark.parametrize("split", [False, True])
def test_levels_of_a_single_live_book_are_cut_at_the_depth(core: Any, split: bool) -> None:
    bids = [(f"{price}", f"{price}.5") for price in range(300, 0, -1)]
    asks = [(f"{price}", f"{price}.5") for price in range(301, 601)]
    whole, fine = book_of(core, bids, asks), book_of(core, [("0.001", "0.01")], [])
    view = merged(core, [fine, whole], depth=200, split=split)  # at the scales of the finer one
    view.merge([None, whole])
    shown = document(view)
    for side, prices in (("bids", range(300, 100, -1)), ("asks", range(301, 501))):
        levels = [(each["price"], each["amount"], each["exchanges"]) for each in shown[side]]
        assert levels == [(price, price + Decimal("0.5"), ["x1"]) for price in prices]
        if split:
            assert [each["amounts"] for each in shown[side]] == [[each[1]] for each in levels]


def test_a_single_live_book_that_does_not_fit_the_scales_of_the_view_is_exact(core: Any) -> None:
    vast = book_of(core, [("2", "1"), ("1", "5" * 17)], [("9" * 17, "1")])
    fine = book_of(core, [("0.000001", "0.00000001")], [])
    view = merged(core, [fine, vast])
    view.merge([None, vast])
    shown = document(view)
    assert [(each["price"], each["amount"]) for each in shown["bids"]] == [
        (2, 1),
        (1, int("5" * 17)),
    ]
    assert [(each["price"], each["amount"]) for each in shown["asks"]] == [(int("9" * 17), 1)]


def test_checksum_covers_25_levels_a_side(core: Any) -> None:
    book = book_of(
        core,
        [(str(100 - n), f"{n}.50") for n in range(30)],
        [(f"{101 + n}.0", "2") for n in range(3)],
    )
    texts = [f"{100 - n}:{f'{n}.5' if n else '0.5'}" for n in range(25)]
    texts += [f"{101 + n}:2" for n in range(3)]
    view = merged(core, [book], depth=100)
    assert view.checksum() == crc32(":".join(texts).encode())


def test_64_members_take_part_and_65_do_not(core: Any) -> None:
    names = [f"exchange number {n}" for n in range(MEMBERS_MAX)]
    books = [book_of(core, [("1", str(n + 1))]) for n in range(MEMBERS_MAX)]
    for options in ({}, {"split": True}, {"split": True, "arrays": True}):
        view = core.View(names, depth=5, **options)
        assert view.merge(books) is True
        text = view.full(b"", b"")
        assert all(f'"{name}"'.encode() in text for name in names)
        assert b'"total_bid_volume":2080,' in text
        assert b'"participating_exchanges":64,' in text
    assert core.View([], depth=1).merge([]) is True
    with pytest.raises(ValueError, match="at most 64 books, not 65"):
        core.View([*names, "one more"], depth=5)


@pytest.mark.parametrize("depth", [0, -1, DEPTH_MAX + 1])
def test_a_depth_outside_its_limits_is_refused(core: Any, depth: int) -> None:
    with pytest.raises(ValueError, match="1 to 500"):
        core.View(["a"], depth=depth)


@pytest.mark.parametrize("group", ["", "0", "0.0", "-1", "x", "NaN", "0.0000000000000000001"])
def test_a_step_that_is_no_number_above_zero_is_refused(core: Any, group: str) -> None:
    with pytest.raises(ValueError, match="above 0"):
        core.View(["a"], depth=1, group=group)


@pytest.mark.parametrize("within", ["", "0", "-1", "x", "10000.1", "0.0000001", "1e9"])
def test_a_distance_from_the_mid_outside_its_limits_is_refused(core: Any, within: str) -> None:
    with pytest.raises(ValueError, match="at most 10,000 basis points, with at most 6"):
        core.View(["a"], depth=1, within=within)


def test_levels_within_a_distance_of_the_mid_are_cut_at_the_far_end_only(core: Any) -> None:
    crossed = [
        book_of(core, [("103", "1"), ("99", "2"), ("98.99", "3")], []),
        book_of(core, [], [("97", "1"), ("101", "2"), ("101.01", "3")]),
    ]
    data = document(merged(core, crossed, within="100", arrays=True))
    assert data["bids"] == [[103, 1], [99, 2]]
    assert data["asks"] == [[97, 1], [101, 2]]


def test_a_side_without_a_level_within_the_distance_is_empty(core: Any) -> None:
    books = [book_of(core, [("99", "1")], [("101", "1")])]
    view = merged(core, books, within="99.99")
    assert document(view)["bids"] == document(view)["asks"] == []
    assert document(view)["market_stats"]["participating_exchanges"] == 0
    assert view.top() == b'"bid":null,"ask":null'
    assert document(merged(core, books, within="100"))["market_stats"]["best_bid"] == 99


def test_without_one_side_the_best_price_of_the_other_is_the_reference(core: Any) -> None:
    books = [book_of(core, [("100", "1.50"), ("99", "1"), ("98", "1")])]
    view = merged(core, books, within="100", arrays=True)
    assert document(view)["bids"] == [[100, 1.5], [99, 1]]
    assert view.top() == b'"bid":[100,1.5],"ask":null'


def test_a_merge_of_too_many_or_too_few_books_is_refused(core: Any) -> None:
    view = core.View(["a", "b"], depth=1)
    for books in ([], [None], [None] * 3):
        with pytest.raises(ValueError, match="merges 2 books"):
            view.merge(books)


def test_names_become_json_text(core: Any) -> None:
    name = 'a"b\\c\né' + "x" * 60
    view = core.View([name], depth=1)
    view.merge([book_of(core, [("1", "1")])])
    assert document(view)["bids"][0]["exchanges"] == [name]


def test_numbers_beyond_64_bits_are_exact_and_deltas_go_on(core: Any) -> None:
    fine = book_of(core, [("0.000000000000000001", "1")])
    huge = book_of(core, [("999999999999999999", "999999999999999999")])
    view = core.View(["fine", "huge"], depth=5, arrays=True)
    view.merge([fine, None])
    assert view.merge([fine, huge]) is True
    data = document(view, view.delta(b"{", b"}"))
    assert data["bids"] == [[999999999999999999, 999999999999999999]]
    assert len(document(view)["bids"]) == 2
    assert view.merge([fine, huge]) is False
    assert document(view, view.delta(b"{", b"}"))["bids"] == []
    assert view.checksum() == crc32(b"999999999999999999:999999999999999999:0.000000000000000001:1")
    assert view.merge([None, huge]) is True
    gone = document(view, view.delta(b"{", b"}"))["bids"]
    assert gone == [[Decimal("0.000000000000000001"), 0]]
    apply(huge, [("999999999999999999", "7")])
    for amount in ("8", "9"):
        apply(huge, [("1", amount)])
        assert view.merge([None, huge]) is True
        assert document(view, view.delta(b"{", b"}"))["bids"][-1] == [1, int(amount)]
    assert view.merge([fine, None]) is True
    assert len(document(view, view.delta(b"{", b"}"))["bids"]) == 3


def test_a_coin_of_many_units_is_merged_with_one_that_has_eight_decimals(core: Any) -> None:
    """BTT/USDT: one exchange trades whole coins, another writes amounts with eight decimals."""
    tick = Decimal("0.00000001")
    whole = [(str(Decimal("0.00000061") - tick * n), f"{70 + n}000000000") for n in range(9)]
    parts = [(price, "123456789.12345678") for price, _ in whole[::2]]
    view = core.View(["whole", "parts"], depth=20, split=True, arrays=True)
    books = [book_of(core, whole), book_of(core, parts)]
    view.merge(books)
    found = document(view)["bids"]
    assert [level[1] for level in found[:2]] == [Decimal("70123456789.12345678"), 71 * 10**9]
    assert found[0][2] == [["whole", 70 * 10**9], ["parts", Decimal("123456789.12345678")]]
    apply(books[0], [(whole[0][0], "1")])
    assert view.merge(books) is True
    (change,) = document(view, view.delta(b"{", b"}"))["bids"]
    assert change[1] == Decimal("123456790.12345678")


def test_a_scale_too_wide_for_what_is_shown_keeps_the_state_before(core: Any) -> None:
    huge = book_of(core, [("2", "1"), ("1", "3")], [("999999999999999999", "999999999999999999")])
    fine = book_of(core, [("2", "0.5")], [("999999999999999999", "0.000000000000000001")])
    for options in ({"arrays": True}, {"arrays": True, "split": True}):
        view = core.View(["huge", "fine"], depth=5, **options)
        view.merge([huge, None])
        assert view.merge([None, fine]) is True
        data = document(view, view.delta(b"{", b"}"))
        assert [level[:2] for level in data["bids"]] == [[2, Decimal("0.5")], [1, 0]]
        assert [level[:2] for level in data["asks"]] == [
            [999999999999999999, Decimal("0.000000000000000001")]
        ]


def test_sums_beyond_64_bits_are_exact(core: Any) -> None:
    books = [book_of(core, [("2", "999999999999999999"), ("1", "1")]) for _ in range(60)]
    stats = document(merged(core, books, split=True))["market_stats"]
    assert stats["total_bid_volume"] == 60 * 999999999999999999 + 60
    grouped = merged(
        core, [book_of(core, [(str(n), "9" * 18) for n in range(110, 170)])], group="100"
    )
    assert document(grouped)["bids"][0]["amount"] == 60 * 999999999999999999
    # The sum of levels that each fit need not fit.
    wide = [book_of(core, [(str(n), "9" * 18) for n in range(1, 400)])]
    assert document(merged(core, wide, depth=500))["market_stats"]["total_bid_volume"] == (
        399 * 999999999999999999
    )


def test_scales_that_grow_between_merges_are_no_change_by_themselves(core: Any) -> None:
    book = book_of(core, [("100", "2"), ("99", "1")])
    view = merged(core, [book])
    apply(book, [("1.00000001", "0.00000001"), ("1.00000001", "0")])
    assert (book.price_scale, book.amount_scale) == (8, 8)
    assert view.merge([book]) is False
    apply(book, [("100", "3")])
    assert view.merge([book]) is True
    apply(book, [("98.0000000001", "1")])
    assert view.merge([book]) is True
    assert [level["price"] for level in document(view, view.delta(b"{", b"}"))["bids"]] == [
        Decimal("98.0000000001")
    ]


@pytest.mark.parametrize(
    "options", [{}, {"arrays": True}, {"split": True}, {"arrays": True, "split": True}]
)
def test_a_view_that_printed_before_prints_what_a_new_one_does(
    core: Any, options: dict[str, bool]
) -> None:
    """Unchanged parts are copied, even if they have moved within the text."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    books = [book_of(core, [("100", "1")], [("101", "1")]) for _ in range(3)]
    view = merged(core, books, **options)
    for _ in range(400):
        for _ in range(dice.choice((1, 1, 5))):
            price, amount = dice.randrange(90, 112), dice.choice(("0", "1", "22", "3.25", "400"))
            side = [(str(price), amount)]
            bids, asks = (side, []) if price < 101 else ([], side)
            apply(dice.choice(books), bids, asks)
        view.merge(books)
        assert view.full(b"{", b"}") == merged(core, books, **options).full(b"{", b"}")
