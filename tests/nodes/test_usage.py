"""The usage of a key over two gateways: its cut-off, and an outage of PostgreSQL.

In one process, over real sockets: simulated exchanges, a feeds node, NATS, and PostgreSQL.
Every update is compared with what the exchanges published.
"""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from databases import DatabaseProxy, database
from e2e.service import pointed_at, settings_in, until_ready, ws_url
from nodes.oracle import Published, Subscriber
from nodes.servers import nats_server
from onebook import app
from onebook.accounts.admin import Admin
from onebook.accounts.billing import period_at
from onebook.accounts.pepper import load_pepper
from onebook.app import feeder
from onebook.model import Tier
from onebook.simulator import SimulatedExchanges
from onebook.store import AuditedChange, Store, UsageCell
from steady import PATIENCE_S, waited_s

EXCHANGES = ("okx", "kraken")
SYMBOLS = ("BTC/USDT", "ETH/USDT")
NEVER_S = 60.0  # a busy machine must not look like a dead node
OVERSHOOT = 0.005  # of the allowance
DATA_LIMIT = 4003
# The key uses its allowance in so many seconds; of 50 GiB, that is about 1 Gbit/s.
WHOLE_S = 400
RATE_S = 2.0  # for which the rate of the key is measured


@pytest.fixture
def url(tmp_path):
    with database("postgresql", tmp_path) as address:
        yield address


class Service:
    """Two gateways, a key, and a subscriber of each gateway."""

    def __init__(self, nodes, admin, created, published):
        self.nodes = nodes
        self.admin = admin
        self.key = created.row
        self.text = created.text
        self.cell = UsageCell(
            self.key.key_id, period_at(self.key.created_at_ms, self.key.created_at_ms).start_ms
        )
        self.subscribers = [Subscriber(published) for _ in nodes]
        self.tasks = [
            asyncio.create_task(each.run(ws_url(node), created.text))
            for node, each in zip(nodes, self.subscribers, strict=True)
        ]

    @property
    def received_bytes(self):
        return sum(each.received_bytes for each in self.subscribers)

    async def fresh(self):
        """Every book is live and new at each subscriber."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(each.fresh() for each in self.subscribers))

    async def ended(self):
        """Wait until the gateways have closed every connection."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self.tasks)


def change():
    return AuditedChange(time.time_ns() // 1_000_000, "tests", "a test")


@asynccontextmanager
async def served(folder, url, rate_hz=20):
    async with AsyncExitStack() as stack:
        port = stack.enter_context(nats_server())
        simulated = await stack.enter_async_context(SimulatedExchanges(EXCHANGES, rate_hz=rate_hz))
        for each in EXCHANGES:
            simulated[each].admit_all()

        def settings(role):
            return settings_in(
                folder,
                node={"role": role, "heartbeat_timeout_s": NEVER_S, "isolated_s": NEVER_S},
                nats={"servers": (f"nats://127.0.0.1:{port}",)},
                store={"url": url},
                gateway={"drain_s": 0, "connects_per_minute": 0},
            )

        published = Published(simulated, SYMBOLS)
        await stack.enter_async_context(
            feeder.running(settings("feeds"), overrides=pointed_at(simulated.urls))
        )
        nodes = [
            await stack.enter_async_context(app.running(settings("gateway"))) for _ in range(2)
        ]
        for node in nodes:
            assert await node.catalogue.first_read(PATIENCE_S)
        admin = Admin(nodes[0].store, load_pepper(nodes[0].settings.store.pepper_file))
        await admin.create_account("alice", change())
        created = await admin.create_key("alice", Tier.ENTERPRISE, change())
        service = Service(nodes, admin, created, published)
        try:
            await service.fresh()
            yield service
        finally:
            for node in nodes:
                await node.gateway.drain(0.0)
            await asyncio.wait(service.tasks, timeout=PATIENCE_S)


async def billed(url, cell):
    async with Store(url) as store:
        return await store.usage.total(cell)


async def eventually(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def all_ready(nodes, expected):
    for node in nodes:
        await until_ready(node.url, expected)


async def test_a_key_is_cut_off_over_both_gateways_at_most_half_a_percent_late(tmp_path, url):
    async with served(tmp_path, url) as service:
        # Both deliver at a steady rate; nearly all of an allowance that suits it is used already.
        began, before = time.monotonic(), service.received_bytes
        await eventually(lambda: time.monotonic() - began >= RATE_S)
        rate = (service.received_bytes - before) / (time.monotonic() - began)
        allowance = round(rate * WHOLE_S)
        used = allowance - service.received_bytes - round(3 * rate)
        await service.admin.change_key(service.key.key_id, change(), allowance_bytes=allowance)
        async with Store(url) as store:
            await store.usage.apply(("earlier", 1), {service.cell: used}, change().now_ms)
        waited, began, before = waited_s(), time.monotonic(), service.received_bytes
        await service.ended()
        waited = waited_s() - waited
        # Faster than before if the machine was busier then: what counts is how late it was.
        fastest = max(rate, (service.received_bytes - before) / (time.monotonic() - began))
        codes = [code for each in service.subscribers for code in each.end_codes]
        assert codes == [DATA_LIMIT] * len(EXCHANGES) * 2
        for each in service.subscribers:
            assert each.wrong == []
    counted = await billed(url, service.cell)
    assert counted == used + service.received_bytes
    over = counted - allowance
    print(f"overshoot {over} bytes of {allowance}, {over / allowance:.3%}; {over / rate:.2f} s")
    assert 0 < over <= fastest * (OVERSHOOT * WHOLE_S + waited)


async def test_both_gateways_stream_while_postgresql_is_away_and_bill_every_byte_once(
    tmp_path, url
):
    proxy = DatabaseProxy(url)
    await proxy.up()
    async with served(tmp_path, proxy.url) as service:
        await all_ready(service.nodes, 200)
        await proxy.cut()
        cut_at = service.received_bytes
        await all_ready(service.nodes, 503)  # no usage was taken for `FLUSH_AGE_MAX_S`
        files = list(tmp_path.glob("*.usage-*"))
        assert len(files) == len(service.nodes)
        await eventually(lambda: all(each.read_bytes().strip(b"\0") for each in files))
        assert await billed(url, service.cell) <= cut_at
        await service.fresh()  # streaming went on, and goes on
        await proxy.up()
        await all_ready(service.nodes, 200)
        await service.fresh()
        between = service.received_bytes
        assert await billed(url, service.cell) > cut_at
    for each in service.subscribers:
        assert each.wrong == []
    assert between > cut_at
    await proxy.cut()
    assert await billed(url, service.cell) == service.received_bytes
    assert list(tmp_path.glob("*.usage-*")) == []
