"""The recorded times of a pair's order books, and the time that a request for history names."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field

from onebook.api.bodies import NO_SESSION, AnswerBody, errors
from onebook.api.edge import Caller, Parts
from onebook.clock import Clock, iso_us
from onebook.errors import (
    HistoryUnavailable,
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    ServiceUnavailable,
)
from onebook.exchanges.kit.listing import SYMBOL_CHARACTERS_MAX
from onebook.model import DAY_MS
from onebook.streams.past import Span, moment_us

router = APIRouter(tags=["orderbooks"])

DAYS_MAX: Final = 31
DAY_US: Final = DAY_MS * 1_000
Since = Annotated[
    str | None,
    Query(
        alias="from",
        max_length=SYMBOL_CHARACTERS_MAX,
        description="ISO 8601, UTC if without a zone, or microseconds since 1970; "
        "default: a day before `to`.",
    ),
]
Until = Annotated[
    str | None,
    Query(
        alias="to",
        max_length=SYMBOL_CHARACTERS_MAX,
        description=f"At most {DAYS_MAX} days after `from`; default: now.",
    ),
]
HISTORY_ERRORS: Final = (
    InvalidRequest,
    RateLimitExceeded,
    InternalError,
    ServiceUnavailable,
    HistoryUnavailable,
)  # of a request for recorded data


def range_us(since: str | None, until: str | None, clock: Clock) -> tuple[int, int]:
    """Return a requested time of the history as microseconds since 1970; default: the last day.

    Raises:
        InvalidRequest: It is not a time, or too long.
    """
    end_us = clock.wall_ms() * 1_000 if until is None else moment_us("to", until)
    start_us = end_us - DAY_US if since is None else moment_us("from", since)
    if not 0 <= end_us - start_us <= DAYS_MAX * DAY_US:
        raise InvalidRequest(f"from: must be at most {DAYS_MAX} days before to, and not after it.")
    return start_us, end_us


class RecordedSpan(AnswerBody):
    """A time without a gap."""

    since: Annotated[str, Field(serialization_alias="from")]
    until: Annotated[str, Field(serialization_alias="to")]


class RecordedReport(AnswerBody):
    """The recorded times of a pair."""

    symbol: str
    since: Annotated[str, Field(serialization_alias="from")]
    until: Annotated[str, Field(serialization_alias="to")]
    first: str | None
    """The first recorded moment of the whole history, of any pair; null if there is none."""
    last: str | None
    """The last recorded moment of the whole history."""
    recorded: list[RecordedSpan]
    """The times in which books of the pair were recorded."""
    exchanges: dict[str, list[RecordedSpan]]
    """The same of each exchange; one that joined within an hour has the whole hour."""


@router.get(
    "/api/v1/history/{base}/{quote}",
    summary="Recorded times of a pair",
    responses=errors(*NO_SESSION, *HISTORY_ERRORS),
)
async def recorded_times(
    parts: Parts,
    session: Caller,
    base: Annotated[str, Path(max_length=SYMBOL_CHARACTERS_MAX, examples=["BTC"])],
    quote: Annotated[str, Path(max_length=SYMBOL_CHARACTERS_MAX, examples=["USDT"])],
    since: Since = None,
    until: Until = None,
) -> RecordedReport:
    """Return when books of a pair were recorded, and by which exchanges.

    Any moment of these times can be read with `as_of`, and played with `start`. The node must
    record a history (`history.dir`).
    """
    start_us, end_us = range_us(since, until, parts.clock)
    symbol = f"{base}/{quote}".upper()
    times = await parts.recorded(symbol, start_us, end_us)
    return RecordedReport(
        symbol=symbol,
        since=iso_us(start_us),
        until=iso_us(end_us),
        first=None if times.first_us is None else iso_us(times.first_us),
        last=None if times.last_us is None else iso_us(times.last_us),
        recorded=_spans(times.recorded),
        exchanges={name: _spans(each) for name, each in times.exchanges.items()},
    )


def _spans(spans: Sequence[Span]) -> list[RecordedSpan]:
    return [RecordedSpan(since=iso_us(start), until=iso_us(end)) for start, end in spans]
