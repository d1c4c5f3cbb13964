"""Hypothesis strategies: nasty numbers, level text in every shape, and lives of a few books."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

from onebook.core.types import OBJECTS, PAIRS, SIDED

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
GROUPS = [None, None, None, "1", "0.5", "0.25", "10", "0.01", "3", "100000000000"]

Rows = list[tuple[str, str]]


class Change(NamedTuple):
    """A whole book or a delta for one of the books."""

    book: int
    whole: bool
    shape: int
    bids: Rows
    asks: Rows
    texts: tuple[bytes, bytes]


class Merge(NamedTuple):
    """A merge of those books that are live now."""

    live: tuple[bool, ...]


class Options(NamedTuple):
    """How a view shows."""

    depth: int
    group: str | None
    split: bool
    arrays: bool


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
    bids: Rows, asks: Rows, *, shape: int, quote: str, rest: bool, blank: str
) -> tuple[bytes, bytes]:
    """Write rows down in a shape."""

    def join(parts: list[str]) -> bytes:
        return (blank + "[" + blank + f"{blank},".join(parts) + "]" + blank).encode()

    def pair(row: tuple[str, str], first: str = "") -> str:
        price, amount = (quote + number + quote for number in row)
        more = f',"0",{blank}[1,{{"a":null}}],-1.5e3' if rest else ""
        return f"[{first}{price}{blank},{blank}{amount}{more}{blank}]"

    def member(row: tuple[str, str]) -> str:
        price, amount = (quote + number + quote for number in row)
        more = '"time":"x","flags":[true,{}],' if rest else ""
        return f'{{{more}"qty":{amount},{blank}"price"{blank}:{blank}{price}{blank}}}'

    if shape == SIDED:
        both = [pair(row, '"buy",') for row in bids] + [pair(row, '"offer",') for row in asks]
        return join(both), b""
    write = pair if shape == PAIRS else member
    return join([write(row) for row in bids]), join([write(row) for row in asks])


@st.composite
def changes(draw: Any, books: int, extremes: float) -> Change:
    """Draw a change of one of the books."""
    bids, asks = draw(rows(extremes)), draw(rows(extremes))
    shape = draw(st.sampled_from([PAIRS, OBJECTS, SIDED]))
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
    """Draw a life: changes, and merges between them."""
    live = st.tuples(*[st.integers(0, 5).map(bool)] * books)
    return st.lists(
        st.one_of(changes(books, extremes), changes(books, extremes), live.map(Merge)),
        min_size=1,
        max_size=25,
    )


def options() -> Any:
    """Draw how a view shows."""
    return st.builds(
        Options, st.integers(1, 12), st.sampled_from(GROUPS), st.booleans(), st.booleans()
    )
