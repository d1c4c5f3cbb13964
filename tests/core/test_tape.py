"""Tapes: the compiled one equals the reference byte for byte; playback restores the books."""

from array import array
from datetime import datetime
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.both import EACH, needs_compiled, pairs
from onebook import core
from onebook.core import TapeColumns, TapeKind, reference
from onebook.core.types import LEVELS_MAX, LevelError
from onebook.exchanges.kit import microseconds

KEYFRAME, SNAPSHOT, DELTA, TOP, HEALTH = TapeKind
EPOCH_US = 1_700_000_000_000_000
LAST_US = EPOCH_US + 10**10
ROWS_MAX = 10_000
HALF_S = 0.5
NUMBER = 70  # of the first message

PRICES = st.integers(95, 105).map(str) | st.decimals("99", "101", places=3).map(str)
AMOUNTS = st.integers(0, 3).map(str) | st.decimals("0.1", "9", places=5).map(str)
SIDES = st.lists(st.tuples(PRICES, AMOUNTS), max_size=5)
ONE = st.lists(st.tuples(PRICES, AMOUNTS), max_size=1)
TIMES = st.sampled_from(
    [0, 1_700_000_000_123, 1_700_000_000_123_456, 1_700_000_000_123_456_789, -5, 10**30,
     "1700000000123", "2026-11-27T14:03:00.5Z", "soon"]
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["replace", "apply", "apply", "apply", "overlay", "uncover", "keyframe",
                         "health", "drop"]),
        st.integers(0, 1), SIDES, SIDES, ONE, ONE, TIMES, st.sampled_from([0, 0, 3])),
    max_size=25,
)  # fmt: skip


class Recorded:
    """Two books of one implementation on a tape, with a view of each after every message."""

    def __init__(self, made: ModuleType, rows_max: int = ROWS_MAX, levels_max: int = 6) -> None:
        self.tape = made.BookTape(microseconds, rows_max)
        self.books = [made.Book(levels_max), made.Book(LEVELS_MAX)]
        self.now = 0.0
        self.read = None  # the tape whose memory is used again
        self.shown: dict[int, int] = {}  # by the number of messages
        for number, book in enumerate(self.books):
            book.record(self.tape, number)
            book.keyframe(self.now)

    def step(self, step) -> object:
        what, number, bids, asks, bid, ask, at, asked = step
        book = self.books[number]
        self.now += HALF_S
        try:
            result = self.applied(book, what, bids, asks, bid, ask, at, asked)
        except LevelError:
            result = "refused"
        return result

    def applied(self, book, what, bids, asks, bid, ask, at, asked) -> object:
        if what == "keyframe":
            return book.keyframe(self.now, at)
        if what == "health":
            return book.commit(HEALTH, self.now)
        if what == "drop":  # a book that is not shown has no levels, which its owner records
            book.clear()
            return book.keyframe(self.now)
        if what == "replace":
            reason = book.replace(pairs(bids), pairs(asks), levels_asked=asked)
            return reason or book.commit(SNAPSHOT, self.now, 7, at)
        if what == "apply":
            reason = book.apply(pairs(bids), pairs(asks))
            return reason or book.commit(DELTA, self.now, 8, at)
        if what == "overlay":
            book.overlay(pairs(bid), pairs(ask))
        else:
            book.uncover()
        return book.commit(TOP, self.now, 9, at)

    def columns(self) -> TapeColumns:
        self.read = self.tape.swap(self.read)
        return self.read.columns(NUMBER, EPOCH_US, EPOCH_US, LAST_US)


def shown(book) -> tuple[object, ...]:
    """The content of a book's view, and its horizon."""
    view = (core if isinstance(book, core.Book) else reference).View(("a",), depth=500)
    view.merge([book])
    return view.top(), view.full(b"", b""), book.horizon()


