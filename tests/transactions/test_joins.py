"""Events of several rows, joined over pages, windows and sources: each once, and complete."""

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.transactions.adapter import (
    EventRow,
    FailureReason,
    Page,
    Source,
    SourceFailed,
    Window,
)
from onebook.transactions.merge import HELD_MAX, NOTHING_LEFT_MS, Joiner, Outlet, Range
from onebook.transactions.record import FIRST, Record, RecordKey, key_of
from onebook.transactions.walk import Walker
from transactions.bybit_support import run
from transactions.test_record import record
from transactions.walking import keyed_of, source

SPAN_MS = 40
NOW_MS = 10**6


def event_of(group: list[EventRow]) -> Record:
    """The record of a group: the time of its newest row, and all rows in `related`."""
    rows = sorted(row.row_id for row in group)
    newest_ms = max(row.at_ms for row in group)
    assert group[0].at_ms == newest_ms
    name = f"{group[0].key}@{min(row.at_ms for row in group)}"
    return record(timestamp=newest_ms, transactionId=name, related=tuple(rows))


class RowBook:
    """A reader of rows, newest first by offset; a page may repeat rows of the last one."""

    def __init__(self, rows: list[EventRow], *, repeats: int = 0) -> None:
        self.rows = sorted(rows, key=lambda row: (-row.at_ms, row.row_id))
        self.joins = 0
        self.asked: list[tuple[Window, str]] = []
        self._repeats = repeats

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        self.asked.append((window, cursor))
        await asyncio.sleep(0)
        inside = [row for row in self.rows if window.from_ms <= row.at_ms < window.to_ms]
        start = max(0, int(cursor or 0) - self._repeats)
        parts = inside[start : start + source.page_rows]
        return Page([], len(parts), str(int(cursor or 0) + source.page_rows), parts=parts)

    async def join(self, groups: list[list[EventRow]]) -> Page:
        self.joins += 1
        await asyncio.sleep(0)
        records = [event_of(group) for group in groups]
        return Page(records, 0, "")


def groups_of(random: Random, count: int, *, until_ms: int) -> list[list[EventRow]]:
    """Groups of one to four rows within the span; some keys recur much later."""
    found: list[list[EventRow]] = []
    for index in range(count):
        start_ms = random.randrange(until_ms)
        again = random.choice(found)[0].key if found and random.random() < 0.3 else ""
        near = [
            each for each in found
            if each[0].key == again and abs(each[0].at_ms - start_ms) <= 3 * SPAN_MS
        ]  # fmt: skip
        key = again if again and not near else f"k{index}"
        times = sorted(start_ms + random.randrange(SPAN_MS) for _ in range(random.randrange(1, 5)))
        found.append([EventRow(key, f"r{index}.{n}", at, None) for n, at in enumerate(times)])
    return found


def read(
    books: list[RowBook],
    joined: Source,
    wanted: Range,
    *,
    limit: int | None = None,
    held_max: int = HELD_MAX,
) -> tuple[list[Record], list[Walker]]:
    async def story() -> tuple[list[Record], list[Walker]]:
        progress = asyncio.Event()
        outlet = Outlet(
            wanted, progress, join=books[0].join, join_ms=joined.join_ms, held_max=held_max
        )
        walkers = [
            Walker(joined, book, wanted, now_ms=lambda: NOW_MS, progress=progress, outlet=outlet)
            for book in books
        ]
        found = [
            r for _, r in await keyed_of(walkers[:1], progress, limit=limit)
        ]  # they have one outlet
        await asyncio.gather(*(walker.close() for walker in walkers))
        return found, walkers

    return run(story())


