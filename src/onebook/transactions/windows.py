"""Cutting a range of time into windows that an exchange accepts: pure.

Half-open, contiguous, newest first. The grid hangs on the end of the range, so that a resumed
walk sees the same windows as the one before it.
"""

from collections.abc import Iterator
from typing import Final

from onebook.transactions.adapter import Source, Window

FLOOR_MARGIN_MS: Final = 5 * 60_000  # "two years ago" moves while we walk
SPLIT_MS_MIN: Final = 60 * 60_000
PAGES_LONG: Final = 24  # a window of more pages is cut in two: windows are read side by side
PAGES_SHORT: Final = 3


def floor_ms(source: Source, now_ms: int) -> int:
    """The oldest time that a source may be asked for."""
    kept_from = 0 if source.keeps_ms is None else now_ms - source.keeps_ms + FLOOR_MARGIN_MS
    return max(source.begins_ms, kept_from)


class Cutter:
    """The windows of one walk, newest first; their length follows how full they are.

    Args:
        source: What is walked.
        from_ms: The oldest time to read, inclusive.
        to_ms: The newest time to read, exclusive: the origin of the grid.
        below_ms: Only windows below this are still to be read, exclusive.
    """

    def __init__(self, source: Source, *, from_ms: int, to_ms: int, below_ms: int) -> None:
        self._source = source
        grain = source.grain_ms
        self._from_ms = from_ms // grain * grain
        self._length_ms = source.window_ms
        # Up to the end of a grain: the exchange compares whole seconds.
        self._to_ms = _up(to_ms, grain)
        self._last_ms = to_ms - 1
        self._below_ms = min(self._to_ms, _up(below_ms, grain))

    def __iter__(self) -> Iterator[Window]:
        top = self._to_ms
        while top > self._from_ms:
            bottom = max(self._from_ms, top - self._length_ms)
            if bottom < self._below_ms:
                yield Window(bottom, min(top, self._below_ms), min(top - 1, self._last_ms))
            top = bottom

    def filled(self, pages: int) -> None:
        """Note how many pages a window had."""
        if self._source.untimed:
            return
        grain = self._source.grain_ms
        if pages > PAGES_LONG:
            half = self._length_ms // 2 // grain * grain
            self._length_ms = max(min(SPLIT_MS_MIN, self._source.window_ms), half)
        elif pages < PAGES_SHORT:
            self._length_ms = min(self._source.window_ms, self._length_ms * 2)


def _up(at_ms: int, grain_ms: int) -> int:
    return -(-at_ms // grain_ms) * grain_ms