def playback(made: ModuleType, columns: TapeColumns, number: int):
    """Return the messages of one book."""
    books, kinds, price_scales, amount_scales, _, _, _, bid_ends, ask_ends, _, _, *places = (
        memoryview(each).cast(code)
        for each, code in zip(columns[1:14], "ibbbqqqqqqqii", strict=True)
    )
    own = [at for at, book in enumerate(books) if book == number]
    starts, levels = [], []
    for firsts, side in zip(places, (columns[14:16], columns[16:]), strict=True):
        starts.append(array("i", [0]))
        levels += [array("q"), array("q")]
        for at in own:
            for column, source in zip(levels[-2:], side, strict=True):
                column.extend(memoryview(source).cast("q")[firsts[at] : firsts[at + 1]])
            starts[-1].append(len(levels[-1]))
    return made.TapePlayer(
        *(array("b", [each[at] for at in own]) for each in (kinds, price_scales, amount_scales)),
        *(array("q", [each[at] for at in own]) for each in (bid_ends, ask_ends)),
        *starts,
        *levels,
    )


@needs_compiled
@given(STEPS)
def test_the_compiled_tape_equals_the_reference(steps) -> None:
    compiled, slow = Recorded(core), Recorded(reference)
    for again in range(3):
        for step in steps[again:]:
            assert compiled.step(step) == slow.step(step)
            assert compiled.tape.count == slow.tape.count
        assert compiled.columns() == slow.columns()


@needs_compiled
@given(STEPS, st.randoms(use_true_random=False))
def test_the_compiled_merger_equals_the_reference(steps, rng) -> None:
    recorded, parts = Recorded(core), []
    for start in range(0, len(steps) + 1, 3):
        for step in steps[start : start + 3]:
            recorded.step(step)
        parts.append(recorded.columns())
    count = sum(len(each.kinds) for each in parts)
    order = array("q", rng.choices(range(count), k=count + 2) if count else ())
    found = core.TapeMerger(parts).columns(order)
    assert found == reference.TapeMerger(parts).columns(order)
    assert core.TapeMerger([found]).columns(array("q", range(len(order)))) == found


@pytest.mark.parametrize("made", EACH)
def test_a_merger_refuses_what_does_not_fit(made) -> None:
    one = TapeColumns(
        *(bytes(width) for width in (8, 4, 1, 1, 1, 8, 8, 8, 8, 8, 8, 8)),
        *(array("i", [0, 1]).tobytes(),) * 2,
        *(bytes(8),) * 4,
    )
    first = array("q", [0])
    assert made.TapeMerger([one]).columns(first) == one
    assert len(made.TapeMerger([]).columns(array("q")).kinds) == 0
    for at, column in enumerate(one):
        with pytest.raises(ValueError, match="different lengths"):
            made.TapeMerger([(*one[:at], column + bytes(8), *one[at + 1 :])])
    for part in (one[:-1], (*one, b"")):
        with pytest.raises(ValueError, match="too"):
            made.TapeMerger([part])
    for number in (-1, 1, 2**40):
        with pytest.raises(IndexError):
            made.TapeMerger([one]).columns(array("q", [number]))
    for starts in ([-1, 1], [1, 0], [0, 2]):
        with pytest.raises(ValueError, match="outside"):
            made.TapeMerger([one._replace(ask_starts=array("i", starts).tobytes())]).columns(first)


@pytest.mark.parametrize("made", EACH)
@given(steps=STEPS)
@settings(max_examples=60)
def test_a_played_book_is_the_recorded_one_at_every_message(made, steps) -> None:
    recorded = Recorded(made)
    expected: list[tuple[int, list[object]]] = []
    for step in steps:
        before = recorded.tape.count
        if recorded.step(step) is not True or recorded.tape.count == before:
            break  # the levels were not recorded: a book is then dropped or resynced
        expected.append((recorded.tape.count, [shown(each) for each in recorded.books]))
    columns = recorded.columns()
    for number in range(2):
        found = playback(made, columns, number)
        books = memoryview(columns.books).cast("i")
        numbers = [at for at, each in enumerate(books) if each == number]
        book, at = made.Book(recorded.books[number].levels_max if made is reference else
                             (6, LEVELS_MAX)[number]), 0  # fmt: skip
        for count, views in expected:
            stop = next((at for at, each in enumerate(numbers) if each >= count), len(numbers))
            while at < stop:
                at = found.play(book, at, stop)
            assert shown(book) == views[number]


