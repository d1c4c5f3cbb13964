"""Every documented error occurs somewhere, and no other does: one row for each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.conftest import MASTER_KEY, NOW_MS, client_of
from clocks import made_of
from databases import migrated
from onebook.accounts import Accounts
from onebook.api import create_app
from onebook.config import AccountUrls, TransactionSettings
from onebook.model import DAY_MS, Tier
from onebook.store import Store
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.service import Transactions
from transactions.conftest import CREDENTIALS, PEPPER, Node, make_node

AUTHENTICATE = "POST /api/v1/authenticate"
STATUS = "GET /api/v1/session-status"
USAGE = "GET /api/v1/data-usage/{api_key}"
EXCHANGES = "GET /api/v1/exchanges"
AVAILABILITY = "GET /api/v1/exchanges/credentials"
TYPES = "GET /api/v1/transactions/types"
HEALTH = "GET /api/v1/health"
ROOT = "GET /api/v1/"
VALIDATE = "POST /api/v1/transactions/validate-credentials"
TRANSACTIONS = "POST /api/v1/transactions"
FEES = "GET /api/v1/fees"
NEW_FEES = "PUT /api/v1/fees"
PUBLISHED = "GET /api/v1/fees/published"
BOOK = "GET /api/v1/orderbooks/{base}/{quote}"
QUALITY = "GET /api/v1/exchanges/quality"
RECORDED = "GET /api/v1/history/{base}/{quote}"
PUBLIC = (EXCHANGES, AVAILABILITY, TYPES, ROOT)
BEARER = (STATUS, VALIDATE, TRANSACTIONS, FEES, NEW_FEES, PUBLISHED, BOOK, QUALITY, RECORDED)
WITH_BODY = (AUTHENTICATE, VALIDATE, TRANSACTIONS, NEW_FEES)


class Caller:
    """A client with a key and a session, and a way to make each operation fail."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.key = ""
        self.headers: dict[str, str] = {}
        self.body: dict[str, Any] = {}
        self.content: bytes | None = None
        self.query: dict[str, str] = {}

    async def begin(self) -> None:
        await self.node.admin.create_account("someone", self.node.change())
        made = await self.node.admin.create_key("someone", Tier.BASIC, self.node.change())
        self.key, self.key_id = made.text, made.row.key_id
        async with client_of(self.node.app) as client:
            answer = await client.post("/api/v1/authenticate", json={"api_key": self.key})
        self.headers = {"Authorization": f"Bearer {answer.json()['session_token']}"}

    async def ask(self, label: str) -> httpx.Response:
        method, path = label.split(" ")
        body: Any = {"exchange": "bybit", "transaction_types": ["transfers"]}
        bodies = {AUTHENTICATE: {"api_key": self.key}, TRANSACTIONS: body, NEW_FEES: {"fees": {}}}
        body = bodies.get(label, {"exchange": "bybit"})
        sent: Any = {"content": self.content} if self.content else {"json": body | self.body}
        async with client_of(self.node.app) as client:
            return await client.request(
                method,
                path.format(api_key=self.key, base="btc", quote="usdt"),
                headers=self.headers,
                params=self.query,
                **(sent if label in WITH_BODY else {}),
            )

    async def move(self, action: str) -> None:
        await self.node.move_key(self.key_id, action)


async def no_symbol(one: Caller, label: str) -> None:
    """Send the request without the parameter `symbol`, as every row of this table does."""


async def no_time(one: Caller, label: str) -> None:
    one.query = {"from": "yesterday"}


async def no_key(one: Caller, label: str) -> None:
    one.body = {"api_key": " "}


async def wrong_key(one: Caller, label: str) -> None:
    one.key = "ob_live_nonsense"


async def suspended(one: Caller, label: str) -> None:
    await one.move("suspend")


async def no_header(one: Caller, label: str) -> None:
    one.headers = {}


async def wrong_token(one: Caller, label: str) -> None:
    one.headers = {"Authorization": "Bearer obs_" + "a" * 43}


async def late(one: Caller, label: str) -> None:
    one.node.clock.pass_ms(DAY_MS)


async def too_large(one: Caller, label: str) -> None:
    one.content = b" " * 65_537


async def not_json(one: Caller, label: str) -> None:
    one.content = b"{"


async def other_exchange(one: Caller, label: str) -> None:
    one.body = {"exchange": "mtgox"}


async def other_type(one: Caller, label: str) -> None:
    one.body = {"transaction_types": ["gifts"]}


async def backwards(one: Caller, label: str) -> None:
    one.body = {"start_time": 2, "end_time": 1}


async def too_often(one: Caller, label: str) -> None:
    limits, now_s = one.node.accounts.limits, one.node.clock.now_s()
    for _ in range(600):
        limits.take(one.key_id, Tier.BASIC, now_s)
        limits.take_address("203.0.113.9", now_s)
    if label in (AUTHENTICATE, USAGE):
        good, one.key = one.key, "nonsense"
        for _ in range(60):
            await one.ask(label)
        one.key = good if label == AUTHENTICATE else "nonsense"


async def used_up(one: Caller, label: str) -> None:
    await one.ask(label)
    one.node.accounts.meter.add(one.key_id, one.node.accounts.meter.allowance_bytes + 1)


async def exchange_down(one: Caller, label: str) -> None:
    node = one.node

    async def sleep(seconds: float) -> None:
        node.clock.pass_ms(round(seconds * 1_000))
        await asyncio.sleep(0)

    clock = made_of(wall_ms=node.clock.now_ms, monotonic=node.clock.now_s, sleep=sleep)
    nowhere = TransactionSettings(
        overrides={"bybit": AccountUrls(mainnet_url="http://127.0.0.1:1")}
    )
    adapter = ExchangeAdapter(BYBIT, nowhere, clock=clock)
    node.transactions = Transactions([adapter], node.vault, cursor_secret=b"c" * 32, clock=clock)
    node.app = create_app(node.services())


