"""Unix times as ISO 8601 texts in UTC, and back."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


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


@lru_cache(maxsize=8)
def _whole_second(seconds: int) -> str:
    """The text of a second, cached, because a thousand updates share it."""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    except OverflowError:
        raise ValueError("A time outside the years 1 to 9999.") from None
