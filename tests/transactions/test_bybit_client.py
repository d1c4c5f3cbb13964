"""How Bybit is asked: signature, clock, limits, errors, and that no secret leaves."""

import base64
import logging
from collections.abc import Callable
from random import Random
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from msgspec import json
from msgspec.structs import replace

from onebook.transactions.budget import ATTEMPTS_MAX, Retries
from onebook.transactions.bybit.answers import BybitApi
from onebook.transactions.bybit.paths import EXECUTIONS
from onebook.transactions.bybit.signing import signature, signed
from onebook.transactions.client import ExchangeClient
from onebook.transactions.credentials import Credentials
from onebook.transactions.failures import Reason, SourceFailed, TooOld
from onebook.transactions.host import ClockOffset, ExchangeHost
from onebook.transactions.upstream import Call, Reply
from transactions.bybit_support import CLOCK, KEY, NOW_MS, loop_now_ms, loop_s, run, samples_dir

MINE = Credentials("mykey00000000000000", "mysecret0000000000000000000000000000")
Answer = Callable[[httpx.Request], httpx.Response]


def ok(result: Any = None, **headers: str) -> Answer:
    return body(0, "OK", result or {}, **headers)


def body(code: int, message: str = "", result: Any = None, **headers: str) -> Answer:
    def answer(request: httpx.Request) -> httpx.Response:
        content = {"retCode": code, "retMsg": message, "result": result, "time": loop_now_ms()}
        return httpx.Response(200, content=json.encode(content), headers=headers)

    return answer


class Asked:
    """A client over answers that are written out, and what it sent."""

    def __init__(self, *answers: Answer | httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)
        self.client: ExchangeClient
        self.host: ExchangeHost

    async def __aenter__(self) -> "Asked":
        transport = httpx.MockTransport(self._answer)
        self.client = ExchangeClient(BybitApi(), CLOCK, transport=transport, random=Random(1))
        self.host = self.client.host("http://exchange.example/")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.close()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)

    async def get(self, query: str = "category=spot", retries: Retries | None = None) -> Reply:
        return await self.client.ask(
            self.host,
            Call(EXECUTIONS, query),
            credentials=MINE,
            retries=retries or Retries(Random(1)),
        )


def asked(*answers: Any, query: str = "category=spot") -> tuple[Reply, Asked, float]:
    async def story() -> tuple[Reply, Asked, float]:
        async with Asked(*answers) as here:
            return await here.get(query), here, loop_s()

    return run(story())


def refused(*answers: Any) -> tuple[SourceFailed, Asked]:
    async def story() -> tuple[SourceFailed, Asked]:
        async with Asked(*answers) as here:
            with pytest.raises(SourceFailed) as caught:
                await here.get()
            return caught.value, here

    return run(story())


def test_the_signature_of_a_known_query() -> None:
    """A vector of the facts page, made with an independent implementation."""
    query = "category=linear&cursor=132766%3A2%2C132766%3A2&limit=50"
    headers = signed(MINE, query, at_ms=1_700_000_000_000)
    assert headers == {
        "X-BAPI-API-KEY": "mykey00000000000000",
        "X-BAPI-TIMESTAMP": "1700000000000",
        "X-BAPI-RECV-WINDOW": "5000",
        "X-BAPI-SIGN": "cedafa3ae48713d45759256293323adb08e9ff74f0ded02092c76c460b43904d",
    }


def test_a_self_generated_key_signs_with_rsa() -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    sign = base64.b64decode(signature(pem, b"text"))
    key.public_key().verify(sign, b"text", padding.PKCS1v15(), hashes.SHA256())


def test_a_key_of_another_kind_is_refused() -> None:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(SourceFailed, match="RSA"):
        signature(pem.decode(), b"text")


def test_what_is_signed_is_what_goes_over_the_wire() -> None:
    """The cursor trap: quoting it again breaks the signature."""
    query = "category=linear&cursor=132766%3A2%2C132766%3A2&limit=50"
    _, here, _ = asked(ok(), query=query)
    (request,) = here.requests
    assert request.url.query.decode() == query
    expected = signed(MINE, query, at_ms=NOW_MS)
    assert {name: request.headers[name] for name in expected} == expected


