"""The envelope around records: counts, coverage, errors; pure.

Field names follow the documented interface; what is ours stands after it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from onebook.transactions.adapter import Source
from onebook.transactions.failures import SourceFailed
from onebook.transactions.query import Query
from onebook.transactions.record import Record, RecordKey
from onebook.transactions.walk import Walker

LIMIT_REACHED: Final = "limit_reached"
DEADLINE: Final = "deadline"
OLDER_NOT_KEPT: Final = "older_not_kept"
FAILED_BEFORE: Final = "failed_before"
UNREADABLE_RECORD: Final = "unreadable_record"
OUT_OF_ORDER: Final = "out_of_order"
LACKING: Final = (FAILED_BEFORE, UNREADABLE_RECORD)  # of this page or one before it

# Of types that have the same name at every exchange.
SINGULAR: Final = {
    "deposits": "deposit",
    "withdrawals": "withdrawal",
    "transfers": "transfer",
    "holdings": "balance",
}


class Coverage(Struct, frozen=True, rename={"from_ms": "from", "to_ms": "to"}):
    """Coverage of the requested range by an answer, for one type.

    Args:
        from_ms: Everything from here on is in this answer or those before it; null: nothing is.
        to_ms: Where this answer begins, going back in time.
        complete: Whether all of the asked range is.
        reason: Why not: a code.
        floor: Unix ms before which the exchange keeps nothing; null where no end is known.
    """

    transaction_type: str
    from_ms: int | None
    to_ms: int
    complete: bool
    reason: str | None
    floor: int | None


class ErrorEntry(Struct, frozen=True):
    """One type that could not be read, or not to its end."""

    transaction_type: str
    error: str
    message: str
    exchange_code: int | None
    retryable: bool


class Totals:
    """Counts of the records of an answer.

    Args:
        singular: The documented singular names of the exchange's own types.
    """

    def __init__(self, singular: Mapping[str, str]) -> None:
        self._singular = singular
        self.count = 0
        self.by_type: Counter[str] = Counter()
        self.oldest_ms: int | None = None
        self.newest_ms: int | None = None

    def add(self, record: Record) -> None:
        """Count one record."""
        self.count += 1
        self.by_type[singular_of(record, self._singular)] += 1
        at_ms = record.timestamp
        self.oldest_ms = at_ms if self.oldest_ms is None else min(self.oldest_ms, at_ms)
        self.newest_ms = at_ms if self.newest_ms is None else max(self.newest_ms, at_ms)

    def summary(self, query: Query) -> dict[str, Any]:
        """The documented `summary`; an empty answer shows the range that was asked for."""
        start = query.from_ms if self.oldest_ms is None else self.oldest_ms
        end = query.to_ms if self.newest_ms is None else self.newest_ms
        return {
            "total_count": self.count,
            "by_type": dict(sorted(self.by_type.items())),
            "date_range": {"start": start, "end": end},
        }


def singular_of(record: Record, own: Mapping[str, str]) -> str:
    """The documented singular name of what a record is."""
    if record.kind == "order":
        return "order"
    return own.get(record.type) or SINGULAR.get(record.type, record.type)


def message_of(count: int, types: int, *, cut_off: bool = False) -> str:
    """The documented sentence; where the deadline ended the answer, that it did."""
    records = f"{count} transaction{'' if count == 1 else 's'}"
    kinds = f"{types} transaction type{'' if types == 1 else 's'}"
    if cut_off:
        return f"Parsed {records} from {kinds} until the deadline; go on with next_cursor"
    return f"Successfully parsed {records} from {kinds}"


def filters_of(query: Query) -> dict[str, Any]:
    """The documented echo of what was asked for."""
    return {
        "start_time": query.request.start_time,
        "end_time": query.request.end_time,
        "transaction_types": list(query.words),
        "limit": query.limit,
    }


class SourcePart(Struct, frozen=True):
    """How far one source came.

    Args:
        walker: Its walker; None for a source that earlier pages finished or gave up.
        lost_before_ms: What earlier pages found: before it the exchange does not show all.
        flawed_before: Why what earlier pages delivered is not complete: a code.
    """

    source: Source
    walker: Walker | None
    given_up: bool = False
    lost_before_ms: int | None = None
    flawed_before: str | None = None

    @property
    def kept_from_ms(self) -> int | None:
        """From when on the exchange shows all there was; None for the whole range."""
        return self.lost_before_ms if self.walker is None else self.walker.kept_from_ms

    @property
    def flaw(self) -> str | None:
        """Why what was delivered is not complete: a code; None where nothing shows that."""
        if self.walker is not None and self.walker.disordered:
            return OUT_OF_ORDER
        if self.walker is not None and self.walker.unreadable:
            return UNREADABLE_RECORD
        return self.flawed_before


def coverage_of(
    query: Query, parts: list[SourcePart], *, last: RecordKey, stopped: str, top_ms: int
) -> list[Coverage]:
    """One entry for each type: the worst of its sources counts."""
    found: dict[str, Coverage] = {}
    for part in parts:
        entry = _entry(query, part, last=last, stopped=stopped, top_ms=top_ms)
        before = found.get(entry.transaction_type)
        found[entry.transaction_type] = _worse(before, entry) if before else entry
    return list(found.values())


def _entry(
    query: Query, part: SourcePart, *, last: RecordKey, stopped: str, top_ms: int
) -> Coverage:
    source, walker = part.source, part.walker
    floor = None if walker is None or source.keeps_ms is None else walker.floor_ms
    reached: tuple[int | None, str | None] = (query.from_ms, None)
    if part.given_up:
        reached = (None, FAILED_BEFORE)
    elif walker is not None:
        reached = _reached(query, walker, last=last, stopped=stopped)
    elif part.kept_from_ms is not None:
        reached = (min(part.kept_from_ms, query.to_ms), OLDER_NOT_KEPT)
    from_ms, reason = reached
    reason = reason or part.flaw
    return Coverage(source.type, from_ms, top_ms, reason is None, reason, floor)


def _reached(
    query: Query, walker: Walker, *, last: RecordKey, stopped: str
) -> tuple[int | None, str | None]:
    """The oldest time from which on everything was delivered, and why not from the start."""
    if walker.failure is not None:
        return _time_of(walker.delivered, query), walker.failure.reason.value
    if not walker.exhausted:
        came = max(last, walker.came_to if stopped == DEADLINE else walker.delivered)
        return _time_of(came, query), stopped
    if walker.kept_from_ms is not None:
        return min(walker.kept_from_ms, query.to_ms), OLDER_NOT_KEPT
    return query.from_ms, None


def _time_of(place: RecordKey, query: Query) -> int | None:
    """The oldest time of which nothing is missing at a place; None before the first."""
    # A place without an id stands before the records of its time.
    at_ms = -place.negative_ms + (not place.record_id)
    return at_ms if at_ms <= query.to_ms else None


def _worse(left: Coverage, right: Coverage) -> Coverage:
    if left.complete != right.complete:
        return right if left.complete else left
    # No coverage ranks below any coverage.
    reach = [entry.from_ms if entry.from_ms is not None else 1 << 62 for entry in (left, right)]
    return left if reach[0] >= reach[1] else right


def errors_of(
    parts: list[SourcePart], *, cut_off: bool = False, trouble: SourceFailed | None = None
) -> list[ErrorEntry]:
    """The errors, once for each type and reason.

    Args:
        cut_off: Whether the deadline ended the answer.
        trouble: What was being tried again at that time.
    """
    found: dict[tuple[str, str], ErrorEntry] = {}
    unreadable: Counter[str] = Counter()
    for part in parts:
        walker = part.walker
        if walker is None:
            continue
        kind = part.source.type
        if walker.failure is not None:
            found.setdefault((kind, walker.failure.reason), _failed(kind, walker.failure))
        elif cut_off and not walker.exhausted:
            found.setdefault((kind, DEADLINE), _unfinished(kind, trouble))
        unreadable[kind] += walker.unreadable
    return [*found.values(), *(_unreadable(*each) for each in unreadable.items() if each[1])]


def _failed(kind: str, failure: SourceFailed) -> ErrorEntry:
    return ErrorEntry(
        kind, failure.reason.value, failure.message, failure.exchange_code, failure.retryable
    )


def _unfinished(kind: str, trouble: SourceFailed | None) -> ErrorEntry:
    message = "The deadline came before this type was read to its end; go on with next_cursor."
    if trouble is None:
        return ErrorEntry(kind, DEADLINE, message, None, retryable=True)
    return ErrorEntry(
        kind, DEADLINE, f"{trouble.message} {message}", trouble.exchange_code, retryable=True
    )


def _unreadable(kind: str, count: int) -> ErrorEntry:
    return ErrorEntry(
        kind,
        UNREADABLE_RECORD,
        f"Rows that could not be read and stand as `other`: {count}. Equal ones may stand as one.",
        None,
        retryable=False,
    )
