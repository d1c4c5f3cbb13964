"""The levels of a view as integers: the values of the printed view, in both implementations."""

import contextlib
import json
from decimal import Context, Decimal
from struct import calcsize, iter_unpack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.both import EACH, book_of
from core.level_strategies import Change, Options, options, steps
from onebook.core import reference
from onebook.core.types import LEVEL_FORM, PART_FORM, LevelError, Levels

pytestmark = pytest.mark.parametrize("core", EACH)

NAMES = ["binance", "kraken", "okx"]
EXACT = Context(prec=80)


def rows_of(packed: bytes | list[Any], form: str) -> list[Any]:
    if isinstance(packed, list):
        return packed
    return [row if len(row) > 1 else row[0] for row in iter_unpack(form, packed)]


def number(mantissa: int, scale: int) -> Decimal:
    return Decimal(mantissa).scaleb(-scale, EXACT)


def decoded(levels: Levels) -> list[list[tuple[Any, ...]]]:
    """Each side as (price, amount, names, amounts of the members)."""
    sides = []
    for rows, parts in ((levels.bids, levels.bid_parts), (levels.asks, levels.ask_parts)):
        amounts = iter(rows_of(parts, PART_FORM))
        side = []
        for price, amount, members in rows_of(rows, LEVEL_FORM):
            names = [name for at, name in enumerate(NAMES) if members >> at & 1]
            split = [number(next(amounts), levels.amount_scale) for _ in names] if parts else []
            price, amount = number(price, levels.price_scale), number(amount, levels.amount_scale)
            side.append((price, amount, names, split))
        assert next(amounts, None) is None
        sides.append(side)
    return sides


def printed(view: Any) -> list[list[tuple[Any, ...]]]:
    document = json.loads(view.full(b"{", b"}"), parse_float=Decimal, parse_int=Decimal)
    return [
        [
            (each["price"], each["amount"], each["exchanges"], each.get("amounts", []))
            for each in document[side]
        ]
        for side in ("bids", "asks")
    ]


@given(life=steps(3, extremes=8), how=options(), levels_max=st.integers(1, 12))
def test_they_are_the_levels_that_are_printed(
    core: Any, life: list[Any], how: Options, levels_max: int
) -> None:
    books = [core.Book(levels_max) for _ in NAMES]
    view = core.View(NAMES, **how._replace(arrays=False)._asdict())
    for step in life:
        if isinstance(step, Change):
            book = books[step.book]
            with contextlib.suppress(LevelError):
                (book.replace if step.whole else book.apply)(*step.texts, step.shape)
        else:
            alive = [book if live else None for book, live in zip(books, step.live, strict=True)]
            view.merge(alive)
            assert decoded(view.levels()) == printed(view)


@given(life=steps(3, extremes=8), how=options())
def test_the_best_rows_are_the_first_and_the_same_objects_only_while_they_are_the_same_levels(
    core: Any, life: list[Any], how: Options
) -> None:
    books = [core.Book() for _ in NAMES]
    view = core.View(NAMES, **how._replace(arrays=False)._asdict())
    before = view.levels()
    for step in life:
        if isinstance(step, Change):
            with contextlib.suppress(LevelError):
                book = books[step.book]
                (book.replace if step.whole else book.apply)(*step.texts, step.shape)
            continue
        view.merge([book if live else None for book, live in zip(books, step.live, strict=True)])
        levels = view.levels()
        for side, (best, last, packed) in enumerate(
            (
                (levels.best_bid, before.best_bid, levels.bids),
                (levels.best_ask, before.best_ask, levels.asks),
            )
        ):
            rows = rows_of(packed, LEVEL_FORM)
            assert best == (rows[0] if rows else None)
            if best is not None and best is last:
                assert levels.price_scale == before.price_scale
                assert levels.amount_scale == before.amount_scale
                assert decoded(levels)[side][0] == decoded(before)[side][0]
        before = levels


@pytest.mark.parametrize("amount", ["3", "9" * 16], ids=["narrow", "beyond 64 bits"])
def test_their_scales_are_those_of_the_books_and_the_step(core: Any, amount: str) -> None:
    books = [book_of(core, [("100.5", amount)], [("101", "1.25")]) for _ in range(20)]
    view = core.View([f"e{at}" for at in range(20)], depth=5)
    view.merge(books)
    levels = view.levels()
    assert (levels.price_scale, levels.amount_scale) == (1, 2)
    assert levels.best_bid[:2] == (1005, 20 * int(amount) * 100)
    view = core.View(["a"], depth=5, group="0.125")
    view.merge(books[:1])
    assert view.levels().price_scale == 3
    assert view.levels().best_bid[0] == 100_500


def test_a_best_row_outlasts_changes_behind_it(core: Any) -> None:
    book = book_of(core, [("100.5", "1.50")], [("101", "3")])
    view = core.View(["a"], depth=5)
    view.merge([book])
    before = view.levels()
    book.apply(b'[["100.4","2"]]', b'[["101","4"]]')
    view.merge([book])
    after = view.levels()
    assert after.best_bid == before.best_bid
    assert after.best_ask != before.best_ask
    if core is not reference:
        assert after.best_bid is before.best_bid


def test_they_stay_what_they_were_when_the_view_goes_on(core: Any) -> None:
    book = book_of(core, [("100.5", "1.50")], [("101", "3")])
    view = core.View(["a"], depth=5)
    view.merge([book])
    before = view.levels()
    book.apply(b'[["100.75","2.125"]]', b"[]")
    view.merge([book])
    assert [level[0] for level in decoded(before)[0]] == [Decimal("100.5")]
    assert [level[0] for level in decoded(view.levels())[0]] == [
        Decimal("100.75"),
        Decimal("100.5"),
    ]


def test_a_view_of_nothing_has_none(core: Any) -> None:
    view = core.View(NAMES, depth=5)
    assert decoded(view.levels()) == [[], []]
    view.merge([None] * 3)
    assert decoded(view.levels()) == [[], []]


def test_a_row_of_the_compiled_form_has_no_gaps(core: Any) -> None:
    assert (calcsize(LEVEL_FORM), calcsize(PART_FORM)) == (24, 8)
