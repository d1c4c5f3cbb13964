"""Answers of a node with Bybit only, and of one with every exchange, compared."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.conftest import NOW_MS, UNIFIED_TYPES, bearer, client_of
from databases import migrated
from onebook.config import TransactionSettings
from onebook.model import Tier
from onebook.store import Store
from onebook.transactions import registry
from onebook.transactions.registry import offered
from transactions.conftest import CREDENTIALS, PATH, make_node
from transactions.corsac.adapter import CORSAC
from transactions.fennec.adapter import FENNEC

PUBLIC = (
    "/api/v1/exchanges", "/api/v1/exchanges/credentials", "/api/v1/transactions/types",
    "/api/v1/health",
)  # fmt: skip
REQUESTS: tuple[dict[str, Any], ...] = (
    {"exchange": "bybit"},
    {"exchange": "bybit", "transaction_types": ["deposits", "ledger"], "limit": 5},
    {"exchange": "bybit", "transaction_types": ["lottery"]},
    {"exchange": "bybit", "testnet": True},
    {"exchange": "mtgox"},
)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (FENNEC, CORSAC):
        monkeypatch.setitem(registry.EXCHANGES, each.entry.name, each)


class Answers:
    """A node's answers to every request, without values that change with time."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def public(self) -> dict[str, Any]:
        return {path: plain((await self._client.get(path)).json()) for path in PUBLIC}

    async def transactions(self) -> list[tuple[int, Any]]:
        answers = [await self._client.post(PATH, json=body) for body in REQUESTS]
        return [(answer.status_code, plain(answer.json())) for answer in answers]


def plain(body: Any) -> Any:
    if isinstance(body, dict):
        dropped = ("timestamp", "processing_time", "next_cursor", "version", "datetime")
        return {name: plain(value) for name, value in body.items() if name not in dropped}
    return [plain(each) for each in body] if isinstance(body, list) else body


async def of(tmp_path: Path, *exchanges: str) -> AsyncIterator[Answers]:
    definitions = offered(TransactionSettings(exchanges=exchanges)).values()
    async with Store(await migrated(tmp_path)) as store:
        node = make_node(store, definitions=definitions)
        await node.vault.put("bybit", "mainnet", CREDENTIALS, now_ms=NOW_MS)
        await node.admin.create_account("someone", node.change())
        key = (await node.admin.create_key("someone", Tier.PREMIUM, node.change())).text
        async with client_of(node.app) as client:
            client.headers.update(await bearer(client, key))
            yield Answers(client)
        await node.transactions.close()


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Answers]:
    (tmp_path / "alone").mkdir()
    async for found in of(tmp_path / "alone", "bybit"):
        yield found


@pytest.fixture
async def everything(tmp_path: Path) -> AsyncIterator[Answers]:
    (tmp_path / "everything").mkdir()
    async for found in of(tmp_path / "everything"):
        yield found


async def test_alone_only_bybit_is_named_anywhere(alone: Answers) -> None:
    found = await alone.public()
    assert [entry["exchange_name"] for entry in found["/api/v1/exchanges"]] == ["bybit"]
    assert set(found["/api/v1/exchanges/credentials"]["details"]) == {"bybit"}
    assert found["/api/v1/health"]["available_exchanges"] == ["bybit"]
    assert found["/api/v1/health"]["supported_exchanges"] == 1
    types = found["/api/v1/transactions/types"]
    assert (types["unified_types"], set(types["exchange_specific"])) == (UNIFIED_TYPES, {"bybit"})
    assert set(found["/api/v1/exchanges"][0]) == {
        "exchange_name", "display_name", "supported_transaction_types", "requires_passphrase",
        "testnet_available", "documentation_url",
    }  # fmt: skip


async def test_beside_others_the_unified_types_and_bybits_facts_are_the_same(
    alone: Answers, everything: Answers
) -> None:
    one, all_ = await alone.public(), await everything.public()
    entries = {entry["exchange_name"]: entry for entry in all_["/api/v1/exchanges"]}
    assert {"bybit", "fennec", "corsac"} <= entries.keys()
    assert entries["bybit"] == one["/api/v1/exchanges"][0]
    types = all_["/api/v1/transactions/types"]
    assert types["unified_types"] == UNIFIED_TYPES
    bybit = one["/api/v1/transactions/types"]["exchange_specific"]["bybit"]
    assert types["exchange_specific"]["bybit"] == bybit
    assert {"conversions", "earn"} <= set(types["exchange_specific"]["corsac"])
    details = all_["/api/v1/exchanges/credentials"]["details"]
    assert details["bybit"] == one["/api/v1/exchanges/credentials"]["details"]["bybit"]
    assert all_["/api/v1/health"]["supported_exchanges"] == len(entries)


async def test_answers_about_bybit_do_not_change_with_what_else_is_offered(
    alone: Answers, everything: Answers
) -> None:
    one, all_ = await alone.transactions(), await everything.transactions()
    assert [status for status, _ in one] == [200, 200, 400, 400, 400]
    assert one[:-1] == all_[:-1]
    (_, unknown), (_, also) = one[-1], all_[-1]
    assert unknown["supported_exchanges"] == ["bybit"]
    assert set(also["supported_exchanges"]) == set(registry.EXCHANGES)
    for _, body in one[:2]:
        assert "accounts" not in body
        assert all("account" not in entry for entry in body["coverage"])
        assert all("name" not in (record["account"] or {}) for record in body["transactions"])
