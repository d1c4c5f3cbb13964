"""Signatures of requests to Bybit, and the meaning of its answers."""

import base64

import httpx
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from msgspec import json

from onebook.transactions.adapter import FailureReason, SourceFailed, TooOld
from onebook.transactions.bybit.api import signature, signed
from transactions.bybit.asking import MINE, Asked, asked, body, ok, refused
from transactions.bybit_support import loop_now_ms, loop_s, run
from transactions.recorded import Samples


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
    ("code", "reason", "fatal"),
    [
        (10003, FailureReason.AUTHENTICATION_FAILED, True),
        (10004, FailureReason.AUTHENTICATION_FAILED, True),
        (10007, FailureReason.AUTHENTICATION_FAILED, True),
        (10010, FailureReason.AUTHENTICATION_FAILED, True),
        (33004, FailureReason.AUTHENTICATION_FAILED, True),
        (-2015, FailureReason.AUTHENTICATION_FAILED, True),
        (10024, FailureReason.AUTHENTICATION_FAILED, True),
        (10005, FailureReason.PERMISSION_DENIED, False),
        (10017, FailureReason.NOT_OFFERED, False),
        (100028, FailureReason.NOT_OFFERED, False),
        (10001, FailureReason.EXCHANGE_ERROR, False),
        (181010, FailureReason.EXCHANGE_ERROR, False),
        (987654, FailureReason.EXCHANGE_ERROR, False),
    ],
)
def test_codes_that_asking_again_does_not_cure(
    code: int, reason: FailureReason, fatal: bool
) -> None:
    failure, here = refused(body(code, f"secret {MINE.api_key}", None))
    assert (failure.reason, failure.fatal, failure.exchange_code) == (reason, fatal, code)
    assert len(here.requests) == 1
    assert MINE.api_key not in str(failure)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, FailureReason.EXCHANGE_ERROR),
        (401, FailureReason.AUTHENTICATION_FAILED),
        (404, FailureReason.NOT_OFFERED),
        (302, FailureReason.EXCHANGE_ERROR),
    ],
)
def test_http_statuses(status: int, reason: FailureReason) -> None:
    failure, here = refused(httpx.Response(status, headers={"location": "http://elsewhere"}))
    assert failure.reason is reason
    assert len(here.requests) == 1  # no redirect is followed


def test_two_years_are_distinguished_from_other_bad_parameters() -> None:
    message = "Can't query order earlier than 2 years, please check your params: startTime!"

    async def story() -> None:
        async with Asked(body(10001, message)) as here:
            with pytest.raises(TooOld):
                await here.get()

    run(story())


@Samples("bybit").needed
def test_every_collected_error_body_is_understood() -> None:
    for item in Samples("bybit").body("errors.collected.json")["items"]:
        found = item.get("body") or {"retCode": item["retCode"], "retMsg": item["retMsg"]}
        answer = httpx.Response(200, content=json.encode(found))

        async def story(answer: httpx.Response = answer) -> None:
            async with Asked(answer) as here:
                with pytest.raises((SourceFailed, TooOld)):
                    await here.get()

        run(story())


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
            assert (failure.reason, failure.fatal) == (FailureReason.LOCATION_REFUSED, True)
            assert (failure.retryable, failure.retry_after_s) == (False, None)
            await here.get()  # nothing is blocked

    run(story())


def test_the_older_code_of_the_same_stops_everything_too() -> None:
    failure, _ = refused(body(10018))
    assert failure.reason is FailureReason.CIRCUIT_OPEN


def test_a_used_up_limit_waits_for_the_time_in_the_answer() -> None:
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
