"""The client of exchanges: retries, circuit breaker, limits, and no leaked secret."""

import asyncio
import logging
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from msgspec import json
from msgspec.structs import replace

from clocks import SteppedClock, made_of
from onebook.clock import Clock
from onebook.transactions.adapter import Environment, FailureReason, SourceFailed
from onebook.transactions.bybit.api import API, signed
from onebook.transactions.bybit.endpoints import ENTRY, EXECUTIONS
from onebook.transactions.client import (
    Call,
    ClockOffset,
    ExchangeClient,
    ExchangeSite,
    Outcome,
    Reply,
    Then,
)
from onebook.transactions.credentials import Credentials
from onebook.transactions.limits import ATTEMPTS_MAX, Retries
from transactions.bybit.asking import MINE, Asked, asked, body, ok, refused
from transactions.bybit_support import CLOCK, KEY, NOW_MS, loop_now_ms, loop_s, run

BUSY = Outcome(FailureReason.EXCHANGE_ERROR, "Busy.", retryable=True)
WRONG = Outcome(FailureReason.AUTHENTICATION_FAILED, "Wrong key.", fatal=True)


def test_what_is_signed_is_what_goes_over_the_wire() -> None:
    """The cursor trap: quoting it again breaks the signature."""
    query = "category=linear&cursor=132766%3A2%2C132766%3A2&limit=50"
    _, here, _ = asked(ok(), query=query)
    (request,) = here.requests
    assert request.url.query.decode() == query
    expected = signed(MINE, query, at_ms=NOW_MS)
    assert {name: request.headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(429),
        httpx.Response(502, content=b"<html>"),
        httpx.Response(200, content=b'{"retCode": 0, "resu'),
        httpx.Response(200, content=b"\xff\xfe"),
        httpx.Response(200, content=b"[" * 100_000),
        httpx.ReadError("reset"),
        httpx.ConnectTimeout("slow"),
        httpx.RemoteProtocolError("broken"),
    ],
)
def test_what_may_pass_is_asked_again(answer: Any) -> None:
    reply, here, _ = asked(answer, ok())
    assert reply.failure is None
    assert len(here.requests) == 2


def test_retries_have_an_end() -> None:
    failure, here = refused(httpx.Response(502))
    assert failure.reason is FailureReason.EXCHANGE_ERROR
    assert failure.retryable
    assert len(here.requests) == ATTEMPTS_MAX


def test_retries_of_a_whole_request_have_a_budget() -> None:
    async def story() -> tuple[SourceFailed, int]:
        async with Asked(httpx.ConnectError("no")) as here:
            retries = Retries(Random(1))
            for _ in range(100):
                with pytest.raises(SourceFailed) as caught:
                    await here.get(retries=retries)
                if caught.value.reason is FailureReason.BUDGET_SPENT:
                    return caught.value, len(here.requests)
        raise AssertionError

    failure, requests = run(story())
    assert failure.retryable
    assert requests < 45


def test_a_403_stops_everything_for_ten_minutes() -> None:
    async def story() -> tuple[int, float]:
        async with Asked(httpx.Response(403, content=b"access too frequent"), ok()) as here:
            with pytest.raises(SourceFailed) as caught:
                await here.get()
            assert caught.value.retry_after_s == 600.0
            with pytest.raises(SourceFailed) as again:
                await here.get()
            assert again.value.reason is FailureReason.CIRCUIT_OPEN
            assert len(here.requests) == 1
            await CLOCK.sleep(600.0)
            await here.get()
            return len(here.requests), loop_s()

    assert run(story())[0] == 2


def test_an_answer_larger_than_believable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transactions.bybit.asking.API", replace(API, body_bytes_max=10))
    failure, _ = refused(ok({"a": "b" * 100}))
    assert failure.reason is FailureReason.UNREADABLE


def test_no_secret_in_any_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for answer in (
        body(10004, f"error sign! origin_string[1{MINE.api_key}5000a=b]"),
        httpx.Response(403),
        httpx.ConnectError("no"),
    ):
        refused(answer)
    assert caplog.records
    assert MINE.api_key not in caplog.text
    assert MINE.secret not in caplog.text
    assert KEY.secret not in caplog.text


