"""GET /api/v1/orderbooks/{base}/{quote}: the query as options of a view."""

import httpx
import pytest

from api.conftest import Issue, bearer

BOOK = "/api/v1/orderbooks/btc/usdt"
AT = "2026-11-27T14:03:00"


async def test_the_query_has_the_options_of_a_view(client: httpx.AsyncClient, issue: Issue) -> None:
    session = await bearer(client, await issue())
    query = "&exchanges=okx, kraken&depth=5&net=true&fees={%22*%22:%220.1%22}&group=0.5"
    answer = await client.get(f"{BOOK}?as_of={AT}{query}", headers=session)
    assert answer.status_code == 200
    sent = {"depth": "5", "net": "true", "fees": {"*": "0.1"}, "group": "0.5"}
    assert answer.json() == {
        "symbol": "BTC/USDT",
        "query": {"exchanges": ["okx", "kraken"], **sent},
        "at": 1_795_788_180_000_000,
        "fees": {},
    }


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "The request is malformed."),
        ("?as_of=yesterday", "as_of: must be ISO 8601"),
        (f"?as_of={AT}&mode=delta", "mode: is given twice, or is no option"),
        (f"?as_of={AT}&depth=1&depth=2", "depth: is given twice"),
        (f"?as_of={AT}&fill={{", "fill: is not JSON"),
    ],
)
async def test_an_invalid_query_is_refused(
    client: httpx.AsyncClient, issue: Issue, query: str, words: str
) -> None:
    session = await bearer(client, await issue())
    answer = await client.get(BOOK + query, headers=session)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert words in answer.json()["message"]


async def test_a_session_is_required(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{BOOK}?as_of={AT}")).status_code == 401
