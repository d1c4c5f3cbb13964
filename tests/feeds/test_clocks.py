"""The clock of an exchange, measured by requests over real sockets, with failures."""

import asyncio
import time
from collections.abc import Callable

import httpx
import pytest
from msgspec.structs import replace

from onebook.books import Books
from onebook.clock import ManualClock
from onebook.config import FeedSettings
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Exchange, Limit, Scope
from onebook.feeds import Catalogue, Supervisor
from onebook.feeds.clocks import ASK_S, REQUESTS, ServerClock
from onebook.model import Instrument
from onebook.rest import Rest
from onebook.simulator import SimulatedExchanges
from onebook.skew import ClockSkew
from steady import PATIENCE_S

OKX = EXCHANGES["okx"]
TIME = httpx.Response(200, json={"data": [{"ts": "1790000000000"}]})


def simulated(sims: SimulatedExchanges, name: str) -> Exchange:
    urls = sims[name].urls
    return replace(EXCHANGES[name], ws_url=urls.ws, rest_url=urls.rest)


def clock_of(answer: Callable[[httpx.Request], httpx.Response]) -> tuple[ServerClock, ClockSkew]:
    rest = Rest(httpx.AsyncClient(transport=httpx.MockTransport(answer)), clock=ManualClock(5.0))
    skew = ClockSkew()
    return ServerClock(OKX, rest=rest, skew=skew, clock=ManualClock(5.0)), skew


async def test_requests_bound_the_offset_from_both_sides() -> None:
    async with SimulatedExchanges(["okx"], rate_hz=0) as sims, Rest() as rest:
        skew = ClockSkew()
        await ServerClock(simulated(sims, "okx"), rest=rest, skew=skew).ask()
        now = time.monotonic()
        offset = skew.offset(now)
        assert offset is not None
        assert offset.error_s is not None
        assert 0 < offset.error_s < PATIENCE_S
        assert abs(offset.offset_s - (now - time.time())) <= offset.error_s + 0.000_1


async def test_the_error_of_the_offset_of_a_followed_book_becomes_a_number() -> None:
    async with SimulatedExchanges(["okx", "kraken"]) as sims, Rest() as rest:
        exchanges = {name: simulated(sims, name) for name in ("okx", "kraken")}
        books, settings = Books(), FeedSettings(exchanges=("okx", "kraken"))
        supervisor = Supervisor(
            exchanges,
            books=books,
            rest=rest,
            catalogue=Catalogue(exchanges, rest=rest, settings=settings),
            settings=settings,
            jitter=lambda: 0.0,
        )
        okx = Instrument("okx", "BTC/USDT", "BTC-USDT")
        kraken = Instrument("kraken", "BTC/USD", "BTC/USD")
        async with supervisor:
            for each in (okx, kraken):
                supervisor.acquire(each)
            book, timeless = books.get(okx), books.get(kraken)
            assert book is not None
            assert timeless is not None
            async with asyncio.timeout(PATIENCE_S):
                while book.times(time.time_ns() // 1_000, time.monotonic()).error_us is None:
                    await asyncio.sleep(0.01)
            assert timeless.times(time.time_ns() // 1_000, time.monotonic()).error_us is None
            assert "clock okx" in names_of_tasks()
            assert "clock kraken" not in names_of_tasks(), "it tells its time in seconds only"
            supervisor.release_now(okx)
            await asyncio.sleep(0)
            assert "clock okx" not in names_of_tasks(), "no book of it is followed any more"
            supervisor.acquire(okx)
            await asyncio.sleep(0)
            assert "clock okx" in names_of_tasks()
        assert "clock okx" not in names_of_tasks()


def names_of_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if not task.cancelling()}


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, json={"data": []}),
        httpx.Response(200, content=b"x" * 1_000_000),
        httpx.Response(302, headers={"location": "https://example.com"}),
        httpx.Response(404),
        httpx.Response(503),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("silent"),
    ],
    ids=str,
)
async def test_a_failure_means_only_that_the_error_is_unknown(
    answer: httpx.Response | httpx.TransportError,
) -> None:
    asked = []

    def fail(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if isinstance(answer, httpx.TransportError):
            raise answer
        return answer

    clock, skew = clock_of(fail)
    skew.received(1_000_000, 2.0)
    await clock.ask()
    assert asked == ["/api/v5/public/time"], "once, and not again after a failure"
    offset = skew.offset(5.0)
    assert offset is not None
    assert offset.error_s is None


async def test_without_spare_budget_nothing_is_asked() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return TIME

    clock_time = ManualClock(5.0)
    rest = Rest(httpx.AsyncClient(transport=httpx.MockTransport(answer)), clock=clock_time)
    rest.budget(OKX.rest_url, (Limit(20, 60.0, Scope.ADDRESS),))
    clock = ServerClock(OKX, rest=rest, skew=ClockSkew(), clock=clock_time)
    while rest.spares(OKX.rest_url, 1):
        await rest.get(f"{OKX.rest_url}/books")
    before = len(asked)
    await clock.ask()
    assert len(asked) == before
    clock_time.now_s += 60.0
    await clock.ask()
    assert len(asked) == before + REQUESTS


async def test_it_asks_about_once_a_minute() -> None:
    waits: list[float] = []

    class Counting(ManualClock):
        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 5:
                asking.cancel()
            await asyncio.sleep(0)

    rest = Rest(httpx.AsyncClient(transport=httpx.MockTransport(lambda request: TIME)))
    clock = ServerClock(OKX, rest=rest, skew=ClockSkew(), clock=Counting(5.0))
    asking = asyncio.create_task(clock.run())
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(waits) == 5
    assert all(ASK_S * 0.75 <= each <= ASK_S * 1.25 for each in waits[1:])
