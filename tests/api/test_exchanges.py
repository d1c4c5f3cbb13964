"""Endpoints 4, 5 and 7: facts of the transaction interface."""

import asyncio

import httpx
import pytest

from api.conftest import (
    BYBIT_TYPES,
    UNIFIED_TYPES,
    WRONG_KEY,
    Issue,
    World,
    bearer,
    give_credentials,
)
from api.test_sessions import is_problem
from onebook.transactions.availability import Availability


async def test_4_exchanges_is_one_entry_bybit(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/exchanges")
    assert answer.status_code == 200
    assert answer.json() == [
        {
            "exchange_name": "bybit",
            "display_name": "Bybit",
            "supported_transaction_types": list(BYBIT_TYPES),
            "requires_passphrase": False,
            "testnet_available": True,
            "documentation_url": "/docs#tag-bybit",
        }
    ]


async def test_5_without_credentials_none_are_claimed(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/exchanges/credentials")
    assert answer.json() == {
        "exchanges_with_internal_credentials": [],
        "exchanges_requiring_user_credentials": [],
        "details": {
            "bybit": {
                "has_internal_credentials": False,
                "requires_user_credentials": False,
                "can_use_without_api_keys": False,
                "testnet_available": False,
            }
        },
    }


async def looked_up(world: World) -> None:
    """Wait for the vault: a slow machine may read it later than a response waits."""
    while Availability.UNKNOWN in (await world.transactions.availability.all()).values():
        pass


async def test_5_credentials_that_are_refused_are_there_and_of_no_use(
    world: World, client: httpx.AsyncClient
) -> None:
    await give_credentials(world, WRONG_KEY)
    assert (await world.transactions.validate("bybit", testnet=False)).info is None
    await looked_up(world)
    facts = (await client.get("/api/v1/exchanges/credentials")).json()["details"]["bybit"]
    assert (facts["has_internal_credentials"], facts["can_use_without_api_keys"]) == (True, False)


async def test_5_credentials_are_internal_and_none_is_asked_for(
    world: World, client: httpx.AsyncClient
) -> None:
    await give_credentials(world)
    await looked_up(world)
    answer = await client.get("/api/v1/exchanges/credentials")
    assert answer.json() == {
        "exchanges_with_internal_credentials": ["bybit"],
        "exchanges_requiring_user_credentials": [],
        "details": {
            "bybit": {
                "has_internal_credentials": True,
                "requires_user_credentials": False,
                "can_use_without_api_keys": True,
                "testnet_available": False,
            }
        },
    }


async def test_5_and_6_a_slow_vault_claims_nothing(
    world: World, client: httpx.AsyncClient, issue: Issue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After half a second, the response said that there were no credentials."""
    await give_credentials(world)
    client.headers.update(await bearer(client, await issue()))
    read, answers = world.store.credentials.credentials, asyncio.Event()

    async def slow(*words: str) -> object:
        await answers.wait()
        return await read(*words)

    monkeypatch.setattr(world.store.credentials, "credentials", slow)
    monkeypatch.setattr("onebook.transactions.availability.LOOKUP_TIMEOUT_S", 0.01)
    unknown = await client.get("/api/v1/exchanges/credentials")
    assert (unknown.status_code, unknown.json()["error"]) == (503, "service_unavailable")
    assert "configured credentials are unknown" in unknown.json()["message"]
    assert int(unknown.headers["Retry-After"]) > 0
    validated = asyncio.create_task(
        client.post("/api/v1/transactions/validate-credentials", json={"exchange": "bybit"})
    )
    answers.set()
    assert (await validated).json()["success"]
    await looked_up(world)
    known = await client.get("/api/v1/exchanges/credentials")
    assert known.json()["exchanges_with_internal_credentials"] == ["bybit"]


async def test_7_transaction_types(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/transactions/types")
    assert answer.json() == {
        "unified_types": UNIFIED_TYPES,
        "exchange_specific": {"bybit": list(BYBIT_TYPES)},
    }


PUBLIC = [
    "/api/v1/exchanges",
    "/api/v1/exchanges/credentials",
    "/api/v1/transactions/types",
    "/api/v1/",
]


@pytest.mark.parametrize("path", PUBLIC)
async def test_public_gets_count_per_address_at_the_basic_rate(
    world: World, client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert answer.headers["ratelimit-policy"] == '"public";q=600;w=60'
    assert answer.headers["ratelimit"].startswith('"public";r=599;t=')
    assert answer.headers["x-ratelimit-limit"] == "600"
    assert answer.headers["x-ratelimit-remaining"] == "599"
    assert int(answer.headers["x-ratelimit-reset"]) >= 0
    for _ in range(599):
        world.accounts.limits.take_address("203.0.113.9", world.clock.now_s())
    refused = await client.get(path)
    is_problem(refused, 429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-ratelimit-remaining"] == "0"
