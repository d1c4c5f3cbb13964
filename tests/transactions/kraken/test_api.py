"""Signatures of requests to Kraken, the cost of calls, and the meaning of answers."""

from typing import Any

import pytest
from msgspec import json

from onebook.transactions.adapter import FailureReason, SourceFailed
from onebook.transactions.client import Call, Reply, Then
from onebook.transactions.credentials import Credentials
from onebook.transactions.kraken.api import (
    API,
    BALANCES,
    COUNTER,
    ERRORS,
    HISTORY_POOL,
    LIMITS,
    LOCKOUT_S,
    costs,
    futures_signature,
    read,
    sign,
    spot_signature,
)
from onebook.transactions.pools import PoolScope
from transactions.kraken.native import SAMPLES

# The secret of the documentation's example.
SECRET = "kQH5HW/8p1uGOVjbgWA7FunAmGO8lsSUXNsu3eow76sz84Q18fWxnyRzBHCd3pd5nE9qa99HAZtuZuj6F1huXg=="
CREDENTIALS = Credentials("spot-key", SECRET, futures_key="futures-key", futures_secret=SECRET)
SPOT = Call("/0/private/Ledgers", method="POST", host="spot")
LOG = Call("/api/history/v3/account-log", "count=500", host="futures", key="futures_key")
ACCOUNTS = Call("/derivatives/api/v3/accounts", host="futures", key="futures_key")


def answered(said: Any, call: Call = SPOT, *, status: int = 200, **headers: str) -> Reply:
    text = said if isinstance(said, bytes) else json.encode(said)
    return read(call, status, {k.replace("_", "-"): v for k, v in headers.items()}, text)


@pytest.mark.parametrize(
    ("path", "nonce", "text", "expected"),
    [
        (
            "/0/private/AddOrder",
            "1616492376594",
            "nonce=1616492376594&ordertype=limit&pair=XBTUSD&price=37500&type=buy&volume=1.25",
            "4/dpxb3iT4tp/ZCVEwSnEsLxx0bqyhLpdfOpc6fn7OR8+UClSV5n9E6aSS8MPtnRfp32bAb0nmbRn6H8ndwLUQ"
            "==",
        ),
        (
            "/0/private/Ledgers",
            "1700000000000000000",
            "nonce=1700000000000000000&ofs=50&start=1688000000&end=1690000000&type=all",
            "paYj6Rh05kYOvzuE5qaSJ/LrFFmnvLO1y+/V3yGINzldsFPop+12g3wq2cFjp/UO+i8JuzsedGM1s1Y9PxSa5Q"
            "==",
        ),
    ],
)
def test_the_documented_example_of_a_spot_signature(
    path: str, nonce: str, text: str, expected: str
) -> None:
    assert spot_signature(SECRET, path, nonce, text.encode()) == expected


@pytest.mark.parametrize(
    ("path", "query", "nonce", "expected"),
    [
        (
            "/api/history/v3/account-log",
            "since=1700000000000&before=1700086400000&sort=asc&count=500",
            "",
            "sIntuE7ZlMwYZX7hDXOIsgivlC/Rn/GApCMAe7RMHt8lcxWxH904fuEnBqsG+Wxtg1l5lVp3+iFrCTM6te2Esg"
            "==",
        ),
        (
            "/api/v3/accounts",
            "",
            "",
            "nJH9pTKkNbq08nxmP9E1eRLJOXsXZEQWSB4zXBICD91l16ZzyGddRkBKrB55ZwPEwFQy+iSRX9DQMNlD5OmKEA"
            "==",
        ),
        (
            "/api/v3/accounts",
            "",
            "1700000000000",
            "SS90WJJ27jflPDQSNcJ2JndHqDa+IUuvU1jQ0AtWQgjJ2iR/552DGasinEkUNxPym4QmoujcQfDOH8Ytath4KA"
            "==",
        ),
    ],
)
def test_examples_of_a_futures_signature(path: str, query: str, nonce: str, expected: str) -> None:
    assert futures_signature(SECRET, path, query, nonce) == expected


def test_a_spot_call_carries_its_nonce_in_the_signed_body() -> None:
    signed = sign(Call("/0/private/Ledgers", body=b"ofs=50", host="spot"), CREDENTIALS, 17)
    assert (signed.method, signed.body) == ("POST", b"nonce=17&ofs=50")
    assert signed.headers["API-Key"] == "spot-key"
    assert signed.headers["API-Sign"] == spot_signature(SECRET, signed.path, "17", signed.body)
    assert signed.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert sign(Call("/0/private/Balance", host="spot"), CREDENTIALS, 18).body == b"nonce=18"


def test_a_futures_call_is_signed_with_its_own_pair_and_without_derivatives() -> None:
    signed = sign(ACCOUNTS, CREDENTIALS, 17)
    assert signed.headers["APIKey"] == "futures-key"
    assert signed.headers["Authent"] == futures_signature(SECRET, "/api/v3/accounts", "")
    signed = sign(LOG, CREDENTIALS, 17)
    assert signed.headers["Authent"] == futures_signature(SECRET, LOG.path, "count=500")


