"""What a route is given of its request: one session, one count, one body, in this order."""

import httpx
import pytest
from pydantic import BaseModel

from api.conftest import bearer
from onebook.api.context import body_schema

TRANSACTIONS = "/api/v1/transactions"


class Body(BaseModel):
    limit: int


def test_the_schema_of_a_body_refers_to_components() -> None:
    body = body_schema(Body)["requestBody"]
    assert isinstance(body, dict)
    schema = body["content"]["application/json"]["schema"]
    assert body["required"] is True
    assert schema["properties"]["limit"]["type"] == "integer"


async def test_two_authorization_headers_are_no_token(client: httpx.AsyncClient, key: str) -> None:
    token = (await bearer(client, key))["Authorization"]
    answer = await client.post(
        TRANSACTIONS, headers=[("Authorization", token), ("Authorization", token)]
    )
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_session")


@pytest.mark.parametrize("content", [b"{", b'{"exchange": "bybit", "what": 1}'])
async def test_a_body_costs_nothing_before_the_session_and_a_token_of_the_rate_after_it(
    client: httpx.AsyncClient, key: str, content: bytes
) -> None:
    answer = await client.post(TRANSACTIONS, content=content)
    assert answer.status_code == 401
    assert "X-RateLimit-Remaining" not in answer.headers
    headers = await bearer(client, key)
    remaining = []
    for _ in range(2):
        answer = await client.post(TRANSACTIONS, content=content, headers=headers)
        assert answer.status_code == 400
        remaining.append(int(answer.headers["X-RateLimit-Remaining"]))
    assert remaining[0] - remaining[1] == 1


async def test_a_public_request_counts_for_its_address(client: httpx.AsyncClient) -> None:
    remaining = [
        int((await client.get("/api/v1/exchanges")).headers["X-RateLimit-Remaining"])
        for _ in range(2)
    ]
    assert remaining[0] - remaining[1] == 1
