"""Each alert fires on a running node in its case, and none fires on a healthy node."""

import asyncio
import os
import resource
import sys
import threading
import time
from base64 import b64encode
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE

import httpx
import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from clocks import made_of
from disks import small_disk
from e2e.service import client_of, key_of, node_on, settings_in
from e2e.test_outage import HOLDER
from e2e.test_process import listening, process, read_until
from gateway.attack import frame, raw
from nodes.servers import nats_server
from onebook import app, core, metrics
from onebook.app.node import upkeep
from onebook.clock import SYSTEM_CLOCK
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.gateway import GatewayLimits
from onebook.http import HttpTimeouts
from onebook.http.socket_limits import PROBES_MAX
from onebook.model import DAY_MS, Tier
from onebook.nodes.membership import NodeHeartbeat, NodeRole, encode_heartbeat
from onebook.nodes.nats import NatsBus
from onebook.ops import backup, preflight
from onebook.simulator import DIALECTS, SimulatedExchanges
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.serving import serving
from onebook.store.leases import Lease
from onebook.store.rows import CollectedRow, RangeRow
from onebook.streams import streams
from onebook.transactions.bybit import BYBIT
from onebook.transactions.collected import list_name, part_name
from onebook.transactions.credentials import Credentials
from ops.test_doctor_faults import certificate
from steady import PATIENCE_S, waited_s
from transactions.following import Following
from transactions.okx.exporting import EXPORT_PATH, ExportWorld

from .promtool import NAMES, firing, needed, scrape

pytestmark = needed
MASTER_KEY = b64encode(b"m" * 32).decode()
BTC = "BTC/USDT"
WATCHED_S = 3
WRITES = ("OnebookDatabaseUnavailable", "OnebookUsageFileInUse", "OnebookUsageNotWritten")
TO_FIRE = {}  # by test, what is said of it
FIRED = set()  # in the test that runs


def fires(*alerts):
    """Declare the alerts that a test fires, and the one named by its parameter `alert`."""

    def noted(test):
        TO_FIRE[test.__name__] = set(alerts)
        return test

    return noted


@pytest.fixture(autouse=True)
def what_is_said(request):
    """Each test fires the alerts that it declares."""
    FIRED.clear()
    yield
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    said = TO_FIRE.get(request.node.originalname, set())
    assert ({parameters["alert"]} if "alert" in parameters else said) == FIRED


class Alerts:
    """The alerts of one node: its earlier samples, and the alerts that fire after an event."""

    def __init__(self, folder, node, before):
        self.folder, self.node, self.before = folder, node, before

    async def fires(self, name):
        """Wait until an alert fires; it must not fire on the earlier samples."""
        FIRED.add(name)
        assert not await self._firing(name, self.before)
        async with asyncio.timeout(PATIENCE_S):
            while not await self._firing(name, await scrape(self.node.url)):
                await asyncio.sleep(0.2)

    async def _firing(self, name, after):
        return await asyncio.to_thread(firing, self.folder, self.before, after, [name])


@pytest.fixture(autouse=True)
def no_books_of_former_nodes():
    """Metrics belong to the process, but tests run many nodes in one."""
    metrics.BOOKS.clear()
    metrics.BOOKS_MARKED.clear()


class Port:
    """The interface of a node that the raw sockets of the gateway tests use."""

    def __init__(self, node):
        self.port = node.address[1]


@asynccontextmanager
async def watched(folder, urls=None, **options):
    """A node with watched alerts; it connects only to the given simulated exchanges."""
    async with AsyncExitStack() as stack:
        if urls is None:
            still = await stack.enter_async_context(SimulatedExchanges(["okx"], rate_hz=0))
            urls = still.urls
        node = await stack.enter_async_context(node_on(urls, folder, **options))
        yield node, Alerts(folder, node, await scrape(node.url))