def test_a_secret_that_is_no_base64_is_a_clear_failure() -> None:
    with pytest.raises(SourceFailed, match="base64") as raised:
        sign(SPOT, Credentials("key", "not base64!"), 1)
    assert raised.value.fatal
    assert "not base64!" not in str(raised.value)


@pytest.mark.parametrize(
    ("call", "pool", "units"),
    [
        (Call("/0/private/Ledgers"), "counter", 2),
        (Call("/0/private/TradesHistory"), "counter", 2),
        (Call("/0/private/DepositStatus"), "counter", 1),
        (Call("/0/public/AssetPairs"), "public", 1),
        (ACCOUNTS, "derivatives", 2),
        (Call(LOG.path, "", host="futures"), "history", 3),
        (Call(LOG.path, "count=25", host="futures"), "history", 1),
        (Call(LOG.path, "since=1&count=5000&sort=desc", host="futures"), "history", 6),
        (Call(LOG.path, "count=100000", host="futures"), "history", 10),
    ],
)
def test_a_call_costs_what_its_page_says(call: Call, pool: str, units: float) -> None:
    assert costs(call) == {pool: units}


def test_the_counter_is_that_of_the_lowest_tier() -> None:
    assert (LIMITS[COUNTER].units, LIMITS[COUNTER].sinks) == (15, 0.33)
    assert LIMITS[COUNTER].scope is PoolScope.KEY
    assert API.rising


@pytest.mark.parametrize("said", [{"error": [], "result": {"a": "1"}},
                                  {"error": ["WGeneral:Danger"], "result": {"a": "1"}},
                                  {"error": None, "result": {"a": "1"}}])  # fmt: skip
def test_an_answer_without_errors_is_its_result(said: Any) -> None:
    assert answered(said).value == {"a": "1"}


def test_the_balance_of_an_account_that_never_held_anything_has_no_result() -> None:
    reply = answered({"error": []}, Call(BALANCES, method="POST", host="spot"))
    assert (reply.value, reply.failure) == (None, None)


def test_any_other_answer_without_a_result_is_asked_for_again() -> None:
    reply = answered({"error": []})
    assert reply.failure is not None
    assert reply.failure.reason is FailureReason.UNREADABLE
    assert reply.then is Then.RETRY


@pytest.mark.parametrize(
    ("error", "reason", "fatal", "then"),
    [
        ("EAPI:Invalid key", FailureReason.AUTHENTICATION_FAILED, True, Then.RAISE),
        ("EAPI:Invalid signature", FailureReason.AUTHENTICATION_FAILED, True, Then.RAISE),
        ("EAPI:Invalid nonce", FailureReason.AUTHENTICATION_FAILED, True, Then.RETRY_ONCE),
        ("EAPI:Rate limit exceeded", FailureReason.RATE_LIMITED, False, Then.RETRY_NOW),
        ("EAPI Rate limit exceeded", FailureReason.RATE_LIMITED, False, Then.RETRY_NOW),
        ("EAPI:Feature disabled", FailureReason.EXCHANGE_ERROR, False, Then.RAISE),
        ("EAPI:Bad request", FailureReason.EXCHANGE_ERROR, False, Then.RAISE),
        ("EGeneral:Permission denied", FailureReason.PERMISSION_DENIED, False, Then.RAISE),
        ("EGeneral:Temporary lockout", FailureReason.CIRCUIT_OPEN, False, Then.STOP),
        ("EGeneral:Too many requests", FailureReason.RATE_LIMITED, False, Then.RETRY_NOW),
        ("EGeneral:Invalid arguments:ofs", FailureReason.EXCHANGE_ERROR, False, Then.RAISE),
        ("EGeneral:Internal error:17", FailureReason.EXCHANGE_ERROR, False, Then.RETRY),
        ("EDatabase:Internal error", FailureReason.EXCHANGE_ERROR, False, Then.RETRY),
        ("EService:Unavailable", FailureReason.EXCHANGE_ERROR, False, Then.RETRY),
        ("EService:Busy", FailureReason.EXCHANGE_ERROR, False, Then.RETRY),
        ("EService:Deadline elapsed", FailureReason.EXCHANGE_ERROR, False, Then.RETRY),
        ("EService:Market in cancel_only mode", FailureReason.EXCHANGE_ERROR, False, Then.RETRY),
        ("EService: Throttled: 1700000009", FailureReason.RATE_LIMITED, False, Then.RETRY_NOW),
        ("EQuery:Unknown asset", FailureReason.EXCHANGE_ERROR, False, Then.RAISE),
        ("EAccount:Invalid permissions", FailureReason.NOT_OPENED, False, Then.RAISE),
        ("EAPI:Invalid permissions", FailureReason.NOT_OPENED, False, Then.RAISE),
        ("EAuth:Account temporary disabled", FailureReason.AUTHENTICATION_FAILED, True, Then.RAISE),
        ("EAuth:Too many requests", FailureReason.RATE_LIMITED, False, Then.RETRY_NOW),
        ("ETrade:User Locked", FailureReason.AUTHENTICATION_FAILED, True, Then.RAISE),
        ("ESession:Invalid session", FailureReason.AUTHENTICATION_FAILED, True, Then.RAISE),
        ("EFunding:No funding method", FailureReason.EXCHANGE_ERROR, False, Then.RAISE),
        ("ESomething:New", FailureReason.EXCHANGE_ERROR, False, Then.RAISE),
    ],
)
@pytest.mark.parametrize("bare", [False, True])
def test_an_error_has_its_meaning_in_a_list_and_as_a_bare_text(
    error: str, reason: FailureReason, fatal: bool, then: Then, bare: bool
) -> None:
    reply = answered({"error": error if bare else ["WGeneral:Mind", error]})
    assert reply.failure is not None
    assert (reply.failure.reason, reply.failure.fatal, reply.then) == (reason, fatal, then)
    assert error.startswith(str(reply.failure.exchange_code))


