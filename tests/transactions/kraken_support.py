"""A service over a simulated Kraken account, spot and futures, in virtual time."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
from msgspec import json

from onebook.clock import Clock
from onebook.config import AccountUrls, TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import (
    KrakenAccount,
    KrakenHistory,
    SimulatedFuturesKey,
    SimulatedKraken,
    SimulatedKrakenFutures,
    SimulatedKrakenKey,
)
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.kraken import KRAKEN
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

KEY = SimulatedKrakenKey("krakenkey0000000000", "a3Jha2VuLXNlY3JldC1vZi10aGUtdGVzdHM=")
FUTURES_KEY = SimulatedFuturesKey("futureskey000000000", "ZnV0dXJlcy1zZWNyZXQtb2YtdGhlLXRlc3Rz")
SPOT_URL, FUTURES_URL = "http://spot.simulated", "http://futures.simulated"
EVERYTHING = {"start_time": 0, "limit": 10_000}


class TwoHosts(httpx.AsyncBaseTransport):
    """Requests to one of two simulated hosts."""

    def __init__(self, spot: httpx.AsyncBaseTransport, futures: httpx.AsyncBaseTransport) -> None:
        self._hosts = {"spot.simulated": spot, "futures.simulated": futures}
        self.paths: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        return await self._hosts[request.url.host].handle_async_request(request)


class KrakenWorld:
    """A service over one simulated account.

    Args:
        account: What happened; a generated one of 60 days if absent.
        spot, futures: Options of the simulated hosts.
        futures_key: Whether the operator has set the futures key.
    """

    def __init__(
        self,
        account: KrakenAccount | None = None,
        *,
        history: KrakenHistory | None = None,
        key: SimulatedKrakenKey = KEY,
        spot: dict[str, Any] | None = None,
        futures: dict[str, Any] | None = None,
        futures_key: bool = True,
        latency_s: float = 0.05,
        clock: Clock = CLOCK,
        nonces: Path = Path("/nonexistent/master.key"),
        around: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] | None = None,
        settings: TransactionSettings = SETTINGS,
    ) -> None:
        past = history or KrakenHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=600)
        self.account = account or KrakenAccount(past)
        now = {"now_ms": loop_now_ms}
        self.exchange = SimulatedKraken(self.account, [key], **(now | (spot or {})))
        self.derivatives = SimulatedKrakenFutures(
            self.account, [FUTURES_KEY], **(now | (futures or {}))
        )
        self.transport = TwoHosts(
            SimulatedTransport(self.exchange, latency_s=latency_s),
            SimulatedTransport(self.derivatives, latency_s=latency_s),
        )
        self.vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        urls = AccountUrls(hosts={"spot": SPOT_URL, "futures": FUTURES_URL})
        self.adapter = ExchangeAdapter(
            KRAKEN,
            settings.model_copy(update={"overrides": {"kraken": urls}, "master_key_file": nonces}),
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
        more = (
            {"futures_key": FUTURES_KEY.api_key, "futures_secret": FUTURES_KEY.secret}
            if futures_key
            else {}
        )
        self._credentials = Credentials(key.api_key, key.secret, **more)

    async def __aenter__(self) -> "KrakenWorld":
        await self.vault.put("kraken", "mainnet", self._credentials, now_ms=NOW_MS)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.service.close()

    async def fetch(self, *types: str, **fields: Any) -> dict[str, Any]:
        """The decoded JSON answer."""
        ask = TransactionsRequest(exchange="kraken", transaction_types=list(types), **fields)
        query = self.service.plan(ask, key_id=CALLER)
        return json.decode(await self.service.fetch(query, key_id=CALLER))

    async def everything(self, *types: str, **fields: Any) -> list[dict[str, Any]]:
        """Every record of the account, by a stream; the summary is the last."""
        ask = TransactionsRequest(
            exchange="kraken", transaction_types=list(types), **({"start_time": 0} | fields)
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
