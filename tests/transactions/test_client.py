"""The client of exchanges: retries, the circuit, limits, and that no secret leaves."""

import asyncio
import logging
from random import Random
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from onebook.transactions.budget import ATTEMPTS_MAX, Retries
from onebook.transactions.bybit.answers import BybitApi
from onebook.transactions.bybit.paths import EXECUTIONS
from onebook.transactions.bybit.signing import signed
from onebook.transactions.client import ExchangeClient
from onebook.transactions.failures import FailureReason, SourceFailed
from onebook.transactions.upstream import Call
from transactions.bybit.asking import MINE, Asked, asked, body, ok, refused
from transactions.bybit_support import CLOCK, KEY, NOW_MS, loop_s, run


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
    monkeypatch.setattr(BybitApi, "facts", replace(BybitApi.facts, body_bytes_max=10))
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

        class Noting(BybitApi):
            def read(self, status: int, headers: Any, body: bytes) -> Any:
                decoded.append(turns)
                return super().read(status, headers, body)

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        transport = httpx.MockTransport(lambda request: ok()(request))
        client = ExchangeClient(Noting(), CLOCK, transport=transport, random=Random(1))
        host = client.host("http://exchange.example/")
        task = asyncio.create_task(other())
        await asyncio.gather(
            *(
                client.ask(
                    host,
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