async def database_away(one: Caller, label: str) -> None:
    away = Store("postgresql://nobody@127.0.0.1:1/none")
    one.node.accounts = Accounts(away, PEPPER, clock=made_of(wall_ms=one.node.clock.now_ms))
    one.node.app = create_app(one.node.services())


async def vault_away(one: Caller, label: str) -> None:
    away = Store("postgresql://nobody@127.0.0.1:1/none")
    vault = Vault(away.credentials, MasterKeys(None, value=MASTER_KEY))
    adapters = [ExchangeAdapter(BYBIT)]
    one.node.transactions = Transactions(adapters, vault, cursor_secret=b"c" * 32)
    one.node.app = create_app(one.node.services())


async def defect(one: Caller, label: str) -> None:
    """An unexpected exception in the first dependency of a route."""

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    accounts = one.node.accounts
    accounts.authenticate = accounts.session = accounts.usage_report = broken  # type: ignore
    accounts.limits.take_address = broken  # type: ignore[method-assign]
    one.node.app.state.services = replace(one.node.services(), health=broken)


Way = Callable[[Caller, str], Awaitable[None]]
BOTH = (VALIDATE, TRANSACTIONS)
ROWS: list[tuple[str, str, Way]] = [
    (AUTHENTICATE, "missing_api_key", no_key),
    (AUTHENTICATE, "invalid_api_key", wrong_key),
    (AUTHENTICATE, "api_key_disabled", suspended),
    (USAGE, "account_suspended", suspended),
    (USAGE, "api_key_not_found", wrong_key),
    (TRANSACTIONS, "invalid_transaction_types", other_type),
    (TRANSACTIONS, "invalid_date_range", backwards),
    (TRANSACTIONS, "data_limit_exceeded", used_up),
    *((label, "missing_authorization", no_header) for label in BEARER),
    *((label, "api_key_disabled", suspended) for label in BEARER),
    *((label, "invalid_session", wrong_token) for label in BEARER if label != STATUS),
    *((label, "session_expired", late) for label in BEARER if label != STATUS),
    *((label, "invalid_request", not_json) for label in (*BOTH, NEW_FEES)),
    (PUBLISHED, "invalid_request", no_symbol),
    (BOOK, "invalid_request", no_symbol),
    (QUALITY, "invalid_request", no_time),
    (RECORDED, "invalid_request", no_time),
    *((label, "invalid_exchange", other_exchange) for label in BOTH),
    *((label, "exchange_error", exchange_down) for label in BOTH),
    *((label, "request_too_large", too_large) for label in WITH_BODY),
    *(
        (label, "rate_limit_exceeded", too_often)
        for label in (AUTHENTICATE, USAGE, *BEARER, *PUBLIC)
    ),
    *((label, "service_unavailable", database_away) for label in (AUTHENTICATE, USAGE, *BEARER)),
    (AVAILABILITY, "service_unavailable", vault_away),
    *(
        (label, "internal_server_error", defect)
        for label in (AUTHENTICATE, USAGE, HEALTH, *BEARER, *PUBLIC)
    ),
]


# The same of each node, and made for a seventh of a second.
DOCUMENT: dict[str, Any] = {}


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    async with Store(await migrated(tmp_path)) as store:
        one = Caller(make_node(store))
        await one.node.vault.put("bybit", "mainnet", CREDENTIALS, now_ms=NOW_MS)
        await one.begin()
        yield one
        await one.node.transactions.close()


@pytest.mark.parametrize(
    ("label", "code", "way"), ROWS, ids=lambda part: getattr(part, "__name__", part)
)
async def test_an_error_of_the_documents_is_answered(
    caller: Caller, label: str, code: str, way: Way
) -> None:
    await way(caller, label)
    answer = await caller.ask(label)
    assert answer.json()["error"] == code, answer.text
    if not DOCUMENT:
        DOCUMENT.update(caller.node.app.openapi())
    documented = codes_of(DOCUMENT, label)
    assert code in documented[str(answer.status_code)]
    if answer.status_code == 429:
        wait_s = int(answer.headers["retry-after"])
        assert wait_s >= 1
        if code == "rate_limit_exceeded":
            assert answer.headers["RateLimit"].endswith(f";t={wait_s}")
        for name in ("RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining"):
            assert name in answer.headers


def codes_of(document: Any, label: str) -> dict[str, set[str]]:
    """The error codes of an operation, by status."""
    method, path = label.split(" ")
    codes: dict[str, set[str]] = {}
    for status, response in document["paths"][path][method.lower()]["responses"].items():
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        for choice in schema.get("anyOf", [schema]):
            for part in choice.get("allOf", []):
                named = part.get("properties", {}).get("error", {}).get("enum", [])
                codes.setdefault(status, set()).update(named)
    return codes


def test_no_error_of_the_documents_is_without_a_row(app: FastAPI) -> None:
    document = app.openapi()
    documented = {
        (f"{method.upper()} {path}", code)
        for path, item in document["paths"].items()
        for method in item
        for codes in codes_of(document, f"{method.upper()} {path}").values()
        for code in codes
    }
    # These need a history: tests/gateway/test_past.py and test_codes.py.
    recorded = {(BOOK, "history_not_found")}
    recorded |= {(each, "history_unavailable") for each in (BOOK, QUALITY, RECORDED)}
    assert documented - recorded == {(label, code) for label, code, _ in ROWS}
