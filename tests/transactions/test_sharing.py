"""One key's load does not slow down others, over real sockets on both sides."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from msgspec import json

from api.conftest import NOW_MS, bearer
from databases import migrated
from onebook.clock import SYSTEM_CLOCK
from onebook.config import AccountUrls, TransactionSettings
from onebook.model import DAY_MS, Tier
from onebook.simulator.accounts.admission import AddressBans
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit
from onebook.simulator.accounts.serving import LOOPBACK, LoopbackServer
from onebook.store import Store
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import KEY, MASTER_KEY, MemoryStore, Served
from transactions.conftest import PATH, Node, make_node

UNREAD_S = 60.0  # passes only by a skip, so the machine may be slow before it
BUFFER_BYTES = (
    4_096  # what the kernel takes off our hands must not hide that the client does not read
)


@asynccontextmanager
async def served(node: Node) -> AsyncIterator[int]:
    """The API of a node on a loopback port."""
    listener = socket.create_server((LOOPBACK, 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    config = uvicorn.Config(node.app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = LoopbackServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    settings = TransactionSettings(runs_max=6, runs_per_key_max=4)
    async with Store(await migrated(tmp_path)) as store:
        node = make_node(store, settings, unread_s=UNREAD_S)
        credentials = Credentials(KEY.api_key, KEY.secret)
        await node.vault.put("bybit", "mainnet", credentials, now_ms=NOW_MS)
        yield node
        await node.transactions.close()


async def unread(port: int, authorization: str) -> socket.socket:
    """Request a stream without reading it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (LOOPBACK, port))
    body = json.encode({"exchange": "bybit", "transaction_types": ["ledger", "trades"]})
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n"
        f"Accept: application/x-ndjson\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    await asyncio.get_running_loop().sock_sendall(sock, head.encode() + body)
    return sock


class SkippingLoop:
    """Lets a test advance the event loop's clock, and with it all deadlines in the loop."""

    def __init__(self) -> None:
        self._skipped_s = 0.0
        loop = asyncio.get_running_loop()
        self._true = loop.time
        loop.time = self._time  # type: ignore[method-assign]

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds

    def _time(self) -> float:
        return self._true() + self._skipped_s


async def test_streams_that_are_not_read_end_and_hold_up_no_other_key(node: Node) -> None:
    await node.admin.create_account("someone", node.change())
    keys = [
        (await node.admin.create_key("someone", Tier.PREMIUM, node.change())).text for _ in range(2)
    ]
    async with (
        served(node) as port,
        httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{port}", timeout=None) as web,
    ):
        greedy, other = [(await bearer(web, key))["Authorization"] for key in keys]
        body = {"exchange": "bybit", "transaction_types": ["deposits"], "limit": 5}

        async def asked(authorization: str) -> httpx.Response:
            # Closed at once: skipped time would end a connection that is kept.
            headers = {"Authorization": authorization, "Connection": "close"}
            return await web.post(PATH, json=body, headers=headers)

        sockets = [await unread(port, greedy) for _ in range(16)]
        try:
            while node.transactions.running < 4:
                await asyncio.sleep(0.01)
            refused = await asked(greedy)
            assert (refused.status_code, refused.json()["error"]) == (429, "rate_limit_exceeded")
            assert int(refused.headers["retry-after"]) > 0
            assert (await asked(other)).status_code == 200
            assert node.transactions.running == 4
            clock = SkippingLoop()
            while node.transactions.running:  # one may have begun to wait after a skip
                clock.skip(UNREAD_S)
                await asyncio.sleep(0.01)
            assert (await asked(greedy)).status_code == 200
        finally:
            for sock in sockets:
                sock.close()


async def test_a_key_that_asks_for_everything_delays_another_by_no_more_than_its_share() -> None:
    """Five years of everything, four times at once, and one small query beside it."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    account = Account(History(now_ms - 60 * DAY_MS, now_ms, executions=2_000))
    exchange = SimulatedBybit(account, [KEY])
    # Its thread waits for a core of a busy machine, and then reads seconds of requests at once.
    exchange.bans = AddressBans(100_000, 5.0, ban_s=600.0)
    with Served(exchange) as url:
        vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        credentials = Credentials(KEY.api_key, KEY.secret)
        await vault.put("bybit", "mainnet", credentials, now_ms=now_ms)
        bybit = ExchangeAdapter(
            BYBIT,
            TransactionSettings(overrides={"bybit": AccountUrls(mainnet_url=url, testnet_url=url)}),
        )
        service = Transactions([bybit], vault, cursor_secret=b"c" * 32)

        async def asked(key_id: str, **fields: Any) -> float:
            began_s = time.monotonic()
            query = service.plan(TransactionsRequest(exchange="bybit", **fields), key_id=key_id)
            await service.fetch(query, key_id=key_id)
            return time.monotonic() - began_s

        types = ("deposits", "withdrawals", "transfers")
        alone_s = await asked("modest", transaction_types=list(types), limit=5)
        everything = {"limit": 10_000, "start_time": now_ms - 1_800 * DAY_MS}
        load = [asyncio.create_task(asked("greedy", **everything)) for _ in range(4)]
        await asyncio.sleep(2.0)
        try:
            beside_s = [
                await asked("modest", transaction_types=list(types), limit=5) for _ in range(3)
            ]
        finally:
            for task in load:
                task.cancel()
            await asyncio.gather(*load, return_exceptions=True)
            await service.close()
        # Unshared it would wait for minutes; the seconds are those of a busy machine.
        assert max(beside_s) < alone_s + 20.0, (alone_s, beside_s)
        assert bybit._client.connections_in_use == 0


async def test_the_service_still_answers_after_hundreds_of_clients_that_left() -> None:
    """More requests than the pool has connections, each cancelled a little later."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    account = Account(History(now_ms - 20 * DAY_MS, now_ms, executions=200))
    with Served(SimulatedBybit(account, [KEY], limited=False)) as url:
        vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        credentials = Credentials(KEY.api_key, KEY.secret)
        await vault.put("bybit", "mainnet", credentials, now_ms=now_ms)
        bybit = ExchangeAdapter(
            BYBIT,
            TransactionSettings(overrides={"bybit": AccountUrls(mainnet_url=url, testnet_url=url)}),
        )
        service = Transactions([bybit], vault, cursor_secret=b"c" * 32)
        query = service.plan(
            TransactionsRequest(exchange="bybit", transaction_types=("ledger", "holdings")),
            key_id="key",
        )
        for turn in range(300):
            task = asyncio.create_task(service.fetch(query, key_id="key"))
            await asyncio.sleep(0.0005 * (turn % 20))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert (bybit._client.connections_in_use, service.running) == (0, 0)
        async with asyncio.timeout(20):
            found = json.decode(await service.fetch(query, key_id="key"))
        assert (found["partial"], found["errors"]) == (False, [])
        await service.close()