async def test_no_alert_fires_on_a_healthy_node(tmp_path):
    async with process("demo", "--port", "0", COLUMNS="200") as demo:
        page = await read_until(demo.stdout, r"the live page +(\S+)#key=(\S+)")
        url, key = page.group(1), page.group(2)
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
            before = await scrape(url, client=http)
            starting_waited = waited_s(demo.pid)
            address = url.replace("http", "ws", 1).rstrip("/") + "/api/v1/ws"
            async with connect(f"{address}?api_key={key}") as client:
                await client.send(f'{{"type": "subscribe_aggregated", "symbol": "{BTC}"}}')
                reading = asyncio.create_task(_drain(client))
                await asyncio.sleep(WATCHED_S)
                after = await scrape(url, client=http)
                waited = waited_s(demo.pid) - starting_waited
                # The loop of a process that got no processor was late, and so was its database.
                late = {"OnebookEventLoopLag", "OnebookUsageFileInUse"} if waited > 0.1 else set()
                async with asyncio.timeout(PATIENCE_S):
                    while late and not await _is_healthy(tmp_path, before, after, late):
                        after = await scrape(url, client=http)
                assert await _is_healthy(tmp_path, before, after, late)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        demo.terminate()
        await demo.communicate()
    starting = {"OnebookEventLoopLag", *(WRITES if starting_waited > 1 else ())}
    assert firing(tmp_path, {}, before) <= starting


async def _is_healthy(folder, before, after, allowed):
    """Whether the books of all exchanges are live and no other alerts fire than these."""
    fired = await asyncio.to_thread(firing, folder, before, after)
    live = sum(value for name, value in after.items() if 'health="live"' in name)
    every = sum(BTC in (each.symbol for each in dialect.listings) for dialect in DIALECTS.values())
    print(f"{live} books of {every} are live; alerts: {fired}")
    return live == every and fired <= allowed


async def _drain(client):
    async for _ in client:
        pass


# The node


@fires("OnebookAcceptFailing")
@pytest.mark.soak
async def test_a_process_without_open_files_cannot_accept(tmp_path):
    settings = ("--db", f"sqlite:///{tmp_path}/onebook.db")
    variables = {
        "ONEBOOK_STORE__PEPPER_FILE": f"{tmp_path}/pepper",
        "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": f"{tmp_path}/master_key",
        "ONEBOOK_FEEDS__EXCHANGES": '["okx"]',
    }
    async with process("serve", "--port", "0", *settings, **variables) as node:
        url = f"http://127.0.0.1:{await listening(node)}"
        async with httpx.AsyncClient(base_url=url) as open_before:
            before = await scrape(url, client=open_before)
            _, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
            files = len(os.listdir(f"/proc/{node.pid}/fd"))
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (files - 1, hard))
            async with asyncio.timeout(PATIENCE_S):
                while "OnebookAcceptFailing" not in firing(
                    tmp_path, before, await scrape(url, client=open_before)
                ):
                    await asyncio.sleep(0.3)
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert "OnebookAcceptFailing" not in firing(tmp_path, before, before)
    FIRED.add("OnebookAcceptFailing")


@fires("OnebookDown")
async def test_a_node_that_is_gone(tmp_path):
    async with watched(tmp_path) as (_, alerts):
        pass
    gone = {name: 0.0 for name in alerts.before if name.startswith("up{")}
    assert "OnebookDown" in firing(tmp_path, alerts.before, gone)
    assert "OnebookDown" not in firing(tmp_path, alerts.before, alerts.before)
    FIRED.add("OnebookDown")


@fires("OnebookSocketsRefused")
async def test_a_full_node(tmp_path):
    few = {"http_connections_max": 1}
    async with watched(tmp_path, server=few, gateway={"connections_max": 1}) as (node, alerts):
        async with AsyncExitStack() as stack:
            before = _refusals("full")
            for _ in range(PROBES_MAX + 5):
                await stack.enter_async_context(_open(node))
            await _until(lambda: _refusals("full") > before)
        await alerts.fires("OnebookSocketsRefused")


@fires("OnebookAddressSocketsRefused")
@pytest.mark.soak
async def test_an_address_with_too_many_sockets(tmp_path):
    limits = {"sockets_per_address_max": 4}
    async with watched(tmp_path, gateway=limits) as (node, alerts):
        # A proxy on this machine is trusted; what it says of its client counts.
        node.gateway.address_limiter.trusts = lambda peer: False
        async with AsyncExitStack() as stack:
            before = _refusals("address")
            for _ in range(30):
                await stack.enter_async_context(_open(node))
            await _until(lambda: _refusals("address") == before + 26)
        del node.gateway.address_limiter.trusts
        await alerts.fires("OnebookAddressSocketsRefused")