@pytest.mark.parametrize("message", ["OK", "success", "SUCCESS", ""])
def test_success_is_decided_by_the_code_alone(message: str) -> None:
    reply, _, _ = asked(body(0, message, {"list": []}))
    assert reply.value == {"list": []}


@pytest.mark.parametrize("code", [-1, 429, 10000, 10016, 131001, 131230])
def test_busy_answers_are_asked_again(code: int) -> None:
    reply, here, spent_s = asked(body(code), body(code), ok({"a": 1}))
    assert reply.value == {"a": 1}
    assert len(here.requests) == 3
    assert spent_s > 0.2


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
    assert failure.reason is Reason.EXCHANGE_ERROR
    assert failure.retryable
    assert len(here.requests) == ATTEMPTS_MAX


def test_retries_of_a_whole_request_have_a_budget() -> None:
    async def story() -> tuple[SourceFailed, int]:
        async with Asked(httpx.ConnectError("no")) as here:
            retries = Retries(Random(1))
            for _ in range(100):
                with pytest.raises(SourceFailed) as caught:
                    await here.get(retries=retries)
                if caught.value.reason is Reason.BUDGET_SPENT:
                    return caught.value, len(here.requests)
        raise AssertionError

    failure, requests = run(story())
    assert failure.retryable
    assert requests < 45


@pytest.mark.parametrize(
    ("code", "reason", "fatal"),
    [
        (10003, Reason.AUTHENTICATION_FAILED, True),
        (10004, Reason.AUTHENTICATION_FAILED, True),
        (10007, Reason.AUTHENTICATION_FAILED, True),
        (10010, Reason.AUTHENTICATION_FAILED, True),
        (33004, Reason.AUTHENTICATION_FAILED, True),
        (-2015, Reason.AUTHENTICATION_FAILED, True),
        (10024, Reason.AUTHENTICATION_FAILED, True),
        (10005, Reason.PERMISSION_DENIED, False),
        (10017, Reason.NOT_OFFERED, False),
        (100028, Reason.NOT_OFFERED, False),
        (10001, Reason.EXCHANGE_ERROR, False),
        (181010, Reason.EXCHANGE_ERROR, False),
        (987654, Reason.EXCHANGE_ERROR, False),
    ],
)
def test_codes_that_asking_again_does_not_cure(code: int, reason: Reason, fatal: bool) -> None:
    failure, here = refused(body(code, f"secret {MINE.api_key}", None))
    assert (failure.reason, failure.fatal, failure.exchange_code) == (reason, fatal, code)
    assert len(here.requests) == 1
    assert MINE.api_key not in str(failure)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, Reason.EXCHANGE_ERROR),
        (401, Reason.AUTHENTICATION_FAILED),
        (404, Reason.NOT_OFFERED),
        (302, Reason.EXCHANGE_ERROR),
    ],
)
def test_http_statuses(status: int, reason: Reason) -> None:
    failure, here = refused(httpx.Response(status, headers={"location": "http://elsewhere"}))
    assert failure.reason is reason
    assert len(here.requests) == 1  # no redirect is followed


def test_two_years_are_told_apart_from_other_bad_parameters() -> None:
    message = "Can't query order earlier than 2 years, please check your params: startTime!"

    async def story() -> None:
        async with Asked(body(10001, message)) as here:
            with pytest.raises(TooOld):
                await here.get()

    run(story())


def test_every_collected_error_body_is_understood() -> None:
    folder = samples_dir()
    if folder is None:
        pytest.skip("the recorded samples are not here")
    items = json.decode((folder / "errors.collected.json").read_bytes())["items"]
    for item in items:
        found = item.get("body") or {"retCode": item["retCode"], "retMsg": item["retMsg"]}
        answer = httpx.Response(200, content=json.encode(found))

        async def story(answer: httpx.Response = answer) -> None:
            async with Asked(answer) as here:
                with pytest.raises((SourceFailed, TooOld)):
                    await here.get()

        run(story())


