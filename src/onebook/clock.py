"""Clocks and timers, the due times of periodic work, and times as text (ISO 8601, HTTP dates)."""

import asyncio
import heapq
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import count
from typing import Final, Protocol

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HTTP_DATE_CHARACTERS: Final = 64  # the longest valid date has half as many
_MICROSECOND: Final = timedelta(microseconds=1)


def next_tick(now: float, interval_s: float) -> float:
    """Return a multiple of the interval, half an interval to one and a half after `now`.

    Timers on multiples fire together, so a process, and all processes of a machine, wake less
    often. The minimum of half an interval allows for uvloop timers that fire a millisecond early.
    """
    return (round(now / interval_s) + 1) * interval_s


class Handle(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback."""


class Clock:
    """Monotonic and wall time of this machine, timers and sleeping.

    Code that does I/O takes a clock as an argument; sans-I/O code takes times. `monotonic` reads
    the clock behind the event loop's time, so both agree. It does not use `loop.time()`, which
    uvloop truncates to milliseconds, longer than many round trips.
    """

    # Static, so that `clock.monotonic` is the C function itself: the data path binds it once.
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)

    def wall_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return self.wall_us() // 1_000

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        """Call back at a time of `monotonic`, on the running event loop."""
        return asyncio.get_running_loop().call_at(when, callback)


SYSTEM_CLOCK: Final = Clock()


class ManualClock(Clock):
    """A clock that moves only when `move_to` is called: for replays and tests.

    Args:
        now_s: The monotonic time.
        epoch_us: Unix microseconds at monotonic time 0.
    """

    def __init__(self, now_s: float = 0.0, *, epoch_us: int = 0) -> None:
        self.now_s = now_s
        self.epoch_us = epoch_us
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = count()

    def monotonic(self) -> float:
        """Seconds, as set."""
        return self.now_s

    def wall_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return self.epoch_us + round(self.now_s * 1_000_000)

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        """Call back when the clock is moved to a time, or beyond."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (max(when, self.now_s), next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has been moved by this many seconds."""
        passed = asyncio.Event()
        timer = self.call_at(self.now_s + seconds, passed.set)
        try:
            await passed.wait()
        finally:
            timer.cancel()

    @property
    def due_at(self) -> float | None:
        """When the next callback is due; None without one."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def move_to(self, now_s: float) -> None:
        """Advance the time and run due callbacks in order, each at its own time."""
        while self._timers and self._timers[0][0] <= now_s:
            when_s, _, timer = heapq.heappop(self._timers)
            self.now_s = max(self.now_s, when_s)
            if timer.callback is not None:
                timer.callback()
        self.now_s = max(self.now_s, now_s)


class _Timer:
    """A callback of a `ManualClock`; None once cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


def day_of(at_ms: int) -> date:
    """Return the day (UTC) of Unix milliseconds."""
    return datetime.fromtimestamp(at_ms // 1_000, UTC).date()


def iso_ms(at_ms: int) -> str:
    """Print Unix milliseconds as ISO 8601 with milliseconds and `Z`.

    Raises:
        ValueError: The time is outside the years 1 to 9999, the range of ISO 8601.
    """
    seconds, rest = divmod(at_ms, 1_000)
    return f"{_whole_second(seconds)}.{rest:03d}Z"


def iso_us(at_us: int) -> str:
    """Print Unix microseconds as ISO 8601 with microseconds and `Z`.

    Raises:
        ValueError: The time is outside the years 1 to 9999.
    """
    seconds, rest = divmod(at_us, 1_000_000)
    return f"{_whole_second(seconds)}.{rest:06d}Z"


def ms_of_iso(text: str) -> int:
    """Read ISO 8601 as Unix milliseconds, rounded down; a text without a zone is UTC.

    Raises:
        ValueError: The text is not ISO 8601.
    """
    return us_of_iso(text) // 1_000


def us_of_iso(text: str) -> int:
    """Read ISO 8601 as Unix microseconds; a text without a zone is UTC.

    Raises:
        ValueError: The text is not ISO 8601.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def s_of_http_date(text: str) -> float:
    """Read an HTTP date, as in Date and Retry-After (RFC 9110 section 5.6.7), as Unix seconds.

    A date without a zone is GMT, as all HTTP dates are.

    Raises:
        ValueError: The text is not an HTTP date of the years 1 to 9999.
    """
    if len(text) > HTTP_DATE_CHARACTERS:
        raise ValueError("The date is too long.")
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    # email.utils lets the exceptions of its parts through, also for years and zones out of range.
    except (ValueError, TypeError, OverflowError, IndexError, AttributeError):
        raise ValueError("The text is not an HTTP date.") from None


@lru_cache(maxsize=8)
def _whole_second(seconds: int) -> str:
    """Format a second; cached, because a thousand updates share it."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    except OverflowError:
        raise ValueError("The time is outside the years 1 to 9999.") from None
