"""What /metrics says after requests to a simulated Bybit: every way that asking can end."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families

from api.conftest import NOW_MS
from onebook.metrics import Exposition
from onebook.transactions import metrics
from transactions.bybit_support import KEY
from transactions.conftest import PATH, Node

DEPOSITS = "/v5/asset/deposit/query-record"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
PREFIX = "onebook_transactions_"


async def samples(client: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    """Every sample of ours by its name and labels; those with `_created` are no counts."""
    families = text_string_to_metric_families((await Exposition().text()).decode())
    return {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith(PREFIX) and not sample.name.endswith("_created")
    }


async def counted(client: httpx.AsyncClient, *types: str, **body: Any) -> dict[Any, float]:
    """What one request adds to the counts."""
    before = await samples(client)
    answer = await client.post(
        PATH, json={"exchange": "bybit", "transaction_types": [*types]} | body
    )
    after = await samples(client)
    added = {name: value - before.get(name, 0.0) for name, value in after.items()}
    return {"answer": answer} | {name: value for name, value in added.items() if value}


async def test_a_request_that_is_answered(node: Node, client: httpx.AsyncClient) -> None:
    added = await counted(client, "deposits", "ledger")
    by_type = {"deposits": 0, "ledger": 0}
    for record in added["answer"].json()["transactions"]:
        by_type[record["type"]] += 1
    assert min(by_type.values()) > 0
    assert added["records_total", "bybit", "deposits"] == by_type["deposits"]
    assert added["records_total", "bybit", "ledger"] == by_type["ledger"]
    assert added["requests_total", "bybit", "ok"] == sum(node.exchange.requests.values())
    assert ("retries_total", "bybit") not in added


async def test_what_is_sent_again(node: Node, client: httpx.AsyncClient) -> None:
    node.exchange.faults.queue(DEPOSITS, "502", "10006", "truncated", "reset")
    added = await counted(client, "deposits")
    assert added["retries_total", "bybit"] == 4
    assert added["limit_wait_seconds_total", "bybit"] > 0  # the wait that 10006 asks for
    for reason in ("exchange_error", "rate_limited", "unreadable_answer", "exchange_unreachable"):
        assert added["requests_total", "bybit", reason] == 1


async def test_a_403_says_until_when_nothing_is_asked(
    node: Node, client: httpx.AsyncClient
) -> None:
    address = "127.0.0.1"
    node.exchange.bans.ban(address, NOW_MS)
    added = await counted(client, "deposits", "withdrawals")
    assert added["circuit_trips_total", "bybit"] >= 1
    assert added["requests_total", "bybit", "circuit_open"] == sum(node.exchange.requests.values())
    until_s = (await samples(client))["circuit_open_until_timestamp_seconds", "bybit"]
    assert until_s == pytest.approx(node.clock.now_ms() / 1_000 + 600, abs=1)
    asked = dict(node.exchange.requests)
    again = await counted(client, "deposits")
    assert node.exchange.requests == asked
    assert ("requests_total", "bybit", "circuit_open") not in again


async def test_every_metric_is_documented_and_none_names_an_account(
    node: Node, client: httpx.AsyncClient
) -> None:
    await counted(client, "deposits")
    page = (await Exposition().text()).decode()
    assert KEY.api_key not in page
    assert KEY.secret not in page
    kept = [each for each in vars(metrics).values() if isinstance(each, Counter | Gauge)]
    declared = [each.describe()[0] for each in kept]
    assert len(declared) == 26
    reference = REFERENCE.read_text()
    for metric in declared:
        assert metric.name.startswith(PREFIX)
        ending = "_total" if metric.type == "counter" else ""
        assert f"`{metric.name}{ending}`" in reference
