"""Endpoints 1 to 3: sessions, wrong Authorization headers, and the usage report of a key."""

import asyncio
import logging
import re
from collections import Counter
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import generate_latest

from api.conftest import NOW_MS, Issue, World, bearer, client_of
from api.sockets import serving
from onebook.accounts.keys import new_key
from onebook.model import DAY_MS, GIB_BYTES, Tier

AUTHENTICATE = "/api/v1/authenticate"
STATUS = "/api/v1/session-status"


def is_problem(answer: httpx.Response, status: int, code: str) -> None:
    body = answer.json()
    assert (answer.status_code, body.get("error")) == (status, code), answer.text
    assert body["message"].endswith((".", "!"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", body["timestamp"])
    assert (answer.headers.get("www-authenticate") == "Bearer") is (status == 401)


@pytest.mark.parametrize("tier", list(Tier))
async def test_1_a_valid_key_becomes_a_session_of_24_hours(
    client: httpx.AsyncClient, issue: Issue, tier: Tier
) -> None:
    answer = await client.post(AUTHENTICATE, json={"api_key": await issue(tier)})
    assert answer.status_code == 200
    body = answer.json()
    assert list(body) == [
        "success",
        "message",
        "session_token",
        "user_id",
        "user_tier",
        "expires_at",
    ]
    assert body["success"] is True
    assert tier.value in body["message"]
    assert re.fullmatch(r"obs_[0-9A-Za-z]{43}", body["session_token"])
    assert UUID(body["user_id"])
    assert body["user_tier"] == tier.value
    assert body["expires_at"] == NOW_MS + DAY_MS


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"{",
        b"[]",
        b'"ob_live_x"',
        b"null",
        b"{}",
        b'{"api_key": null}',
        b'{"api_key": ""}',
        b'{"api_key": "  "}',
        b'{"api_key": 7}',
        b'{"api_key": ["ob_live_x"]}',
        b'{"apikey": "ob_live_x"}',
        b"\xff\xfe",
        b"[" * 60_000,
    ],
)
async def test_1_without_a_usable_key_it_is_missing_api_key(
    client: httpx.AsyncClient, content: bytes
) -> None:
    is_problem(await client.post(AUTHENTICATE, content=content), 400, "missing_api_key")


@pytest.mark.parametrize(
    "key", ["x", "ob_live_" + "a" * 49, "ob_live_" + "a" * 5_000, "ключ", "a\0b"]
)
async def test_1_an_unknown_key_is_invalid_api_key(client: httpx.AsyncClient, key: str) -> None:
    answer = await client.post(AUTHENTICATE, json={"api_key": key})
    is_problem(answer, 401, "invalid_api_key")
    assert key not in answer.text


