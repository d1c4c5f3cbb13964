"""Parses dates, times, spans, years and time zones of commands; needs no server package.

A date is a whole day. Unless a time zone is given, dates and times without an offset are in UTC.
"""

import re
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from onebook.clock import ms_of_iso
from onebook.errors import InvalidRequest
from onebook.model import DAY_MS, MINUTE_MS, SECOND_MS

NOW: Final = "now"
SPAN_UNITS_MS: Final = {"s": SECOND_MS, "m": MINUTE_MS, "h": 60 * MINUTE_MS, "d": DAY_MS}
_SPAN = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})", re.ASCII)
_MOMENT: Final = "time; use for example 90d or 2027-01-31"
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 9998  # the following year must be a valid date


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def span_ms(text: str) -> int:
    """Parse a time span such as 30m, 24h or 7d.

    Raises:
        InvalidRequest: The text is not a time span.
    """
    span = _SPAN.fullmatch(text)
    if span is None:
        raise InvalidRequest(f"{text!r} is not a time span; use for example 30m, 24h or 7d.")
    return int(span[1]) * SPAN_UNITS_MS[span[2]]


def day_ms(text: str) -> int:
    """Parse a date in UTC such as 2027-01-31 (its first millisecond), or a time.

    Raises:
        InvalidRequest: The text is neither.
    """
    return _start_ms(text, "date; use for example 2027-01-31")


def day_end_ms(text: str) -> int:
    """Parse a date in UTC (the first millisecond after it), or a time.

    Raises:
        InvalidRequest: The text is neither.
    """
    return day_ms(text) + (DAY_MS if _is_date(text) else 0)


def until_ms(text: str, now_ms: int) -> int:
    """Parse an expiry: a span such as 90d, a date in UTC (inclusive), or a time.

    Raises:
        InvalidRequest: The text has none of these forms.
    """
    if _SPAN.fullmatch(text):
        return now_ms + span_ms(text)
    return _last_ms(text)


def past_ms(text: str, now_ms: int, zone: tzinfo = UTC) -> int:
    """Parse the start of a range: now, a duration before now such as 90d, a date in the
    zone, or a time.

    Raises:
        InvalidRequest: The text has none of these forms.
    """
    if text == NOW:
        return now_ms
    if _SPAN.fullmatch(text):
        return now_ms - span_ms(text)
    return _start_ms(text, _MOMENT, zone)


def past_end_ms(text: str, now_ms: int, zone: tzinfo = UTC) -> int:
    """Parse the inclusive end of a range: like `past_ms`, but a date means its last millisecond.

    Raises:
        InvalidRequest: The text has none of these forms.
    """
    return _last_ms(text, zone) if _is_date(text) else past_ms(text, now_ms, zone)


def year_ms(year: int, zone: tzinfo) -> tuple[int, int]:
    """Return the first and last millisecond of a calendar year in a time zone.

    Raises:
        InvalidRequest: The year is out of range.
    """
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        raise InvalidRequest(f"{year} is not a year; use for example 2025.")
    return past_ms(f"{year}-01-01", 0, zone), past_end_ms(f"{year}-12-31", 0, zone)


def zone_of(name: str) -> tzinfo:
    """Return the time zone of an IANA name such as Europe/Berlin or an offset such as +01:00.

    Raises:
        InvalidRequest: The zone is unknown; the message suggests similar names.
    """
    if name == "UTC":  # works without installed time zone data
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None and int(offset[2]) < 24 and int(offset[3]) < 60:
        east = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(east if offset[1] == "+" else -east)
    zones = {zone.lower(): zone for zone in sorted(available_timezones())}
    wanted = name.strip().replace(" ", "_").lower()
    if wanted in zones:
        return ZoneInfo(zones[wanted])
    of_city = [each for each in zones if wanted and each.endswith(f"/{wanted}")]
    near = [zones[each] for each in of_city or get_close_matches(wanted, zones, n=3)]
    meant = f" Did you mean {', '.join(near)}?" if near else ""
    raise InvalidRequest(
        f"{name!r} is not a time zone; use for example Europe/Berlin or +01:00.{meant}"
    )


def minute_in(zone: tzinfo, at_ms: int) -> str:
    """Format a time in a zone to the minute, such as 2025-01-01 00:00."""
    return datetime.fromtimestamp(at_ms / 1_000, zone).isoformat(" ")[:16]


def _last_ms(text: str, zone: tzinfo = UTC) -> int:
    if not _is_date(text):
        return _start_ms(text, _MOMENT, zone)
    day = _moment(text, _MOMENT)
    # The later of the two, if clocks are put back at midnight.
    last = day.replace(hour=23, minute=59, second=59, microsecond=999_000, tzinfo=zone, fold=1)
    return ms_of_iso(last.isoformat())


def _start_ms(text: str, wanted: str, zone: tzinfo = UTC) -> int:
    moment = _moment(text, wanted)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return ms_of_iso(moment.isoformat())


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None


def _moment(text: str, wanted: str) -> datetime:
    """Parse a date or time; weeks such as 2027-W05, which ISO 8601 allows, are refused."""
    try:
        if "W" in text:
            raise ValueError
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a {wanted}.") from None
