"""Requests cancelled at any moment return their connection, over real sockets.

A transport without a pool cannot show a leak, so the simulated account is served on loopback here
and asked through httpx's own pool. Cancellation comes after 0, 1, 2 ... turns of the loop, so it
lands at every await of a request, the release of its connection among them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from clocks import made_of
from onebook.clock import SYSTEM_CLOCK, ManualClock
from onebook.exchanges.kit.limits import Limit
from onebook.model import DAY_MS
from onebook.rest import Rest
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit
from onebook.transactions.adapter import Environment
from onebook.transactions.bybit.api import API
from onebook.transactions.bybit.endpoints import ENTRY, EXECUTIONS
from onebook.transactions.client import CONNECTIONS_MAX, Call, ExchangeClient
from onebook.transactions.credentials import Credentials
from onebook.transactions.limits import Retries
from transactions.bybit_support import KEY, Served

TURNS_MAX = 60  # a whole request takes fewer turns of the loop
CANCELLATIONS = 3 * TURNS_MAX


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    now_ms = SYSTEM_CLOCK.wall_ms()
    account = Account(History(now_ms - 20 * DAY_MS, now_ms, executions=100))
    with Served(SimulatedBybit(account, [KEY], limited=False)) as url:
        yield url


async def cancelled_everywhere(ask: Callable[[], Awaitable[object]]) -> int:
    """Cancel many requests, each one loop turn later; return how many had completed."""
    finished = 0
    for turns in range(CANCELLATIONS):
        tasks = [asyncio.ensure_future(ask()) for _ in range(2)]
        for _ in range(turns % TURNS_MAX):
            await asyncio.sleep(0)
        await asyncio.sleep(0.002 * (turns % 3))  # the server is another thread
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        finished += sum(not isinstance(one, BaseException) for one in found)
    return finished


async def test_a_cancelled_request_to_bybit_gives_its_connection_back(url: str) -> None:
    clock = made_of(monotonic=lambda: 1e9 * asyncio.get_running_loop().time())
    client = ExchangeClient(ENTRY, API, clock)
    site = client.site(Environment.MAINNET, {"": url})
    credentials = Credentials(KEY.api_key, KEY.secret)

    async def ask() -> object:
        call = Call(EXECUTIONS, "category=spot")
        return await client.ask(site, call, credentials=credentials, retries=Retries(Random(1)))

    try:
        finished = await cancelled_everywhere(ask)
        assert 0 < finished < 2 * CANCELLATIONS
        assert client.connections_in_use == 0
        whole = await asyncio.gather(*(ask() for _ in range(2 * CONNECTIONS_MAX)))
        assert all(reply.failure is None for reply in whole)  # type: ignore[attr-defined]
        assert client.connections_in_use == 0
    finally:
        await client.close()


async def test_a_cancelled_request_to_any_host_gives_its_connection_back(url: str) -> None:
    class Racing(ManualClock):
        def monotonic(self) -> float:
            self.now_s += 60.0  # every budget is full again
            return self.now_s

    async with Rest(clock=Racing()) as rest:
        rest.budget(url, (Limit(10**9, 60.0),))

        async def ask() -> bytes:
            return await rest.get(f"{url}/v5/market/time", total_s=600.0)

        finished = await cancelled_everywhere(ask)
        assert 0 < finished < 2 * CANCELLATIONS
        assert rest.connections_in_use == 0
        assert all(await asyncio.gather(*(ask() for _ in range(100))))
        assert rest.connections_in_use == 0
