"""The compiled core and its reference implementation: equal books, bytes and errors."""

import random
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from core.both import (
    COMPILED,
    COUNTED,
    CUT,
    FILLED,
    GROUP,
    LED,
    MESSAGE,
    OBJECTS,
    SCALED,
    SHAPES,
    SHORT_NAMES,
    SIDED,
    SIDED_OBJECTS,
    TWO_SIDED,
    field,
    group,
    needs_compiled,
    state_of,
    varint,
)
from core.level_strategies import Change, Options, changes, options, steps
from onebook.core import reference
from onebook.core.types import PAIRS, LevelError, LevelShape

pytestmark = needs_compiled

NAMES = ["binance", "kraken", "okx", "an exchange with a name longer than any register"]
FUZZ_SEED = 20_261_120
FUZZ_ROUNDS = 1_000
REAL_TEXTS = [
    (b'[["0.35210000","672.00000000"],["0.35200000","1144.00000000"],["0.3519","0"]]', PAIRS),
    (b'[["3366.1","7","0","3"],["3366","6","0","3"],["3365.95","0","0","0"]]', PAIRS),
    (b'[{"price":67123.45,"qty":0.00012300},{"price":67123.40,"qty":0}]', OBJECTS),
    (b'[["buy","22356.270000","0.00000000"],["sell","22356.300000","1.00000000"]]', SIDED),
    (b'[["change",64222.5,0.1008],["new",64144.0,1.0e-5],["delete",64255.0,0.0]]', LED),
    (
        b'[{"side":"bid","event_time":"2023-02-09T20:32:50.714964855Z","price_level":"21921.73",'
        b'"new_quantity":"0.06317902"},{"side":"offer","price_level":"21921.74","new_quantity":"0"}]',
        SIDED_OBJECTS,
    ),
    (b"[[64123,1,0.25],[64122,2,1.7e-7],[64125,1,-0.018],[64126,0,-1]]", COUNTED),
    (b"[64123,0,1]", COUNTED),
    (b'[["0.5",null,"x","64123.5"],["0","1",2,"0"]]', FILLED),
    (b'[{"p":"0","s":"0","q":1},{"s":"2.5","p":"64123.50"}]', SHORT_NAMES),
    (b'[{"ask_price":51.5,"bid_price":51.25,"ask_size":0.5,"bid_size":2.125}]', TWO_SIDED),
    (
        field(1, field(1, b"93180.18") + field(2, b"0.21976424"))
        + field(2, field(1, b"93180.17") + field(2, b"2.82651000"))
        + field(3, b"spot@public")
        + field(4, b"36913565463")
        + varint(6 << 3)
        + varint(1 << 40),
        MESSAGE,
    ),
    (
        group([(9_318_018_000_000, 219_764), (9_318_017_000_000, 0), (9_318_000_000_000, 10**17)]),
        GROUP,
    ),
    (group([(101, 5), (100, 2**62)], rest=3), GROUP),
    (b'[[9.121E-7,1e3],["1.5e-3","2E+2",[1,{"a":[null,true,false]}]]]', PAIRS),
    (b"[[0.1,0.000508915855856983],[1.5e-3,9.121E-7],[3,16.08]]", CUT),
    (b"[[892697000000,1781800],[892708000000,7543500],[892718000000,0]]", SCALED),
]
PIECES = [
    *(b'"', b"[", b"]", b"{", b"}", b",", b":", b"-", b"+", b".", b"e", b"E", b"0", b"1", b"9"),
    *(b" ", b"\n", b"\\", b"\x00", b"\xff", b"null", b"true", b"NaN", b"[[", b"]]", b'"",', b"e99"),
    *(b"0" * 30, b"123456789012345678", b'"price"', b'"side":"buy"', b"[" * 40, b"1e-18", b"00"),
]


def outcome(change: Any, *arguments: Any) -> str:
    """Return what became of a change, with the doubt that it left, if any."""
    try:
        return f"taken {change(*arguments)}"
    except LevelError:
        return "refused"