@fires("OnebookHttpRequestsUnfinished")
@pytest.mark.soak
async def test_requests_that_are_never_finished(tmp_path):
    async with (
        watched(tmp_path, timeouts=HttpTimeouts(header_s=0.05)) as (node, alerts),
        AsyncExitStack() as stack,
    ):
        for _ in range(60):
            await stack.enter_async_context(_open(node))
        await alerts.fires("OnebookHttpRequestsUnfinished")


@fires("OnebookEventLoopLag")
async def test_an_event_loop_that_is_held_up(tmp_path):
    async with watched(tmp_path) as (_, alerts):
        for _ in range(5):
            time.sleep(0.7)
            await asyncio.sleep(0.3)
        await alerts.fires("OnebookEventLoopLag")


@fires("OnebookPublishingSaturated")
@pytest.mark.soak
async def test_more_views_than_are_published_in_a_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "PUBLISHES_PER_TICK_MAX", 1)
    monkeypatch.setattr(streams, "SATURATED_S", 0.0)
    async with (
        SimulatedExchanges(["okx"], rate_hz=100) as exchanges,
        watched(tmp_path, exchanges.urls) as (node, alerts),
        AsyncExitStack() as stack,
    ):
        key = await key_of(node)
        for depth in range(1, 9):
            client = await stack.enter_async_context(client_of(node, key))
            await client.say(
                type="subscribe_aggregated", symbol="BTC/USDT", depth=depth, interval_ms=10
            )
        await alerts.fires("OnebookPublishingSaturated")


@fires("OnebookNotCompiled", "OnebookVersionsDiffer")
@pytest.mark.soak
async def test_a_node_without_its_compiled_parts_and_of_another_version(tmp_path, monkeypatch):
    async with watched(tmp_path) as (_, alerts):
        pass
    monkeypatch.setattr(core, "COMPILED", False)
    monkeypatch.setattr(preflight, "__version__", "0.0.1")
    async with app.running(settings_in(tmp_path), overrides={}) as node:
        second = await scrape(node.url, instance="second")
    assert {"OnebookNotCompiled", "OnebookVersionsDiffer"} <= firing(
        tmp_path, alerts.before, {**alerts.before, **second}
    )
    assert not {"OnebookNotCompiled", "OnebookVersionsDiffer"} & firing(
        tmp_path, alerts.before, alerts.before
    )
    FIRED.update(("OnebookNotCompiled", "OnebookVersionsDiffer"))


# Usage


@fires(
    "OnebookUsageFileFailing",
    "OnebookUsageFileInUse",
    "OnebookUsageNotWritten",
    "OnebookDatabaseUnavailable",
)
async def test_a_database_that_is_locked(tmp_path):
    async with (
        SimulatedExchanges(["okx"], rate_hz=20) as exchanges,
        watched(tmp_path, exchanges.urls) as (node, alerts),
    ):
        key = await key_of(node)
        async with client_of(node, key) as client:
            await client.say(type="subscribe_aggregated", symbol="BTC/USDT", interval_ms=50)
            reading = asyncio.create_task(_read(client))
            holder = await asyncio.create_subprocess_exec(
                sys.executable, "-c", HOLDER, str(tmp_path / "onebook.db"),
                stdin=PIPE, stdout=PIPE,
            )  # fmt: skip
            assert await holder.stdout.readline() == b"held\n"
            for name in (
                "OnebookUsageFileInUse",
                "OnebookUsageNotWritten",
                "OnebookDatabaseUnavailable",
            ):
                await alerts.fires(name)
            os.close(node.accounts.meter._file._descriptor)
            try:
                await alerts.fires("OnebookUsageFileFailing")
            finally:
                file = os.open(node.accounts.meter._file.path, os.O_RDWR)
                node.accounts.meter._file._descriptor = file
                holder.stdin.close()
                await holder.wait()
            async with asyncio.timeout(PATIENCE_S):  # and they end
                while {
                    "OnebookUsageFileInUse",
                    "OnebookUsageFileFailing",
                    "OnebookUsageNotWritten",
                    "OnebookDatabaseUnavailable",
                } & await asyncio.to_thread(
                    firing, tmp_path, alerts.before, await scrape(node.url)
                ):
                    await asyncio.sleep(0.5)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@fires("OnebookHistoryFailing")