@given(
    st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([50, 300, 5_000]),
    st.integers(1, 7), st.sampled_from([0, 1, 3]), st.integers(1, 3),
)  # fmt: skip
def test_every_event_of_the_range_once_and_whole_wherever_its_rows_are(
    seed: int, count: int, window_ms: int, page_rows: int, repeats: int, sources: int
) -> None:
    random = Random(seed)
    groups = groups_of(random, count, until_ms=2_000)
    from_ms, to_ms = sorted((random.randrange(2_100), random.randrange(2_100)))
    books: list[list[EventRow]] = [[] for _ in range(sources)]
    for group in groups:
        for row in group:
            random.choice(books).append(row)
    joined = source(
        window_ms=window_ms, page_rows=page_rows, page_rows_least=0, join_ms=SPAN_MS, sized=False
    )
    expected = [event_of(group[::-1]) for group in groups]
    expected = sorted((r for r in expected if from_ms <= r.timestamp <= to_ms), key=key_of)

    def names(after: RecordKey, limit: int | None = None) -> list[tuple[str, tuple[str, ...]]]:
        readers = [RowBook(rows, repeats=repeats) for rows in books]
        found, walkers = read(readers, joined, Range(from_ms, to_ms, after=after), limit=limit)
        assert [each.disordered for each in walkers] == [0] * sources
        return [(r.transactionId, r.related) for r in found]

    whole = [(r.transactionId, r.related) for r in expected]
    assert names(FIRST) == whole, f"seed {seed}"
    for index in (0, len(expected) // 2, len(expected) - 1):
        if expected:  # an answer that goes on from a place has the rest
            assert names(key_of(expected[index])) == whole[index + 1 :], f"seed {seed}"
            assert names(FIRST, index + 1) == whole[: index + 1], f"seed {seed}"


def test_a_source_far_ahead_waits_for_the_one_that_it_is_joined_with() -> None:
    class SlowBook(RowBook):
        async def page(self, source: Source, window: Window, cursor: str) -> Page:
            for _ in range(60):
                await asyncio.sleep(0)
            return await super().page(source, window, cursor)

    def rows(name: str, count: int) -> list[EventRow]:
        return [EventRow(f"{name}{n}", f"{name}{n}", n, None) for n in range(count)]

    fast, slow = RowBook(rows("f", 1_200)), SlowBook(rows("s", 60))
    joined = source(window_ms=100_000, page_rows=5, page_rows_least=5, join_ms=5)
    slow.rows = [EventRow(r.key, r.row_id, r.at_ms * 20, None) for r in slow.rows]
    found, _ = read([fast, slow], joined, Range(0, 99_999), held_max=200)
    assert len(found) == 1_260
    assert [r.timestamp for r in found] == sorted((r.timestamp for r in found), reverse=True)


def test_a_failure_of_one_source_ends_all_that_it_is_joined_with() -> None:
    class Failing(RowBook):
        async def page(self, source: Source, window: Window, cursor: str) -> Page:
            if cursor:
                raise SourceFailed(FailureReason.UNREACHABLE, "Away.", retryable=True)
            return await super().page(source, window, cursor)

    rows = [EventRow(f"k{n}", f"r{n}", n * 10, None) for n in range(100)]
    joined = source(window_ms=10_000, page_rows=5, page_rows_least=5, join_ms=5)
    found, walkers = read([RowBook(rows[::2]), Failing(rows[1::2])], joined, Range(0, 9_999))
    assert [r.timestamp for r in found] == [990, 980, 970, 960, 950, 940, 930, 920, 910][
        : len(found)
    ]
    assert [walker.exhausted for walker in walkers] == [False, False]
    failures = [walker.failure for walker in walkers if walker.failure]
    assert failures[0].message == "Away."


def test_a_join_that_fails_is_a_failure_of_the_source() -> None:
    class NoMore(RowBook):
        async def join(self, groups: list[list[EventRow]]) -> Page:
            raise SourceFailed(FailureReason.PERMISSION_DENIED, "Not for this key.")

    rows = [EventRow("k", "r", 10, None)]
    found, (walker,) = read([NoMore(rows)], source(join_ms=5), Range(0, 99))
    assert found == []
    assert walker.failure is not None
    assert walker.failure.reason is FailureReason.PERMISSION_DENIED


def test_rows_that_cannot_be_joined_are_counted() -> None:
    class Odd(RowBook):
        async def join(self, groups: list[list[EventRow]]) -> Page:
            return Page([record(timestamp=groups[0][0].at_ms)], 0, "", unreadable=1)

    rows = [EventRow("a", "r1", 10, None), EventRow("b", "r2", 90, None)]
    found, (walker,) = read([Odd(rows)], source(join_ms=5), Range(0, 99))
    assert (len(found), walker.unreadable) == (1, 2)


def test_a_key_that_comes_again_later_is_another_event() -> None:
    joiner = Joiner(10)
    for at_ms in (100, 95, 50):
        joiner.add(EventRow("k", f"r{at_ms}", at_ms, None))
    assert [[row.at_ms for row in group] for group in joiner.complete(85)] == [[100, 95]]
    assert joiner.held == 1
    joiner.add(EventRow("k", "r100", 100, None))  # a row that a later page repeats
    assert [[row.at_ms for row in group] for group in joiner.complete(-1)] == [[50]]
    assert joiner.held == 0


def put(row: EventRow, groups: list[list[EventRow]], span_ms: int) -> None:
    """Add a row to the first group of its key that it fits into, or create one."""
    for group in groups:
        times = [each.at_ms for each in (*group, row)]
        if group[0].key == row.key and max(times) - min(times) <= span_ms:
            group.append(row)
            return
    groups.append([row])


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(-9, 60)), max_size=40
    )
)
def test_the_joiner_groups_as_a_scan_of_all_rows_does(steps: list[tuple[str, int, int]]) -> None:
    """Rows in any order; after each, groups that can no longer grow are removed."""
    span_ms = 10
    joiner, left = Joiner(span_ms), list[list[EventRow]]()
    for number, (key, at_ms, watermark_ms) in enumerate(steps):
        row = EventRow(key, f"r{number}", at_ms, None)
        joiner.add(row)
        put(row, left, span_ms)
        last_ms = watermark_ms + span_ms
        done = [group for group in left if max(each.at_ms for each in group) > last_ms]
        left = [group for group in left if group not in done]
        found = joiner.complete(watermark_ms)
        times = [group[0].at_ms for group in found]
        assert times == sorted(times, reverse=True)
        assert sorted(sorted(row.row_id for row in group) for group in found) == sorted(
            sorted(row.row_id for row in group) for group in done
        )
        assert joiner.held == sum(len(group) for group in left)
        assert joiner.newest_ms == max(
            (row.at_ms for group in left for row in group), default=NOTHING_LEFT_MS
        )


