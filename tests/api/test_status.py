"""Endpoints 8 and 9, `/livez`, `/readyz`, `/metrics`."""

from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI

from api.conftest import WRONG_KEY, World, bearer, client_of, give_credentials
from onebook import __version__
from onebook.api import HealthFacts, create_app
from onebook.config import ApiSettings
from onebook.errors import ExchangeFailed
from onebook.model import Tier


async def test_8_health_is_the_union_of_both_documented_shapes(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/health")
    assert answer.json() == {
        "status": "healthy",
        "unified_api": "unavailable",
        "available_exchanges": [],
        "supported_exchanges": 1,
        "timestamp": "2025-11-20T22:00:00.123Z",
        "websocket_endpoint": "/api/v1/ws",
        "active_exchanges": 6,
        "version": __version__,
    }
    assert "ratelimit" not in answer.headers


@pytest.mark.parametrize(
    ("facts", "status", "unified", "ready"),
    [
        (HealthFacts(ready=True), "healthy", "operational", 200),
        (HealthFacts(ready=True, problems=("kraken is away.",)), "degraded", "operational", 200),
        (HealthFacts(ready=False), "degraded", "unavailable", 503),
        (HealthFacts(ready=True, draining=True), "draining", "operational", 503),
        (HealthFacts(ready=False, draining=True), "draining", "unavailable", 503),
    ],
    ids=["well", "an exchange away", "no database", "draining", "draining without database"],
)
async def test_8_health_and_readiness_in_every_state(
    world: World,
    client: httpx.AsyncClient,
    facts: HealthFacts,
    status: str,
    unified: str,
    ready: int,
) -> None:
    world.health = facts
    await give_credentials(world)
    body = (await client.get("/api/v1/health")).json()
    assert (body["status"], body["unified_api"]) == (status, unified)
    answer = await client.get("/readyz")
    assert answer.status_code == ready
    assert answer.json()["ready"] is (ready == 200)
    assert answer.json()["status"] == status
    assert set(facts.problems) <= set(answer.json()["problems"])
    assert (await client.get("/livez")).status_code == 200


async def test_8_without_credentials_the_transaction_interface_is_unavailable(
    world: World, client: httpx.AsyncClient
) -> None:
    """Setting no credentials is the operator's choice and degrades nothing."""
    body = (await client.get("/api/v1/health")).json()
    assert (body["status"], body["unified_api"], body["available_exchanges"]) == (
        "healthy",
        "unavailable",
        [],
    )
    await give_credentials(world)
    world.clock.pass_ms(5_000)
    body = (await client.get("/api/v1/health")).json()
    assert (body["status"], body["unified_api"], body["available_exchanges"]) == (
        "healthy",
        "operational",
        ["bybit"],
    )


async def test_8_an_exchange_that_refuses_or_does_not_answer_degrades_the_service(
    world: World, client: httpx.AsyncClient
) -> None:
    async def degraded(sentence: str) -> bool:
        body = (await client.get("/api/v1/health")).json()
        ready = (await client.get("/readyz")).json()
        assert (ready["ready"], ready["status"]) == (True, body["status"])
        assert not ready["problems"] or sentence in ready["problems"][0]
        return (body["status"], body["unified_api"]) == ("degraded", "unavailable")

    await give_credentials(world, WRONG_KEY)
    assert (await world.transactions.validate("bybit", testnet=False)).info is None
    assert await degraded("refused the credentials")
    await give_credentials(world)
    world.exchange.faults.rate, world.exchange.faults.kinds = 1.0, ("reset",)
    with pytest.raises(ExchangeFailed):
        await world.transactions.validate("bybit", testnet=False)
    assert await degraded("could not be reached")
    world.exchange.faults.rate = 0.0
    world.clock.pass_ms(600_000)
    assert (await world.transactions.validate("bybit", testnet=False)).info is not None
    assert not await degraded("")


async def test_readyz_names_the_database_from_the_first_second_of_its_outage(
    world: World, client: httpx.AsyncClient
) -> None:
    """Known keys still work then, so the node is ready: "the credentials cannot be read" misled."""
    await give_credentials(world)
    assert world.store.database.path is not None
    world.store.database.path.rename(world.store.database.path.with_name("away"))
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["problems"]) == (
        200,
        ["Transactions of bybit: the database does not answer."],
    )