async def test_a_history_that_cannot_be_written(tmp_path, caplog):
    history = tmp_path / "history"
    async with (
        SimulatedExchanges(["okx"], rate_hz=20) as exchanges,
        watched(tmp_path, exchanges.urls, history={"dir": history}) as (_, alerts),
    ):
        (history / "open").rename(tmp_path / "open")
        (history / "open").write_text("not a folder")
        await alerts.fires("OnebookHistoryFailing")
        assert caplog.text.count("Books are not recorded") == 1


@fires("OnebookHistoryBehind")
async def test_a_disk_that_is_slower_than_the_books(tmp_path):
    written = threading.Event()
    async with (
        SimulatedExchanges(["okx"], rate_hz=20) as exchanges,
        watched(tmp_path, exchanges.urls, history={"dir": tmp_path / "history"}) as (node, alerts),
    ):
        recorder = node.books._on_applied.__self__
        recorder._thread.submit(written.wait, PATIENCE_S)
        try:
            await alerts.fires("OnebookHistoryBehind")
            assert not recorder._failed  # it waits, and loses nothing
        finally:
            written.set()


# Clients


async def _from_now(node):
    """Samples of a node at time zero of promtool, which is 1970."""
    ours = ("onebook_tls_certificate_ends_timestamp", "onebook_last_backup_timestamp")
    return {
        name: value - time.time() if name.startswith(ours) else value
        for name, value in (await scrape(node.url)).items()
    }


@fires("OnebookCertificateEnds", "OnebookBackupOld")
@pytest.mark.soak
async def test_a_certificate_that_ends_and_a_backup_that_is_old(tmp_path):
    names = {"OnebookCertificateEnds", "OnebookBackupOld"}
    async with watched(tmp_path) as (node, alerts):
        for days, fired in ((-1, set()), (1, names)):  # before and after both thresholds
            made_ms = time.time_ns() // 1_000_000 - (2 * DAY_MS + days * DAY_MS // 2)
            await backup.back_up(
                node.settings, tmp_path / "backups", file=None, now_ms=made_ms, timeout_s=60
            )
            tables = certificate(tmp_path, ends_in=timedelta(days=14 - days))
            server = node.settings.server.model_copy(
                update={name: Path(file) for name, file in tables["server"].items()}
            )
            settings = node.settings.model_copy(update={"server": server})
            async with upkeep(settings, node.store):
                samples = await _from_now(node)
            assert firing(tmp_path, alerts.before, samples) & names == fired
    FIRED.update(names)


@fires("OnebookDiskNearlyFull")
@pytest.mark.soak
async def test_a_disk_that_is_nearly_full(tmp_path):
    with small_disk(tmp_path / "disk", size_bytes=8 << 20) as disk:
        async with watched(tmp_path) as (node, alerts):
            store = node.settings.store.model_copy(update={"usage_dir": disk})
            settings = node.settings.model_copy(update={"store": store})
            async with upkeep(settings, node.store):
                await alerts.fires("OnebookDiskNearlyFull")
    metrics.DISK_FREE.clear()


@fires("OnebookFlood")
@pytest.mark.soak
async def test_floods(tmp_path):
    limits = GatewayLimits(close_timeout_s=0.05)
    async with watched(tmp_path, gateway_limits=limits) as (node, alerts):
        for _ in range(7):
            async with raw(Port(node)) as peer:
                await peer.send(frame(0x89) * 200)
                while await peer.read():
                    pass
        await alerts.fires("OnebookFlood")


@fires("OnebookAuthenticationFailures")
@pytest.mark.soak
async def test_wrong_keys(tmp_path):
    async with watched(tmp_path) as (node, alerts):
        async with httpx.AsyncClient(base_url=node.url) as http:
            for _ in range(60):
                await http.post("/api/v1/authenticate", json={"api_key": "ob_live_wrong"})
        await alerts.fires("OnebookAuthenticationFailures")


