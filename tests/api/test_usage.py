"""Endpoint 3: the usage report, field by field, and that the key in its path is not passed on."""

import logging

import httpx
import pytest
from prometheus_client import generate_latest

from api.conftest import NOW_MS, Issue, World, bearer, client_of
from api.test_sessions import is_problem
from onebook.model import GIB_BYTES

PATH = "/api/v1/data-usage/"


async def use(world: World, key: str, used_bytes: int) -> None:
    row = await world.admin.key(key, world.clock.ms)
    await world.accounts.verify_key(key, world.clock.ms)
    world.accounts.meter.add(row.key_id, used_bytes)


async def test_3_the_report_of_an_active_key(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await use(world, key, 13_421_772_800)
    answer = await client.get(PATH + key)
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
    text = (await client.get(PATH + key)).text
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
    status = (await client.get(PATH + key)).json()["status"]
    assert (status["warning_threshold"], status["limit_exceeded"]) == (warned, exceeded)


async def test_3_over_the_limit_authenticate_status_and_usage_still_answer(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await use(world, key, 60 * GIB_BYTES)
    headers = await bearer(client, key)
    assert (await client.get("/api/v1/session-status", headers=headers)).status_code == 200
    data = (await client.get(PATH + key)).json()["data_usage"]
    assert (data["remaining_gb"], data["usage_percentage"]) == (0, 120.0)


@pytest.mark.parametrize(
    "key", ["x", "ob_live_" + "a" * 49, "a%2Fb", "a/b", "", "%00", "%FF", "a b"]
)
async def test_3_an_unknown_key_is_api_key_not_found(client: httpx.AsyncClient, key: str) -> None:
    is_problem(await client.get(PATH + key), 404, "api_key_not_found")


async def test_3_a_suspended_key_is_account_suspended(
    world: World, client: httpx.AsyncClient, key: str
) -> None:
    await world.move_key(key, "suspend")
    is_problem(await client.get(PATH + key), 401, "account_suspended")


async def test_3_an_expired_key_still_has_a_report(
    world: World, client: httpx.AsyncClient, issue: Issue
) -> None:
    key = await issue(expires_at_ms=NOW_MS + 1)
    world.clock.pass_ms(1)
    body = (await client.get(PATH + key)).json()
    assert body["api_key_active"] is False
    assert body["status"]["api_key_status"] == "expired"


async def test_3_counts_against_no_limit(client: httpx.AsyncClient, key: str) -> None:
    for _ in range(700):
        answer = await client.get(PATH + key)
        assert answer.status_code == 200
    assert "ratelimit" not in answer.headers


async def test_3_sixty_unknown_keys_a_minute_then_429_but_not_for_known_ones(
    app: object, client: httpx.AsyncClient, key: str
) -> None:
    for _ in range(60):
        is_problem(await client.get(PATH + "guess"), 404, "api_key_not_found")
    refused = await client.get(PATH + "guess")
    is_problem(refused, 429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await client.get(PATH + key)).status_code == 200
    async with client_of(app, address="198.51.100.1") as elsewhere:  # type: ignore[arg-type]
        is_problem(await elsewhere.get(PATH + "guess"), 404, "api_key_not_found")


async def test_3_no_cache_keeps_it_and_no_referrer_states_it(
    client: httpx.AsyncClient, key: str
) -> None:
    for answer in (await client.get(PATH + key), await client.get(PATH + "unknown")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


async def test_3_the_key_is_in_no_log_no_metric_and_no_answer(
    client: httpx.AsyncClient, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "onebook"):  # the client of the test logs its URLs
        answers = [
            await client.get(PATH + key),
            await client.post(PATH + key),
            await client.get(PATH + key + "x"),
            await client.get("/api/v1/data_usage/" + key),
        ]
    assert [answer.status_code for answer in answers] == [200, 405, 404, 404]
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("onebook")]
    assert "GET /api/v1/data-usage/{api_key} 200" in lines[0]
    for text in (*lines, generate_latest().decode(), *(answer.text for answer in answers)):
        assert key not in text
        assert key[8:20] not in text