@pytest.mark.parametrize("path", ["/api/v1/", "/api/v1"])
async def test_9_root_says_the_message_is_the_way_and_the_query_key_the_older_one(
    client: httpx.AsyncClient, path: str
) -> None:
    body = (await client.get(path)).json()
    assert isinstance(body["message"], str)
    assert body["websocket_endpoint"] == "/api/v1/ws"
    assert body["authentication"]["required"] is True
    assert body["authentication"]["method"] == "API key"
    assert '{"type": "authenticate"' in body["authentication"]["parameter"]
    assert "older" in body["authentication"]["parameter"]
    assert body["connection_example"] == "ws://books.example/api/v1/ws?api_key=YOUR_API_KEY"
    assert body["features"]
    assert all(isinstance(feature, str) for feature in body["features"])


async def test_9_root_is_silent_about_a_query_key_that_is_switched_off(world: World) -> None:
    services = world.services(ApiSettings(public_url="https://feed.example/"))
    async with client_of(create_app(replace(services, query_key_allowed=False))) as client:
        body = (await client.get("/api/v1/")).json()
    assert "query" not in body["authentication"]["parameter"]
    assert body["connection_example"] == "wss://feed.example/api/v1/ws"


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("a.example:8000", "ws://a.example:8000/api/v1/ws"),
        ("[::1]:8000", "ws://[::1]:8000/api/v1/ws"),
        ("<script>", "ws://localhost/api/v1/ws"),
        ("a.example/path?", "ws://localhost/api/v1/ws"),
    ],
)
async def test_9_a_host_header_comes_back_only_if_it_looks_like_one(
    client: httpx.AsyncClient, host: str, shown: str
) -> None:
    body = (await client.get("/api/v1/", headers={"Host": host})).json()
    assert body["connection_example"] == shown + "?api_key=YOUR_API_KEY"


async def test_metrics_know_routes_by_their_template(app: FastAPI) -> None:
    client = client_of(app, address="127.0.0.1")
    await client.get("/api/v1/health")
    await client.get("/no/such/path")
    await client.request("BREW", "/no/such/path")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'route="/api/v1/health",status="200"' in answer.text
    assert 'method="GET",route="unmatched",status="404"' in answer.text
    assert 'method="other",route="unmatched",status="404"' in answer.text
    assert "/no/such/path" not in answer.text
    assert "onebook_http_request_duration_seconds_bucket" in answer.text


@pytest.mark.parametrize(
    ("tier", "limit"),
    [(Tier.BASIC, 600), (Tier.PREMIUM, 1200), (Tier.DEVELOPER, 1000), (Tier.ENTERPRISE, 10_000)],
)
async def test_requests_with_a_session_count_per_key_at_the_rate_of_its_tier(
    world: World, client: httpx.AsyncClient, issue: object, tier: Tier, limit: int
) -> None:
    headers = await bearer(client, await issue(tier))  # type: ignore[operator]
    answer = await client.get("/api/v1/session-status", headers=headers)
    assert answer.headers["ratelimit-policy"] == f'"{tier.value}";q={limit};w=60'
    assert answer.headers["x-ratelimit-remaining"] == str(limit - 1)
    for _ in range(limit - 1):
        answer = await client.get("/api/v1/session-status", headers=headers)
        if limit > 1200:
            break
    if limit <= 1200:
        assert answer.headers["x-ratelimit-remaining"] == "0"
        refused = await client.get("/api/v1/session-status", headers=headers)
        assert refused.status_code == 429
        assert refused.json()["error"] == "rate_limit_exceeded"
        world.clock.pass_ms(int(refused.headers["retry-after"]) * 1000)
        again = await client.get("/api/v1/session-status", headers=headers)
        assert again.status_code == 200


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (HealthFacts(ready=True), "healthy"),
        (HealthFacts(ready=True, active_exchanges=3), "healthy"),
        (HealthFacts(ready=False), "degraded"),
        (HealthFacts(ready=True, problems=("The database does not answer.",)), "degraded"),
        (HealthFacts(ready=True, draining=True), "draining"),
        (HealthFacts(ready=False, draining=True, problems=("x",)), "draining"),
    ],
)
def test_draining_comes_before_degraded_before_healthy(facts: HealthFacts, word: str) -> None:
    assert facts.status == word
