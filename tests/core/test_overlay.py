"""A fast best bid and ask over the levels of a book: effect on views, and unchanged rest."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.both import COMPILED, EACH, LAYOUTS, book_of, needs_compiled, pairs, state_of
from core.level_strategies import Change, Options, changes, options, rows
from core.oracle import OracleBook, shown, view_of
from onebook.core import reference
from onebook.core.types import ABSURD, CROSSED, LevelError

each = pytest.mark.parametrize("core", EACH)
sides = st.lists(st.tuples(st.integers(1, 60).map(str), st.integers(0, 9).map(str)), max_size=1)
books = st.lists(st.tuples(st.integers(1, 60).map(str), st.integers(1, 9).map(str)), max_size=40)


def view_bids(core: Any, book: Any, *, depth: int = 500, group: str | None = None) -> Any:
    """The bids and asks that a view of one book shows, as (price, amount)."""
    view = core.View(["okx"], depth=depth, group=group, arrays=True)
    view.merge([book])
    document = json.loads(view.full(b"{", b"}"), parse_float=str, parse_int=str)
    return [*map(tuple, document["bids"])], [*map(tuple, document["asks"])]


def fused(model: OracleBook, bids: Any, asks: Any) -> OracleBook:
    """The rule, naively: the top, then strictly worse levels; an empty side stays empty."""
    result = OracleBook(1_000)
    for at, (side, top) in enumerate(zip(model.sides, (bids, asks), strict=True)):
        for price, amount in ((Decimal(p), Decimal(a)) for p, a in top):
            if amount:
                worse = {p: a for p, a in side.items() if (p > price if at else p < price)}
                result.sides[at].update({price: amount} | worse)
    return result


@each
@given(depth_bids=books, depth_asks=books, bids=sides, asks=sides, how=options())
def test_a_view_shows_the_top_and_then_the_worse_levels(
    core: Any, depth_bids: Any, depth_asks: Any, bids: Any, asks: Any, how: Options
) -> None:
    book, model = core.Book(), OracleBook(1_000)
    book.replace(pairs(depth_bids), pairs(depth_asks))
    model.replace(depth_bids, depth_asks)
    before = state_of(book)
    refused = book.overlay(pairs(bids), pairs(asks))
    assert state_of(book) == before  # the levels are not touched
    assert book.overlaid == (refused is None)
    expected = model if refused else fused(model, bids, asks)
    view = core.View(["okx"], **how._asdict())
    view.merge([book])
    document = view.full(b"{", b"}")
    want = view_of(["okx"], [expected], depth=how.depth, group=how.group, within=how.within)
    assert json.loads(document, parse_float=Decimal, parse_int=Decimal) == shown(
        want, split=how.split, arrays=how.arrays
    )
    book.uncover()
    assert not book.overlaid
    view.merge([book])
    want = view_of(["okx"], [model], depth=how.depth, group=how.group, within=how.within)
    assert json.loads(view.full(b"{", b"}"), parse_float=Decimal, parse_int=Decimal) == shown(
        want, split=how.split, arrays=how.arrays
    )


@each
@pytest.mark.parametrize("levels", [0, 1, 127, 128, 129, 256, 300])
def test_the_top_may_lie_at_every_place_of_a_deep_side(core: Any, levels: int) -> None:
    ladder = [(str(2 * at), "1") for at in range(1, levels + 1)]
    book = book_of(core, ladder, [])
    step = 1 if core is not reference else 37
    for price in range(1, 2 * levels + 4, step):
        assert book.overlay(pairs([(str(price), "9")]), b"[]") is None
        worse = [(p, a) for p, a in reversed(ladder) if int(p) < price]
        assert view_bids(core, book)[0] == [(str(price), "9"), *worse]
    book = book_of(core, [], ladder)
    for price in range(1, 2 * levels + 4, step):
        assert book.overlay(b"[]", pairs([(str(price), "9")])) is None
        worse = [(p, a) for p, a in ladder if int(p) > price]
        assert view_bids(core, book)[1] == [(str(price), "9"), *worse]


@each
def test_several_books_meet_at_an_overlaid_price(core: Any) -> None:
    fast = book_of(core, [("9", "1"), ("8", "2")], [("11", "1")])
    slow = book_of(core, [("10", "5"), ("8", "1")], [("11", "4")])
    fast.overlay(pairs([("10", "3")]), pairs([("10.5", "2")]))
    view = core.View(["fast", "slow"], depth=9, split=True, arrays=True)
    view.merge([fast, slow])
    document = json.loads(view.full(b"{", b"}"), parse_float=str, parse_int=str)
    assert document["bids"] == [
        ["10", "8", [["fast", "3"], ["slow", "5"]]],
        ["9", "1", [["fast", "1"]]],
        ["8", "3", [["fast", "2"], ["slow", "1"]]],
    ]
    assert document["asks"] == [
        ["10.5", "2", [["fast", "2"]]],
        ["11", "5", [["fast", "1"], ["slow", "4"]]],
    ]


@each
def test_the_checksum_of_the_exchange_is_of_the_levels(core: Any) -> None:
    book = book_of(core, [("9", "1")], [("11", "1")])
    before = [*map(book.crc, LAYOUTS)]
    book.overlay(pairs([("10", "3")]), pairs([("10.5", "2")]))
    assert [*map(book.crc, LAYOUTS)] == before
    assert book.best() == ("9", "11")
    assert book.top(9) == ([("9", "1")], [("11", "1")])


@each
@pytest.mark.parametrize(
    ("bids", "asks", "why"),
    [
        ([("10", "1")], [("10", "1")], CROSSED),
        ([("10.5", "1")], [("10", "1")], CROSSED),
        ([("101", "1")], [("102", "1")], ABSURD),
        ([("0.5", "1")], [("0.9", "1")], ABSURD),
        ([("99", "1")], [("102", "1")], None),
    ],
)
def test_a_crossed_or_absurd_top_is_refused_and_ends_the_one_before(
    core: Any, bids: Any, asks: Any, why: str | None
) -> None:
    book = book_of(core, [("9", "1")], [("11", "1")])
    assert book.overlay(pairs([("9.5", "3")]), pairs([("10.5", "2")])) is None
    assert book.overlay(pairs(bids), pairs(asks)) == why
    assert book.overlaid == (why is None)
    if why:
        assert view_bids(core, book) == ([("9", "1")], [("11", "1")])


@each
def test_a_top_of_two_levels_is_an_error_and_changes_nothing(core: Any) -> None:
    book = book_of(core, [("9", "1")], [("11", "1")])
    before = state_of(book)
    for bids in (pairs([("9.123", "1"), ("9.2", "1")]), b"nothing", b'[["0","1"]]'):
        with pytest.raises(LevelError):
            book.overlay(bids, b"[]")
        assert state_of(book) == before
        assert not book.overlaid


@each
def test_it_agrees_with_the_levels_by_number_not_by_text(core: Any) -> None:
    book = book_of(core, [("9.50", "1.0")], [("11", "2")])
    assert not book.overlay_agrees()
    for bids, asks, agrees in (
        ([("9.5", "1")], [("11.000", "2e0")], True),
        ([("9.5", "2")], [("11", "2")], False),
        ([("9.4", "1")], [("11", "2")], False),
        ([], [("11", "2")], False),
        ([("9.5", "1")], [("11", "0")], False),
    ):
        book.overlay(pairs(bids), pairs(asks))
        assert book.overlay_agrees() is agrees
    empty = core.Book()
    empty.overlay(b"[]", b"[]")
    assert empty.overlay_agrees()


@each
def test_more_decimals_of_the_levels_scale_the_top_too(core: Any) -> None:
    book = book_of(core, [("9", "1")], [("11", "1")])
    book.overlay(pairs([("9.5", "3")]), pairs([("10.5", "2")]))
    book.apply(pairs([("8.12345", "0.00001")]), b"[]")
    assert view_bids(core, book)[0] == [("9.5", "3"), ("9", "1"), ("8.12345", "0.00001")]
    book.clear()
    assert not book.overlaid


@needs_compiled
@given(
    life=st.lists(
        st.one_of(
            changes(1, 6),
            st.tuples(rows(6, size_max=1), rows(6, size_max=1)),
            st.just(None),
        ),
        max_size=20,
    ),
    how=options(),
    levels_max=st.integers(1, 12),
)
def test_both_implementations_show_the_same(life: list[Any], how: Options, levels_max: int) -> None:
    both = [
        (core.Book(levels_max), core.View(["a"], **how._asdict())) for core in (reference, COMPILED)
    ]
    for step in life:
        outcomes = []
        for book, view in both:
            try:
                if isinstance(step, Change):
                    asked = (len(step.bids),) if step.whole else ()
                    change = book.replace if step.whole else book.apply
                    outcome = str(change(*step.texts, step.shape, *asked))
                elif step is None:
                    outcome = str(book.uncover())
                else:
                    outcome = str(book.overlay(pairs(step[0]), pairs(step[1])))
            except LevelError:
                outcome = "refused"
            changed = view.merge([book])
            outcomes.append(
                (
                    outcome,
                    changed,
                    view.full(b"<", b">"),
                    view.delta(b"<", b">"),
                    view.checksum(),
                    book.overlaid,
                    book.overlay_agrees(),
                    state_of(book),
                )
            )
        assert outcomes[0] == outcomes[1]
