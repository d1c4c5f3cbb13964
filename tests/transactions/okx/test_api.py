"""Signatures, limits and answers of OKX: vectors from its rules, bodies as it sends them."""

from typing import Any

import pytest
from msgspec import json

from onebook.transactions.adapter import FailureReason
from onebook.transactions.client import Call, Then
from onebook.transactions.credentials import Credentials
from onebook.transactions.okx.api import API, BILLS, BILLS_ARCHIVE, CONFIG, LIMITS, read, sign
from onebook.transactions.pools import PoolScope
from transactions.okx.native import SAMPLES

KEY = Credentials("key", "mysecret0000000000000000000000000000", passphrase="a passphrase")
AT_MS = 1_700_000_000_000  # 2023-11-14T22:13:20.000Z


def answer(said: Any, status: int = 200, call: Call | None = None, **headers: str) -> Any:
    content = said if isinstance(said, bytes) else json.encode(said)
    return read(call or Call(BILLS), status, headers, content)


def test_a_request_is_signed_as_it_goes_over_the_wire() -> None:
    call = Call("/api/v5/asset/bills-history", "limit=100&pagingType=2")
    signed = sign(call, KEY, AT_MS).headers
    assert signed["OK-ACCESS-SIGN"] == "qFe9cQeX1GEJlzL86zjTC8/73ecOKVQGn8QbgnYQ02U="
    assert signed["OK-ACCESS-TIMESTAMP"] == "2023-11-14T22:13:20.000Z"
    assert signed["OK-ACCESS-KEY"] == "key"
    assert signed["OK-ACCESS-PASSPHRASE"] == "a passphrase"


def test_a_body_is_signed_too() -> None:
    posted = Call(
        "/api/v5/account/bills-history-archive", method="POST",
        body=b'{"year":"2023","quarter":"Q1"}',
    )  # fmt: skip
    signature = sign(posted, KEY, AT_MS).headers["OK-ACCESS-SIGN"]
    assert signature == "uU8ZkFvEFVTga2nQk909VKnVcgEqvZhuTPBEpN95Q9M="


def test_a_demo_account_is_marked_by_a_header() -> None:
    assert [dict(each) for each in API.headers.values()] == [{"x-simulated-trading": "1"}]


def test_every_private_path_is_counted_by_user() -> None:
    scopes = {path: limit.scope for path, limit in LIMITS.items()}
    assert {path for path, scope in scopes.items() if scope is not PoolScope.USER} == {
        "/api/v5/public/instruments"
    }
    assert all(API.costs(Call(path)) == {path: 1} for path in LIMITS)


def test_the_user_is_learned_from_the_configuration() -> None:
    said = {"code": "0", "msg": "", "data": [{"uid": "4470"}]}
    assert answer(said, call=Call(CONFIG)).user == "4470"
    assert answer(said).user == ""


def test_the_clock_of_the_exchange_is_read() -> None:
    found = answer({"code": "0", "data": [], "inTime": "1695190491421339"})
    assert found.server_ms == 1_695_190_491_421
    refused = answer(
        {"code": "50102", "data": [], "msg": "Timestamp request expired"}, 401,
        date="Tue, 14 Nov 2023 22:13:20 GMT",
    )  # fmt: skip
    assert refused.then is Then.RETRY_ONCE
    assert refused.clock_ms == AT_MS + 500
    assert answer({"code": "50102", "msg": ""}, 401).clock_ms is None


@pytest.mark.parametrize(
    "said",
    [
        {"code": "0", "msg": ""},
        {"code": "0", "msg": "", "data": None},
        {"code": "0", "msg": "", "data": {}},
        {},
        {"code": None, "data": []},
        {"code": "a", "data": []},
        b"<html>",
        b'{"code":"0","data":[',
        b'{"code":"0","data":[1e999999999999999999999]}',
        b"\xff",
        b"",
    ],
)
def test_an_answer_without_its_result_is_asked_again(said: Any) -> None:
    found = answer(said)
    assert found.failure is not None
    assert found.failure.retryable
    assert found.then is Then.RETRY


