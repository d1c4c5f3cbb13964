"""Live transactions of several accounts in one subscription, over real sockets to all of them."""

import asyncio
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal

from e2e.service import client_of, key_of, node_on
from gateway.test_live_transactions import FAST, Follower, comparable
from gateway.test_transactions import waited
from onebook.model import DAY_MS
from onebook.simulator import SimulatedExchanges
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.kraken import (
    KrakenAccount,
    KrakenHistory,
    SimulatedKraken,
    SimulatedKrakenKey,
)
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx
from onebook.simulator.accounts.serving import serving
from onebook.transactions.credentials import Credentials
from onebook.transactions.live import LiveLimits
from onebook.transactions.request import TransactionsRequest
from steady import PATIENCE_S
from transactions.okx_support import KEY as OKX_KEY
from transactions.unpaced import unpaced

BYBIT_KEY = SimulatedKey("account000000000", "secret0000000000000000000000000000")
KRAKEN_KEY = SimulatedKrakenKey("krakenkey0000000000", "a3Jha2VuLXNlY3JldC1vZi10aGUtdGVzdHM=")
TREASURY_KEY = SimulatedKrakenKey("treasurykey00000000", "dHJlYXN1cnktc2VjcmV0LW9mLXRoZS10ZXN0")
ACCOUNTS = {
    "bybit": Credentials(BYBIT_KEY.api_key, BYBIT_KEY.secret),
    "kraken": Credentials(KRAKEN_KEY.api_key, KRAKEN_KEY.secret),
    "kraken:treasury": Credentials(TREASURY_KEY.api_key, TREASURY_KEY.secret),
    "okx": Credentials(OKX_KEY.api_key, OKX_KEY.secret, passphrase=OKX_KEY.passphrase),
}
TYPES = ["trades", "deposits"]


class World:
    """A node with four accounts of three exchanges, and a client."""

    def __init__(self, node, client, exchanges):
        self.node = node
        self.client = client
        self.bybit, self.kraken, self.okx = exchanges

    async def follow(self, exchange):
        return await Follower(
            self.client, exchange=exchange, transaction_types=TYPES, start_time=start_ms()
        ).begin()

    async def fetched(self, exchange):
        request = TransactionsRequest(
            exchange=exchange, transaction_types=TYPES, start_time=start_ms(), limit=10_000
        )
        query = await self.node.transactions.prepare(request, key_id="judge")
        answer = await self.node.transactions.fetch(query, key_id="judge")
        answer = json.loads(answer, parse_float=Decimal)
        assert not answer["partial"]
        return {each["transactionId"]: each for each in answer["transactions"]}

    async def until_equal(self, follower, least):
        """Wait until the records equal a fetch, with this many events of each account."""
        exchange = follower.fields["exchange"]
        async with asyncio.timeout(PATIENCE_S):
            while any(events_of(follower, name) < count for name, count in least.items()) or (
                comparable(follower.records) != comparable(await self.fetched(exchange))
            ):
                try:
                    async with asyncio.timeout(0.2):
                        while True:
                            follower.take(await self.client.next())
                except TimeoutError:
                    pass
        follower.check()

    async def remove(self, name):
        """Remove credentials as an operator does; return a function that restores them."""
        vault = self.node.transactions._vault
        await vault.remove(name, "mainnet")
        return lambda: vault.put(name, "mainnet", ACCOUNTS[name], now_ms=now_ms())