def test_pages_that_arrive_together_are_decoded_in_turns_of_the_event_loop() -> None:
    async def story() -> list[int]:
        turns = 0
        decoded: list[int] = []

        def noting(call: Call, status: int, headers: Any, body: bytes) -> Any:
            decoded.append(turns)
            return API.read(call, status, headers, body)

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        transport = httpx.MockTransport(lambda request: ok()(request))
        client = ExchangeClient(
            ENTRY, replace(API, read=noting), CLOCK, transport=transport, random=Random(1)
        )
        site = client.site(Environment.MAINNET, {"": "http://exchange.example/"})
        task = asyncio.create_task(other())
        await asyncio.gather(
            *(
                client.ask(
                    site,
                    Call(EXECUTIONS, "category=spot"),
                    credentials=MINE,
                    retries=Retries(Random(1), key=str(number)),
                )
                for number in range(8)
            )
        )
        task.cancel()
        await client.close()
        return decoded

    decoded = run(story())
    assert len(decoded) == len(set(decoded)) == 8


class TestClock:
    """Our clock may be wrong; the exchange's counts."""

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


def site_of(clock: Clock, *, rising: bool, folder: Path | None = None) -> ExchangeSite:
    client = ExchangeClient(ENTRY, replace(API, rising=rising), clock, shared_folder=folder)
    return client.site(Environment.MAINNET, {"": "http://x/", "other": "http://y"})


async def stamps(site: ExchangeSite, *accounts: str) -> list[int]:
    found = []
    for account in accounts:
        async with site.stamping("", account, key="") as stamp:
            found.append(stamp())
    return found


class TestStamps:
    """Nonces that must rise do rise, because their requests queue."""

    def test_they_rise_within_a_microsecond_and_when_the_clock_steps_back(self) -> None:
        clock = SteppedClock(1)
        site = site_of(clock, rising=True)
        found = run(stamps(site, "a", "a", "b"))
        clock.now_ms = 0
        last = run(stamps(site, "a"))
        assert [*found, *last] == [1_000_000, 1_000_001, 1_000_000, 1_000_002]

    def test_elsewhere_they_are_the_time(self) -> None:
        site = site_of(made_of(wall_ms=lambda: 7), rising=False)
        assert run(stamps(site, "a", "a")) == [7, 7]

    def test_one_request_of_a_key_at_a_time_and_api_keys_take_turns(self) -> None:
        async def story() -> tuple[list[str], int]:
            site = site_of(CLOCK, rising=True)
            order: list[str] = []
            inside, most = 0, 0

            async def ask(key: str) -> None:
                nonlocal inside, most
                async with site.stamping("", "account", key=key):
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
            site = site_of(CLOCK, rising=False)

            async def ask() -> None:
                async with site.stamping("", "account", key="a"):
                    await CLOCK.sleep(1.0)

            await asyncio.gather(*(ask() for _ in range(5)))
            return loop_s()

        assert run(story()) == 1.0


class TestHosts:
    """The host of a call: its own, that of the credentials, or the first."""

    def test_each_way(self) -> None:
        site = site_of(CLOCK, rising=False)
        theirs = Credentials("key", "secret", host="other")
        assert site.host_of(Call("/a"), None) == site.host_of(Call("/a"), MINE) == ""
        assert site.host_of(Call("/a"), theirs) == "other"
        assert site.host_of(Call("/a", host="other"), MINE) == "other"
        assert site.hosts == {"": "http://x", "other": "http://y"}

    def test_an_unknown_one_is_named(self) -> None:
        site = site_of(CLOCK, rising=False)
        with pytest.raises(SourceFailed, match="unknown host"):
            site.host_of(Call("/a"), Credentials("key", "secret", host="nowhere"))


def test_what_asking_again_may_cure_is_tried_again() -> None:
    assert BUSY.reply(503).then is Then.RETRY
    assert WRONG.reply(401).then is Then.RAISE


def test_a_failure_says_what_the_table_says_and_the_exchanges_code() -> None:
    failure = WRONG.failure(401)
    assert (failure.message, failure.exchange_code, failure.fatal) == ("Wrong key.", 401, True)
    assert BUSY.reply(503, server_ms=7).server_ms == 7


def test_a_reply_is_a_success_unless_it_says_otherwise() -> None:
    assert Reply(value=1).failure is None