def test_a_403_stops_everything_for_ten_minutes() -> None:
    async def story() -> tuple[int, float]:
        async with Asked(httpx.Response(403, content=b"access too frequent"), ok()) as here:
            with pytest.raises(SourceFailed) as caught:
                await here.get()
            assert caught.value.retry_after_s == 600.0
            with pytest.raises(SourceFailed) as again:
                await here.get()
            assert again.value.reason is Reason.CIRCUIT_OPEN
            assert len(here.requests) == 1
            await CLOCK.sleep(600.0)
            await here.get()
            return len(here.requests), loop_s()

    assert run(story())[0] == 2


def test_a_403_of_the_country_is_not_a_rate_limit() -> None:
    """CloudFront's page, as clients have reported it."""
    page = (
        b"<H1>403 ERROR</H1><H2>The request could not be satisfied.</H2>The Amazon CloudFront "
        b"distribution is configured to block access from your country."
    )

    async def story() -> None:
        async with Asked(httpx.Response(403, content=page), ok()) as here:
            with pytest.raises(SourceFailed) as caught:
                await here.get()
            failure = caught.value
            assert (failure.reason, failure.fatal) == (Reason.LOCATION_REFUSED, True)
            assert (failure.retryable, failure.retry_after_s) == (False, None)
            await here.get()  # nothing is blocked

    run(story())


def test_the_older_code_of_the_same_stops_everything_too() -> None:
    failure, _ = refused(body(10018))
    assert failure.reason is Reason.CIRCUIT_OPEN


def test_a_used_up_limit_waits_for_the_time_it_was_told() -> None:
    def limited(request: httpx.Request) -> httpx.Response:
        reset_ms = loop_now_ms() + 2_500
        headers = {"X-Bapi-Limit-Status": "0", "X-Bapi-Limit-Reset-Timestamp": str(reset_ms)}
        return body(10006, "Too many visits!", **headers)(request)

    _, here, spent_s = asked(limited, ok())
    assert len(here.requests) == 2
    assert spent_s == pytest.approx(2.5)


def test_a_used_up_limit_without_a_time_waits_a_second() -> None:
    _, _, spent_s = asked(body(10006), ok())
    assert spent_s == pytest.approx(1.0)


def test_the_last_free_request_of_a_window_is_heeded() -> None:
    def last(request: httpx.Request) -> httpx.Response:
        reset = str(loop_now_ms() + 700)
        headers = {"X-Bapi-Limit-Status": "0", "X-Bapi-Limit-Reset-Timestamp": reset}
        return ok(None, **headers)(request)

    async def story() -> float:
        async with Asked(last, ok()) as here:
            await here.get()
            await here.get()
            return loop_s()

    assert run(story()) == pytest.approx(0.7)


def test_the_headers_raise_the_cautious_start() -> None:
    async def story() -> float:
        async with Asked(ok(None, **{"X-Bapi-Limit": "50", "X-Bapi-Limit-Status": "9x"})) as here:
            for _ in range(50):
                await here.get()
            return loop_s()

    assert run(story()) < 0.1


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

    def test_the_answer_with_the_shortest_way_is_believed(self) -> None:
        offset = ClockOffset()
        offset.heard(1_100, sent_ms=1_000, way_s=0.2, now_s=1.0)
        assert offset.ms == 0
        offset.heard(9_000, sent_ms=1_000, way_s=4.0, now_s=2.0)
        assert offset.ms == 0
        offset.heard(9_000, sent_ms=1_000, way_s=4.0, now_s=400.0)  # the old one has aged
        assert offset.ms == 6_000


def test_an_answer_larger_than_believable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BybitApi, "facts", replace(BybitApi.facts, body_bytes_max=10))
    failure, _ = refused(ok({"a": "b" * 100}))
    assert failure.reason is Reason.UNREADABLE


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