@fires("OnebookDeadConnectionsReplaced")
@pytest.mark.soak
async def test_dead_connections_that_are_replaced(tmp_path):
    limits = GatewayLimits(liveness_wait_s=0.05)
    async with watched(tmp_path, gateway_limits=limits) as (node, alerts):
        key = await key_of(node, tier=Tier.BASIC)
        async with AsyncExitStack() as stack:
            for _ in range(30):
                await stack.enter_async_context(raw(Port(node), key))
        await alerts.fires("OnebookDeadConnectionsReplaced")


@fires("OnebookAllowanceNearlyUsed", "OnebookAllowanceUsedUp")
async def test_an_allowance_that_runs_out(tmp_path):
    accounts = {"allowance_bytes": 100_000}
    async with (
        SimulatedExchanges(["okx"], rate_hz=20) as exchanges,
        watched(tmp_path, exchanges.urls, accounts=accounts) as (node, alerts),
    ):
        key = await key_of(node)
        async with client_of(node, key) as client:
            await client.say(
                type="subscribe_aggregated", symbol="BTC/USDT", interval_ms=20, depth=5
            )
            with suppress(ConnectionClosed):
                await _read(client)
            assert client.socket.close_code == 4003
        await alerts.fires("OnebookAllowanceNearlyUsed")
        await alerts.fires("OnebookAllowanceUsedUp")


# Transactions


@asynccontextmanager
async def transactions_of(folder, **limits):
    """A node with a simulated Bybit, and a function that requests its transactions."""
    now_ms = time.time_ns() // 1_000_000
    secret = SimulatedKey("mykey00000000000000", "mysecret0000000000000000000000000000")
    account = Account(History(now_ms - 30 * DAY_MS, now_ms))
    exchange = SimulatedBybit(account, [secret])
    async with serving(exchange) as url:
        tables = {
            "overrides": {"bybit": {"mainnet_url": url}},
            "master_key": MASTER_KEY,
            "master_key_file": str(folder / "master_key"),
            **limits,
        }
        async with watched(folder, transactions=tables) as (node, alerts):
            await node.transactions._vault.put(
                "bybit", "mainnet", Credentials(secret.api_key, secret.secret), now_ms=now_ms
            )
            async with httpx.AsyncClient(base_url=node.url, timeout=60) as http:
                answer = await http.post(
                    "/api/v1/authenticate", json={"api_key": await key_of(node)}
                )
                http.headers["Authorization"] = f"Bearer {answer.json()['session_token']}"

                async def ask(count, of="trades", **fields):
                    body = {"exchange": "bybit", "transaction_types": [of], **fields}
                    answers = await asyncio.gather(
                        *(http.post("/api/v1/transactions", json=body) for _ in range(count))
                    )
                    return [each.status_code for each in answers]

                yield exchange, ask, alerts


@fires("OnebookTransactionsKeySaturated")
@pytest.mark.soak
async def test_a_key_that_asks_for_too_much_at_once(tmp_path):
    async with transactions_of(tmp_path, runs_per_key_max=1) as (_, ask, alerts):
        assert 429 in await ask(16)
        await alerts.fires("OnebookTransactionsKeySaturated")


@fires("OnebookTransactionsFull")
@pytest.mark.soak
async def test_a_node_that_is_asked_for_too_much_at_once(tmp_path):
    async with transactions_of(tmp_path, runs_max=1) as (_, ask, alerts):
        assert 503 in await ask(10)
        await alerts.fires("OnebookTransactionsFull")


