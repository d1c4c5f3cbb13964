"""Reading one source to its end."""

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.model import DAY_MS
from onebook.transactions.adapter import (
    CursorGone,
    FailureReason,
    Page,
    Source,
    SourceFailed,
    TooOld,
    Window,
)
from onebook.transactions.merge import (
    BATCH_MAX,
    DEMAND_MAX,
    UNPLACED_MAX,
    Demand,
    Keyed,
    Once,
    Range,
    merged,
)
from onebook.transactions.record import Record, RecordKey, key_of
from onebook.transactions.walk import Walker
from onebook.transactions.windows import (
    PAGES_LONG,
    SPLIT_MS_MIN,
    Bookmark,
    CursorChain,
    Cutter,
    floor_ms,
    is_last,
)
from transactions.bybit_support import run
from transactions.test_record import record
from transactions.walking import Book, event, simple, source, walked

WEEK_MS = 7 * DAY_MS


@given(
    st.lists(st.integers(0, 1_000), unique=True),
    st.integers(0, 1_000),
    st.integers(0, 1_000),
    st.sampled_from([1, 10]),
    st.sampled_from([0, 5, 150]),
    st.sampled_from([0, 1, 3]),
)
def test_every_record_of_the_range_once_and_in_order(
    times: list[int], one: int, other: int, grain_ms: int, lag_ms: int, least: int
) -> None:
    from_ms, to_ms = min(one, other), max(one, other)
    random = Random(sum(times))
    events = [(max(0, at - random.randrange(lag_ms + 1)), event(at)) for at in times]
    found, walker = walked(
        Book(*events),
        source(grain_ms=grain_ms, lag_ms=lag_ms + grain_ms - 1, page_rows_least=least),
        from_ms,
        to_ms,
    )
    assert [r.timestamp for r in found] == sorted(
        (at for at in times if from_ms <= at <= to_ms), reverse=True
    )
    assert walker.exhausted
    assert walker.disordered == 0


@given(st.lists(st.integers(0, 600), min_size=1, unique=True), st.integers(0, 40))
def test_resumed_at_any_record_the_rest_is_the_same(times: list[int], at: int) -> None:
    whole, _ = walked(simple(*times), source(), 0, 600)
    stop = whole[at % len(whole)]
    rest, _ = walked(
        simple(*times), source(), 0, 600, after=RecordKey(-stop.timestamp, stop.transactionId)
    )
    assert whole[at % len(whole) + 1 :] == rest


def test_a_failure_keeps_what_came_before_and_says_how_far() -> None:
    book = simple(*range(0, 300, 10))
    failure = SourceFailed(FailureReason.RATE_LIMITED, "no", retryable=True)
    book.answers = lambda window, cursor: failure if window.to_ms <= 200 else None
    found, walker = walked(book, source(), 0, 299)
    assert [r.timestamp for r in found] == list(range(290, 190, -10))
    assert walker.failure is failure
    assert walker.delivered == RecordKey(-200, event(200).transactionId)
    rest, _ = walked(simple(*range(0, 300, 10)), source(), 0, 299, after=walker.delivered)
    assert [r.timestamp for r in rest] == list(range(190, -10, -10))


def test_a_defect_of_ours_is_not_passed_over() -> None:
    book = simple(1)
    book.answers = lambda window, cursor: ZeroDivisionError("a defect")
    with pytest.raises(ZeroDivisionError):
        walked(book, source(), 0, 99)


def test_a_defect_in_the_walk_itself_is_raised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("onebook.transactions.merge.Sorter.push", broken)
    with pytest.raises(ZeroDivisionError):
        walked(simple(1), source(), 0, 99)


def test_a_range_before_the_source_began_or_after_it_ended_asks_nothing() -> None:
    book = simple(5)
    assert walked(book, source(begins_ms=500), 0, 400)[1].exhausted
    assert walked(book, source(ends_ms=50), 60, 400)[1].exhausted
    assert book.asked == []


