"""Shared parts of the transaction tests: virtual time, a store in memory, a service."""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from random import Random
from typing import Any, Self, TypeVar

import httpx
from msgspec import json

from clocks import made_of
from onebook.clock import Clock
from onebook.config import AccountUrls, TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.serving import SimulatedTransport, serving
from onebook.store.rows import CredentialsRow, DataKeyRow
from onebook.transactions.adapter import Environment
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter, ExchangeDefinition
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions

NOW_MS = 1_763_000_000_000
KEY = SimulatedKey("mykey00000000000000", "mysecret0000000000000000000000000000")
MASTER_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
CALLER = "key-1"
SETTINGS = TransactionSettings(
    deadline_s=3_600.0,
    stream_deadline_s=36_000.0,
)
T = TypeVar("T")


THREAD_LIMIT_S = 60.0  # what one call in a thread may take of real time


class _Selector(selectors.BaseSelector):
    """Waits only for threads; time jumps wherever the loop would wait for it."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self._files = 0  # one is the loop's own, by which threads wake it
        self.now_s = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        events: list[Any] = []
        if self.threads or self._files > 1:
            # A thread takes no virtual time: it writes a file, and the loop is told when it ends.
            events = self._real.select(THREAD_LIMIT_S if self.threads and timeout != 0 else 0)
        if not events:
            assert timeout is not None, "nothing will ever happen: a deadlock"
            self.now_s += max(0.0, timeout)
        return events

    def register(self, *args: Any) -> Any:
        self._files += 1
        return self._real.register(*args)

    def unregister(self, *args: Any) -> Any:
        self._files -= 1
        return self._real.unregister(*args)

    def modify(self, *args: Any) -> Any:
        return self._real.modify(*args)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when all tasks wait."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self._virtual.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def forget_cancelled(self) -> None:
        """Drop cancelled timers now, of which asyncio otherwise keeps up to a hundred."""
        kept = [each for each in self._scheduled if not each.cancelled()]
        for each in self._scheduled:
            each._scheduled = not each.cancelled()
        self._scheduled[:] = sorted(kept)
        self._timer_cancelled_count = 0

    def _thread_ended(self, future: object) -> None:
        self._virtual.threads -= 1


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time."""
    # Not in debug mode: it keeps a traceback of every callback, two thirds of the time of a run.
    with asyncio.Runner(debug=False, loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def loop_s() -> float:
    """The virtual time; 0 before a loop runs, as at its start."""
    loop = asyncio._get_running_loop()
    return loop.time() if loop is not None else 0.0


def loop_now_ms() -> int:
    return NOW_MS + round(loop_s() * 1_000)


CLOCK = made_of(wall_ms=loop_now_ms, monotonic=loop_s, sleep=asyncio.sleep)


class MemoryStore:
    """A credential store without a database."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], CredentialsRow] = {}
        self.keys: dict[str, DataKeyRow] = {}

    async def put_credentials(self, row: CredentialsRow, change: object = None) -> None:
        self.rows[row.exchange, row.environment] = row

    async def credentials(self, exchange: str, environment: str) -> CredentialsRow | None:
        return self.rows.get((exchange, environment))

    async def list_credentials(self) -> list[CredentialsRow]:
        return list(self.rows.values())

    async def rewrap_credentials(self, before: CredentialsRow, after: CredentialsRow) -> bool:
        place = (before.exchange, before.environment)
        if self.rows.get(place) != before:
            return False
        self.rows[place] = after
        return True

    async def delete_credentials(
        self, exchange: str, environment: str, change: object = None
    ) -> bool:
        return self.rows.pop((exchange, environment), None) is not None

    async def data_keys(self) -> list[DataKeyRow]:
        return list(self.keys.values())

    async def add_data_key(self, row: DataKeyRow) -> DataKeyRow:
        return self.keys.setdefault(row.name, row)

    async def rewrap_data_key(self, before: DataKeyRow, after: DataKeyRow) -> bool:
        if self.keys.get(before.name) != before:
            return False
        self.keys[after.name] = after
        return True


@cache
def account_of(history: History) -> Account:
    """A generated account, shared by the tests of this process that only read it."""
    return Account(history)


def simulated(
    account: Account | None = None,
    *,
    history: History | None = None,
    key: SimulatedKey = KEY,
    now_ms: Callable[[], int] = loop_now_ms,
    **options: Any,
) -> SimulatedBybit:
    """A simulated exchange on the virtual clock."""
    if account is None:
        account = account_of(history or History(NOW_MS - 60 * DAY_MS, NOW_MS))
    return SimulatedBybit(account, [key], now_ms=now_ms, **options)


class AccountWorld:
    """A service over the simulated hosts of one exchange, in virtual time.

    Args:
        definition: The exchange.
        credentials: What the operator has stored; None: nothing.
        transport: Carries requests to the simulated hosts.
        accounts: Settings of the adapter, if they differ from those of the service.
        around: Wraps the transport.
        decode: Decodes answers.
    """

    def __init__(
        self,
        definition: ExchangeDefinition,
        credentials: Credentials | None,
        transport: httpx.AsyncBaseTransport | None,
        *,
        environment: Environment = Environment.MAINNET,
        settings: TransactionSettings = SETTINGS,
        accounts: TransactionSettings | None = None,
        clock: Clock = CLOCK,
        around: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] | None = None,
        decode: Callable[[bytes], Any] = json.decode,
    ) -> None:
        self.store = MemoryStore()
        self.vault = Vault(self.store, MasterKeys(None, value=MASTER_KEY))
        self.credentials = credentials
        self.adapter = ExchangeAdapter(
            definition,
            accounts or settings,
            clock=clock,
            transport=around(transport) if around and transport else transport,
            random=Random(7),
        )
        self.service = Transactions(
            [self.adapter],
            self.vault,
            cursor_secret=b"a secret of the tests",
            settings=settings,
            clock=clock,
        )
        self._name = definition.entry.name
        self._environment = environment
        self._decode = decode

    async def __aenter__(self) -> Self:
        if self.credentials is not None:
            place = self._name, self._environment.value
            await self.vault.put(*place, self.credentials, now_ms=NOW_MS)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.service.close()

    async def fetch(self, *types: str, **fields: Any) -> dict[str, Any]:
        """The decoded JSON answer."""
        ask = TransactionsRequest(exchange=self._name, transaction_types=list(types), **fields)
        query = self.service.plan(ask, key_id=CALLER)
        return self._decode(await self.service.fetch(query, key_id=CALLER))

    async def stream(self, *types: str, **fields: Any) -> list[dict[str, Any]]:
        """The decoded lines of the NDJSON answer."""
        ask = TransactionsRequest(exchange=self._name, transaction_types=list(types), **fields)
        query = self.service.plan(ask, key_id=CALLER, streamed=True)
        chunks = [chunk async for chunk in self.service.stream(query, key_id=CALLER)]
        return [self._decode(line) for line in b"".join(chunks).splitlines()]

    async def everything(self, *types: str, **fields: Any) -> list[dict[str, Any]]:
        """Every record of the account, by a stream; the summary is the last one."""
        return await self.stream(*types, **({"start_time": 0} | fields))

    async def pages(self, *types: str, **fields: Any) -> list[dict[str, Any]]:
        """Every page along the cursor."""
        found: list[dict[str, Any]] = []
        cursor = None
        while not found or cursor:
            found.append(await self.fetch(*types, cursor=cursor, **fields))
            cursor = found[-1]["next_cursor"]
        return found


class World(AccountWorld):
    """A service over a simulated Bybit."""

    def __init__(
        self,
        exchange: SimulatedBybit,
        *,
        latency_s: float = 0.05,
        key: SimulatedKey = KEY,
        settings: TransactionSettings | None = None,
        clock: Clock = CLOCK,
        with_credentials: bool = True,
        around: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        self.exchange = exchange
        self.transport = SimulatedTransport(exchange, latency_s=latency_s)
        settings = settings or SETTINGS
        hosts = AccountUrls(
            mainnet_url="http://mainnet.simulated", testnet_url="http://testnet.simulated"
        )
        super().__init__(
            BYBIT,
            Credentials(key.api_key, key.secret) if with_credentials else None,
            self.transport,
            settings=settings,
            accounts=TransactionSettings(
                overrides={"bybit": hosts}, reserve_share=settings.reserve_share
            ),
            clock=clock,
            around=around,
        )


class Served:
    """A simulated exchange on a loopback port, in its own thread."""

    def __init__(self, exchange: SimulatedBybit) -> None:
        self._exchange = exchange
        self._stop: Callable[[], object] = lambda: None
        self._url = ""
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        async with serving(self._exchange) as self._url:
            self._stop = lambda: loop.call_soon_threadsafe(ended.set)
            self._started.set()
            await ended.wait()

    def __enter__(self) -> str:
        self._thread.start()
        self._started.wait()
        return self._url

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._thread.join()


class SimulatedHosts(httpx.AsyncBaseTransport):
    """Requests to simulated hosts, by name.

    Attributes:
        asked: Host and path of each request.
    """

    def __init__(self, hosts: Mapping[str, object], *, latency_s: float) -> None:
        self._hosts = {
            name: SimulatedTransport(app, latency_s=latency_s) for name, app in hosts.items()
        }
        self.asked: list[tuple[str, str]] = []

    @property
    def paths(self) -> list[str]:
        """The path of each request."""
        return [path for _, path in self.asked]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.url.host, request.url.path))
        return await self._hosts[request.url.host].handle_async_request(request)


__all__ = ["Account", "AccountFaults", "History", "World", "httpx", "run", "simulated"]
