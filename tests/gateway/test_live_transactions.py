"""Live transactions over real sockets: history, then events, each record exactly once."""

import asyncio
import contextlib
import json
import time
from contextlib import asynccontextmanager
from decimal import Decimal

from client.place import place
from e2e.service import client_of
from gateway.test_transactions import seen, waited
from onebook.gateway import GatewayLimits
from onebook.simulator.accounts.bybit import SimulatedKey
from onebook.transactions.credentials import Credentials
from onebook.transactions.live import LiveLimits
from onebook.transactions.request import TransactionsRequest
from steady import PATIENCE_S

TYPES = ["deposits", "withdrawals", "spot_orders", "futures", "transfers", "ledger"]
SUBSCRIBE = {"action": "subscribe_transactions", "exchange": "bybit", "transaction_types": TYPES}
FAST = {
    "poll_s": 0.4,
    "net_s": 0.8,
    "hint_s": 0.01,
    "pace_s": 0.05,
    "unannounced_pace_s": 0.2,
    "echoes_s": (0.2,),
    "retry_s": 0.05,
    "retry_max_s": 0.2,
}
ACTS = ("spot", "linear", "deposit", "transfer", "inverse", "withdrawal", "spot")


class Follower:
    """A client's live subscription, and everything it received."""

    def __init__(self, client, **fields):
        self.client = client
        self.fields = SUBSCRIBE | {"limit": 1_000} | fields
        self.history = []
        self.events = []
        self.statuses = []
        self.done = None

    async def begin(self):
        await self.client.say(**self.fields)
        *_, answer, self.done = await seen(self.client, "transaction_complete")
        self.history = answer["transactions"]
        return self

    @property
    def records(self):
        """The newest form of each record by id."""
        found = {each["transactionId"]: each for each in self.history}
        for event in self.events:
            found[event["transaction"]["transactionId"]] = event["transaction"]
        return found

    def take(self, message):
        if message["type"] == "transaction":
            self.events.append(message)
        if message["type"] == "transaction_status":
            self.statuses.append(message)

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not condition(self):
                self.take(await self.client.next())
        return self

    def check(self):
        """Each id is new only once, and numbers have no gap."""
        new = [e["transaction"]["transactionId"] for e in self.events if e["change"] == "new"]
        assert len(new) == len(set(new))
        assert not set(new) & {each["transactionId"] for each in self.history}
        updated = [e["transaction"]["transactionId"] for e in self.events if e["change"] != "new"]
        assert set(updated) <= set(new) | {each["transactionId"] for each in self.history}
        assert [e["number"] for e in self.events] == list(range(1, len(self.events) + 1))


@asynccontextmanager
async def living(folder, limits=None, **gateway):
    async with (
        asyncio.timeout(PATIENCE_S * 3),
        place(folder, rate_hz=0, gateway_limits=GatewayLimits(**gateway)) as rig,
        client_of(rig.node, rig.key, max_size=None) as client,
    ):
        rig.node.transactions.live.limits = LiveLimits(**(FAST | (limits or {})))
        client.rig = rig
        yield client


async def fetched(rig, follower):
    """Every record of the subscription by a fetch of now, in place of the time of the read."""
    names = ("action", "limit", "live", "id")
    body = {name: value for name, value in follower.fields.items() if name not in names}
    start = follower.done["start"] if "start" in follower.done else body.get("start_time")
    request = TransactionsRequest(**body | {"start_time": start, "limit": 10_000})
    query = await rig.node.transactions.prepare(request, key_id="judge")
    answer = await rig.node.transactions.fetch(query, key_id="judge")
    answer = json.loads(answer, parse_float=Decimal)
    assert not answer["partial"]
    return {each["transactionId"]: each for each in answer["transactions"]}


def comparable(records):
    """Drop the time of the read, which records without their own time have."""
    found = {}
    for name, each in records.items():
        if "timestamp" in each["incomplete"]:
            each = {**each, "timestamp": 0, "datetime": ""}
        found[name] = each
    return found