def test_rows_without_a_time_count_at_the_end_of_their_window() -> None:
    book = simple()
    book.answers = lambda window, cursor: Page(
        [event(window.to_ms - 1, f"0x{window.from_ms:040x}"), event(window.from_ms)], 2, ""
    )
    found, walker = walked(book, source(untimed=True, lag_ms=10), 0, 250)
    assert walker.disordered == 0
    assert [r.timestamp for r in found] == sorted((r.timestamp for r in found), reverse=True)


def test_a_snapshot_stands_before_everything() -> None:
    async def story() -> list[str]:
        progress = asyncio.Event()
        books = [Book((5, event(5, "0xevent"))), Book((100, event(100, "0xheld")))]
        books[1].answers = lambda window, cursor: Page([event(100, "0xheld")], 1, "")
        sources = [source(), source(name="snapshot", window_ms=0)]
        walkers = [
            Walker(s, b, Range(0, 99), now_ms=lambda: 99, progress=progress)
            for s, b in zip(sources, books, strict=True)
        ]
        found = [
            key.record_id
            async for b in merged([each.outlet for each in walkers], progress, limit=None)
            for key, _ in b
        ]
        for walker in walkers:
            await walker.close()
        return found

    assert run(story()) == ["0xheld", "0xevent"]


def test_without_a_consumer_nothing_is_read_ahead_without_bounds() -> None:
    async def story() -> int:
        progress = asyncio.Event()
        book = simple(*range(20_000))
        walker = Walker(
            source(window_ms=20_000, page_rows=100, page_rows_least=50),
            book,
            Range(0, 20_000),
            now_ms=lambda: 20_000,
            progress=progress,
        )
        await asyncio.sleep(3_600)
        asked = len(book.asked)
        await walker.close()
        return asked

    assert run(story()) < 20


def test_records_of_one_millisecond_stand_by_id_over_pages() -> None:
    book = Book(*[(50, event(50, f"0x{index:040x}")) for index in range(10)])
    found, _ = walked(book, source(), 0, 99)
    assert [r.transactionId for r in found] == [f"0x{index:040x}" for index in range(10)]


def test_rows_that_repeat_pass_once() -> None:
    """A row added between two pages pushes the last row of the first onto the second."""
    book = simple(90, 80, 70, 60)
    pages = {
        "": Page([event(90), event(80), event(70)], 3, "3"),
        "3": Page([event(70), event(60)], 2, "5"),
    }
    book.answers = lambda window, cursor: pages.get(cursor, Page([], 0, ""))
    found, walker = walked(book, source(), 0, 99)
    assert [r.timestamp for r in found] == [90, 80, 70, 60]
    assert walker.disordered == 0


def test_an_exchange_out_of_order_loses_nothing_and_is_reported() -> None:
    book = simple()
    pages = {"": Page([event(40), event(30)], 2, "2"), "2": Page([event(60), event(10)], 2, "")}
    book.answers = lambda window, cursor: pages[cursor]
    found, walker = walked(book, source(page_rows_least=0), 0, 99)
    assert sorted(r.timestamp for r in found) == [10, 30, 40, 60]
    assert walker.disordered == 1


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("cursors", [("a", "a"), ("a", "b", "a")])
def test_a_cursor_that_repeats_is_a_failure(cursors: tuple[str, ...], oldest_first: bool) -> None:
    """The rows after that page are unreachable: the window is incomplete."""
    book = simple(5)
    left = iter(cursors)
    book.answers = lambda window, cursor: Page([event(5)], 3, next(left))
    _, walker = walked(book, source(oldest_first=oldest_first), 0, 99)
    assert len(book.asked) == len(cursors)
    assert not walker.exhausted
    assert walker.failure is not None
    assert walker.failure.reason is FailureReason.UNREADABLE
    assert walker.failure.retryable


