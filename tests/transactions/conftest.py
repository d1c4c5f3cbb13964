"""A node whose Bybit is simulated, and a client of it with a session."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from random import Random

import httpx
import pytest
from fastapi import FastAPI

from api.conftest import NOW_MS, PEPPER, Clock, World, bearer, client_of
from client.place import Place, place
from clocks import made_of
from databases import migrated
from onebook.accounts import Accounts, Admin
from onebook.api import create_app
from onebook.config import TransactionSettings
from onebook.model import DAY_MS, Tier
from onebook.simulator.accounts.bybit import History, SimulatedBybit
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.store import Store
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter, ExchangeDefinition
from onebook.transactions.service import Transactions
from transactions.bybit_support import KEY, MASTER_KEY, account_of

PATH = "/api/v1/transactions"


class Node(World):
    """A node whose Bybit is simulated."""

    transport: SimulatedTransport
    vault: Vault
    app: FastAPI


CREDENTIALS = Credentials(KEY.api_key, KEY.secret)


def make_node(
    store: Store,
    settings: TransactionSettings | None = None,
    definitions: Iterable[ExchangeDefinition] = (BYBIT,),
    **options: float,
) -> Node:
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.pass_ms(round(seconds * 1_000))
        await asyncio.sleep(0)

    account = account_of(History(NOW_MS - 20 * DAY_MS, NOW_MS, executions=300))
    exchange = SimulatedBybit(account, [KEY], now_ms=clock.now_ms, sleep=sleep)
    transport = SimulatedTransport(exchange, sleep=sleep)
    vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
    service = Transactions(
        [
            ExchangeAdapter(
                definition,
                clock=made_of(wall_ms=clock.now_ms, monotonic=clock.now_s, sleep=sleep),
                transport=transport,
                random=Random(1),
            )
            for definition in definitions
        ],
        vault,
        cursor_secret=b"c" * 32,
        settings=settings,
        clock=made_of(wall_ms=clock.now_ms, monotonic=clock.now_s, sleep=sleep),
        **options,
    )
    accounts = Accounts(store, PEPPER, clock=made_of(wall_ms=clock.now_ms))
    node = Node(clock, store, accounts, Admin(store, PEPPER), service, exchange)
    node.transport, node.vault = transport, vault
    node.app = create_app(node.services())
    return node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with Store(await migrated(tmp_path)) as store:
        node = make_node(store)
        await node.vault.put("bybit", "mainnet", CREDENTIALS, now_ms=NOW_MS)
        yield node
        await node.transactions.close()


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    """A node over sockets; commands use the settings of its host."""
    async with place(tmp_path, rate_hz=0) as rig:
        store, accounts = rig.node.settings.store, rig.node.settings.transactions
        monkeypatch.setenv("ONEBOOK_STORE__URL", store.url)
        monkeypatch.setenv("ONEBOOK_STORE__PEPPER_FILE", str(store.pepper_file))
        monkeypatch.setenv("ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE", str(accounts.master_key_file))
        url = accounts.overrides["bybit"].mainnet_url
        monkeypatch.setenv("ONEBOOK_TRANSACTIONS__OVERRIDES__BYBIT__MAINNET_URL", str(url))
        yield rig


@pytest.fixture
async def client(node: Node) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a session."""
    await node.admin.create_account("someone", node.change())
    key = (await node.admin.create_key("someone", Tier.PREMIUM, node.change())).text
    async with client_of(node.app) as client:
        client.headers.update(await bearer(client, key))
        yield client