async def equals(rig, follower, least):
    """Wait until a follower has the records of a fetch, at least this many more."""

    async def same():
        whole = comparable(await fetched(rig, follower))
        assert not follower.records.keys() - whole.keys()
        return comparable(follower.records) == whole and len(follower.events) >= least

    async with asyncio.timeout(PATIENCE_S):
        while not await same():
            try:
                async with asyncio.timeout(0.3):
                    while True:
                        follower.take(await follower.client.next())
            except TimeoutError:
                pass
    follower.check()


def start_ms(days=10):
    return time.time_ns() // 1_000_000 - days * 86_400_000


async def test_history_then_what_happens_equals_a_later_fetch(tmp_path):
    async with living(tmp_path) as client:
        bybit = client.rig.bybit
        follower = await Follower(client, start_time=start_ms(), id="t").begin()
        assert {part["source"] for part in follower.done["live"]} == {"polling"}
        for kind in ACTS:
            bybit.act(kind)
            await asyncio.sleep(0.05)
        await equals(client.rig, follower, 8)
        streamed = {"spot_orders", "futures_linear", "futures_inverse"}
        await follower.until(
            lambda f: (
                {
                    each["transaction_type"]
                    for each in (f.statuses[-1]["types"] if f.statuses else [])
                    if each["source"] == "stream"
                }
                == streamed
            )
        )
        assert {each["id"] for each in follower.events + follower.statuses} == {"t"}


async def test_a_killed_stream_lost_and_doubled_messages_lose_and_repeat_nothing(tmp_path):
    async with living(tmp_path) as client:
        bybit = client.rig.bybit
        follower = await Follower(client, start_time=start_ms()).begin()
        await waited(lambda: bybit.streams.connections)
        for turn, kind in enumerate(ACTS * 2):
            bybit.streams.losing = turn % 4 == 1
            bybit.streams.doubling = turn % 4 == 2
            if turn % 4 == 3:
                bybit.streams.drop()
            bybit.act(kind)
            await asyncio.sleep(0.03)
        bybit.streams.losing = bybit.streams.doubling = False
        await equals(client.rig, follower, 16)
        assert bybit.streams.opened > 1


async def test_an_exchange_that_is_away_is_said_and_the_gap_is_closed_when_it_is_back(tmp_path):
    async with living(tmp_path) as client:
        bybit = client.rig.bybit
        follower = await Follower(client, start_time=start_ms()).begin()
        await follower.until(lambda f: f.statuses and f.statuses[-1]["state"] == "live")
        bybit.faults.rate, bybit.faults.kinds = 1.0, ("403",)
        bybit.streams.refusing = True
        bybit.streams.drop()
        await follower.until(lambda f: f.statuses[-1]["state"] == "interrupted")
        assert follower.statuses[-1]["reason"]
        for kind in ACTS:
            bybit.act(kind)
        bybit.faults.rate = 0.0
        bybit.streams.refusing = False
        await follower.until(lambda f: f.statuses[-1]["state"] == "live")
        whole = comparable(await fetched(client.rig, follower))
        assert comparable(follower.records) == whole  # the gap was closed before it was live
        follower.check()


async def test_one_reader_serves_subscribers_with_other_types_and_ends_with_the_last(tmp_path):
    async with living(tmp_path) as client:
        bybit, rig = client.rig.bybit, client.rig
        async with client_of(rig.node, rig.key, max_size=None) as other:
            start = start_ms()
            one = await Follower(client, start_time=start, transaction_types=["trades"]).begin()
            two = await Follower(
                other, start_time=start, transaction_types=["spot_orders"], include_raw=True
            ).begin()
            await waited(lambda: bybit.streams.connections)
            for _ in range(5):
                bybit.act("spot")
                bybit.act("linear")
            await equals(rig, one, 1)
            await equals(rig, two, 5)
            assert {each["kind"] for each in one.records.values()} == {"trade"}
            assert {each["kind"] for each in two.records.values()} == {"trade", "order"}
            assert all("raw" in event["transaction"] for event in two.events)
            assert not any("raw" in event["transaction"] for event in one.events)
            assert bybit.streams.opened == 1
            await client.say(action="unsubscribe_transactions", exchange="bybit")
            answer = await client.kind("transaction_unsubscribe_response")
            assert answer["message"] == "Stopped 1 transaction subscription."
            assert bybit.streams.connections
        await waited(lambda: not bybit.streams.connections)
        before = sum(bybit.requests.values())
        bybit.act("spot")
        await asyncio.sleep(1.0)  # more than two intervals of polling
        assert sum(bybit.requests.values()) == before


