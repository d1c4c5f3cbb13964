"""Timestamps in exchange frames: Unix time in any unit, or ISO 8601 text.

Connectors pass a time on as it came, because it is read a few times a second and not of each frame;
`milliseconds` is the one place that reads it.
"""

from typing import Final

from onebook.clock import ms_of_iso

Moment = int | str  # Unix time in ms, us or ns, as a number or its digits; or ISO 8601
UNTIMED: Final = 0

CHARACTERS_MAX: Final = 40  # of a time; what is longer is none
# What is larger is in the next smaller unit. In ms these are the years 5138 and after; in us and
# ns the same figures are of 1973 and before.
MILLISECONDS_MAX: Final = 10**14
MICROSECONDS_MAX: Final = 10**17
NANOSECONDS_MAX: Final = 10**20


def milliseconds(at: Moment) -> int:
    """Convert an exchange's time to whole Unix milliseconds, rounded down; 0 where it is none.

    A text without a zone is UTC.
    """
    number = at if isinstance(at, int) else _read(at)
    if number < MILLISECONDS_MAX:
        return max(number, UNTIMED)
    if number < MICROSECONDS_MAX:
        return number // 1_000
    return number // 1_000_000 if number < NANOSECONDS_MAX else UNTIMED


def _read(text: str) -> int:
    if len(text) > CHARACTERS_MAX:
        return UNTIMED
    if text.isdecimal():
        return int(text)
    try:
        return ms_of_iso(text)
    except ValueError:
        return UNTIMED