class Capped:
    """An exchange that shows at most N rows of a window, without a cursor."""

    def __init__(self, times: list[int], most: int) -> None:
        self.times, self.most = times, most
        self.asked = 0

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        self.asked += 1
        inside = sorted((t for t in self.times if window.from_ms <= t < window.to_ms), reverse=True)
        if source.oldest_first:
            inside.reverse()
        shown = [record(timestamp=t, transactionId=f"t{t}") for t in inside[: self.most]]
        return Page(shown, len(shown), "", cut=len(inside) > self.most)


def capped(book: Capped, **fields: Any) -> tuple[list[int], Walker]:
    async def story() -> tuple[list[int], Walker]:
        progress = asyncio.Event()
        walker = Walker(
            source(**({"window_ms": 10_000, "page_rows": 9} | fields)), book, Range(0, 9_999),
            now_ms=lambda: NOW_MS, progress=progress,
        )  # fmt: skip
        found = [r.timestamp for _, r in await keyed_of([walker], progress)]
        await walker.close()
        return found, walker

    return run(story())


@pytest.mark.parametrize("oldest_first", [False, True])
@given(st.sets(st.integers(0, 9_999), max_size=60), st.integers(1, 9))
def test_a_window_that_was_cut_is_read_in_halves(
    oldest_first: bool, times: set[int], most: int
) -> None:
    found, walker = capped(Capped(list(times), most), oldest_first=oldest_first)
    assert found == sorted(times, reverse=True)
    assert walker.exhausted


def test_an_instant_with_more_rows_than_are_shown_is_a_failure() -> None:
    found, walker = capped(Capped([9_000, 8_000, 500, 500, 500], 2))
    assert found == [9_000]
    assert walker.failure is not None
    assert "More rows share one timestamp" in walker.failure.message


def test_a_bound_reader_is_what_a_joint_takes() -> None:
    """`Run` sets the source; the outlet only passes groups on."""
    seen: list[Source] = []

    async def join(source: Source, groups: list[list[EventRow]]) -> Page:
        seen.append(source)
        return Page([event_of(group) for group in groups], 0, "")

    async def story() -> None:
        outlet = Outlet(Range(0, 9), asyncio.Event(), join=partial(join, source()), join_ms=1)
        number = outlet.enter()
        page = Page([], 1, "", parts=[EventRow("k", "r", 5, None)])
        await outlet.accept(number, page, 9)
        await outlet.end(number)
        assert [r.timestamp for _, r in outlet.ready] == [5]

    run(story())
    assert [each.name for each in seen] == ["s"]
