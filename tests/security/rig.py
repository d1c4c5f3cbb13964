"""A whole node over real sockets: one simulated exchange, a simulated Bybit, clients with keys."""

import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from e2e.service import key_of, node_on
from onebook.app import Node
from onebook.model import DAY_MS, Tier
from onebook.simulator import SimulatedExchanges
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.serving import serving
from onebook.transactions.credentials import Credentials, MasterKeys, Vault

AUTHENTICATE = "/api/v1/authenticate"
STATUS = "/api/v1/session-status"
USAGE = "/api/v1/data-usage/"
TRANSACTIONS = "/api/v1/transactions"
VALIDATE = "/api/v1/transactions/validate-credentials"

MASTER_KEY = b64encode(b"canary-master-key-of-32-bytes-ok").decode()
EXCHANGE_KEY = SimulatedKey("CANARYapikey0000001", "CANARYsecret000000000000000000000001")


@dataclass
class Rig:
    """A running node, and the exchange account behind it."""

    node: Node
    bybit: SimulatedBybit
    http: httpx.AsyncClient

    async def key(self, name: str, tier: Tier = Tier.PREMIUM) -> str:
        return await key_of(self.node, name, tier)

    async def session(self, key: str) -> dict[str, str]:
        answer = await self.http.post(AUTHENTICATE, json={"api_key": key})
        assert answer.status_code == 200, answer.text
        return {"Authorization": f"Bearer {answer.json()['session_token']}"}


@asynccontextmanager
async def running(folder: Path, **tables: Any) -> AsyncIterator[Rig]:
    now_ms = time.time_ns() // 1_000_000
    bybit = SimulatedBybit(
        Account(History(now_ms - 5 * DAY_MS, now_ms, executions=60)), [EXCHANGE_KEY]
    )
    async with (
        SimulatedExchanges(["kraken"], seed=3, rate_hz=20) as simulated,
        serving(bybit) as bybit_url,
        node_on(
            simulated.urls,
            folder,
            transactions={
                "master_key": MASTER_KEY,
                "overrides": {"bybit": {"mainnet_url": bybit_url, "testnet_url": bybit_url}},
            },
            **tables,
        ) as node,
        httpx.AsyncClient(base_url=node.url, timeout=30) as http,
    ):
        vault = Vault(node.store.credentials, MasterKeys(None, value=MASTER_KEY))
        credentials = Credentials(EXCHANGE_KEY.api_key, EXCHANGE_KEY.secret)
        await vault.put("bybit", "mainnet", credentials, now_ms=now_ms)
        yield Rig(node, bybit, http)
