"""The API over real accounts on SQLite, with a clock that only tests advance."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from clocks import made_of
from databases import migrated
from onebook.accounts import Accounts, Admin, Peppers
from onebook.api import (
    HealthFacts,
    Services,
    WebSocketFacts,
    create_app,
)
from onebook.clock import SYSTEM_CLOCK
from onebook.clock import Clock as SourceClock
from onebook.config import ApiSettings
from onebook.fees import PublishedFee, TakerFees
from onebook.gateway import codes, messages
from onebook.model import DAY_MS, Tier
from onebook.simulator.accounts.bybit import History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.store import AuditedChange, Store
from onebook.streams.past import RecordedTimes
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.service import Transactions
from transactions.bybit_support import account_of

NOW_MS = 1_763_676_000_123  # 2025-11-20T22:00:00.123Z
PEPPER = Peppers(b"p" * 32)
MASTER_KEY = b64encode(b"m" * 32).decode()
CALLER = "203.0.113.9"

BYBIT_TYPES = (
    "holdings",
    "deposits",
    "withdrawals",
    "spot_orders",
    "futures_linear",
    "futures_inverse",
    "ledger",
    "leverage_token_trades",
    "transfers",
)
UNIFIED_TYPES = {
    "deposits": "Deposit transactions (incoming funds)",
    "withdrawals": "Withdrawal transactions (outgoing funds)",
    "trades": "Spot trading transactions",
    "spot_trades": "Spot market trades",
    "futures": "Futures/derivatives trading",
    "derivatives": "Derivative trading transactions",
    "transfers": "Internal transfers between accounts",
    "holdings": "Current account balances",
    "balances": "Account balance snapshots",
}


NOTHING = RecordedTimes(None, None, [], {})


@dataclass
class Clock:
    """Both clocks of the service."""

    ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def now_s(self) -> float:
        return self.ms / 1000

    def pass_ms(self, ms: int) -> None:
        self.ms += ms


KEY = SimulatedKey("mykey00000000000000", "mysecret0000000000000000000000000000")
WRONG_KEY = SimulatedKey("other00000000000000", "mysecret0000000000000000000000000000")


@dataclass
class World:
    """One node's API, and the controls that tests use."""

    clock: Clock
    store: Store
    accounts: Accounts
    admin: Admin
    transactions: Transactions
    exchange: SimulatedBybit
    health: HealthFacts = field(default_factory=lambda: HealthFacts(ready=True, active_exchanges=6))
    quality_asked: list[tuple[object, ...]] = field(default_factory=list)
    quality_rows: list[dict[str, object]] = field(default_factory=list)
    recorded_asked: list[tuple[str, int, int]] = field(default_factory=list)
    recorded_times: RecordedTimes = NOTHING
    published: dict[str, tuple[list[PublishedFee], list[str]]] = field(default_factory=dict)

    def services(self, settings: ApiSettings | None = None) -> Services:
        return Services(
            accounts=self.accounts,
            transactions=self.transactions,
            health=lambda: self.health,
            published_fees=lambda symbol: self.published.get(symbol, ([], [])),
            book_at=self.book_at,
            quality=self.quality,
            recorded=self.recorded,
            websocket=WebSocketFacts(
                messages.MESSAGES, codes.ERRORS, codes.ACTION_ERRORS, codes.CLOSE_CODES
            ),
            settings=settings or ApiSettings(),
            clock=made_of(wall_ms=self.clock.now_ms, monotonic=self.clock.now_s),
        )

    def change(self) -> AuditedChange:
        return AuditedChange(self.clock.ms, "operator", "test")

    async def book_at(
        self, symbol: str, query: Mapping[str, object], at_us: int, fees: TakerFees
    ) -> bytes:
        return msgspec.json.encode({"symbol": symbol, "query": query, "at": at_us, "fees": fees})

    async def quality(self, asked: tuple[object, ...]) -> list[dict[str, object]]:
        self.quality_asked.append(asked)
        return self.quality_rows

    async def recorded(self, symbol: str, start_us: int, end_us: int) -> RecordedTimes:
        self.recorded_asked.append((symbol, start_us, end_us))
        return self.recorded_times

    async def move_key(self, key: str, action: str) -> None:
        """Apply an operator's change from another process, and poll."""
        await self.admin.move_key(key, action, self.change())
        await self.accounts.poll(self.clock.ms)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Store(await migrated(tmp_path)) as store:
        yield make_world(store)


def make_world(store: Store) -> World:
    clock = Clock()
    accounts = Accounts(store, PEPPER, clock=made_of(wall_ms=clock.now_ms))

    async def sleep(seconds: float) -> None:
        clock.pass_ms(round(seconds * 1_000))
        await asyncio.sleep(0)

    account = account_of(History(NOW_MS - DAY_MS, NOW_MS, executions=1))
    exchange = SimulatedBybit(account, [KEY], now_ms=clock.now_ms, sleep=sleep)
    transactions = make_transactions(
        store,
        made_of(wall_ms=clock.now_ms, monotonic=clock.now_s, sleep=sleep),
        SimulatedTransport(exchange),
    )
    return World(clock, store, accounts, Admin(store, PEPPER), transactions, exchange)


def make_transactions(
    store: Store,
    clock: SourceClock = SYSTEM_CLOCK,
    transport: SimulatedTransport | None = None,
) -> Transactions:
    """The transaction service with Bybit, simulated if a transport is given."""
    vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
    adapter = ExchangeAdapter(BYBIT, clock=clock, transport=transport)
    return Transactions([adapter], vault, cursor_secret=b"c" * 32, clock=clock)


async def give_credentials(world: World, key: SimulatedKey = KEY) -> None:
    """Store credentials as `onebook credentials set` does."""
    vault = Vault(world.store.credentials, MasterKeys(None, value=MASTER_KEY))
    credentials = Credentials(key.api_key, key.secret)
    await vault.put("bybit", "mainnet", credentials, now_ms=world.clock.ms)


@pytest.fixture
def app(world: World) -> FastAPI:
    return create_app(world.services())


def client_of(app: FastAPI, *, address: str = CALLER) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 50_000))
    return httpx.AsyncClient(transport=transport, base_url="http://books.example")


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        yield client


Issue = Callable[..., Awaitable[str]]


@pytest.fixture
def issue(world: World) -> Issue:
    """Create a user and issue a key; return the key's text."""
    made = 0

    async def issue(tier: Tier = Tier.PREMIUM, *, expires_at_ms: int | None = None) -> str:
        nonlocal made
        made += 1
        account = await world.admin.create_account(f"user{made}", world.change())
        new = await world.admin.create_key(
            account.username, tier, world.change(), expires_at_ms=expires_at_ms
        )
        return new.text

    return issue


@pytest.fixture
async def key(issue: Issue) -> str:
    return await issue()


async def bearer(client: httpx.AsyncClient, key: str) -> dict[str, str]:
    """The Authorization header of a new session."""
    answer = await client.post("/api/v1/authenticate", json={"api_key": key})
    assert answer.status_code == 200, answer.text
    return {"Authorization": f"Bearer {answer.json()['session_token']}"}
