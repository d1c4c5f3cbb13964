"""A service over a simulated OKX account, in virtual time."""

from collections.abc import Callable
from random import Random
from typing import Any

import httpx
from msgspec import json

from onebook.clock import Clock
from onebook.config import TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx, SimulatedOkxKey
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.transactions.adapter import Environment
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.okx import OKX
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import (
    CALLER,
    CLOCK,
    MASTER_KEY,
    NOW_MS,
    SETTINGS,
    MemoryStore,
    loop_now_ms,
)

UUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
KEY = SimulatedOkxKey(UUID, "A0B1C2D3E4F5061728394A5B6C7D8E9F", "a passphrase")
SITES = {"global": "www.okx.com", "eea": "eea.okx.com", "us": "us.okx.com"}
EVERYTHING = {"start_time": 0, "limit": 10_000}


class Sites(httpx.AsyncBaseTransport):
    """Requests to the sites of all regions."""

    def __init__(self, sites: dict[str, httpx.AsyncBaseTransport]) -> None:
        self._sites = {SITES[region]: transport for region, transport in sites.items()}
        self.paths: list[str] = []
        self.hosts: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        self.hosts.append(request.url.host)
        return await self._sites[request.url.host].handle_async_request(request)


class OkxWorld:
    """A service over one simulated account.

    Args:
        account: What happened; a generated one of 60 days if absent.
        site: Options of the simulated sites.
        fields: More fields of the stored credentials, such as the region.
        around: Wraps the transport.
    """

    def __init__(
        self,
        account: OkxAccount | None = None,
        *,
        history: OkxHistory | None = None,
        key: SimulatedOkxKey = KEY,
        site: dict[str, Any] | None = None,
        fields: dict[str, str] | None = None,
        environment: Environment = Environment.MAINNET,
        latency_s: float = 0.05,
        clock: Clock = CLOCK,
        around: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] | None = None,
        settings: TransactionSettings = SETTINGS,
    ) -> None:
        past = history or OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=600)
        self.account = account or OkxAccount(past)
        more = {"now_ms": loop_now_ms} | (site or {})
        self.exchanges = {
            region: SimulatedOkx(self.account, [key], region=region, **more) for region in SITES
        }
        self.exchange = self.exchanges["global"]
        self.transport = Sites(
            {
                region: SimulatedTransport(exchange, latency_s=latency_s)
                for region, exchange in self.exchanges.items()
            }
        )
        self.vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        self.adapter = ExchangeAdapter(
            OKX,
            settings,
            clock=clock,
            transport=around(self.transport) if around else self.transport,
            random=Random(7),
        )
        self.service = Transactions(
            [self.adapter],
            self.vault,
            cursor_secret=b"a secret of the tests",
            settings=settings,
            clock=clock,
        )
        self._environment = environment
        self.credentials = Credentials(
            key.api_key, key.secret, **({"passphrase": key.passphrase} | (fields or {}))
        )

    async def __aenter__(self) -> "OkxWorld":
        await self.vault.put("okx", self._environment.value, self.credentials, now_ms=NOW_MS)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.service.close()

    async def fetch(self, *types: str, **fields: Any) -> dict[str, Any]:
        """The decoded JSON answer."""
        ask = TransactionsRequest(exchange="okx", transaction_types=list(types), **fields)
        query = self.service.plan(ask, key_id=CALLER)
        return json.decode(await self.service.fetch(query, key_id=CALLER))

    async def everything(self, *types: str, **fields: Any) -> list[dict[str, Any]]:
        """Every record of the account, by a stream; the summary is the last."""
        ask = TransactionsRequest(
            exchange="okx", transaction_types=list(types), **({"start_time": 0} | fields)
        )
        query = self.service.plan(ask, key_id=CALLER, streamed=True)
        chunks = [chunk async for chunk in self.service.stream(query, key_id=CALLER)]
        return [json.decode(line) for line in b"".join(chunks).splitlines()]

    async def pages(self, *types: str, **fields: Any) -> list[dict[str, Any]]:
        """Every page along the cursor."""
        found: list[dict[str, Any]] = []
        cursor = None
        while not found or cursor:
            found.append(await self.fetch(*types, cursor=cursor, **fields))
            cursor = found[-1]["next_cursor"]
        return found
