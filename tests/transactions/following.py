"""A service that follows accounts over real sockets, and the messages to its subscribers."""

import asyncio
import time

from msgspec import json

from onebook.clock import SYSTEM_CLOCK
from onebook.config import AccountUrls
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.live import LiveLimits
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from steady import PATIENCE_S
from transactions.bybit_support import CALLER, MASTER_KEY, SETTINGS, MemoryStore

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


def now_ms():
    return time.time_ns() // 1_000_000


class Following:
    """One node: a service without a gateway."""

    def __init__(self, definition, urls, credentials, *, store=None, clock=SYSTEM_CLOCK, **limits):
        self.name = definition.entry.name
        self.store = store or MemoryStore()
        self.vault = Vault(self.store, MasterKeys(None, value=MASTER_KEY))
        self.credentials = credentials
        overrides = {self.name: AccountUrls(**urls)}
        settings = SETTINGS.model_copy(update={"overrides": overrides})
        self.service = Transactions(
            [ExchangeAdapter(definition, settings)],
            self.vault,
            cursor_secret=b"a secret of the tests",
            settings=settings,
            clock=clock,
            live_limits=LiveLimits(**(FAST | limits)),
        )

    async def __aenter__(self):
        await self.set(self.credentials)
        return self

    async def __aexit__(self, *_):
        await self.service.close()

    async def set(self, credentials):
        await self.vault.put(self.name, "mainnet", Credentials(**credentials), now_ms=now_ms())

    async def query(self, **fields):
        request = TransactionsRequest(**{"exchange": self.name, "limit": 10_000} | fields)
        return await self.service.prepare(request, key_id=CALLER)

    async def follow(self, **fields):
        return await Subscriber(self, fields).begin()


class Subscriber:
    """A subscriber, and everything it received."""

    def __init__(self, node, fields):
        self.node = node
        self.fields = fields
        self.slow = False
        self.history = {}
        self.records = {}
        self.pushed = []
        self.statuses = []

    async def begin(self):
        service, query = self.node.service, await self.node.query(**self.fields)
        self.subscriptions = await service.subscriptions(query, self)
        (subscription,) = self.subscriptions

        def received(_, batch):
            for record in batch:
                subscription.note(record)

        answer = await service.fetch(query, key_id=CALLER, on_batch=received)
        answer = json.decode(answer)
        assert not answer["partial"]
        for entry in answer["coverage"]:
            subscription.covered(entry["transaction_type"], entry["from"])
        self.history = {each["transactionId"]: each for each in answer["transactions"]}
        self.records = dict(self.history)
        service.live.follow(subscription)
        return self

    def leave(self):
        for each in self.subscriptions:
            self.node.service.live.leave(each)

    def push(self, event):
        record = json.decode(event.payload)
        name = record["transactionId"]
        assert event.changed == (name in self.records)
        assert comparable(self.records.get(name)) != comparable(record)
        self.records[name] = record
        self.pushed.append(record)

    def status(self, status):
        self.statuses.append(status)

    async def fetched(self, **fields):
        query = await self.node.query(**self.fields | fields)
        answer = json.decode(await self.node.service.fetch(query, key_id=CALLER))
        assert not answer["partial"]
        return {each["transactionId"]: each for each in answer["transactions"]}

    async def until_equal(self, least=1):
        """Wait until the records equal a fetch, with at least this many pushed."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.pushed) < least or by_id(self.records) != by_id(await self.fetched()):
                await asyncio.sleep(0.3)

    @property
    def streamed(self):
        """The types that the stream announces now."""
        parts = self.statuses[-1].types if self.statuses else ()
        return {part.transaction_type for part in parts if part.source == "stream"}


def comparable(record):
    """Drop the time of the read, which records without their own time have."""
    if record is None or "timestamp" not in record["incomplete"]:
        return record
    return {**record, "timestamp": 0, "datetime": ""}


def by_id(records):
    return {name: comparable(record) for name, record in records.items()}


async def waited(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)
