"""GET and PUT /api/v1/fees: the taker fees of the session's key."""

from datetime import date

import httpx
import pytest

from api.conftest import Issue, World, bearer
from onebook.fees import PublishedFee

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


async def test_published_fees_are_stated_with_source_date_and_age(
    client: httpx.AsyncClient, issue: Issue, world: World
) -> None:
    page = "https://www.kucoin.com/support/48142946141635"
    kraken = PublishedFee("kraken", "BTC/USDT", "0.4", "instruments", date(2026, 11, 27))
    kucoin = PublishedFee("kucoin", "BTC/USDT", "0.1", "page", date(2026, 3, 26), page, old=True)
    world.published["BTC/USDT"] = [kraken, kucoin], ["binance"]
    session = await bearer(client, await issue())
    answer = await client.get(f"{FEES}/published", headers=session, params={"symbol": "btc/usdt"})
    body = answer.json()
    assert (answer.status_code, body["symbol"], body["unknown_fee"]) == (
        200,
        "BTC/USDT",
        ["binance"],
    )
    assert body["fees"] == [
        {"exchange": "kraken", "symbol": "BTC/USDT", "percent": "0.4", "source": "instruments",
         "date": "2026-11-27", "page": None, "old": False},
        {"exchange": "kucoin", "symbol": "BTC/USDT", "percent": "0.1", "source": "page",
         "date": "2026-03-26", "page": page, "old": True},
    ]  # fmt: skip
    answer = await client.get(f"{FEES}/published", headers=session, params={"symbol": "X/Y"})
    assert (answer.status_code, answer.json()["fees"], answer.json()["unknown_fee"]) == (
        200,
        [],
        [],
    )
    assert (await client.get(f"{FEES}/published")).status_code == 401


async def test_fees_need_a_session(client: httpx.AsyncClient) -> None:
    for answer in (await client.get(FEES), await client.put(FEES, json={"fees": {}})):
        assert answer.status_code == 401