@pytest.mark.parametrize("made", EACH)
def test_a_message_has_its_levels_or_none(made) -> None:
    tape, book = made.BookTape(microseconds, ROWS_MAX), made.Book()
    book.replace(pairs([("1.5", "2")]), pairs([("1.6", "1.25")]))
    assert not book.commit(SNAPSHOT, 1.0)  # not recorded
    book.record(tape, 5)
    assert not book.commit(DELTA, 1.0)  # nothing was applied since
    assert book.keyframe(2.0, "1700000000000")
    book.apply(pairs([("1.5", "0")]), pairs([]))
    assert book.commit(HEALTH, 3.0)  # between, and what was applied waits for its message
    assert book.commit(DELTA, 3.0, 12)
    columns = tape.swap().columns(NUMBER, 1_000, 0, 3_000_500)
    assert memoryview(columns.numbers).cast("q").tolist() == [NUMBER, NUMBER + 1, NUMBER + 2]
    assert memoryview(columns.books).cast("i").tolist() == [5, 5, 5]
    assert [*columns.kinds] == [KEYFRAME, HEALTH, DELTA]
    assert memoryview(columns.received).cast("q").tolist() == [2_001_000, 3_000_500, 3_000_500]
    assert memoryview(columns.times).cast("q").tolist() == [1_700_000_000_000_000, 0, 0]
    assert memoryview(columns.sequences).cast("q").tolist() == [0, 0, 12]
    assert memoryview(columns.best_bids).cast("q").tolist() == [15, 0, 0]
    assert memoryview(columns.best_asks).cast("q").tolist() == [16, 0, 16]
    assert memoryview(columns.bid_starts).cast("i").tolist() == [0, 1, 1, 2]
    assert memoryview(columns.ask_starts).cast("i").tolist() == [0, 1, 1, 1]
    assert memoryview(columns.bid_prices).cast("q").tolist() == [15, 15]
    assert memoryview(columns.bid_amounts).cast("q").tolist() == [200, 0]
    assert memoryview(columns.ask_prices).cast("q").tolist() == [16]
    assert memoryview(columns.ask_amounts).cast("q").tolist() == [125]


@pytest.mark.parametrize("made", EACH)
def test_levels_that_are_read_stay_though_their_tape_is_given_back(made) -> None:
    tape, book = made.BookTape(microseconds, ROWS_MAX), made.Book()
    book.record(tape)
    assert pa.py_buffer(tape.swap().columns(NUMBER, 0, 0, LAST_US).bid_prices).size == 0
    kept, read = [], None
    for price in range(1, 9):
        book.replace(pairs([(str(price), "2")]), pairs([]))
        assert book.commit(SNAPSHOT, 1.0)
        read = tape.swap(read)
        kept.append(pa.py_buffer(read.columns(NUMBER, 0, 0, LAST_US).bid_prices))
        assert not book.commit(SNAPSHOT, 1.0)
    assert [memoryview(each).cast("q").tolist() for each in kept] == [[at] for at in range(1, 9)]


def times_of(made: ModuleType, texts: list[int | str]) -> list[int]:
    tape, book = made.BookTape(microseconds, ROWS_MAX), made.Book()
    book.record(tape)
    for each in texts:
        assert book.keyframe(0.0, each)
    return memoryview(tape.swap().columns(0, 0, 0, LAST_US).times).cast("q").tolist()