async def test_events_are_counted_and_a_suspended_key_gets_no_more(tmp_path):
    async with living(tmp_path) as client:
        rig = client.rig
        follower = await Follower(client, start_time=start_ms()).begin()
        rig.bybit.act("spot")
        await follower.until(lambda f: f.events)
        connections = rig.node.gateway.connections
        async with asyncio.timeout(PATIENCE_S):
            while sum(each.output.total for each in connections) < client.received_bytes:
                await asyncio.sleep(0.02)
        await rig.move_key("suspend")
        await waited(lambda: not rig.bybit.streams.connections)


async def test_what_excludes_it_and_how_many_there_may_be(tmp_path):
    async with living(tmp_path, live_max=1) as client:
        now = time.time_ns() // 1_000_000
        few = {**SUBSCRIBE, "transaction_types": ["deposits"]}
        for closed in ({"live": False}, {"end_time": now}):
            await client.say(**few, **closed)
            assert (await client.kind("transaction_complete"))["live"] is None
        await client.say(**few, live=True, end_time=now)
        assert (await client.kind("error"))["error"] == "invalid_parameters"
        await client.say(**few)
        assert (await client.kind("transaction_complete"))["live"]
        await client.say(**few)
        assert (await client.kind("error"))["error"] == "subscription_limit_exceeded"


async def replace_key(rig, uid=None):
    """Store another key, of the same account or of another one."""
    service = rig.node.transactions
    await waited(lambda: service._owners)  # the account of the first key is known
    other = SimulatedKey("otherkey000000000000", "othersecret0000000000000000000000000")
    rig.bybit._keys[other.api_key] = other
    if uid is not None:
        rig.bybit.account.uid = uid
    await service._vault.put("bybit", "mainnet", Credentials(other.api_key, other.secret), now_ms=0)


async def test_a_rotated_key_continues_and_is_said_once(tmp_path):
    async with living(tmp_path) as client:
        bybit = client.rig.bybit
        follower = await Follower(client, start_time=start_ms()).begin()
        await follower.until(lambda f: f.statuses and f.statuses[-1]["state"] == "live")
        await replace_key(client.rig)
        said = "The API key of bybit was replaced by another one of the same account."
        await follower.until(lambda f: f.statuses[-1]["reason"] == said)
        assert follower.statuses[-1]["state"] == "live"
        for kind in ACTS:
            bybit.act(kind)
        await equals(client.rig, follower, len(ACTS))
        assert [each["reason"] for each in follower.statuses].count(said) == 1


async def test_a_key_of_another_account_ends_the_subscription_and_mixes_nothing(tmp_path):
    async with living(tmp_path) as client:
        rig, bybit = client.rig, client.rig.bybit
        follower = await Follower(client, start_time=start_ms()).begin()
        await follower.until(lambda f: f.statuses and f.statuses[-1]["state"] == "live")
        bybit.act("deposit")
        await equals(rig, follower, 1)
        await replace_key(rig, uid="999999")
        await follower.until(lambda f: f.statuses[-1]["state"] == "ended")
        pushed = len(follower.events)
        for kind in ACTS:
            bybit.act(kind)
        assert follower.statuses[-1]["reason"] == (
            "The credentials of bybit now belong to another account; subscribe again."
        )
        async with client_of(rig.node, rig.key, max_size=None) as other:
            later = await Follower(other, start_time=start_ms()).begin()
            await later.until(lambda f: f.statuses and f.statuses[-1]["state"] == "live")
            bybit.act("spot")
            await equals(rig, later, 1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    follower.take(await client.next())
        assert len(follower.events) == pushed
        assert [each["state"] for each in follower.statuses].count("ended") == 1