@pytest.mark.parametrize("oldest_first", [False, True])
def test_an_empty_page_ends_the_window_whatever_its_cursor(oldest_first: bool) -> None:
    book = simple(5)
    left = iter((Page([event(5)], 3, "a"), Page([], 0, "a")))
    book.answers = lambda window, cursor: next(left)
    found, walker = walked(book, source(oldest_first=oldest_first), 0, 99)
    assert len(found) == 1
    assert walker.exhausted


def test_a_window_without_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.walk.PAGES_MAX", 5)
    book = simple()
    book.answers = lambda window, cursor: Page([], 3, cursor + "x")
    _, walker = walked(book, source(), 0, 99)
    assert walker.failure is not None
    assert walker.failure.reason is FailureReason.EXCHANGE_ERROR


class TestFloor:
    """The start of the exchange's retention moves during the walk."""

    KEPT = source(keeps_ms=1_000_000, window_ms=1_000_000)

    def test_a_floor_that_moved_over_a_window_cuts_it(self) -> None:
        """10001 "2 years": the start is recomputed, and the rest of the window requested again."""
        now = 2_000_000
        book = simple(1_350_000, 1_450_000)

        def answers(window: Window, cursor: str) -> Page | Exception | None:
            return TooOld() if window.from_ms < 1_400_000 else None

        book.answers = answers
        clock = iter([now, now + 100_000, now + 100_000])

        async def story() -> Walker:
            progress = asyncio.Event()
            walker = Walker(
                self.KEPT,
                book,
                Range(0, 1_500_000),
                now_ms=lambda: next(clock),
                progress=progress,
            )
            found = [
                r async for batch in merged([walker.outlet], progress, limit=None) for _, r in batch
            ]
            await walker.close()
            assert [r.timestamp for r in found] == [1_450_000]
            return walker

        walker = run(story())
        assert walker.exhausted
        assert walker.cut_short_ms == walker.floor_ms == 1_400_000

    def test_a_window_wholly_below_the_moved_floor_is_empty(self) -> None:
        book = simple()
        book.answers = lambda window, cursor: TooOld()
        clock = iter([2_000_000, 5_000_000])

        async def story() -> Walker:
            progress = asyncio.Event()
            walker = Walker(
                self.KEPT, book, Range(0, 1_500_000), now_ms=lambda: next(clock), progress=progress
            )
            assert [b async for b in merged([walker.outlet], progress, limit=None)] == []
            await walker.close()
            return walker

        assert run(story()).exhausted

    def test_an_exchange_that_keeps_less_than_it_says(self) -> None:
        book = simple()
        book.answers = lambda window, cursor: TooOld()
        _, walker = walked(book, source(keeps_ms=1_000_000), 700_000, 800_000)
        assert walker.failure is not None
        assert "less than it documents" in walker.failure.message


@pytest.mark.parametrize(
    ("rows", "full_page", "least", "last"),
    [
        (0, False, 0, True),
        (2, True, 0, False),  # filtered: only an empty page is the end
        (1, False, 20, True),
        (30, False, 20, False),  # it could be a page size that shrank without a word
        (30, True, 20, True),
        (50, True, 20, False),
    ],
)
def test_when_a_page_is_surely_the_last(rows: int, full_page: bool, least: int, last: bool) -> None:
    s = source(page_rows=50, page_rows_least=least)
    assert is_last(s, rows, full_page=full_page) is last


