"""Execution of one query."""

import asyncio
from typing import Any

import pytest

from onebook.transactions.accounts import AccountName
from onebook.transactions.adapter import Environment, FailureReason, SourceFailed
from onebook.transactions.bybit import ENTRY
from onebook.transactions.merge import Range
from onebook.transactions.record import FIRST, RecordKey
from onebook.transactions.request import Query, TransactionsRequest
from onebook.transactions.run import (
    LIMIT_REACHED,
    Coverage,
    ErrorEntry,
    SourcePart,
    Totals,
    coverage_of,
    errors_of,
    exchange_failed,
    filters_of,
    message_of,
    singular_of,
)
from onebook.transactions.walk import Walker
from transactions.bybit_support import CALLER, World, run, simulated
from transactions.test_record import record
from transactions.walking import event, simple, source, walked


def test_a_run_counts_what_it_emits_and_ends_whole() -> None:
    async def story() -> Any:
        async with World(simulated()) as world:
            request = TransactionsRequest(exchange="bybit", transaction_types=["deposits"])
            query = world.service.plan(request, key_id=CALLER, streamed=True)
            async with world.service.run(query, key_id=CALLER) as found:
                records = [r async for batch in found.records(60.0) for r in batch]
                assert found.reached_ms == query.from_ms
                return len(records), found.totals.count, found.state(CALLER), found.errors()

    count, total, state, errors = run(story())
    assert count == total > 0
    assert (state, errors) == (None, [])


def test_leaving_a_run_stops_its_walkers() -> None:
    async def story() -> Any:
        async with World(simulated()) as world:
            request = TransactionsRequest(exchange="bybit", transaction_types=["ledger"])
            query = world.service.plan(request, key_id=CALLER)
            async with world.service.run(query, key_id=CALLER) as found:
                walkers = found.walkers
            return world.transport.in_flight, [walker.finished for walker in walkers]

    in_flight, finished = run(story())
    assert in_flight == 0
    assert all(finished)


def test_a_failure_keeps_its_reason_and_its_patience() -> None:
    failure = SourceFailed(FailureReason.CIRCUIT_OPEN, "No.", exchange_code=403, retry_after_s=9.0)
    error = exchange_failed(failure)
    assert error.details == {"reason": "circuit_open", "exchange_code": 403}
    assert (str(error.message), error.retry_after_s) == ("No.", 9.0)


@pytest.mark.parametrize(
    ("type_", "kind", "expected"),
    [
        ("deposits", "deposit", "deposit"),
        ("holdings", "balance", "balance"),
        ("spot_orders", "trade", "trade"),
        ("spot_orders", "order", "order"),
        ("futures_linear", "funding", "future"),
        ("ledger", "trade", "ledger"),
    ],
)
def test_singular_names_are_the_documented_ones(type_: str, kind: str, expected: str) -> None:
    assert singular_of(record(type=type_, kind=kind), ENTRY.singular) == expected


def test_totals_count_by_type_and_know_their_range() -> None:
    totals = Totals({"fills": "fill"})
    for at_ms, name in ((30, "fills"), (10, "fills"), (20, "deposits")):
        totals.add(record(timestamp=at_ms, type=name, kind="x"))
    assert (totals.count, totals.oldest_ms, totals.newest_ms) == (3, 10, 30)
    assert totals.by_type == {"fill": 2, "deposit": 1}


def test_the_sentence_counts_and_says_when_the_deadline_cut_it() -> None:
    assert message_of(1, 1) == "Successfully parsed 1 transaction from 1 transaction type"
    assert "until the deadline" in message_of(2, 3, cut_off=True)
    assert message_of(9, 4, accounts=2).endswith(
        "9 transactions from 4 transaction types of 2 accounts"
    )
    assert message_of(0, 3, cut_off=True, limited="Kraken").startswith(
        "Kraken's rate limit delayed"
    )


def query(from_ms: int = 0, to_ms: int = 299) -> Query:
    request = TransactionsRequest(exchange="bybit", start_time=from_ms, end_time=to_ms, limit=10)
    return Query(
        request=request, account=AccountName("bybit", ""), environment=Environment.MAINNET,
        requested_types=("t",), sources=("s",),
        now_ms=to_ms, from_ms=from_ms, to_ms=to_ms, limit=10, state=None, digest="",
    )  # fmt: skip


def covered(*parts: SourcePart, last: RecordKey = FIRST, stopped: str = "") -> Coverage:
    (entry,) = coverage_of(query(), list(parts), last=last, stopped=stopped, top_ms=299)
    return entry


def failed_at_200(**fields: Any) -> SourcePart:
    """A source that was refused once the walk came to the window before 200."""
    book = simple(*range(0, 300, 10))
    failure = SourceFailed(FailureReason.RATE_LIMITED, "Too many.", exchange_code=5, retryable=True)
    book.answers = lambda window, cursor: failure if window.to_ms <= 200 else None
    return SourcePart(source(**fields), walked(book, source(**fields), 0, 299)[1])


