"""A service over a simulated OKX account with exports, a real database and a real directory."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
from msgspec import json

from onebook.config import TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx
from onebook.simulator.accounts.okx.exports import SimulatedOkxFiles
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.store import Store
from onebook.transactions.collected import Collection
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.export_files import ExportFiles
from onebook.transactions.export_jobs import ExportJobs
from onebook.transactions.okx import OKX
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import CALLER, MASTER_KEY, NOW_MS
from transactions.collecting import SETTINGS, Passing
from transactions.okx_support import KEY

FILES_URL = "https://files.simulated"
EXPORT_PATH = "/api/v5/account/bills-history-archive"
HISTORY = OkxHistory(NOW_MS - 200 * DAY_MS, NOW_MS, rows=200, seed=6)
Answer = tuple[list[dict[str, Any]], dict[str, Any]]


class Recorded(httpx.AsyncBaseTransport):
    """Records the requests that pass."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.requests: list[httpx.Request] = []
        self.changed: Callable[[httpx.Response], Awaitable[httpx.Response]] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = await self._inner.handle_async_request(request)
        return answer if self.changed is None else await self.changed(answer)

    def posts(self) -> list[dict[str, str]]:
        """The exports that were requested."""
        return [json.decode(each.content) for each in self.requests if each.method == "POST"]


class ExportWorld:
    """An OKX account at its exchange, which services of several processes can read.

    Args:
        files: Options of the exchange's files.
        site: Options of the exchange.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        history: OkxHistory = HISTORY,
        time: Passing | None = None,
        files: dict[str, Any] | None = None,
        site: dict[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.folder = folder
        self.time = time or Passing()
        now = {"now_ms": self.time.now_ms, "sleep": self.time.sleep}
        self.account = OkxAccount(history)
        self.files = SimulatedOkxFiles(self.account, **now, **(files or {}))
        self.files.url = FILES_URL
        self.exchange = SimulatedOkx(self.account, [KEY], files=self.files, **now, **(site or {}))
        self.api = Recorded(SimulatedTransport(self.exchange))
        self.downloads = Recorded(SimulatedTransport(self.files))

    def service(self, **options: Any) -> "ExportService":
        """A process."""
        return ExportService(self, **options)


class ExportService:
    """One process over an account."""

    def __init__(
        self,
        world: ExportWorld,
        *,
        sealed: bool = False,
        bytes_max: int = 1 << 30,
        master_key: str = MASTER_KEY,
        settings: TransactionSettings = SETTINGS,
    ) -> None:
        clock = world.time.clock
        self.world = world
        self.vault = Vault(world.store.credentials, MasterKeys(None, value=master_key))
        self.jobs = ExportJobs(
            world.store.exports,
            world.store.leases,
            ExportFiles(world.folder, bytes_max=bytes_max, days=30),
            self.vault,
            clock=clock,
            sealed=sealed,
            transport=world.downloads,
        )
        adapter = ExchangeAdapter(
            OKX, settings, clock=clock, transport=world.api, random=Random(7), exports=self.jobs
        )
        self.service = Transactions(
            [adapter],
            self.vault,
            cursor_secret=b"a secret of the tests",
            settings=settings,
            clock=clock,
            collection=Collection(world.store.collected, self.vault),
            exports=self.jobs,
        )

    async def __aenter__(self) -> "ExportService":
        credentials = Credentials(KEY.api_key, KEY.secret, passphrase=KEY.passphrase)
        await self.vault.put("okx", "mainnet", credentials, now_ms=NOW_MS)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.service.close()

    async def ask(self, *types: str, **fields: Any) -> Answer:
        """All records, by a stream, and the summary."""
        ask = TransactionsRequest(
            exchange="okx",
            transaction_types=list(types),
            **({"start_time": self.world.account.history.from_ms} | fields),
        )
        query = await self.service.prepare(ask, key_id=CALLER, streamed=True)
        chunks = [chunk async for chunk in self.service.stream(query, key_id=CALLER)]
        lines = [json.decode(line) for line in b"".join(chunks).splitlines()]
        return lines[:-1], lines[-1]

    async def settled(self) -> None:
        """Wait until no export task is running."""
        while self.jobs.working:
            await asyncio.wait(self.jobs.working)