def test_a_full_limit_waits_for_its_window() -> None:
    found = answer({"code": "50011", "msg": "Too Many Requests"}, 429, Call(BILLS_ARCHIVE))
    assert found.then is Then.RETRY_NOW
    assert found.failure.reason is FailureReason.RATE_LIMITED
    state = found.pools[BILLS_ARCHIVE]
    assert (state.refused, state.blocked_s) == (True, 2.0)


@pytest.mark.parametrize(
    ("code", "status", "reason", "fatal", "retryable"),
    [
        ("50001", 503, FailureReason.EXCHANGE_ERROR, False, True),
        ("50004", 400, FailureReason.EXCHANGE_ERROR, False, True),
        ("50013", 429, FailureReason.EXCHANGE_ERROR, False, True),
        ("50026", 500, FailureReason.EXCHANGE_ERROR, False, True),
        ("58007", 200, FailureReason.EXCHANGE_ERROR, False, True),
        ("50005", 410, FailureReason.NOT_OFFERED, False, False),
        ("50030", 403, FailureReason.PERMISSION_DENIED, False, False),
        ("50120", 401, FailureReason.PERMISSION_DENIED, False, False),
        ("51010", 200, FailureReason.NOT_OPENED, False, False),
        ("50038", 200, FailureReason.NOT_OPENED, False, False),
        ("50101", 401, FailureReason.AUTHENTICATION_FAILED, True, False),
        ("50105", 401, FailureReason.AUTHENTICATION_FAILED, True, False),
        ("50110", 401, FailureReason.AUTHENTICATION_FAILED, True, False),
        ("50111", 401, FailureReason.AUTHENTICATION_FAILED, True, False),
        ("50113", 401, FailureReason.AUTHENTICATION_FAILED, True, False),
        ("50119", 401, FailureReason.AUTHENTICATION_FAILED, True, False),
        ("51000", 400, FailureReason.EXCHANGE_ERROR, False, False),
        ("77777", 200, FailureReason.EXCHANGE_ERROR, False, False),
    ],
)
def test_a_code_decides_whatever_the_status_is(
    code: str, status: int, reason: FailureReason, fatal: bool, retryable: bool
) -> None:
    said = {"msg": "Your IP 203.0.113.7 is not included", "code": code}
    failure = answer(said, status).failure
    assert (failure.reason, failure.fatal, failure.retryable) == (reason, fatal, retryable)
    assert failure.exchange_code == code
    assert "203" not in failure.message
    assert answer(said | {"code": int(code)}, status).failure.reason is reason


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, FailureReason.LOCATION_REFUSED),
        (404, FailureReason.NOT_OFFERED),
        (429, FailureReason.EXCHANGE_ERROR),
        (502, FailureReason.EXCHANGE_ERROR),
        (520, FailureReason.EXCHANGE_ERROR),
        (418, FailureReason.EXCHANGE_ERROR),
    ],
)
def test_a_page_of_the_edge_is_read_by_its_status(status: int, reason: FailureReason) -> None:
    failure = answer(b"<html>error code: 1020</html>", status).failure
    assert failure.reason is reason
    assert failure.retryable is (status in (429, 502, 520))


@SAMPLES.needed
def test_recorded_errors_are_known() -> None:
    expected = {
        "50119": FailureReason.AUTHENTICATION_FAILED,
        "50102": FailureReason.AUTHENTICATION_FAILED,
        "50113": FailureReason.AUTHENTICATION_FAILED,
        "58001": FailureReason.EXCHANGE_ERROR,
        "1": FailureReason.EXCHANGE_ERROR,
    }
    for each in SAMPLES.body("errors.collected.json"):
        found = answer(each["body"], each["http"])
        assert found.failure.reason is expected[each["body"]["code"]]