def whole(**fields: Any) -> SourcePart:
    return SourcePart(
        source(**fields), walked(simple(*range(0, 300, 10)), source(**fields), 0, 299)[1]
    )


def test_a_source_that_was_read_to_its_end_covers_the_range() -> None:
    assert covered(whole()) == Coverage("t", 0, 299, complete=True, reason=None, floor=None)
    assert errors_of([whole()]) == []


def test_a_failure_covers_what_was_delivered_before_it() -> None:
    part = failed_at_200()
    assert covered(part) == Coverage("t", 200, 299, False, "rate_limited", None)
    assert errors_of([part, part]) == [ErrorEntry("t", "rate_limited", "Too many.", 5, True)]


def test_a_source_that_failed_before_its_first_record_covers_nothing() -> None:
    book = simple()
    book.answers = lambda window, cursor: SourceFailed(FailureReason.UNREACHABLE, "It is away.")
    part = SourcePart(source(), walked(book, source(), 0, 299)[1])
    assert covered(part).from_ms is None


@pytest.mark.parametrize("order", [1, -1])
def test_a_type_is_covered_as_far_as_the_worst_of_its_sources(order: int) -> None:
    parts = [whole(), failed_at_200(name="other")]
    given_up = SourcePart(source(name="third"), None, given_up=True)
    assert covered(*parts[::order]).from_ms == 200
    found = covered(*[*parts, given_up][::order])
    assert (found.from_ms, found.reason) == (None, "failed_before")


def test_a_source_that_earlier_pages_finished_covers_what_the_exchange_keeps() -> None:
    assert covered(SourcePart(source(), None)).complete
    found = covered(SourcePart(source(), None, lost_before_ms=120))
    assert (found.from_ms, found.reason) == (120, "older_not_kept")


def test_a_type_with_a_row_that_could_not_be_read_is_not_complete() -> None:
    part = whole()
    assert part.walker is not None
    part.walker.unreadable = 1
    found = covered(part)
    assert (found.complete, found.reason, found.from_ms) == (False, "unreadable_record", 0)
    earlier = SourcePart(source(), None, flawed_before="unreadable_record")
    assert covered(earlier) == found, "also on the pages after it"
    assert covered(SourcePart(source(), part.walker, given_up=True)).reason == "failed_before"


def test_older_records_than_an_exchange_keeps_are_not_covered() -> None:
    kept = source(keeps_ms=400_000)
    walker = walked(simple(200), kept, 0, 299, now_ms=100_100)[1]
    found = covered(SourcePart(kept, walker))
    assert found.reason == "older_not_kept"
    assert found.from_ms == found.floor == walker.floor_ms
    assert 0 < walker.floor_ms < 299


async def test_an_answer_that_stops_early_covers_up_to_its_last_record() -> None:
    progress = asyncio.Event()
    walker = Walker(source(), simple(250, 10), Range(0, 299), now_ms=lambda: 299, progress=progress)
    part = SourcePart(source(), walker)
    last = RecordKey(-250, event(250).transactionId)
    found = covered(part, last=last, stopped=LIMIT_REACHED)
    assert (found.from_ms, found.reason) == (250, LIMIT_REACHED)
    assert covered(part, stopped=LIMIT_REACHED).from_ms is None
    assert errors_of([part]) == []
    (entry,) = errors_of([part], cut_off=True)
    assert (entry.error, entry.retryable) == ("deadline", True)
    trouble = SourceFailed(FailureReason.UNREACHABLE, "It is away.", exchange_code=7)
    (entry,) = errors_of([part], cut_off=True, trouble=trouble)
    assert entry.message.startswith("It is away. ")
    assert entry.exchange_code == 7
    await walker.close()


def test_rows_that_could_not_be_read_are_counted_in_one_error_of_their_type() -> None:
    parts = [whole(), whole(name="other"), whole(name="readable")]
    for part, unreadable in zip(parts, (2, 3, 0), strict=True):
        assert part.walker is not None
        part.walker.unreadable = unreadable
    (entry,) = errors_of(parts)
    assert (entry.error, entry.retryable) == ("unreadable_record", False)
    assert "`other`: 5." in entry.message


def test_an_empty_summary_shows_the_range_that_was_asked_for() -> None:
    totals = Totals({})
    assert totals.summary(query(5, 50))["date_range"] == {"start": 5, "end": 50}
    totals.add(record(timestamp=20, type="deposits", kind="deposit"))
    assert totals.summary(query(5, 50)) == {
        "total_count": 1,
        "by_type": {"deposit": 1},
        "date_range": {"start": 20, "end": 20},
    }


def test_filters_repeat_the_request() -> None:
    assert filters_of(query(5, 50)) == {
        "start_time": 5,
        "end_time": 50,
        "transaction_types": ["t"],
        "limit": 10,
    }