@fires("OnebookTransactionsRateLimited")
@pytest.mark.soak
async def test_an_exchange_that_blocks_the_transaction_interface(tmp_path):
    async with transactions_of(tmp_path) as (exchange, ask, alerts):
        exchange.bans.ban("127.0.0.1", time.time_ns() // 1_000_000)
        await ask(1)
        await alerts.fires("OnebookTransactionsRateLimited")


@fires("OnebookTransactionsUnreadable")
@pytest.mark.soak
async def test_a_row_of_a_transaction_that_does_not_fit_the_mapping(tmp_path):
    async with transactions_of(tmp_path) as (exchange, ask, alerts):
        exchange.account.withdrawals.entries[-1].facts.created_ms = "not a time"
        assert await ask(1, "withdrawals") == [200]
        await alerts.fires("OnebookTransactionsUnreadable")


@fires("OnebookTransactionsNotCollected")
async def test_an_account_that_is_not_collected_any_more(tmp_path):
    async with transactions_of(tmp_path, collect_every=0.5) as (exchange, _, alerts):
        exchange.faults.rate, exchange.faults.kinds = 1.0, ("403",)
        await alerts.fires("OnebookTransactionsNotCollected")


async def keep_damaged(node):
    """Store one record per list that has trades, with an unreadable body."""
    now_ms = time.time_ns() // 1_000_000
    lease = Lease("collect/mainnet/bybit", "tests", now_ms + DAY_MS)
    assert await node.store.leases.acquire(lease, now_ms)
    store, place = node.store.collected, ("bybit", "mainnet")
    row = CollectedRow("id", now_ms - DAY_MS, "spot_orders", False, False, b"damaged")
    for each in node.transactions.adapters["bybit"].sources.values():
        if each.type == row.type:
            kept = await store.add_list(*place, list_name(each))
            part = await store.add_list(*place, part_name(each))
            whole = RangeRow(0, now_ms)
            await store.write(lease, kept.list_id, [row], [(part.list_id, whole)])


@fires("OnebookTransactionsCollectionUnreadable")
@pytest.mark.soak
async def test_collected_records_that_are_damaged(tmp_path):
    async with transactions_of(tmp_path) as (_, ask, alerts):
        await keep_damaged(alerts.node)
        assert await ask(1, source="collected") == [500]
        await alerts.fires("OnebookTransactionsCollectionUnreadable")


@asynccontextmanager
async def exports_of(folder, **world):
    """An OKX account with exports in the process of a node with watched alerts."""
    async with watched(folder) as (node, _):
        exchange = ExportWorld(node.store, folder / "exports", **world)
        async with exchange.service() as here:
            # The metrics of exports exist from here on.
            yield exchange, here, Alerts(folder, node, await scrape(node.url))
            await here.settled()


@fires("OnebookTransactionsExportFailed")
async def test_an_export_that_the_exchange_cannot_make(tmp_path):
    async with exports_of(tmp_path) as (exchange, here, alerts):
        exchange.exchange.faults.queue(EXPORT_PATH, "failed")
        await here.ask("trades")
        await here.settled()
        exchange.time.passed_s += 3_600
        await here.ask("trades")
        await here.settled()
        await alerts.fires("OnebookTransactionsExportFailed")


@fires("OnebookTransactionsExportWaiting")
@pytest.mark.soak
async def test_an_export_that_the_exchange_does_not_finish(tmp_path):
    async with exports_of(tmp_path, files={"making_s": 864_000}) as (exchange, here, alerts):
        for _ in range(2):
            await here.ask("trades")
            await here.settled()
            exchange.time.passed_s += 4 * 3_600
        await alerts.fires("OnebookTransactionsExportWaiting")


@fires("OnebookTransactionsExportsFull")
@pytest.mark.soak
async def test_exports_that_the_directory_has_no_room_for(tmp_path):
    async with exports_of(tmp_path) as (exchange, here, alerts):
        await here.ask("trades")
        await here.settled()
        exchange.time.passed_s += 3_600
        here.jobs.files.bytes_max = 1
        await here.ask("trades")
        await here.settled()
        await alerts.fires("OnebookTransactionsExportsFull")


@asynccontextmanager
async def account_followed(folder, clock=SYSTEM_CLOCK):
    """A followed account in the process of a node with watched alerts."""
    now_ms = time.time_ns() // 1_000_000
    secret = SimulatedKey("mykey00000000000000", "mysecret0000000000000000000000000000")
    exchange = SimulatedBybit(Account(History(now_ms - 2 * DAY_MS, now_ms)), [secret])
    fields = {"api_key": secret.api_key, "secret": secret.secret}
    async with (
        serving(exchange) as url,
        watched(folder) as (_, alerts),
        Following(BYBIT, {"mainnet_url": url}, fields, clock=clock) as node,
    ):
        follower = await node.follow(transaction_types=["trades"], start_time=now_ms - DAY_MS)
        async with asyncio.timeout(PATIENCE_S):
            while not follower.streamed:
                await asyncio.sleep(0.05)
        yield exchange, alerts


@fires("OnebookTransactionsStreamMissing")
@pytest.mark.soak
async def test_a_private_stream_that_is_refused(tmp_path):
    async with account_followed(tmp_path) as (exchange, alerts):
        exchange.streams.refusing = True
        exchange.streams.drop()
        await alerts.fires("OnebookTransactionsStreamMissing")


@fires("OnebookTransactionsLiveBehind")
@pytest.mark.soak
async def test_an_account_that_cannot_be_followed_for_long(tmp_path):
    ahead_ms = 0
    clock = made_of(wall_ms=lambda: time.time_ns() // 1_000_000 + ahead_ms)
    async with account_followed(tmp_path, clock) as (exchange, alerts):
        exchange.faults.rate, exchange.faults.kinds = 1.0, ("403",)
        ahead_ms = 3_600_000
        await alerts.fires("OnebookTransactionsLiveBehind")


# Exchanges


@asynccontextmanager
async def followed(folder, name, symbol="BTC/USDT", limits=LIMITS):
    """A node that shows the live book of one simulated exchange."""
    async with (
        SimulatedExchanges([name], rate_hz=20) as exchanges,
        watched(folder, exchanges.urls) as (node, alerts),
        client_of(node, await key_of(node)) as client,
    ):
        node.supervisor.limits = replace(limits, reconnect_base_s=0.02, resync_base_s=0.02)
        await client.say(type="subscribe_aggregated", symbol=symbol)
        await client.until(
            lambda message: (
                message["type"] == "aggregated_orderbook_update" and message["data"]["bids"] != []
            )
        )
        reading = asyncio.create_task(_read(client))
        yield exchanges[name], node, alerts, client
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@fires("OnebookExchangeSilent")
async def test_an_exchange_that_vanishes(tmp_path):
    async with followed(tmp_path, "okx") as (exchange, _, alerts, _):
        await exchange.stop()
        await alerts.fires("OnebookExchangeSilent")
        await exchange.start()


@fires("OnebookExchangeListUnreadable")
@pytest.mark.soak
async def test_an_exchange_whose_list_cannot_be_read(tmp_path):
    async with SimulatedExchanges(["okx"], rate_hz=0) as exchanges:
        await exchanges["okx"].stop()
        async with watched(tmp_path, exchanges.urls) as (node, _):
            await Alerts(tmp_path, node, {}).fires("OnebookExchangeListUnreadable")
        await exchanges["okx"].start()


@fires("OnebookExchangeSilent", "OnebookBooksStale")
async def test_an_exchange_that_falls_silent(tmp_path):
    limits = FeedLimits(silent_min_s=0.8, cadence_evidence_s=0.5, cadence_gaps_min=2)
    async with followed(tmp_path, "okx", limits=limits) as (
        exchange,
        _,
        alerts,
        _,
    ):
        await asyncio.sleep(1)
        exchange.silence()
        await alerts.fires("OnebookExchangeSilent")
        await alerts.fires("OnebookBooksStale")


@fires("OnebookBooksOffline", "OnebookExchangeErrors")
@pytest.mark.parametrize(
    ("named", "alert"), [(True, "OnebookBooksOffline"), (False, "OnebookExchangeErrors")]
)
@pytest.mark.soak
async def test_an_exchange_that_refuses_a_subscription(tmp_path, named, alert):
    async with followed(tmp_path, "okx") as (exchange, _, alerts, client):
        exchange.refuse("ETH/USDT", named=named)
        await client.say(type="subscribe_aggregated", symbol="ETH/USDT")
        await alerts.fires(alert)


@fires("OnebookIdentityConflict")
@pytest.mark.soak
async def test_an_exchange_that_lists_another_coin_under_the_same_letters(tmp_path):
    names = ["bybit", "kraken", "okx", "poloniex"]
    async with SimulatedExchanges(names, rate_hz=0) as exchanges:
        exchanges["okx"].relist("BTC/USDT", price_ppm=3_000_000)
        async with (
            watched(tmp_path, exchanges.urls) as (node, alerts),
            client_of(node, await key_of(node)) as client,
        ):
            await client.say(type="subscribe_aggregated", symbol="BTC/USDT")
            await alerts.fires("OnebookIdentityConflict")


@fires("OnebookExchangeFlood", "OnebookExchangeUnknownMessages")
@pytest.mark.soak
async def test_an_exchange_that_floods(tmp_path):
    limits = FeedLimits(noise_burst=50, noise_per_s=1)
    async with followed(tmp_path, "okx", limits=limits) as (exchange, _, alerts, _):
        exchange.announce('{"event": "novelty"}', 500)
        await alerts.fires("OnebookExchangeFlood")
        await alerts.fires("OnebookExchangeUnknownMessages")


@fires("OnebookExchangeRateLimited")
@pytest.mark.soak
async def test_an_exchange_that_asks_for_fewer_requests(tmp_path):
    async with followed(tmp_path, "okx") as (exchange, _, alerts, client):
        exchange.limit(1)
        await client.say(type="subscribe_aggregated", symbol="ETH/USDT")
        await alerts.fires("OnebookExchangeRateLimited")


# Many nodes


@fires(
    "OnebookNoFeedsNode",
    "OnebookNodesIncompatible",
    "OnebookNodeMessagesDropped",
    "OnebookNatsUnreachable",
)
@pytest.mark.soak
async def test_a_gateway_without_feeds_nodes_and_then_without_nats(tmp_path):
    async with AsyncExitStack() as stack:
        with nats_server() as port:
            settings = settings_in(
                tmp_path,
                node={"role": "gateway"},
                nats={"servers": (f"nats://127.0.0.1:{port}",)},
            )
            node = await stack.enter_async_context(app.running(settings))
            alerts = Alerts(tmp_path, node, {})
            await alerts.fires("OnebookNoFeedsNode")
            bus = await stack.enter_async_context(NatsBus(settings.nats, name="another version"))
            alerts = Alerts(tmp_path, node, await scrape(node.url))
            subject = node.supervisor.presence.subjects.heartbeats
            stranger = encode_heartbeat(
                NodeHeartbeat(node=8, name="old", role=NodeRole.FEEDS, wire=99)
            )
            telling = asyncio.create_task(_repeat(lambda: bus.publish(subject, stranger)))
            stack.callback(telling.cancel)
            await alerts.fires("OnebookNodesIncompatible")
            bus.publish("too.large", bytes(2 << 20))
            await alerts.fires("OnebookNodeMessagesDropped")
        await alerts.fires("OnebookNatsUnreachable")


async def _repeat(action):
    while True:
        action()
        await asyncio.sleep(0.05)


@fires("OnebookWorkerRestarted")
@pytest.mark.soak
async def test_a_worker_that_was_started_again(tmp_path):
    settings = ("--db", f"sqlite:///{tmp_path}/onebook.db", "-e", "okx", "--port", "0")
    variables = {
        "ONEBOOK_STORE__PEPPER_FILE": f"{tmp_path}/pepper",
        "ONEBOOK_TRANSACTIONS__MASTER_KEY_FILE": f"{tmp_path}/master_key",
    }
    samples = []
    for restarts in ("0", "1"):
        words = (*settings, "--worker-restarts", restarts)
        async with process("serve", *words, **variables) as worker:
            samples.append(await scrape(f"http://127.0.0.1:{await listening(worker)}"))
    assert "OnebookWorkerRestarted" in firing(tmp_path, *samples)
    assert "OnebookWorkerRestarted" not in firing(tmp_path, samples[0], samples[0])
    FIRED.add("OnebookWorkerRestarted")


def test_every_alert_is_made_to_fire_by_a_test():
    assert set().union(*TO_FIRE.values()) == set(NAMES)


def _refusals(reason):
    return REGISTRY.get_sample_value("onebook_sockets_refused_total", {"reason": reason})


async def _until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _open(node):
    _, writer = await asyncio.open_connection(*node.address)
    try:
        yield
    finally:
        writer.transport.abort()


async def _read(client):
    while True:
        await client.next()
