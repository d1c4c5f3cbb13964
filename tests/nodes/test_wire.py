"""Messages between nodes: encoded messages are decoded unchanged, damaged ones refused."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from core.both import SHAPES
from core.level_strategies import AMOUNTS, PRICES
from onebook import core
from onebook.books import Books, LiveBook
from onebook.core import reference
from onebook.core.types import LEVELS_MAX, PAIRS
from onebook.exchanges.kit import Delta, Snapshot, TopOfBook
from onebook.model import Health, Instrument, Reason
from onebook.nodes import wire
from onebook.nodes.wire import snapshot_of_book

BTC = Instrument("okx", "BTC/USDT", "BTC-USDT")


def text(rows):
    return b"[%b]" % b",".join(b'["%b","%b"]' % (p.encode(), a.encode()) for p, a in rows)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_delta_comes_back_with_the_text_and_shape_of_the_exchange(shape):
    delta = Delta(BTC, Raw(b'[["1","2"]]'), b"[[3,4]]", shape, sequence=-1)
    frame = wire.frame_of(wire.delta_frame(2**63 - 1, 7, 9, delta))
    assert (frame.kind, frame.node, frame.epoch, frame.seq) == (wire.Kind.DELTA, 2**63 - 1, 7, 9)
    back = wire.delta_of(frame, BTC)
    assert type(back) is Delta
    assert (back.bids, back.asks, back.shape) == (b'[["1","2"]]', b"[[3,4]]", shape)
    assert back.sequence == -1


def test_a_top_comes_back():
    top = TopOfBook(BTC, 7, b'[["1","2"]]', b"[]")
    frame = wire.frame_of(wire.delta_frame(1, 2, 3, top))
    assert frame.kind is wire.Kind.TOP
    assert wire.delta_of(frame, BTC) == top


@pytest.mark.parametrize("rows", [1, 20_000])
def test_a_snapshot_comes_back_and_a_long_one_is_deflated(rows):
    bids = text((str(each + 1), "1.5") for each in range(rows))
    payload = wire.snapshot_frame(
        1, 2, 3, Snapshot(BTC, bids, b"[]", PAIRS, 50, sequence=9), age_ms=70
    )
    snapshot, age_ms = wire.snapshot_of(wire.frame_of(payload), BTC)
    assert (snapshot.bids, snapshot.asks, snapshot.shape) == (bids, b"[]", PAIRS)
    assert (snapshot.levels_asked, snapshot.sequence, age_ms) == (50, 9, 70)
    assert len(payload) < 200_000


def test_a_health_comes_back():
    payload = wire.health_frame(1, 2, 3, Health.STALE, Reason.GAP, "why")
    assert wire.state_of(wire.frame_of(payload)) == wire.BookState(Health.STALE, "gap", "why")


WHOLE = (
    wire.snapshot_frame(1, 2, 3, Snapshot(BTC, b'[["1","2"]]', b"[]", PAIRS)),
    wire.snapshot_frame(1, 2, 3, Snapshot(BTC, b"[" + b" " * 70_000 + b"]", b"[]", PAIRS)),
    wire.delta_frame(1, 2, 3, Delta(BTC, b'[["1","2"]]', b"[]", PAIRS)),
    wire.delta_frame(1, 2, 3, TopOfBook(BTC, 7, b'[["1","2"]]', b"[]")),
    wire.health_frame(1, 2, 3, Health.STALE, None, ""),
    wire.mark_frame(1, 2, 3),
)


def read(payload):
    frame = wire.frame_of(payload)
    match frame.kind:
        case wire.Kind.SNAPSHOT:
            wire.snapshot_of(frame, BTC)
        case wire.Kind.DELTA:
            wire.delta_of(frame, BTC)
        case wire.Kind.HEALTH:
            wire.state_of(frame)


@given(st.sampled_from(WHOLE), st.data())
@settings(max_examples=300)
def test_damaged_bytes_are_read_or_refused_with_the_one_error(payload, data):
    damaged = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    with suppress(wire.WireError):
        read(bytes(damaged))


def test_another_version_is_refused():
    with pytest.raises(wire.WireError, match="version 4"):
        wire.frame_of(b"\x04" + WHOLE[0][1:])


rows_of = st.lists(st.tuples(st.sampled_from(PRICES), st.sampled_from(AMOUNTS)), max_size=12)


@pytest.mark.parametrize("implementation", [core, reference], ids=["compiled", "reference"])
@given(
    bids=rows_of,
    asks=rows_of,
    asked=st.sampled_from([0, 0, 1, 2, 3, 5, 12]),
    deltas=st.lists(st.tuples(rows_of, rows_of), max_size=3),
    windows=st.sampled_from([0, 2]),
)
@settings(max_examples=200, deadline=None)
def test_the_snapshot_of_a_book_makes_an_equal_book(
    implementation, bids, asks, asked, deltas, windows
):
    """A copy has the same levels and horizons as the book, also after later changes."""
    book, copy = LiveBook(BTC, LEVELS_MAX, windows), LiveBook(BTC, LEVELS_MAX, windows)
    book.core, copy.core = implementation.Book(LEVELS_MAX), implementation.Book(LEVELS_MAX)
    book.core.replace(text(bids), text(asks), PAIRS, asked)
    for more_bids, more_asks in deltas:
        book.core.apply(text(more_bids), text(more_asks), PAIRS)
    snapshot = snapshot_of_book(book)
    copy.core.replace(snapshot.bids, snapshot.asks, snapshot.shape, snapshot.levels_asked)
    for each in ([("100", "7"), ("0.1", "3")], [("0.00000001", "1"), ("123456.789", "0")]):
        assert copy.core.top(LEVELS_MAX) == book.core.top(LEVELS_MAX)
        assert copy.horizon() == book.horizon()
        for one in (book, copy):
            one.core.apply(text(each), text(each), PAIRS)


def test_books_publish_nothing_that_was_refused():
    """A delta that leaves the book crossed is not sent; the book's staleness is."""
    from onebook.nodes.publisher import PublishedBooks

    sent = []
    books = PublishedBooks(
        5, publish=lambda subject, payload: sent.append(payload), subject_of=lambda key: key.text
    )
    books.open(BTC)
    assert isinstance(books, Books)
    assert books.fill(Snapshot(BTC, b'[["100","1"]]', b'[["101","1"]]'), 1.0) is None
    assert books.change(Delta(BTC, b'[["102","1"]]'), 2.0) == Reason.CROSSED
    assert books.change(Delta(BTC, b'[["99","1"]]'), 2.0) is None  # not live: no event
    frames = [wire.frame_of(payload) for payload in sent]
    assert [(each.kind.name, each.seq) for each in frames] == [("SNAPSHOT", 1), ("HEALTH", 2)]
