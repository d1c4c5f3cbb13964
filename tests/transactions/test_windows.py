"""Windows: half-open, contiguous, newest first, never longer than the exchange takes."""

from hypothesis import given
from hypothesis import strategies as st

from onebook.model import DAY_MS
from onebook.transactions.adapter import Source
from onebook.transactions.windows import PAGES_LONG, SPLIT_MS_MIN, Cutter, floor_ms

WEEK_MS = 7 * DAY_MS


def source(**fields: object) -> Source:
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
    cutter = Cutter(source(grain_ms=grain_ms), from_ms=from_ms, to_ms=to_ms, below_ms=to_ms)
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
    whole = list(Cutter(source(), from_ms=from_ms, to_ms=to_ms, below_ms=to_ms))
    resumed = list(Cutter(source(), from_ms=from_ms, to_ms=to_ms, below_ms=below_ms))
    assert resumed == [
        window._replace(to_ms=min(window.to_ms, below_ms))
        for window in whole
        if window.from_ms < below_ms
    ]


def test_full_windows_are_halved_and_empty_ones_grow_again() -> None:
    cutter = Cutter(source(), from_ms=0, to_ms=100 * WEEK_MS, below_ms=100 * WEEK_MS)
    windows = iter(cutter)
    lengths = []
    for pages in (PAGES_LONG + 1, PAGES_LONG + 1, 1, 1, 1):
        window = next(windows)
        lengths.append(window.to_ms - window.from_ms)
        cutter.filled(pages)
    assert lengths == [WEEK_MS, WEEK_MS // 2, WEEK_MS // 4, WEEK_MS // 2, WEEK_MS]


def test_windows_are_never_halved_to_nothing() -> None:
    cutter = Cutter(source(), from_ms=0, to_ms=100 * WEEK_MS, below_ms=100 * WEEK_MS)
    for _ in range(50):
        cutter.filled(PAGES_LONG + 1)
    window = next(iter(cutter))
    assert window.to_ms - window.from_ms == SPLIT_MS_MIN


def test_windows_whose_rows_may_lack_a_time_keep_their_grid() -> None:
    cutter = Cutter(source(untimed=True), from_ms=0, to_ms=9 * WEEK_MS, below_ms=9 * WEEK_MS)
    cutter.filled(PAGES_LONG + 1)
    assert next(iter(cutter)).from_ms == 8 * WEEK_MS


def test_the_floor_moves_with_the_clock_and_stops_at_the_beginning() -> None:
    kept = source(keeps_ms=730 * DAY_MS, begins_ms=1_000)
    assert floor_ms(kept, 1_000 * DAY_MS) == 270 * DAY_MS + 5 * 60_000
    assert floor_ms(kept, 700 * DAY_MS) == 1_000
    assert floor_ms(source(begins_ms=7), 1_000 * DAY_MS) == 7
