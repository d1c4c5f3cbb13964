"""The recorded quality of the exchanges' order books."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from onebook.api.bodies import NO_SESSION, AnswerBody, errors
from onebook.api.edge import Caller, Parts
from onebook.api.history import HISTORY_ERRORS, Since, Until, range_us
from onebook.clock import iso_ms
from onebook.errors import InvalidRequest
from onebook.streams.past import QualityQuery

router = APIRouter(tags=["orderbooks"])

ROWS_MAX: Final = 10_000
LIST_CHARACTERS_MAX: Final = 2_000


class OutageBody(AnswerBody):
    """How often and how long books had a reason."""

    reason: str
    count: int
    """How often it began."""
    seconds: float


class QualityBody(AnswerBody):
    """The quality of a group of books and hours."""

    exchange: str
    symbol: str | None = None
    """With `by` symbol or book."""
    hour: str | None = None
    """The start of the hour, with `by` hour or book."""
    uptime: float | None
    """`live_s / observed_s`; null if no book was observed."""
    observed_s: float
    """Seconds in which books were open and recorded."""
    live_s: float
    """Seconds of them in which books were live."""
    messages: int
    gaps: int
    """How often books were invalidated because of a gap."""
    checksum_misses: int
    """Because of a checksum."""
    silences: int
    """Because of silent, quiet or dead_stream."""
    refusals: int
    """Because of refused, rate_limited or unavailable."""
    audits: int
    """Comparisons of a live book with a REST snapshot of the same number."""
    audit_mismatches: int
    """How many of them found a difference, which invalidated the book."""
    timed_messages: int
    """Messages with a time of the exchange, to which the ages apply."""
    age_p50_ms: float | None
    """Median of receive minus exchange time; of several books and hours, the median of medians."""
    age_p90_ms: float | None
    """90th percentile of the worst book and hour, as the next two."""
    age_p99_ms: float | None
    age_max_ms: float | None
    compared_s: int
    """Seconds at whose end another exchange's book of the symbol was live, too."""
    crossed_s: int
    """Seconds at whose end a book crossed another exchange's, before fees."""
    crossings: int
    """How often that began."""
    outages: list[OutageBody]
    """The reasons, the longest first."""


class QualityReport(AnswerBody):
    """The quality of the exchanges in a time."""

    since: Annotated[str, Field(serialization_alias="from")]
    until: Annotated[str, Field(serialization_alias="to")]
    rows: list[QualityBody]


@router.get(
    "/api/v1/exchanges/quality",
    summary="Recorded quality of the exchanges",
    response_model_exclude_unset=True,
    responses=errors(*NO_SESSION, *HISTORY_ERRORS),
)
async def exchange_quality(
    parts: Parts,
    session: Caller,
    since: Since = None,
    until: Until = None,
    exchanges: Annotated[
        str,
        Query(
            max_length=LIST_CHARACTERS_MAX,
            description="Exchange names separated by commas; default: all.",
        ),
    ] = "",
    symbols: Annotated[
        str,
        Query(max_length=LIST_CHARACTERS_MAX, description="Pairs separated by commas."),
    ] = "",
    by: Annotated[
        Literal["exchange", "symbol", "hour", "book"],
        Query(description="A row for each exchange, or with its symbol, its hour, or both."),
    ] = "exchange",
) -> QualityReport:
    """Return uptime, failures, ages and crossings of the closed hours that begin in this time.

    The node must record a history (`history.dir`).
    """
    start_us, end_us = range_us(since, until, parts.clock)
    wanted, pairs = _names(exchanges), [each.upper() for each in _names(symbols)]
    rows = await parts.quality(QualityQuery(start_us, end_us, wanted, pairs, by))
    if len(rows) > ROWS_MAX:
        raise InvalidRequest(f"by: gives {len(rows):,} rows, of at most {ROWS_MAX:,}.")
    return QualityReport(
        since=iso_ms(start_us // 1_000),
        until=iso_ms(end_us // 1_000),
        rows=[QualityBody(**each) for each in rows],
    )


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
