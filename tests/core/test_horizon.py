"""The coverage horizon: a book shows nothing beyond the outermost price of its snapshot."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.recorded import bodies
from core.both import COMPILED, EACH, SIDED, needs_compiled, pairs, sided, state_of
from core.test_recorded import frames, raw
from onebook.core import reference
from onebook.core.types import LEVELS_MAX, PAIRS, LevelError

each_core = pytest.mark.parametrize("core", EACH)

BIDS = [("100", "1"), ("99", "2"), ("98.5", "3")]
ASKS = [("101", "1"), ("102", "2")]


def seeded(core: Any, *, asked: int) -> Any:
    book = core.Book()
    assert book.replace(pairs(BIDS), pairs(ASKS), PAIRS, asked) is None
    return book


@each_core
def test_a_side_with_as_many_levels_as_were_asked_for_ends_there(core: Any) -> None:
    assert seeded(core, asked=0).horizon() == (None, None)
    assert seeded(core, asked=4).horizon() == (None, None)
    assert seeded(core, asked=3).horizon() == ("98.5", None)
    assert seeded(core, asked=2).horizon() == ("98.5", "102")


@each_core
def test_both_sides_in_one_list_are_counted_apart(core: Any) -> None:
    book = core.Book()
    book.replace(sided(BIDS, ASKS), b"", SIDED, 3)
    assert book.horizon() == ("98.5", None)


@each_core
def test_levels_beyond_the_horizon_are_neither_shown_nor_counted(core: Any) -> None:
    book = seeded(core, asked=2)
    book.apply(pairs([("98", "9"), ("98.6", "4")]), pairs([("102.1", "9"), ("101.9", "4")]))
    assert book.top(9) == (
        [("100", "1"), ("99", "2"), ("98.6", "4"), ("98.5", "3")],
        [("101", "1"), ("101.9", "4"), ("102", "2")],
    )
    assert (book.bid_count, book.ask_count) == (4, 3)


@each_core
def test_the_horizon_stays_when_its_own_level_goes(core: Any) -> None:
    book = seeded(core, asked=2)
    book.apply(pairs([("98.5", "0")]), pairs([("102", "0"), ("101", "0")]))
    assert book.horizon() == ("98.5", "102")
    book.apply(pairs([("98.5", "7")]), pairs([("103", "7")]))
    assert book.top(9) == ([("100", "1"), ("99", "2"), ("98.5", "7")], [])
    assert (book.reach(0), book.reach(1)) == ((3, 1.5), (0, 0.0))


@each_core
def test_a_row_of_no_amount_still_shows_how_far_the_answer_went(core: Any) -> None:
    book = core.Book()
    book.replace(pairs([("100", "1"), ("99", "0")]), b"[]", PAIRS, 2)
    assert book.horizon() == ("99", None)


@each_core
def test_reach_counts_levels_and_distance_on_a_bounded_side_only(core: Any) -> None:
    book = seeded(core, asked=3)
    assert (book.reach(0), book.reach(1)) == ((3, 1.5), None)


@each_core
def test_a_whole_book_or_none_forgets_the_horizon(core: Any) -> None:
    book = seeded(core, asked=2)
    book.replace(pairs(BIDS), pairs(ASKS))
    assert book.horizon() == (None, None)
    book = seeded(core, asked=2)
    book.clear()
    book.apply(pairs([("1", "1")]), pairs([("900", "1")]))
    assert book.top(1) == ([("1", "1")], [("900", "1")])


@each_core
def test_the_horizon_keeps_its_price_when_the_scale_grows(core: Any) -> None:
    book = seeded(core, asked=2)
    book.apply(pairs([("98.49999", "9"), ("98.50001", "4")]), b"[]")
    assert book.horizon() == ("98.5", "102")
    assert book.top(9)[0][-2:] == [("98.50001", "4"), ("98.5", "3")]


@each_core
def test_a_scale_that_the_horizon_does_not_fit_is_refused(core: Any) -> None:
    book = core.Book()
    book.replace(b"[]", pairs([("5", "1"), ("100000000000", "1")]), PAIRS, 2)
    book.apply(b"[]", pairs([("100000000000", "0")]))
    before = state_of(book)
    with pytest.raises(LevelError):
        book.apply(b"[]", pairs([("1.00000001", "1")]))
    assert state_of(book) == before


@each_core
def test_what_is_cut_at_the_largest_book_is_unknown_from_then_on(core: Any) -> None:
    rows = [(str(price), "1") for price in range(1, LEVELS_MAX + 2)]
    book = core.Book()
    book.replace(pairs(rows), pairs(rows[:1]))
    assert (book.bid_count, book.horizon()) == (LEVELS_MAX, ("2", None))
    book.apply(pairs([("2", "0"), ("1", "5")]), b"[]")
    assert book.bid_count == LEVELS_MAX - 1, "1 was cut, and others between may have been"


@each_core
def test_what_is_cut_of_a_window_is_sent_again_by_the_exchange(core: Any) -> None:
    book = core.Book(2)
    book.replace(pairs(BIDS), b"[]")
    book.apply(pairs([("100", "0"), ("98.5", "3")]), b"[]")
    assert book.top(9)[0] == [("99", "2"), ("98.5", "3")]
    assert book.horizon() == (None, None)
    assert book.horizon(2) == ("98.5", None), "a full window ends at its worst level"


@each_core
@pytest.mark.parametrize("asked", [20, 50, 100])
def test_recorded_binance_books_from_a_small_seed_show_only_the_truth(
    core: Any, samples: Path, asked: int
) -> None:
    """The true book has 1,000 levels; without a horizon most of these states are wrong."""
    books: dict[str, tuple[Any, Any, Any]] = {}
    for native, text in bodies(samples, "BINANCE.http.0.0"):
        body = msgspec.json.decode(text)
        books[native] = truth, horizoned, unaware = core.Book(), core.Book(), core.Book()
        bids, asks = body["bids"], body["asks"]
        truth.replace(raw(bids), raw(asks), PAIRS, 1_000)
        horizoned.replace(raw(bids[:asked]), raw(asks[:asked]), PAIRS, asked)
        unaware.replace(raw(bids[:asked]), raw(asks[:asked]))
    states = wrong = 0
    for frame in frames(samples, "BINANCE.ws.1.0"):
        data = frame.get("data", {})
        if data.get("e") != "depthUpdate":
            continue
        for book in books[data["s"]]:
            book.apply(raw(data["b"]), raw(data["a"]))
        truth, horizoned, unaware = books[data["s"]]
        true = truth.top(asked)
        for side in (0, 1):
            shown = horizoned.top(asked)[side]
            assert shown == true[side][: len(shown)]
            states += 1
            wrong += unaware.top(asked)[side] != true[side]
    assert states == 2 * 177
    assert wrong > states // 20, "the recording would not have shown the defect"


# Against full knowledge


class Market:
    """The exchange's full state of one book: dicts of Decimal."""

    def __init__(self) -> None:
        self.sides: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def change(self, mid: int, rows: list[tuple[int, int]]) -> tuple[Any, Any]:
        """Set amounts at offsets from the mid, and remove crossed levels."""
        changed: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for at, side in enumerate(self.sides):
            crossing = [p for p in side if (p >= mid if at == 0 else p <= mid)]
            changed[at].update(dict.fromkeys(crossing, 0))
        for offset, amount in rows:
            if offset:
                changed[offset > 0][mid + offset] = amount
        for side, news in zip(self.sides, changed, strict=True):
            for price, amount in news.items():
                side[price] = amount
                if not amount:
                    del side[price]
        return changed

    def best(self, side: int, count: int) -> list[tuple[str, str]]:
        ordered = sorted(self.sides[side].items(), reverse=not side)[:count]
        return [(spelled(price), str(amount)) for price, amount in ordered]