def test_a_detail_behind_an_error_is_not_passed_on() -> None:
    reply = answered({"error": ["EGeneral:Invalid arguments:my address"]})
    assert reply.failure is not None
    assert reply.failure.exchange_code == "EGeneral:Invalid arguments"
    assert "address" not in reply.failure.message


def test_a_refusal_fills_the_counter() -> None:
    state = answered({"error": ["EAPI:Rate limit exceeded"]}).pools[COUNTER]
    assert state.refused


def test_a_lockout_stops_the_key_for_fifteen_minutes() -> None:
    reply = answered({"error": ["EGeneral:Temporary lockout"]})
    assert (reply.stop_s, reply.stops) == (LOCKOUT_S, PoolScope.KEY)


@pytest.mark.parametrize(
    ("until_s", "date", "wait_s"),
    [
        (1_700_000_009, "Tue, 14 Nov 2023 22:13:20 GMT", 9.0),
        (1_600_000_000, "Tue, 14 Nov 2023 22:13:20 GMT", 1.0),
        (1_800_000_000, "Tue, 14 Nov 2023 22:13:20 GMT", 60.0),
        (1_700_000_009, "", 5.0),
        (1_700_000_009, "yesterday", 5.0),
    ],
)
def test_a_throttle_lasts_until_its_time(until_s: int, date: str, wait_s: float) -> None:
    reply = answered({"error": [f"EService: Throttled: {until_s}"]}, date=date)
    assert reply.pools[COUNTER].blocked_s == wait_s


@pytest.mark.parametrize("status", [429, 500, 502, 504, 520, 522, 525])
@pytest.mark.parametrize("call", [SPOT, ACCOUNTS])
def test_a_page_of_the_proxy_is_no_answer(status: int, call: Call) -> None:
    reply = answered(b"<html>Cloudflare</html>", call, status=status)
    assert reply.failure is not None
    assert reply.failure.retryable


@pytest.mark.parametrize("said", [b"", b"{", b"<html>", b"[]", b"\xff"])
@pytest.mark.parametrize("call", [SPOT, LOG])
def test_what_is_not_json_is_asked_again(said: bytes, call: Call) -> None:
    reply = answered(said, call)
    assert reply.failure is not None
    assert reply.failure.reason is FailureReason.UNREADABLE
    assert reply.then is Then.RETRY


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("apiLimitExceeded", FailureReason.RATE_LIMITED),
        ("authenticationError", FailureReason.AUTHENTICATION_FAILED),
        ("insufficientPrivileges", FailureReason.PERMISSION_DENIED),
        ("accountInactive", FailureReason.NOT_OPENED),
        ("unavailable", FailureReason.EXCHANGE_ERROR),
        ("Server Error", FailureReason.EXCHANGE_ERROR),
        ("invalidArgument", FailureReason.EXCHANGE_ERROR),
    ],
)
def test_what_fails_at_futures_leaves_spot_alone(error: str, reason: FailureReason) -> None:
    reply = answered({"result": "error", "error": error, "serverTime": "x"}, ACCOUNTS)
    assert reply.failure is not None
    assert (reply.failure.reason, reply.failure.fatal) == (reason, False)


def test_the_history_of_futures_is_refused_by_status_and_says_for_how_long() -> None:
    reply = answered(b"rate limited", LOG, status=429, rate_limit_reset="12")
    assert reply.pools[HISTORY_POOL].blocked_s == 12.0
    assert reply.pools[HISTORY_POOL].refused
    reply = answered(b"", LOG, status=401)
    assert reply.failure is not None
    assert reply.failure.reason is FailureReason.AUTHENTICATION_FAILED


@SAMPLES.needed
def test_every_collected_error_is_a_failure() -> None:
    for each in SAMPLES.body("errors.collected.json"):
        call = ACCOUNTS if "futures" in each["where"] else SPOT
        assert answered(each["body"], call, status=each["http"]).failure is not None


def test_no_message_repeats_what_kraken_said() -> None:
    assert all(error not in outcome.message for error, outcome in ERRORS.items())