async def test_1_a_suspended_key_is_api_key_disabled(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await world.move_key(key, "suspend")
    is_problem(await client.post(AUTHENTICATE, json={"api_key": key}), 401, "api_key_disabled")


async def test_1_an_expired_key_is_api_key_disabled(
    world: World, client: httpx.AsyncClient, issue: Issue
) -> None:
    key = await issue(expires_at_ms=NOW_MS + 1)
    world.clock.pass_ms(1)
    is_problem(await client.post(AUTHENTICATE, json={"api_key": key}), 401, "api_key_disabled")


async def test_1_ten_failures_a_minute_then_429_for_that_address_alone(
    world: World, app: object, client: httpx.AsyncClient, key: str
) -> None:
    for _ in range(10):
        answer = await client.post(AUTHENTICATE, json={"api_key": "wrong"})
        is_problem(answer, 401, "invalid_api_key")
    refused = await client.post(AUTHENTICATE, json={"api_key": key})
    is_problem(refused, 429, "rate_limit_exceeded")
    wait_s = int(refused.headers["retry-after"])
    assert 1 <= wait_s <= 60
    async with client_of(app, address="198.51.100.1") as elsewhere:  # type: ignore[arg-type]
        assert (await elsewhere.post(AUTHENTICATE, json={"api_key": key})).status_code == 200
    world.clock.pass_ms(wait_s * 1000)
    assert (await client.post(AUTHENTICATE, json={"api_key": key})).status_code == 200


async def test_1_unknown_fields_change_nothing(client: httpx.AsyncClient, key: str) -> None:
    body = {"api_key": key, "user_tier": "enterprise"}
    assert (await client.post(AUTHENTICATE, json=body)).json()["user_tier"] == "premium"


async def test_2_a_valid_session(client: httpx.AsyncClient, key: str) -> None:
    answer = await client.get(STATUS, headers=await bearer(client, key))
    assert answer.status_code == 200
    body = answer.json()
    assert body["authenticated"] is True
    assert UUID(body["user_id"])
    assert body["user_tier"] == "premium"
    assert (body["created_at"], body["expires_at"]) == (NOW_MS, NOW_MS + DAY_MS)
    assert "valid" in body["message"]


async def test_2_a_new_session_ends_no_older_one(client: httpx.AsyncClient, key: str) -> None:
    first, second = await bearer(client, key), await bearer(client, key)
    assert first != second
    for headers in (first, second):
        assert (await client.get(STATUS, headers=headers)).status_code == 200


async def test_2_no_header_is_missing_authorization(client: httpx.AsyncClient) -> None:
    answer = await client.get(STATUS)
    is_problem(answer, 401, "missing_authorization")
    assert answer.json()["authenticated"] is False


async def test_2_an_expired_session_says_so_to_the_millisecond(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    headers = await bearer(client, key)
    world.clock.pass_ms(DAY_MS - 1)
    assert (await client.get(STATUS, headers=headers)).status_code == 200
    world.clock.pass_ms(1)
    answer = await client.get(STATUS, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert set(answer.json()) == {"authenticated", "message"}
    assert answer.json()["authenticated"] is False


async def test_2_a_session_of_a_suspended_key_is_api_key_disabled(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    headers = await bearer(client, key)
    await world.move_key(key, "suspend")
    answer = await client.get(STATUS, headers=headers)
    is_problem(answer, 401, "api_key_disabled")
    assert answer.json()["authenticated"] is False
    await world.move_key(key, "resume")
    answer = await client.get(STATUS, headers=headers)
    assert (answer.status_code, answer.json()["authenticated"]) == (401, False)
    assert (await client.get(STATUS, headers=await bearer(client, key))).status_code == 200


T = "obs_" + "a" * 43  # the shape of a token, but never issued
EMPTY = ["", " ", "\t", "   "]
WRONG = [
    "Bearer",
    "Bearer ",
    "bearer",
    f"Bearer{T}",
    f"Bearer {T}",
    f"bearer {T}",
    f"BEARER {T}",
    f"Bearer  {T}",
    f"Bearer\t{T}",
    f"Bearer {T} {T}",
    f"Bearer {T},",
    f"Bearer {T}, Bearer {T}",
    f"Bearer {T[:-1]}",
    f"Bearer {T}a",
    f"Bearer {T[4:]}",
    f"Bearer {T.upper()}",
    f'Bearer "{T}"',
    f"Bearer token={T}",
    "Bearer ob_live_" + "a" * 49,
    "Bearer null",
    "Bearer undefined",
    "Bearer eyJhbGciOiJub25lIn0.e30.",
    "Bearer " + "a" * 8_000,
    f"Basic {T}",
    "Basic dXNlcjpwYXNz",
    f"Digest {T}",
    f"Token {T}",
    f"Negotiate {T}",
    T,
    f"{T} Bearer",
    "Bearer ../../etc/passwd",
    "Bearer ' OR 1=1 --",
    "Bearer obs_\u00e9" + "a" * 42,
]


@pytest.mark.parametrize("header", EMPTY)
async def test_an_empty_header_is_missing_authorization(
    client: httpx.AsyncClient, header: str
) -> None:
    answer = await client.get(STATUS, headers={"Authorization": header})
    is_problem(answer, 401, "missing_authorization")


@pytest.mark.parametrize("header", WRONG)
async def test_any_other_header_is_no_session(client: httpx.AsyncClient, header: str) -> None:
    answer = await client.get(STATUS, headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["authenticated"] is False
    assert set(answer.json()) == {"authenticated", "message"}


async def test_two_headers_are_no_session_even_if_one_is_right(
    client: httpx.AsyncClient, key: str
) -> None:
    right = (await bearer(client, key))["Authorization"]
    for pair in ([right, right], [right, f"Bearer {T}"], [f"Bearer {T}", right]):
        headers = [("Authorization", value) for value in pair]
        answer = await client.get(STATUS, headers=headers)
        assert (answer.status_code, answer.json()["authenticated"]) == (401, False)


async def test_1_sixty_wrong_keys_at_one_moment_get_10_verdicts_over_real_sockets(
    app: FastAPI,
) -> None:
    limits = httpx.Limits(max_connections=60)
    async with serving(app) as url, httpx.AsyncClient(base_url=url, limits=limits) as client:
        asked = [client.post(AUTHENTICATE, json={"api_key": new_key()}) for _ in range(60)]
        answers = await asyncio.gather(*asked)
    assert Counter(answer.status_code for answer in answers) == {401: 10, 429: 50}
    for answer in answers:
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["ratelimit-policy"] == '"failures";q=10;w=60'
            assert answer.headers["x-ratelimit-remaining"] == "0"


async def test_1_a_suspended_key_uses_up_no_failed_attempts(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await world.move_key(key, "suspend")
    for _ in range(20):
        is_problem(await client.post(AUTHENTICATE, json={"api_key": key}), 401, "api_key_disabled")


USAGE = "/api/v1/data-usage/"


async def use(world: World, key: str, used_bytes: int) -> None:
    row = await world.admin.key(key, world.clock.ms)
    await world.accounts.verify_key(key, world.clock.ms)
    world.accounts.meter.add(row.key_id, used_bytes)


async def test_3_the_report_of_an_active_key(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await use(world, key, 13_421_772_800)
    answer = await client.get(USAGE + key)
    assert answer.status_code == 200
    body = answer.json()
    user_id = body.pop("user_id")
    assert len(user_id) == 36
    assert body == {
        "username": "user1",
        "billing_tier": "premium",
        "api_key_active": True,
        "data_usage": {
            "used_gb": 12.5,
            "limit_gb": 50,
            "remaining_gb": 37.5,
            "usage_percentage": 25.0,
            "bytes_used": 13_421_772_800,
            "bytes_limit": 53_687_091_200,
        },
        "billing_period": {
            "reset_date": "2025-12-20T00:00:00.000Z",
            "days_until_reset": 29,
            "next_reset": "2026-01-20T00:00:00.000Z",
        },
        "status": {
            "limit_exceeded": False,
            "warning_threshold": False,
            "api_key_status": "active",
        },
        "timestamp": "2025-11-20T22:00:00.123Z",
    }


async def test_3_a_little_usage_has_no_exponent(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await use(world, key, 4_300)  # 4e-06 GB
    text = (await client.get(USAGE + key)).text
    assert '"used_gb":0.0,' in text
    assert '"bytes_used":4300,' in text


@pytest.mark.parametrize(
    ("used_bytes", "warned", "exceeded"),
    [
        (40 * GIB_BYTES - 1, False, False),
        (40 * GIB_BYTES, True, False),
        (50 * GIB_BYTES, True, False),
        (50 * GIB_BYTES + 1, True, True),
    ],
)
async def test_3_status_at_80_and_beyond_100_percent(
    world: World, client: httpx.AsyncClient, key: str, used_bytes: int, warned: bool, exceeded: bool
) -> None:
    await use(world, key, used_bytes)
    status = (await client.get(USAGE + key)).json()["status"]
    assert (status["warning_threshold"], status["limit_exceeded"]) == (warned, exceeded)


async def test_3_over_the_limit_authenticate_status_and_usage_still_answer(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await use(world, key, 60 * GIB_BYTES)
    headers = await bearer(client, key)
    assert (await client.get("/api/v1/session-status", headers=headers)).status_code == 200
    data = (await client.get(USAGE + key)).json()["data_usage"]
    assert (data["remaining_gb"], data["usage_percentage"]) == (0, 120.0)


@pytest.mark.parametrize(
    "key", ["x", "ob_live_" + "a" * 49, "a%2Fb", "a/b", "", "%00", "%FF", "a b"]
)
async def test_3_an_unknown_key_is_api_key_not_found(client: httpx.AsyncClient, key: str) -> None:
    is_problem(await client.get(USAGE + key), 404, "api_key_not_found")


async def test_3_a_suspended_key_is_account_suspended(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await world.move_key(key, "suspend")
    is_problem(await client.get(USAGE + key), 401, "account_suspended")


async def test_3_an_expired_key_still_has_a_report(
    world: World, client: httpx.AsyncClient, issue: Issue
) -> None:
    key = await issue(expires_at_ms=NOW_MS + 1)
    world.clock.pass_ms(1)
    body = (await client.get(USAGE + key)).json()
    assert body["api_key_active"] is False
    assert body["status"]["api_key_status"] == "expired"


async def test_3_counts_against_no_limit(client: httpx.AsyncClient, key: str) -> None:
    for _ in range(700):
        answer = await client.get(USAGE + key)
        assert answer.status_code == 200
    assert "ratelimit" not in answer.headers


async def test_3_sixty_unknown_keys_a_minute_then_429_but_not_for_known_ones(
    app: object, client: httpx.AsyncClient, key: str
) -> None:
    for _ in range(60):
        is_problem(await client.get(USAGE + "guess"), 404, "api_key_not_found")
    refused = await client.get(USAGE + "guess")
    is_problem(refused, 429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await client.get(USAGE + key)).status_code == 200
    async with client_of(app, address="198.51.100.1") as elsewhere:  # type: ignore[arg-type]
        is_problem(await elsewhere.get(USAGE + "guess"), 404, "api_key_not_found")


async def test_3_no_cache_keeps_it_and_no_referrer_states_it(
    client: httpx.AsyncClient, key: str
) -> None:
    for answer in (await client.get(USAGE + key), await client.get(USAGE + "unknown")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


async def test_3_the_key_is_in_no_log_no_metric_and_no_answer(
    client: httpx.AsyncClient, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "onebook"):  # the client of the test logs its URLs
        answers = [
            await client.get(USAGE + key),
            await client.post(USAGE + key),
            await client.get(USAGE + key + "x"),
            await client.get("/api/v1/data_usage/" + key),
        ]
    assert [answer.status_code for answer in answers] == [200, 405, 404, 404]
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("onebook")]
    assert "GET /api/v1/data-usage/{api_key} 200" in lines[0]
    for text in (*lines, generate_latest().decode(), *(answer.text for answer in answers)):
        assert key not in text
        assert key[8:20] not in text