class TestOldestFirst:
    """The newest rows of a window arrive last, and nothing is emitted before them."""

    @given(
        st.lists(st.integers(0, 1_000), unique=True),
        st.integers(0, 1_000),
        st.integers(0, 1_000),
        st.sampled_from([1, 10]),
        st.sampled_from([0, 5, 150]),
        st.sampled_from([0, 1, 3]),
        st.sampled_from([1, 2, 50]),
    )
    def test_every_record_of_the_range_once_and_in_order(
        self,
        times: list[int],
        one: int,
        other: int,
        grain_ms: int,
        lag_ms: int,
        least: int,
        held: int,
    ) -> None:
        from_ms, to_ms = min(one, other), max(one, other)
        random = Random(sum(times))
        events = [(max(0, at - random.randrange(lag_ms + 1)), event(at)) for at in times]
        lag_ms += grain_ms - 1
        asked = source(grain_ms=grain_ms, lag_ms=lag_ms, page_rows_least=least, oldest_first=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("onebook.transactions.walk.PAGES_HELD_MAX", held)
            found, walker = walked(Book(*events), asked, from_ms, to_ms)
        assert [r.timestamp for r in found] == sorted(
            (at for at in times if from_ms <= at <= to_ms), reverse=True
        )
        assert walker.exhausted
        assert walker.disordered == 0

    def test_a_window_of_one_grain_may_have_more_pages_than_are_held(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("onebook.transactions.walk.PAGES_HELD_MAX", 2)
        book = Book(*[(50, event(50, f"0x{n:040x}")) for n in range(20)])
        found, _ = walked(book, source(oldest_first=True), 0, 99)
        assert len({one.transactionId for one in found}) == 20

    def test_one_without_end_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("onebook.transactions.walk.PAGES_MAX", 5)
        monkeypatch.setattr("onebook.transactions.walk.PAGES_HELD_MAX", 2)
        book = simple()
        book.answers = lambda window, cursor: Page([], 3, cursor + "x")
        _, walker = walked(book, source(oldest_first=True), 0, 9)
        assert walker.failure is not None
        assert walker.failure.reason is FailureReason.EXCHANGE_ERROR

    def test_a_floor_that_moved_over_it_cuts_it(self) -> None:
        asked = source(keeps_ms=1_000_000, window_ms=1_000_000, oldest_first=True)
        book = simple(10, 900_000)
        book.answers = lambda window, cursor: TooOld() if window.from_ms < 400_000 else None
        clock = iter((1_000_000, *[1_100_000] * 50))
        found, walker = stepped(book, asked, 0, 999_999, clock)
        assert [r.timestamp for r in found] == [900_000]
        assert walker.kept_from_ms is not None


class TestBookmarks:
    """A walk resumes at the page where it stopped, by the exchange's own cursor."""

    LASTING = source(window_ms=10_000, ranged=False, cursor_lasts=True, page_rows_least=3)

    @given(st.lists(st.integers(0, 600), min_size=1, unique=True), st.integers(0, 40))
    def test_resumed_at_any_record_the_rest_is_the_same_and_asked_once(
        self, times: list[int], at: int
    ) -> None:
        whole, _ = walked(simple(*times), self.LASTING, 0, 600)
        index = at % len(whole)
        stop = key_of(whole[index])
        # The walk that ended there: only pages up to that record have been accepted.
        first = simple(*times)
        mark = bookmark_at(first, self.LASTING, stop, count=index + 1)
        second = simple(*times)
        rest, _ = walked(second, self.LASTING, 0, 600, after=stop, begin=mark)
        assert rest == whole[index + 1 :]
        assert mark is not None
        assert second.asked[0][1] == mark.cursor
        assert int(mark.cursor or 0) <= index + 1
        assert int(mark.cursor or 0) > index - 2 * self.LASTING.page_rows

    def test_one_that_is_gone_begins_the_window_again(self) -> None:
        book = simple(10, 20, 30, 40, 50)
        book.answers = lambda window, cursor: CursorGone() if cursor == "old" else None
        begin = Bookmark(0, 100, 99, "old")
        found, _ = walked(book, self.LASTING, 0, 99, after=RecordKey(-30, ""), begin=begin)
        assert [r.timestamp for r in found] == [30, 20, 10]

    def test_one_of_this_walk_that_is_refused_is_a_failure(self) -> None:
        book = simple(10, 20, 30, 40, 50)
        book.answers = lambda window, cursor: CursorGone() if cursor else None
        _, walker = walked(book, self.LASTING, 0, 99)
        assert walker.failure is not None
        assert "its own cursor" in walker.failure.message

    def test_pages_below_the_range_are_not_asked_for(self) -> None:
        book = simple(*range(0, 600, 10))
        found, _ = walked(book, self.LASTING, 500, 600)
        assert len(found) == 10
        assert len(book.asked) <= 5


def stepped(
    book: Book, asked: Source, from_ms: int, to_ms: int, clock: Iterator[int]
) -> tuple[list[Record], Walker]:
    """A walk while time passes."""

    async def story() -> tuple[list[Record], Walker]:
        progress = asyncio.Event()
        walker = Walker(
            asked, book, Range(from_ms, to_ms), now_ms=lambda: next(clock), progress=progress
        )
        found = [
            r async for batch in merged([walker.outlet], progress, limit=None) for _, r in batch
        ]
        await walker.close()
        return found, walker

    return run(story())


def bookmark_at(book: Book, asked: Source, stop: RecordKey, *, count: int) -> Bookmark | None:
    """The position from which a walk resumes after this many records."""

    async def story() -> Bookmark | None:
        progress = asyncio.Event()
        walker = Walker(asked, book, Range(0, 600), now_ms=lambda: 10**6, progress=progress)
        async for _ in merged([walker.outlet], progress, limit=count):
            pass
        mark = walker.bookmark(stop)
        await walker.close()
        return mark

    return run(story())


def test_it_goes_on_until_there_is_no_cursor() -> None:
    trail = CursorChain()
    assert [trail.cursor, trail.follow("a"), trail.cursor] == ["", True, "a"]
    assert not trail.follow("")
    assert trail.cursor == "a"


@pytest.mark.parametrize("again", ["begin", "a"])
def test_a_cursor_that_comes_again_is_a_failure(again: str) -> None:
    trail = CursorChain("begin")
    trail.follow("a")
    with pytest.raises(SourceFailed, match="repeated a cursor") as caught:
        trail.follow(again)
    assert caught.value.retryable


def weekly(**fields: object) -> Source:
    return Source(**({"name": "s", "type": "t", "window_ms": WEEK_MS} | fields))  # type: ignore[arg-type]


@given(
    st.integers(0, 10**12),
    st.integers(1, 900 * DAY_MS),
    st.sampled_from([1, 1_000]),
    st.lists(st.integers(0, 40), max_size=50),
)
def test_windows_cover_the_range_without_holes_or_overlaps(
    from_ms: int, length_ms: int, grain_ms: int, pages: list[int]
) -> None:
    to_ms = from_ms + length_ms
    cutter = Cutter(weekly(grain_ms=grain_ms), from_ms=from_ms, to_ms=to_ms, below_ms=to_ms)
    top = -(-to_ms // grain_ms) * grain_ms
    fullness = iter(pages)
    for window in cutter:
        assert window.to_ms == top
        assert 0 < window.to_ms - window.from_ms <= WEEK_MS
        assert window.from_ms % grain_ms == 0 or window.from_ms == from_ms
        assert window.seen_ms == min(top, to_ms) - 1 or window.seen_ms == top - 1
        assert window.seen_ms < to_ms
        top = window.from_ms
        cutter.filled(next(fullness, 5))
    assert top == from_ms // grain_ms * grain_ms


@given(st.integers(1, 700 * DAY_MS), st.integers(0, 700 * DAY_MS))
def test_a_resumed_walk_hangs_on_the_same_grid(length_ms: int, done_ms: int) -> None:
    """A row without a time counts at the end of its window, whichever page reads it."""
    from_ms, to_ms = 10**12, 10**12 + length_ms
    below_ms = max(from_ms, to_ms - done_ms)
    whole = list(Cutter(weekly(), from_ms=from_ms, to_ms=to_ms, below_ms=to_ms))
    resumed = list(Cutter(weekly(), from_ms=from_ms, to_ms=to_ms, below_ms=below_ms))
    assert resumed == [
        window._replace(to_ms=min(window.to_ms, below_ms))
        for window in whole
        if window.from_ms < below_ms
    ]


def test_full_windows_are_halved_and_empty_ones_grow_again() -> None:
    cutter = Cutter(weekly(), from_ms=0, to_ms=100 * WEEK_MS, below_ms=100 * WEEK_MS)
    windows = iter(cutter)
    lengths = []
    for pages in (PAGES_LONG + 1, PAGES_LONG + 1, 1, 1, 1):
        window = next(windows)
        lengths.append(window.to_ms - window.from_ms)
        cutter.filled(pages)
    assert lengths == [WEEK_MS, WEEK_MS // 2, WEEK_MS // 4, WEEK_MS // 2, WEEK_MS]


def test_windows_are_never_halved_to_nothing() -> None:
    cutter = Cutter(weekly(), from_ms=0, to_ms=100 * WEEK_MS, below_ms=100 * WEEK_MS)
    for _ in range(50):
        cutter.filled(PAGES_LONG + 1)
    window = next(iter(cutter))
    assert window.to_ms - window.from_ms == SPLIT_MS_MIN


def test_windows_whose_rows_may_lack_a_time_keep_their_grid() -> None:
    cutter = Cutter(weekly(untimed=True), from_ms=0, to_ms=9 * WEEK_MS, below_ms=9 * WEEK_MS)
    cutter.filled(PAGES_LONG + 1)
    assert next(iter(cutter)).from_ms == 8 * WEEK_MS


def test_the_floor_moves_with_the_clock_and_stops_at_the_beginning() -> None:
    kept = weekly(keeps_ms=730 * DAY_MS, begins_ms=1_000)
    assert floor_ms(kept, 1_000 * DAY_MS) == 270 * DAY_MS + 5 * 60_000
    assert floor_ms(kept, 700 * DAY_MS) == 1_000
    assert floor_ms(weekly(begins_ms=7), 1_000 * DAY_MS) == 7


class Shelf:
    """A walker with buffered records."""

    def __init__(self, *times: int, begun: bool = True) -> None:
        records = [record(timestamp=at, transactionId=f"0x{at:040x}") for at in times]
        self.ready: deque[Keyed] = deque((key_of(one), one) for one in records)
        self.begun = begun
        self.finished = False


def test_what_is_older_than_enough_records_is_not_wanted() -> None:
    demand = Demand(2)
    demand.update([Shelf(90, 70), Shelf(80)], 2)
    assert demand.needs(80)
    assert not demand.needs(79)


def test_two_sources_of_one_event_count_once() -> None:
    demand = Demand(2)
    demand.update([Shelf(90), Shelf(90)], 2)
    assert demand.needs(1)


def test_a_small_answer_waits_for_every_source_to_begin() -> None:
    demand = Demand(2)
    demand.update([Shelf(90), Shelf(begun=False)], 2)
    assert not demand.needs(100)
    demand.update([Shelf(90), Shelf()], 2)
    assert demand.needs(100)


def test_a_long_answer_wants_everything() -> None:
    for limit in (None, DEMAND_MAX + 1):
        demand = Demand(limit)
        demand.update([Shelf(90)], limit)
        assert demand.needs(-(10**12))


def test_a_waiter_goes_on_when_more_is_wanted() -> None:
    async def story() -> bool:
        demand = Demand(1)
        waiting = asyncio.create_task(demand.wanted(50))
        await asyncio.sleep(0)
        assert not waiting.done()
        demand.update([Shelf()], 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return waiting.done()

    assert run(story())


@given(
    st.lists(st.lists(st.integers(0, 500), unique=True, max_size=25), min_size=1, max_size=4),
    st.integers(1, 30),
)
def test_many_sources_become_one_sequence_cut_at_the_limit(
    lists: list[list[int]], limit: int
) -> None:
    """The first `limit` records, whatever the pace of each source; equal ids once."""

    async def story() -> list[RecordKey]:
        progress, random = asyncio.Event(), Random(limit)
        walkers = []
        for index, times in enumerate(lists):
            book = simple(*times)
            book.latency_s = random.random()
            walkers.append(
                Walker(
                    source(name=f"s{index}"),
                    book,
                    Range(0, 500),
                    now_ms=lambda: 500,
                    progress=progress,
                    long=bool(index % 2),
                )
            )
        found = [
            key
            async for batch in merged([each.outlet for each in walkers], progress, limit=limit)
            for key, _ in batch
        ]
        for walker in walkers:
            await walker.close()
        return found

    everything = sorted({at for times in lists for at in times}, reverse=True)
    assert [-key.negative_ms for key in run(story())] == everything[:limit]


def test_a_sparse_source_does_not_hold_back_a_full_one() -> None:
    """Its watermark excludes newer records, so the limit is reached before its end."""

    async def story() -> tuple[int, int]:
        progress = asyncio.Event()
        full, sparse = simple(*range(400, 500)), simple(3)
        sparse.latency_s = 1.0
        walkers = [
            Walker(
                source(name=name), b, Range(0, 500), now_ms=lambda: 500, progress=progress,
                long=False,
            )
            for name, b in (("full", full), ("sparse", sparse))
        ]  # fmt: skip
        found = [
            key
            async for batch in merged([each.outlet for each in walkers], progress, limit=50)
            for key, _ in batch
        ]
        for walker in walkers:
            await walker.close()
        return len(found), len(sparse.asked)

    found, asked = run(story())
    assert found == 50
    assert asked <= 3  # of five windows


def test_a_record_without_a_time_of_its_own_passes_once_wherever_it_stands() -> None:
    """In two lists, and in the following answer."""
    row = record(incomplete=("timestamp",), transactionId="0x" + "b" * 40)
    here, there = (key_of(row), row), (RecordKey(-5, row.transactionId), row)
    other = (key_of(record()), record())
    once = Once()
    assert [once.passes(keyed) for keyed in (here, other, there)] == [True, True, False]
    following = Once(once.unplaced)
    assert [following.passes(keyed) for keyed in (there, other)] == [False, True]


def test_a_cursor_carries_the_newest_of_them() -> None:
    once = Once()
    for number in range(UNPLACED_MAX + 5):
        row = record(incomplete=("timestamp",), transactionId=f"0x{number:016x}" + "b" * 24)
        assert once.passes((key_of(row), row))
    assert len(once.unplaced) == UNPLACED_MAX
    assert once.unplaced[-1] == f"0x{UNPLACED_MAX + 4:016x}"


def test_a_long_sequence_comes_in_small_batches_and_others_have_turns_between() -> None:
    """Thousands of records may be ready at once, which the caller encodes."""

    async def story() -> tuple[list[int], list[int]]:
        progress, turns = asyncio.Event(), 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        walkers = [
            Walker(
                source(name=f"s{index}"),
                simple(*range(index, 3_000, 4)),
                Range(0, 3_000),
                now_ms=lambda: 3_000,
                progress=progress,
            )
            for index in range(4)
        ]
        await asyncio.sleep(60)  # until each has as many ready as it may
        task = asyncio.create_task(other())
        sizes, seen = [], []
        async for batch in merged([each.outlet for each in walkers], progress, limit=None):
            sizes.append(len(batch))
            seen.append(turns)
        task.cancel()
        for walker in walkers:
            await walker.close()
        return sizes, seen

    sizes, seen = run(story())
    assert sum(sizes) == 3_000
    assert max(sizes) == BATCH_MAX
    assert all(later > earlier for earlier, later in pairwise(seen))