def spelled(price: int) -> str:
    return f"{Decimal(price) / 4:f}".rstrip("0").rstrip(".") if price % 4 else str(price // 4)


offsets = st.integers(-30, 30)
changes = st.tuples(
    st.just("change"),
    st.tuples(st.integers(-12, 12), st.lists(st.tuples(offsets, st.integers(0, 3)), max_size=12)),
)
seeds = st.tuples(st.just("seed"), st.integers(1, 12))


def texts(changed: tuple[dict[int, int], dict[int, int]]) -> tuple[bytes, bytes]:
    bids, asks = (
        pairs((spelled(price), str(amount)) for price, amount in side.items()) for side in changed
    )
    return bids, asks


@each_core
@given(
    first=st.lists(st.tuples(offsets, st.integers(1, 3)), max_size=40),
    script=st.lists(st.one_of(changes, changes, changes, seeds), max_size=40),
    asked=st.integers(1, 12),
)
def test_whatever_is_shown_is_the_truth_down_to_the_shown_price(
    core: Any, first: list[Any], script: list[Any], asked: int
) -> None:
    market, mid = Market(), 1_000
    market.change(mid, first)
    book = core.Book()
    book.replace(pairs(market.best(0, asked)), pairs(market.best(1, asked)), PAIRS, asked)
    for action, what in script:
        if action == "seed":
            bids, asks = (pairs(market.best(side, what)) for side in (0, 1))
            assert book.replace(bids, asks, PAIRS, what) is None
        else:
            mid = max(100, mid + what[0])
            assert book.apply(*texts(market.change(mid, what[1]))) is None
        for side, (shown, horizon) in enumerate(zip(book.top(99), book.horizon(), strict=True)):
            true = market.best(side, 99)
            assert shown == true[: len(shown)]
            if horizon is None:
                assert shown == true, "all of it is known"
            else:
                inside = [level for level in true if _inside(side, level[0], horizon)]
                assert shown == inside, "and nothing inside the horizon is missing"


def _inside(side: int, price: str, horizon: str) -> bool:
    return Decimal(price) <= Decimal(horizon) if side else Decimal(price) >= Decimal(horizon)


@needs_compiled
@given(
    first=st.lists(st.tuples(offsets, st.integers(1, 3)), max_size=40),
    script=st.lists(changes, max_size=20),
    asked=st.integers(1, 12),
)
def test_both_implementations_have_the_same_horizon(
    first: list[Any], script: list[Any], asked: int
) -> None:
    market, mid = Market(), 1_000
    books = [core.Book() for core in (reference, COMPILED)]
    market.change(mid, first)
    for book in books:
        bids, asks = (pairs(market.best(side, asked)) for side in (0, 1))
        book.replace(bids, asks, PAIRS, asked)
    for _, (step, rows) in script:
        mid = max(100, mid + step)
        rows_text = texts(market.change(mid, rows))
        for book in books:
            book.apply(*rows_text)
        assert state_of(books[0]) == state_of(books[1])
