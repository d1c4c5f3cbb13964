"""Hypothesis strategies: difficult numbers, level text of every shape, histories of books."""

from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st

from core.both import CUT_SHAPES, SCALED_SHAPES, SHAPES, field, group, varint
from onebook.core.types import LevelForm, LevelShape

ZEROS = ["0", "0.0", "0.00000", "0e5", "0E-30"]
# Close together, so that books meet; with many decimals and many digits, so that scales differ.
PRICES = [
    *("1", "2", "3", "99", "100", "100.5", "100.25", "101", "101.125", "1e2", "1.01e2", "1000.0"),
    *("0.1", "0.00000001", "12.345678", "9.121E-7", "123456.789", "100.500", "0.5", "2.5"),
]
EXTREMES = [
    *("999999999999999999", "0.000000000000000001", "1e17", "123456789.123456789", "1e-18"),
    *("999999999999999.999", "10000000000", "0.0000000001", "99999999.99999999"),
]
AMOUNTS = ["1", "2", "0.5", "1.50", "1000000", "0.00000001", "3.14159", "7e3", "42.0"]
WITHINS = [None, None, "10000", "0.000001", "25", "117.5", "3333.333333"]
GROUPS = [None, None, None, "1", "0.5", "0.25", "10", "0.01", "3", "100000000000"]

Rows = list[tuple[str, str]]


class Change(NamedTuple):
    """A whole book or a delta for one of the books."""

    book: int
    whole: bool
    shape: LevelShape
    bids: Rows
    asks: Rows
    texts: tuple[bytes, bytes]


class Merge(NamedTuple):
    """A merge of the books that are live."""

    live: tuple[bool, ...]


class Options(NamedTuple):
    """The options of a view."""

    depth: int
    group: str | None
    split: bool
    arrays: bool
    within: str | None = None


@st.composite
def numbers(draw: Any, pool: list[str], extremes: float) -> str:
    """Draw a number as text: from the pool, an extreme one, or any digits at all."""
    kind = draw(st.integers(0, 99))
    if kind < extremes:
        return draw(st.sampled_from(EXTREMES))
    if kind < 85:
        return draw(st.sampled_from(pool))
    digits = draw(st.integers(1, 10 ** draw(st.integers(1, 12))))
    power = draw(st.integers(-9, 3))
    spelling = draw(st.integers(0, 2))
    if spelling == 0:
        return f"{digits}e{power}"
    text = f"{digits:0{1 - min(power, 0)}d}"
    if power >= 0:
        return text + "0" * power
    return f"{text[:power]}.{text[power:]}" + "0" * (3 * (spelling == 2))


@st.composite
def rows(draw: Any, extremes: float, size_max: int = 8) -> Rows:
    """Draw (price, amount) rows; a fifth of the amounts are zero."""
    amounts = st.one_of(
        *[numbers(AMOUNTS, extremes)] * 4,
        st.sampled_from(ZEROS),  # type: ignore[arg-type]
    )
    return draw(st.lists(st.tuples(numbers(PRICES, extremes), amounts), max_size=size_max))


def texts_of(
    bids: Rows, asks: Rows, *, shape: LevelShape, quote: str, rest: bool, blank: str
) -> tuple[bytes, bytes]:
    """Encode rows in a shape; `rest` adds ignored parts."""
    if shape.form is LevelForm.MESSAGE:
        return message_of(bids, asks, shape, rest=rest), b"garbage that nobody reads"
    if shape.form is LevelForm.GROUP:
        sides = ([(int(price), int(amount)) for price, amount in side] for side in (bids, asks))
        first, second = (group(side, shape, rest=7 * rest) if side else b"" for side in sides)
        return first, second

    def written(rows: Rows, sign: str, side: str, how: LevelShape) -> list[str]:
        write = array_of if how.form is LevelForm.ROW else object_of
        texts = [write(row, sign, side, how, quote=quote, rest=rest, blank=blank) for row in rows]
        if how.skip_zero_price and rest:
            texts.insert(
                1, write(("0.0", "1e-18"), sign, side, how, quote="", rest=False, blank="")
            )
        return texts

    def join(parts: list[str]) -> bytes:
        if shape.single and len(parts) == 1:
            return (blank + parts[0] + blank).encode()
        return (blank + "[" + blank + f"{blank},".join(parts) + "]" + blank).encode()

    bid_texts = written(bids, "", "buy", shape)
    ask_texts = written(asks, "-", "offer", shape.asks or shape)
    if shape.one_text:
        return join(bid_texts + ask_texts), b""
    return join(bid_texts), join(ask_texts)


