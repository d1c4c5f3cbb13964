"""GET and PUT /api/v1/fees: the taker fees of the session's key."""

import httpx
import pytest

from api.conftest import Issue, World, bearer

FEES = "/api/v1/fees"


async def test_a_key_has_no_fees_until_it_sets_some(
    client: httpx.AsyncClient, issue: Issue, world: World
) -> None:
    session = await bearer(client, await issue())
    assert (await client.get(FEES, headers=session)).json() == {"fees": {}}
    sent = {"fees": {"OKEX": "0.080", "kraken": "-0.01", "*": "0.1"}}
    answer = await client.put(FEES, headers=session, json=sent)
    stored = {"*": "0.1", "kraken": "-0.01", "okx": "0.08"}
    assert (answer.status_code, answer.json()["fees"]) == (200, stored)
    assert (await client.get(FEES, headers=session)).json()["fees"] == stored
    (row,) = await world.admin.keys(None, world.clock.ms)
    other = await bearer(client, await issue())
    assert (await client.get(FEES, headers=other)).json()["fees"] == {}
    assert row.changed_by == row.username
    await client.put(FEES, headers=session, json={"fees": {}})
    assert (await client.get(FEES, headers=session)).json()["fees"] == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "fees"),
        ({"fees": {"okx": 0.1}}, "fees.okx"),
        ({"fees": {"okx": "11"}}, "decimal number of percent from -10 to 10"),
        ({"fees": {"binanse": "0.1"}}, "Unknown exchange 'binanse'"),
        ({"fees": {f"x{number}": "0.1" for number in range(257)}}, "fees"),
        ({"fees": {}, "net": True}, "net"),
    ],
)
async def test_a_table_that_cannot_be_used_changes_nothing(
    client: httpx.AsyncClient, issue: Issue, body: dict[str, object], words: str
) -> None:
    session = await bearer(client, await issue())
    await client.put(FEES, headers=session, json={"fees": {"okx": "0.1"}})
    answer = await client.put(FEES, headers=session, json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert words in answer.json()["message"]
    assert (await client.get(FEES, headers=session)).json()["fees"] == {"okx": "0.1"}


async def test_fees_need_a_session(client: httpx.AsyncClient) -> None:
    for answer in (await client.get(FEES), await client.put(FEES, json={"fees": {}})):
        assert answer.status_code == 401
