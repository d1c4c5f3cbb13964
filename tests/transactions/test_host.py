"""The clock offset, limits and stamps of an environment."""

import asyncio

import httpx
from msgspec import json
from msgspec.structs import replace

from onebook.transactions.budget import Rate
from onebook.transactions.clock import ServiceClock
from onebook.transactions.host import ClockOffset, ExchangeHost
from onebook.transactions.upstream import ApiFacts, Call
from transactions.bybit.asking import Asked, asked, ok
from transactions.bybit_support import CLOCK, NOW_MS, loop_now_ms, loop_s, run


class TestClock:
    """Our clock may be wrong; the exchange's is the one that counts."""

    def test_a_refused_time_is_corrected_from_the_message(self) -> None:
        server_ms = NOW_MS + 60_000
        message = (
            "invalid request, please check your server timestamp or recv_window param. "
            f"req_timestamp[{NOW_MS}],server_timestamp[{server_ms}],recv_window[5000]"
        )
        wrong = httpx.Response(
            200, content=json.encode({"retCode": 10002, "retMsg": message, "result": {}, "time": 0})
        )
        _, here, spent_s = asked(wrong, ok())
        assert [r.headers["x-bapi-timestamp"] for r in here.requests] == [
            str(NOW_MS),
            str(server_ms),
        ]
        assert spent_s == 0.0

    def test_every_answer_measures_the_offset(self) -> None:
        def ahead(request: httpx.Request) -> httpx.Response:
            content = {"retCode": 0, "result": {}, "time": loop_now_ms() - 3_000}
            return httpx.Response(200, content=json.encode(content))

        async def story() -> list[str]:
            async with Asked(ahead) as here:
                await here.get()
                await here.get()
                return [r.headers["x-bapi-timestamp"] for r in here.requests]

        assert run(story()) == [str(NOW_MS), str(NOW_MS - 3_000)]

    def test_the_answer_with_the_shortest_round_trip_is_used(self) -> None:
        offset = ClockOffset()
        offset.observe(1_100, sent_ms=1_000, way_s=0.2, now_s=1.0)
        assert offset.ms == 0
        offset.observe(9_000, sent_ms=1_000, way_s=4.0, now_s=2.0)
        assert offset.ms == 0
        offset.observe(9_000, sent_ms=1_000, way_s=4.0, now_s=400.0)  # the old one has aged
        assert offset.ms == 6_000


FACTS = ApiFacts(
    name="x", display="X", rates={"/a": Rate(1, 1.0)}, address_rate=Rate(9, 1.0), circuit_s=1.0
)


class TestStamps:
    """Where they must rise, they do, and their requests stand in line."""

    def test_they_rise_within_a_millisecond_and_when_the_clock_steps_back(self) -> None:
        now_ms = [1_000]
        clock = ServiceClock(now_ms=lambda: now_ms[0])
        host = ExchangeHost("http://x", replace(FACTS, rising=True), clock=clock)
        found = [host.stamp("a"), host.stamp("a"), host.stamp("b")]
        now_ms[0] = 500
        assert [*found, host.stamp("a")] == [1_000, 1_001, 1_000, 1_002]

    def test_elsewhere_they_are_the_time(self) -> None:
        host = ExchangeHost("http://x", FACTS, clock=ServiceClock(now_ms=lambda: 7))
        assert [host.stamp("a"), host.stamp("a")] == [7, 7]

    def test_one_request_of_a_key_at_a_time_and_api_keys_take_turns(self) -> None:
        async def story() -> tuple[list[str], int]:
            host = ExchangeHost("http://x", replace(FACTS, rising=True), clock=CLOCK)
            order: list[str] = []
            inside, most = 0, 0

            async def ask(key: str) -> None:
                nonlocal inside, most
                async with host.ordered("account", key=key):
                    inside += 1
                    most = max(most, inside)
                    order.append(key)
                    await CLOCK.sleep(1.0)
                    inside -= 1

            await asyncio.gather(*(ask(key) for key in ("a", "a", "a", "b")))
            return order, most

        order, most = run(story())
        assert most == 1
        assert order.index("b") < 3  # not behind all that `a` had waiting

    def test_a_key_without_such_stamps_does_not_wait(self) -> None:
        async def story() -> float:
            host = ExchangeHost("http://x", FACTS, clock=CLOCK)

            async def ask() -> None:
                async with host.ordered("account", key="a"):
                    await CLOCK.sleep(1.0)

            await asyncio.gather(*(ask() for _ in range(5)))
            return loop_s()

        assert run(story()) == 1.0


def test_a_limit_is_of_a_path_or_of_what_the_call_names() -> None:
    facts = replace(FACTS, rates={"/a": Rate(1, 1.0), "all": Rate(1, 1.0)})
    host = ExchangeHost("http://x/", facts, clock=CLOCK)
    assert host.base_url == "http://x"
    assert host.limit(Call("/a"), "key") is host.limit(Call("/a"), "key")
    assert host.limit(Call("/a"), "key") is not host.limit(Call("/a"), "other")
    assert host.limit(Call("/b", rate="all"), "key") is host.limit(Call("/c", rate="all"), "key")
