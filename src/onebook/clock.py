"""Time: the clock of this machine, when periodic work is due, and times as texts.

Code takes a `Clock` as an argument. Texts are ISO 8601 in UTC and HTTP dates.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HTTP_DATE_CHARACTERS: Final = 64  # of the longest form, with a long name of the day, half
_MILLISECOND: Final = timedelta(milliseconds=1)


def next_tick(now: float, interval_s: float) -> float:
    """The next whole multiple of an interval, half of one to one and a half from `now`.

    Timers on whole multiples wake a process together, and the processes of a machine at the same
    moments; half an interval, because a timer of uvloop may be a millisecond early.
    """
    return (round(now / interval_s) + 1) * interval_s


class SystemClock:
    """The time of this machine.

    `monotonic` is the clock behind the event loop's time, so that callbacks agree with it; the
    loop's own is cut to milliseconds on uvloop, and round trips are shorter than that.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    monotonic = staticmethod(time.monotonic)  # seconds that only grow; no call of ours in between

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back at a time of `monotonic`."""
        return self._loop.call_at(when, callback)

    def wall_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000


def iso_ms(at_ms: int) -> str:
    """Print Unix milliseconds as ISO 8601 with milliseconds and `Z`.

    Raises:
        ValueError: It is no time of the years 1 to 9999, for which alone the format is defined.
    """
    seconds, rest = divmod(at_ms, 1_000)
    return f"{_whole_second(seconds)}.{rest:03d}Z"


def iso_us(at_us: int) -> str:
    """Print Unix microseconds as ISO 8601 with microseconds and `Z`.

    Raises:
        ValueError: It is no time of the years 1 to 9999.
    """
    seconds, rest = divmod(at_us, 1_000_000)
    return f"{_whole_second(seconds)}.{rest:06d}Z"


def ms_of_iso(text: str) -> int:
    """Read ISO 8601 as Unix milliseconds, rounded down; a text without a zone is UTC.

    Raises:
        ValueError: It is no such text.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def s_of_http_date(text: str) -> float:
    """Read an HTTP date, as in Date and Retry-After (RFC 9110 section 5.6.7), as Unix seconds.

    One without a zone is read as GMT, the zone of all HTTP dates.

    Raises:
        ValueError: It is no date of the years 1 to 9999.
    """
    if len(text) > HTTP_DATE_CHARACTERS:
        raise ValueError("A date that is too long.")
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    # email.utils raises what its parts raise, on years and zones beyond those of datetime too.
    except (ValueError, TypeError, OverflowError, IndexError, AttributeError):
        raise ValueError("The text is not an HTTP date.") from None


@lru_cache(maxsize=8)
def _whole_second(seconds: int) -> str:
    """The text of a second, cached, because a thousand updates share it."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    except OverflowError:
        raise ValueError("The time is outside the years 1 to 9999.") from None
