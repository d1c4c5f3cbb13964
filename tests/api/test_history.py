"""GET /api/v1/history/{base}/{quote}: the recorded times of a pair."""

import httpx
import pytest

from api.conftest import NOW_MS, Issue, World, bearer
from onebook.streams.past import RecordedTimes

PATH = "/api/v1/history/btc/usdt"
DAY_US = 86_400_000_000
AT_US = 1_795_788_000_000_000  # 2026-11-27T14:00:00


async def test_the_body_has_the_times_of_each_exchange(
    client: httpx.AsyncClient, issue: Issue, world: World
) -> None:
    early, late = (AT_US, AT_US + 60_000_000), (AT_US + 90_000_001, AT_US + 120_000_000)
    world.recorded_times = RecordedTimes(AT_US, late[1], [early, late], {"okx": [late]})
    query = "?from=2026-11-27T14:00:00&to=2026-11-27T15:00:00"
    answer = await client.get(f"{PATH}{query}", headers=await bearer(client, await issue()))
    assert answer.status_code == 200
    spans = [
        {"from": "2026-11-27T14:00:00.000000Z", "to": "2026-11-27T14:01:00.000000Z"},
        {"from": "2026-11-27T14:01:30.000001Z", "to": "2026-11-27T14:02:00.000000Z"},
    ]
    assert answer.json() == {
        "symbol": "BTC/USDT",
        "from": "2026-11-27T14:00:00.000000Z",
        "to": "2026-11-27T15:00:00.000000Z",
        "first": "2026-11-27T14:00:00.000000Z",
        "last": "2026-11-27T14:02:00.000000Z",
        "recorded": spans,
        "exchanges": {"okx": spans[1:]},
    }
    assert world.recorded_asked == [("BTC/USDT", AT_US, AT_US + DAY_US // 24)]


async def test_the_default_is_a_day_in_which_nothing_may_be_recorded(
    client: httpx.AsyncClient, issue: Issue, world: World
) -> None:
    answer = await client.get(PATH, headers=await bearer(client, await issue()))
    body = answer.json()
    assert (body["first"], body["last"], body["recorded"]) == (None, None, [])
    now_us = NOW_MS * 1_000
    assert world.recorded_asked == [("BTC/USDT", now_us - DAY_US, now_us)]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?from=yesterday", "from: must be ISO 8601"),
        ("?from=2026-01-01&to=2026-03-01", "at most 31 days before to"),
    ],
)
async def test_an_invalid_time_is_refused(
    client: httpx.AsyncClient, issue: Issue, query: str, words: str
) -> None:
    answer = await client.get(PATH + query, headers=await bearer(client, await issue()))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert words in answer.json()["message"]


async def test_the_times_need_a_session(client: httpx.AsyncClient) -> None:
    assert (await client.get(PATH)).status_code == 401