MOMENTS = st.datetimes(datetime(1969, 12, 31), datetime(2101, 3, 1)).flatmap(
    lambda at: st.sampled_from([
        at.isoformat() + "Z", f"{at:%Y-%m-%dT%H:%M:%S}Z", f"{at:%Y-%m-%dT%H:%M:%S.%f}123Z",
        f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond % 10}Z", f"{at:%Y-%m-%d %H:%M:%S}", at.isoformat(),
        f"{at:%Y-%m-%dT%H:%M:%S.%f}+01:00", f"{at:%Y-%m-%dT%H:%M}", f"{at:%Y%m%dT%H%M%S}Z",
    ])
)  # fmt: skip
ODD = st.text("0123456789-:.TZ ", max_size=32) | st.integers(0, 10**21).map(str)
NEARLY = st.tuples(MOMENTS, st.integers(0, 30), st.sampled_from("0129-:.TZ ")).map(
    lambda made: made[0][: made[1]] + made[2] + made[0][made[1] + 1 :]
)


@needs_compiled
@given(st.lists(MOMENTS | ODD | NEARLY, min_size=1, max_size=20))
@settings(max_examples=2 * settings.default.max_examples)
def test_times_are_read_as_the_connectors_read_them(texts) -> None:
    assert times_of(core, texts) == [microseconds(each) for each in texts]


@needs_compiled
def test_ends_of_years_and_of_months_are_read() -> None:
    texts = ["1970-01-01T00:00:00Z", "2000-02-29T23:59:59.999999999Z", "2100-02-29T00:00:00Z",
             "2024-02-29T00:00:00.Z", "2026-12-31T23:59:60Z", "2026-04-31T00:00:00Z",
             "2026-11-27T24:00:00Z", "999999999999999999", "١٢"]  # fmt: skip
    assert times_of(core, texts) == [microseconds(each) for each in texts]


@pytest.mark.parametrize("made", EACH)
def test_a_full_tape_takes_nothing_until_it_is_swapped(made) -> None:
    recorded = Recorded(made, rows_max=4)
    step = ("apply", 0, [("100", "1"), ("99", "1")], [], [], [], 0, 0)
    assert recorded.step(step) is True
    assert (recorded.step(step), recorded.tape.full) == (False, True)
    assert recorded.tape.count == 3
    taken = recorded.tape.swap()
    assert (taken.count, taken.rows_max) == (3, 4)
    assert (recorded.step(step), recorded.tape.full) == (True, False)


@pytest.mark.parametrize("made", EACH)
@pytest.mark.parametrize(
    ("side", "price", "amount", "scale"), [
        (0, 0, 1, 0), (0, 10**18, 1, 0), (1, 1, -1, 0), (0, 1, 1, 19), (1, 1, 1, -1),
    ]
)  # fmt: skip
def test_damaged_levels_are_refused(made, side, price, amount, scale) -> None:
    found = player(made, side, array("q", [price]), array("q", [amount]), scale)
    with pytest.raises(LevelError):
        found.play(made.Book(), 0, 1)
    with pytest.raises(IndexError):
        found.play(made.Book(), 0, 2)


def player(made: ModuleType, side: int, prices, amounts, scale: int = 0, starts=(0, 1)):
    """Return the player of one delta."""
    none, nothing, ends = array("i", [0, 0]), array("q"), array("q", [0])
    found, levels = array("i", starts), (prices, amounts)
    places = (none, found) if side else (found, none)
    sides = (nothing, nothing, *levels) if side else (*levels, nothing, nothing)
    scales = array("b", [scale])
    return made.TapePlayer(array("b", [DELTA]), scales, scales, ends, ends, *places, *sides)


@pytest.mark.parametrize("made", EACH)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("starts", [(0,), (0, 2), (-1, 1), (1, 0), (0, 0, 1)])
def test_levels_that_are_not_there_are_refused(made, side, starts) -> None:
    one = array("q", [1])
    found = player(made, side, one, one)
    assert (found.count, found.changed) == (1, -1)
    assert found.play(made.Book(), 0, 1) == 1
    assert found.changed == 0
    with pytest.raises(ValueError, match="different lengths"):
        player(made, side, one, one, starts=starts)
    with pytest.raises(ValueError, match="different lengths"):
        player(made, side, one, array("q", [1, 2]))