def cells_of(row: tuple[str, str], sign: str, side: str, shape: LevelShape, quote: str) -> Any:
    """Map the columns or members of a shape to their text."""
    price, amount = row
    zero = not amount.strip("0.").partition("e")[0].partition("E")[0]
    cells: dict[Any, str] = {shape.price: f"{quote}{price}{quote}"}
    if shape.count is not None:
        cells[shape.count] = "0" if zero else "12"
        amount = "0.000000000000000001" if zero else amount
    cells[shape.amount] = f"{quote}{sign * shape.signed}{amount}{quote}"
    if shape.side is not None:
        cells[shape.side] = f'"{side}"'
    return cells


def array_of(
    row: tuple[str, str],
    sign: str,
    side: str,
    shape: LevelShape,
    *,
    quote: str,
    rest: bool,
    blank: str,
) -> str:
    """Encode a row as an array; unnamed columns contain anything."""
    cells = cells_of(row, sign, side, shape, quote)
    texts = [cells.get(column, '[{"a":[-1e5]}]') for column in range(max(cells) + 1)]
    more = ['"0"', f'{blank}[1,{{"a":null}}]', "-1.5e3"] if rest else []
    return f"[{blank}" + f"{blank},{blank}".join(texts + more) + f"{blank}]"


def object_of(
    row: tuple[str, str],
    sign: str,
    side: str,
    shape: LevelShape,
    *,
    quote: str,
    rest: bool,
    blank: str,
) -> str:
    """Encode a row as an object, the wanted members last first."""
    cells = cells_of(row, sign, side, shape, quote)
    more = '"time":"x","flags":[true,{}],' if rest else ""
    members = [f'"{name}"{blank}:{blank}{text}' for name, text in reversed(cells.items())]
    return f"{{{more}" + f",{blank}".join(members) + f"{blank}}}"


def message_of(bids: Rows, asks: Rows, shape: LevelShape, *, rest: bool) -> bytes:
    """Encode rows as a protobuf message, asks first; `rest` adds a field of each wire type."""
    others = b""
    if rest:
        others = varint(3 << 3) + varint(2**64 - 1) + field(2**29 - 1, b"more than nothing")
        others += varint(15 << 3 | 5) + bytes(4) + varint(99 << 3 | 1) + bytes(8)
    text = others
    for number, levels in ((shape.asks_field, asks), (shape.bids_field, bids)):
        for price, amount in levels:
            cells = field(int(shape.amount), amount.encode())
            cells += others + field(int(shape.price), price.encode())
            text += field(number, cells) + others
    return text


def mantissas(rows: Rows) -> Rows:
    """Return rows with integers of at most 64 bits for the numbers, the prices above zero."""
    most = 2**63 - 1

    def whole(text: str, least: int) -> str:
        scaled = Decimal(text).scaleb(9)
        return str(max(int(min(scaled, Decimal(most))), least))

    return [(whole(price, 1), whole(amount, 0)) for price, amount in rows]


@st.composite
def changes(draw: Any, books: int, extremes: float) -> Change:
    """Draw a change of one of the books."""
    bids, asks = draw(rows(extremes)), draw(rows(extremes))
    shapes = [*SHAPES.values(), *CUT_SHAPES.values(), *SCALED_SHAPES.values()]
    shape = draw(st.sampled_from(shapes))
    if shape.form is LevelForm.GROUP:
        bids, asks = mantissas(bids), mantissas(asks)
    texts = texts_of(
        bids,
        asks,
        shape=shape,
        quote=draw(st.sampled_from(['"', ""])),
        rest=draw(st.booleans()),
        blank=draw(st.sampled_from(["", "", " ", "\r\n\t"])),
    )
    return Change(
        draw(st.integers(0, books - 1)), draw(st.integers(0, 4)) == 0, shape, bids, asks, texts
    )


def steps(books: int, *, extremes: float = 0) -> Any:
    """Draw a history: changes, and merges between them."""
    live = st.tuples(*[st.integers(0, 5).map(bool)] * books)
    return st.lists(
        st.one_of(changes(books, extremes), changes(books, extremes), live.map(Merge)),
        min_size=1,
        max_size=25,
    )


def options() -> Any:
    """Draw the options of a view."""
    return st.builds(
        Options,
        st.integers(1, 12),
        st.sampled_from(GROUPS),
        st.booleans(),
        st.booleans(),
        st.sampled_from(WITHINS),
    )