@given(life=steps(4, extremes=12), how=options(), levels_max=st.integers(1, 12))
def test_any_life_gives_the_same_bytes(life: list[Any], how: Options, levels_max: int) -> None:
    books = [[core.Book(levels_max) for _ in NAMES] for core in (reference, COMPILED)]
    views = [core.View(NAMES, **how._asdict()) for core in (reference, COMPILED)]
    for step in life:
        if isinstance(step, Change):
            note(f"{step.texts}")
            pair = [both[step.book] for both in books]
            name = "replace" if step.whole else "apply"
            asked = (len(step.bids),) if step.whole else ()  # so that some have a horizon
            arguments = (*step.texts, step.shape, *asked)
            first, second = (outcome(getattr(b, name), *arguments) for b in pair)
            assert first == second
            assert state_of(pair[0]) == state_of(pair[1])
            continue
        answers = []
        for view, both in zip(views, books, strict=True):
            live = [book if alive else None for book, alive in zip(both, step.live, strict=True)]
            answers.append(
                (
                    view.merge(live),
                    view.full(b"<", b">"),
                    view.delta(b"head", b"tail"),
                    view.top(),
                    view.checksum(),
                )
            )
        assert answers[0] == answers[1]


@given(whole=changes(1, 12), more=st.lists(changes(1, 30), max_size=6))
def test_a_refused_change_changes_neither(whole: Change, more: list[Change]) -> None:
    books = [reference.Book(), COMPILED.Book()]
    for step in (whole, *more):
        for book in books:
            before = state_of(book)
            if outcome(book.apply, *step.texts, step.shape) == "refused":
                assert state_of(book) == before
        assert state_of(books[0]) == state_of(books[1])


def mutated(random_source: random.Random, text: bytes) -> bytes:
    for _ in range(random_source.choice((1, 1, 1, 2, 5))):
        at = random_source.randrange(len(text) + 1)
        kind = random_source.randrange(5)
        if kind == 0:
            text = text[:at] + random_source.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + random_source.randrange(1, 4) :]
        elif kind == 2:
            text = text[:at] + bytes([random_source.randrange(256)]) + text[at + 1 :]
        elif kind == 3:
            end = random_source.randrange(at, len(text) + 1)
            text = text[:end] + text[at:end] + text[end:]
        else:
            text = text[:at]
    return text


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_mutated_real_text_is_refused_by_both_or_taken_alike(shape: LevelShape) -> None:
    print(f"seed {FUZZ_SEED}")
    random_source = random.Random(FUZZ_SEED)
    own = [(text, right) for text, right in REAL_TEXTS if right is shape]
    books = [reference.Book(), COMPILED.Book()]
    taken = 0
    for _ in range(FUZZ_ROUNDS):
        text, right_shape = random_source.choice(REAL_TEXTS)
        if random_source.random() < 0.5:
            text, right_shape = random_source.choice(own)
        text = mutated(random_source, text)
        # A view into a larger buffer: nothing behind the text may matter.
        source = memoryview(b"9" + text + b'9"]')[1:-3]
        use = right_shape if random_source.random() < 0.8 else shape
        asks = source if use is TWO_SIDED else b"" if use is GROUP else b"[]"
        first, second = (outcome(book.apply, source, asks, use) for book in books)
        assert first == second, text
        if first != "refused":
            taken += 1
            assert state_of(books[0]) == state_of(books[1]), text
            if taken % 50 == 0:
                for book in books:
                    book.clear()
    assert taken > FUZZ_ROUNDS // 20


def test_a_deep_random_book_stays_equal() -> None:
    random_source = random.Random(FUZZ_SEED)
    books = [reference.Book(2_000), COMPILED.Book(2_000)]
    for _ in range(60):
        levels = [
            f'["{random_source.randrange(1, 6_000) / 4}",{random_source.choice((0, 0, 1, 2.5))}]'
            for _ in range(100)
        ]
        text = f"[{','.join(levels)}]".encode()
        for book in books:
            book.apply(text, text)
        assert state_of(books[0]) == state_of(books[1])
    assert books[1].nbytes <= 60 * (books[1].bid_count + books[1].ask_count)
