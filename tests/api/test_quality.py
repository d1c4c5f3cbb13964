"""GET /api/v1/exchanges/quality: the query, the limits and the body."""

import httpx
import pytest

from api.conftest import NOW_MS, Issue, World, bearer
from onebook.archive.quality import AGES, COUNTED, SUMS

PATH = "/api/v1/exchanges/quality"
DAY_US = 86_400_000_000
ROW = {
    "exchange": "okx", "hour": "2026-11-27T14:00:00.000Z", "uptime": 0.5,
    **dict.fromkeys(SUMS, 1), **dict.fromkeys(COUNTED, 2), **dict.fromkeys(AGES, None),
    "outages": [{"reason": "gap", "count": 2, "seconds": 1.5}],
}  # fmt: skip


async def test_the_body_has_the_rows_of_the_history(
    client: httpx.AsyncClient, issue: Issue, world: World
) -> None:
    session = await bearer(client, await issue())
    world.quality_rows = [ROW]
    query = "?from=2026-11-27T12:00:00&to=2026-11-27T15:00:00&exchanges=okx, kraken&by=hour"
    answer = await client.get(f"{PATH}{query}&symbols=btc/usdt", headers=session)
    assert answer.status_code == 200
    assert answer.json() == {
        "from": "2026-11-27T12:00:00.000Z",
        "to": "2026-11-27T15:00:00.000Z",
        "rows": [ROW],
    }
    at = 1_795_788_180_000_000 - 3 * 60_000_000  # 14:00
    assert world.quality_asked == [
        (at - DAY_US // 12, at + DAY_US // 24, ["okx", "kraken"], ["BTC/USDT"], "hour")
    ]


async def test_the_default_is_a_day_of_all_exchanges(
    client: httpx.AsyncClient, issue: Issue, world: World
) -> None:
    answer = await client.get(PATH, headers=await bearer(client, await issue()))
    assert answer.json()["rows"] == []
    now_us = NOW_MS * 1_000
    assert world.quality_asked == [(now_us - DAY_US, now_us, [], [], "exchange")]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?from=yesterday", "from: must be ISO 8601"),
        ("?from=2026-01-01&to=2026-03-01", "at most 31 days before to"),
        ("?from=2026-01-02&to=2026-01-01", "and not after it"),
        ("?by=week", "The request is malformed."),
    ],
)
async def test_an_invalid_time_is_refused(
    client: httpx.AsyncClient, issue: Issue, query: str, words: str
) -> None:
    answer = await client.get(PATH + query, headers=await bearer(client, await issue()))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert words in answer.json()["message"]


async def test_too_many_rows_are_refused(
    client: httpx.AsyncClient, issue: Issue, world: World
) -> None:
    world.quality_rows = [ROW] * 10_001
    answer = await client.get(f"{PATH}?by=book", headers=await bearer(client, await issue()))
    assert "10,001 rows, of at most 10,000" in answer.json()["message"]


async def test_the_quality_needs_a_session(client: httpx.AsyncClient) -> None:
    assert (await client.get(PATH)).status_code == 401