@asynccontextmanager
async def world(folder):
    now = now_ms()
    exchanges = (
        SimulatedBybit(
            Account(History(now - 5 * DAY_MS, now, executions=60)), [BYBIT_KEY], limited=False
        ),
        SimulatedKraken(
            KrakenAccount(KrakenHistory(now - 30 * DAY_MS, now, rows=100)),
            [KRAKEN_KEY, TREASURY_KEY],
            limited=False,
        ),
        SimulatedOkx(
            OkxAccount(OkxHistory(now - 20 * DAY_MS, now, rows=100)), [OKX_KEY],
            limited=False, refresh_s=0,
        ),
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(asyncio.timeout(PATIENCE_S * 3))
        stack.enter_context(unpaced())
        names = ("bybit", "kraken", "okx")
        urls = [await enter(serving(each)) for each in exchanges]
        overrides = {name: {"mainnet_url": url} for name, url in zip(names, urls, strict=True)}
        still = await enter(SimulatedExchanges(["okx"], rate_hz=0))
        master_key = str(folder / "master_key")
        tables = {"overrides": overrides, "master_key_file": master_key}
        node = await enter(node_on(still.urls, folder, transactions=tables))
        # Kraken's own pace has tests of its own.
        node.transactions.live.limits = LiveLimits(**FAST)
        for adapter in node.transactions.adapters.values():
            assert adapter.poll_factor <= 2
        for name, credentials in ACCOUNTS.items():
            await node.transactions._vault.put(name, "mainnet", credentials, now_ms=now)
        client = await enter(client_of(node, await key_of(node), max_size=None))
        yield World(node, client, exchanges)


def now_ms():
    return time.time_ns() // 1_000_000


def start_ms():
    return now_ms() - DAY_MS


def events_of(follower, name):
    return sum(event["exchange"] == name for event in follower.events)


def act(there, count=1):
    for _ in range(count):
        there.bybit.act("spot")
        there.kraken.act("order")
        there.okx.act("order")


async def test_all_accounts_are_followed_each_event_once_under_its_own_name(tmp_path):
    async with world(tmp_path) as there:
        follower = await there.follow("all")
        assert {part["account"] for part in follower.done["live"]} == ACCOUNTS.keys()
        await waited(lambda: len(there.okx.streams.connections) == 2)
        act(there, 2)
        await there.until_equal(follower, dict.fromkeys(ACCOUNTS, 2))
        for event in follower.events:
            assert event["transaction"]["account"]["name"] == event["exchange"]
        # The same account by two keys is two accounts: their ids differ.
        ids = {name: set() for name in ACCOUNTS}
        for event in follower.events:
            ids[event["exchange"]].add(event["transaction"]["transactionId"])
        assert not ids["kraken"] & ids["kraken:treasury"]
        assert len(ids["kraken"]) == len(ids["kraken:treasury"])
        assert there.kraken.streams.opened == 2
        assert there.bybit.streams.opened == 1
        await there.client.say(
            action="unsubscribe_transactions", exchange=["bitget", "All"], id="list"
        )
        assert (await there.client.kind("transaction_unsubscribe_response"))["success"]
        await waited(lambda: not there.bybit.streams.connections)
        await waited(lambda: not there.kraken.streams.connections)
        await waited(lambda: not there.okx.streams.connections)


async def test_an_account_that_fails_does_not_end_the_others(tmp_path):
    async with world(tmp_path) as there:
        chosen = ["bybit", "kraken:treasury", "okx"]
        follower = await there.follow(chosen)
        restore = await there.remove("kraken:treasury")
        there.okx.faults.rate, there.okx.faults.kinds = 1.0, ("50013",)
        there.okx.streams.refusing = True
        there.okx.streams.drop()

        def state_of(name):
            states = [each["state"] for each in follower.statuses if each["exchange"] == name]
            return states[-1] if states else None

        await follower.until(
            lambda f: {state_of("okx"), state_of("kraken:treasury")} == {"interrupted"}
        )
        act(there)
        await follower.until(lambda f: events_of(f, "bybit"))
        assert not events_of(follower, "okx")
        assert not events_of(follower, "kraken:treasury")
        assert state_of("bybit") == "live"
        await restore()
        there.okx.faults.rate, there.okx.streams.refusing = 0.0, False
        await there.until_equal(follower, dict.fromkeys(chosen, 1))
        await follower.until(lambda f: {state_of(name) for name in chosen} == {"live"})


async def test_an_account_that_fails_from_the_start_joins_when_it_is_back(tmp_path):
    async with world(tmp_path) as there:
        there.okx.faults.rate, there.okx.faults.kinds = 1.0, ("50030",)
        follower = await there.follow(["bybit", "okx"])
        assert follower.done["partial"]
        act(there)
        await follower.until(lambda f: events_of(f, "bybit"))
        there.okx.faults.rate = 0.0
        act(there)
        await follower.until(lambda f: events_of(f, "okx") >= 2)
        assert {each["error"] for s in follower.statuses for each in s["errors"]} == {
            "permission_denied"
        }
        await follower.until(lambda f: f.statuses[-1]["errors"] == [])
        follower.check()
