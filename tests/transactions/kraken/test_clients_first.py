"""A client of a Starter key beside a live subscription and a collection, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from onebook.config import TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import KrakenHistory
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.live import LiveRecord, LiveStatus
from onebook.transactions.request import TransactionsRequest
from transactions.bybit_support import NOW_MS, loop_s, run
from transactions.kraken_support import KrakenWorld

HISTORY = KrakenHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=2_000)
POLLED = replace(KRAKEN, streams=())  # a stream is a socket, which virtual time has not
WARM_S = 100.0  # after which the background has used up the burst of the counter
DEFAULT = TransactionSettings()


class Listener:
    """The subscriber of the live subscription."""

    slow = False

    def __init__(self) -> None:
        self.states: list[str] = []

    def push(self, record: LiveRecord) -> None:
        pass

    def status(self, status: LiveStatus) -> None:
        self.states.append(status.state)


class Busy:
    """A service whose background reads the account all the time."""

    def __init__(self, world: KrakenWorld) -> None:
        self.world = world
        self.listener = Listener()
        self.collected = 0

    async def collect(self) -> None:
        """Read every list as `AccountCollection` does, without a database."""
        service = self.world.service
        types = ["ledger", "trades", "futures", "deposits", "withdrawals"]
        ask = TransactionsRequest(exchange="kraken", transaction_types=types, start_time=0)
        query = service.plan(ask, key_id="collection", streamed=True)
        async with (
            service.run(query, key_id="collection", background=True) as reading,
            aclosing(reading.records(86_400.0)) as batches,
        ):
            async for batch in batches:
                self.collected += len(batch)

    async def follow(self) -> None:
        service = self.world.service
        query = service.plan(TransactionsRequest(exchange="kraken"), key_id="follower")
        for each in await service.subscriptions(query, self.listener):
            service.live.follow(each)


@asynccontextmanager
async def busy(settings: TransactionSettings = DEFAULT) -> AsyncIterator[Busy]:
    async with KrakenWorld(history=HISTORY, definition=POLLED, settings=settings) as world:
        made = Busy(world)
        await made.follow()
        collecting = asyncio.create_task(made.collect())
        await asyncio.sleep(WARM_S)
        try:
            yield made
        finally:
            collecting.cancel()
            with suppress(asyncio.CancelledError):
                await collecting


@pytest.mark.parametrize("types", [("deposits",), ("holdings",)])
def test_a_few_calls_of_a_client_do_not_wait(types: tuple[str, ...]) -> None:
    async def story() -> tuple[dict[str, Any], float]:
        async with busy() as made:
            began_s = loop_s()
            return await made.world.fetch(*types), loop_s() - began_s

    answer, spent_s = run(story())
    assert spent_s < 1.0
    assert (answer["partial"], answer["next_cursor"]) == (False, None)


def test_a_long_answer_gets_most_of_the_limit_and_the_background_the_rest() -> None:
    async def alone() -> int:
        async with KrakenWorld(history=HISTORY, settings=DEFAULT) as world:
            return int((await world.fetch("ledger"))["total_transactions"])

    async def beside() -> tuple[list[dict[str, Any]], list[int], list[str]]:
        async with busy() as made:
            pages, collected = [], [made.collected]
            while not pages or pages[-1]["next_cursor"]:
                cursor = pages[-1]["next_cursor"] if pages else None
                pages.append(await made.world.fetch("ledger", cursor=cursor))
                collected.append(made.collected)
            return pages, collected, made.listener.states

    pages, collected, states = run(beside())
    counts = [page["total_transactions"] for page in pages]
    assert counts[0] > 0.5 * run(alone())
    assert min(counts) > 0
    assert collected[-1] > collected[0]  # not starved
    assert states == ["live"]  # and never interrupted


def test_an_answer_that_got_no_call_says_why_and_is_continued() -> None:
    """Other clients use the limit up: the deadline comes before the first call."""
    settings = TransactionSettings(deadline_s=5.0)
    start_ms = NOW_MS - 10 * DAY_MS

    async def story() -> tuple[dict[str, Any], list[Any], list[Any]]:
        async with busy(settings) as made:
            others = [asyncio.create_task(made.world.everything("ledger")) for _ in range(3)]
            await asyncio.sleep(60)
            first = await made.world.fetch("ledger", start_time=start_ms)
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            fields = {"start_time": start_ms, "cursor": first["next_cursor"]}
            *rest, _ = await made.world.stream("ledger", **fields)
        async with KrakenWorld(history=HISTORY) as quiet:
            end_ms = first["coverage"][0]["to"]
            *whole, _ = await quiet.stream("ledger", start_time=start_ms, end_time=end_ms)
            return first, rest, whole

    first, rest, whole = run(story())
    sentence = "Kraken's rate limit delayed the answer beyond the deadline; use next_cursor"
    assert (first["success"], first["partial"], first["message"]) == (True, True, sentence)
    assert [(each["from"], each["reason"]) for each in first["coverage"]] == [(None, "deadline")]
    assert all("Kraken's rate limit" in each["message"] for each in first["errors"])
    assert (first["transactions"], rest) == ([], whole)
    assert len(whole) > 100
