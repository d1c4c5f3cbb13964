"""Execution of one query."""

from typing import Any

from onebook.transactions.failures import FailureReason, SourceFailed
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.run import exchange_failed
from transactions.bybit_support import CALLER, World, run, simulated


def test_a_run_counts_what_it_emits_and_ends_whole() -> None:
    async def story() -> Any:
        async with World(simulated()) as world:
            request = TransactionsRequest(exchange="bybit", transaction_types=["deposits"])
            query = world.service.plan(request, key_id=CALLER, streamed=True)
            async with world.service.run(query, key_id=CALLER) as found:
                records = [r async for batch in found.records(60.0) for r in batch]
                assert found.came_to_ms == query.from_ms
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
