"""Both implementations against dicts of Decimal, and deltas against whole views."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.both import EACH, pairs
from core.level_strategies import Change, Options, options, steps
from core.oracle import EXACT, OracleBook, checksum_of, cut, moved, shown, text_of, view_of
from onebook.core.types import DIGITS_MAX, PAIRS, SCALE_MAX, LevelError, LevelShape

pytestmark = pytest.mark.parametrize("core", EACH)

NAMES = ["binance", "kraken", "okx"]


def read(document: bytes) -> Any:
    return json.loads(document, parse_float=Decimal, parse_int=Decimal)


def price_of(level: Any) -> Decimal:
    return level[0] if isinstance(level, list) else level["price"]


def amount_of(level: Any) -> Decimal:
    return level[1] if isinstance(level, list) else level["amount"]


def digits_of(numbers: list[Decimal], scale: int) -> int:
    """Return how many digits the longest number has at the common scale, `scale` or more."""
    kept = [number.normalize() for number in numbers if number]
    scale = max([scale, *(-number.as_tuple().exponent for number in kept)])
    return max((number.adjusted() + 1 for number in kept), default=0) + scale


def must_refuse(book: Any, model: OracleBook, step: Change) -> bool:
    """Whether a number of the step cannot be stored exactly beside the others."""
    rows = step.bids + step.asks
    prices = [Decimal(price) for price, _ in rows]
    amounts = [Decimal(amount) for _, amount in rows]
    if any(-EXACT.normalize(number).as_tuple().exponent > SCALE_MAX for number in prices + amounts):
        return True
    if step.whole:
        return max(digits_of(prices, 0), digits_of(amounts, 0)) > DIGITS_MAX
    # Held levels count only where the scale grows; below it they fit already.
    prices += [price for side in model.sides for price in side]
    amounts += [amount for side in model.sides for amount in side.values()]
    return (
        max(digits_of(prices, book.price_scale), digits_of(amounts, book.amount_scale)) > DIGITS_MAX
    )


def change(book: Any, model: OracleBook, step: Change) -> None:
    """Change both books, unless the change must be refused."""
    shapes = step.shape, step.shape.asks or step.shape
    bids, asks = (
        [
            (
                moved(price, shape.price_scale),
                cut(moved(amount, shape.amount_scale), shape.amount_decimals),
            )
            for price, amount in rows
        ]
        for rows, shape in zip((step.bids, step.asks), shapes, strict=True)
    )
    step = step._replace(bids=bids, asks=asks)
    refused = must_refuse(book, model, step)
    try:
        (book.replace if step.whole else book.apply)(*step.texts, step.shape)
    except LevelError:
        assert refused
        return
    assert not refused
    (model.replace if step.whole else model.apply)(step.bids, step.asks)


@given(
    digits=st.integers(1, 10 ** (DIGITS_MAX + 9)),
    power=st.integers(-45, 9),
    decimals=st.integers(0, SCALE_MAX),
    exponent=st.booleans(),
)
@example(digits=508915855856983, power=-18, decimals=8, exponent=False)
@example(digits=1, power=-9_999, decimals=0, exponent=True)
def test_an_amount_is_cut_toward_zero_and_never_to_zero(
    core: Any, digits: int, power: int, decimals: int, exponent: bool
) -> None:
    text = f"{digits}e{power}" if exponent else format(Decimal(digits).scaleb(power, EXACT), "f")
    amount = Decimal(cut(text, decimals))
    book = core.Book()
    book, shape = core.Book(), LevelShape.rows(amount_decimals=decimals)
    try:
        book.apply(pairs([("1", text)]), b"", shape)
    except LevelError:
        assert digits_of([amount], 0) > DIGITS_MAX
        return
    assert book.top(1) == ([("1", text_of(amount))], [])
    assert amount > 0
    book.apply(pairs([("1", "0.000")]), b"", shape)
    assert book.bid_count == 0


integers = st.one_of(st.integers(1, 10 ** (DIGITS_MAX + 1)), st.integers(1, 999).map(str))
scaled_rows = st.lists(
    st.tuples(integers, st.one_of(integers, st.just("0")), st.integers(0, 9)),
    min_size=1,
    max_size=6,
)
scales = st.integers(0, SCALE_MAX)


@given(rows=scaled_rows, price_scale=scales, amount_scale=scales, seeds=st.booleans())
def test_scaled_integers_are_the_numbers_with_their_point_moved(
    core: Any, rows: list[Any], price_scale: int, amount_scale: int, seeds: bool
) -> None:
    rows = [(f"{price}{'0' * zeros}", f"{amount}") for price, amount, zeros in rows]
    plain = [(moved(price, price_scale), moved(amount, amount_scale)) for price, amount in rows]
    shape = LevelShape.rows(price_scale=price_scale, amount_scale=amount_scale)
    text = json.dumps([[int(cell) for cell in row] for row in rows]).encode()
    books = core.Book(), core.Book()
    outcomes = []
    for book, level_text, how in ((books[0], text, shape), (books[1], pairs(plain), PAIRS)):
        if seeds:
            book.apply(pairs([("0.00001", "0.001")]), b"")
        try:
            outcomes.append(book.apply(level_text, b"", how))
        except LevelError:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]
    assert books[0].top(9) == books[1].top(9)
    assert [(book.price_scale, book.amount_scale) for book in books] == [
        (books[1].price_scale, books[1].amount_scale)
    ] * 2


class Client:
    """A client that only keeps the levels it received."""

    def __init__(self, full: Any) -> None:
        self.sides = [{price_of(level): level for level in full[side]} for side in ("bids", "asks")]

    def take(self, delta: Any) -> None:
        for kept, side in zip(self.sides, ("bids", "asks"), strict=True):
            prices = [price_of(level) for level in delta[side]]
            assert prices == sorted(prices, reverse=side == "bids")
            for level in delta[side]:
                if amount_of(level):
                    kept[price_of(level)] = level
                else:
                    del kept[price_of(level)]

    def shows(self) -> list[list[Any]]:
        bids, asks = self.sides
        return [[bids[p] for p in sorted(bids, reverse=True)], [asks[p] for p in sorted(asks)]]


@given(life=steps(3), how=options(), levels_max=st.integers(1, 12))
def test_books_views_and_deltas_equal_the_decimal_model(
    core: Any, life: list[Any], how: Options, levels_max: int
) -> None:
    books = [core.Book(levels_max) for _ in NAMES]
    models = [OracleBook(levels_max) for _ in NAMES]
    view = core.View(NAMES, **how._asdict())
    client = None
    last = None
    for step in life:
        if isinstance(step, Change):
            book, model = books[step.book], models[step.book]
            change(book, model, step)
            assert book.top(100) == model.top()
            continue
        alive = [book if live else None for book, live in zip(books, step.live, strict=True)]
        changed = view.merge(alive)
        expected = view_of(
            NAMES,
            [model if live else None for model, live in zip(models, step.live, strict=True)],
            depth=how.depth,
            group=how.group,
            within=how.within,
        )
        seen = shown(expected, split=how.split, arrays=how.arrays)
        full = read(view.full(b"{", b"}"))
        assert full == seen
        assert view.checksum() == checksum_of(expected)
        assert changed is (seen != last)
        last = seen
        if client is None:
            assert view.delta(b"{", b"}") is None
            client = Client(full)
        elif changed:
            delta = read(view.delta(b"{", b"}"))
            client.take(delta)
            assert delta["market_stats"] == full["market_stats"]
        assert client.shows() == [full["bids"], full["asks"]]
