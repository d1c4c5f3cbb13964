"""Feeds nodes and gateways on a real nats-server, in one process: handover, partition, restarts."""

import asyncio
import errno
import logging
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import httpx
import pytest

from e2e.service import key_of, pointed_at, settings_in, until_ready, ws_url
from gateway.helpers import refused
from nodes.oracle import Published, Subscriber
from nodes.servers import nats_server
from onebook import app, config
from onebook.app import feeder
from onebook.clock import SYSTEM_CLOCK
from onebook.errors import ConfigError
from onebook.model import Health, Reason
from onebook.nodes import wire
from onebook.nodes.membership import NodeHeartbeat, NodeRole, encode_heartbeat
from onebook.nodes.nats import NatsBus
from onebook.simulator import SimulatedExchanges
from onebook.transfers import CoinTransfer
from steady import PATIENCE_S, own_s

EXCHANGES = ("okx", "kraken", "gate")  # each shows its published levels: none has a fast top
SYMBOLS = ("BTC/USDT", "ETH/USDT")
ISOLATED_S = 2.0
ISOLATION_SLACK_S = 1.0  # a tick, and up to the last heartbeat before the cut
NEVER_S = 60.0  # a busy machine must not look like a dead node
STRANGER = NodeHeartbeat(
    node=7,
    name="old-one",
    role=NodeRole.FEEDS,
    wire=99,
    version="9.9",
    states=dict.fromkeys(EXCHANGES, "active"),
)


class Pipe:
    """A TCP proxy to one port that can stop forwarding, both ways and for new connections.

    From `late_s` on, everything arrives that much later. `freeze` stops the connections of now for
    ever, without closing them, and no later ones.
    """

    def __init__(self, port):
        self.target = port
        self.late_s = 0.0
        self.open = asyncio.Event()
        self.open.set()
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *details):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def freeze(self):
        self.open.clear()
        self.open = asyncio.Event()
        self.open.set()

    def _begin(self, reader, writer):
        self._tasks.add(asyncio.create_task(self._accepted(reader, writer)))

    async def _accepted(self, reader, writer):
        gate = self.open
        await gate.wait()
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.target)
        ways = [
            asyncio.create_task(self._carry(reader, other_writer, gate)),
            asyncio.create_task(self._carry(other_reader, writer, gate)),
        ]
        self._tasks.update(ways)
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (writer, other_writer):
                each.transport.abort()

    async def _carry(self, reader, writer, gate):
        try:
            while data := await reader.read(65_536):
                await gate.wait()
                if self.late_s:
                    asyncio.get_running_loop().call_later(self.late_s, writer.write, data)
                else:
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            pass


class World:
    """Simulated exchanges, NATS, and how to run nodes."""

    def __init__(self, folder, simulated, port, stack):
        self.folder = folder
        self.simulated = simulated
        self.port = port
        self.published = Published(simulated, SYMBOLS)
        self.stack = stack
        self.key = None
        self.drain_s = PATIENCE_S
        self.tasks = []

    def settings(self, role, port=None, **node):
        servers = (f"nats://127.0.0.1:{port or self.port}",)
        return settings_in(
            self.folder,
            node={"role": role, "heartbeat_timeout_s": NEVER_S, "isolated_s": NEVER_S, **node},
            nats={"servers": servers},
            gateway={"drain_s": self.drain_s},
        )

    def feeds(self, **node):
        return feeder.running(
            self.settings("feeds", **node), overrides=pointed_at(self.simulated.urls)
        )

    async def gateway(self, **options):
        """A gateway and its subscriber, within the context."""
        node = await self.stack.enter_async_context(
            app.running(self.settings("gateway", **options))
        )
        assert await node.catalogue.first_read(PATIENCE_S)
        self.key = self.key or await key_of(node)
        subscriber = Subscriber(self.published)
        task = asyncio.create_task(subscriber.run(ws_url(node), self.key))
        self.stack.push_async_callback(_ended, task)
        self.tasks.append(task)
        return node, subscriber

    async def fresh(self, *subscribers):
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(each.fresh() for each in subscribers))


async def _ended(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def world(folder):
    async with AsyncExitStack() as stack:
        port = stack.enter_context(nats_server())
        simulated = await stack.enter_async_context(SimulatedExchanges(EXCHANGES, rate_hz=5))
        for each in EXCHANGES:
            simulated[each].admit_all()
        yield World(folder, simulated, port, stack)


def patience(part, *, heartbeat_timeout_s, isolated_s):
    """Change the timeouts of a running node, which started with those of a busy machine.

    Args:
        part: The supervisor of a gateway, or the node of a feeds node.
    """
    times = {"heartbeat_timeout_s": heartbeat_timeout_s, "isolated_s": isolated_s}
    part._settings = part._settings.model_copy(update=times)
    part.presence.members._timeout_s = heartbeat_timeout_s


async def eventually(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def serves(feeds):
    return len(list(feeds.books.live()))


async def test_books_move_to_a_node_that_joins_and_from_one_that_leaves_and_are_never_stale(
    tmp_path,
):
    async with world(tmp_path) as here:
        books = len(here.published.books)
        async with AsyncExitStack() as first:
            one = await first.enter_async_context(here.feeds())
            _, subscriber = await here.gateway()
            await here.fresh(subscriber)
            assert serves(one) == books
            before = len(subscriber.statuses)
            async with here.feeds() as two, here.feeds() as three:
                others = (two, three)
                await eventually(
                    lambda: sum(map(serves, (one, *others))) == books and any(map(serves, others))
                )
                await one.drain()
                assert serves(one) == 0
                await first.aclose()
                await eventually(lambda: sum(map(serves, others)) == books)
                await here.fresh(subscriber)
                assert subscriber.statuses[before:] == []
                assert subscriber.wrong == []
                for exchange, symbol in here.published.books:
                    assert here.simulated[exchange].followers(symbol) == 1


async def test_a_gateway_knows_the_fees_and_transfers_that_a_feeds_node_reads(tmp_path):
    async with world(tmp_path) as here, here.feeds() as feeds:
        node, _ = await here.gateway()
        fee = node.catalogue.published_fee("gate", "BTC/USDT")
        assert (fee.percent, fee.source) == ("0.2", "instruments")
        assert fee.date == feeds.catalogue.read_on["gate"]
        assert node.catalogue.published_fee("okx", "BTC/USDT") is None
        assert node.catalogue.transfer("gate", "BTC") is None
        read = CoinTransfer("ccxt", SYSTEM_CLOCK.wall_ms(), True, False)
        feeds.catalogue.transferred("gate", {"BTC": read})
        await eventually(lambda: node.catalogue.transfer("gate", "BTC") == read)


async def test_a_gateway_knows_the_error_of_the_clocks_that_its_feeds_node_measures(tmp_path):
    async with world(tmp_path) as here, here.feeds():
        node, subscriber = await here.gateway()
        await here.fresh(subscriber)

        def times(name):
            (found, *_) = (each for each in node.books if each.instrument.exchange == name)
            return found.times(SYSTEM_CLOCK.wall_us(), SYSTEM_CLOCK.monotonic())

        await eventually(lambda: times("okx").error_us is not None)
        found = times("okx")  # whose clock is this machine's
        assert abs(found.offset_us) <= found.error_us
        assert times("kraken").error_us is None, "it tells its time in seconds only"


async def test_a_gateway_that_nats_does_not_reach_shows_nothing_and_comes_back(tmp_path):
    """A partition without a closed socket: only heartbeats reveal it."""
    async with world(tmp_path) as here, Pipe(here.port) as pipe, here.feeds():
        cut, cut_subscriber = await here.gateway(port=pipe.port)
        _, subscriber = await here.gateway()
        await here.fresh(cut_subscriber, subscriber)
        before = len(subscriber.statuses)
        patience(cut.supervisor, heartbeat_timeout_s=1.0, isolated_s=1.0)
        pipe.open.clear()
        await eventually(lambda: not any(cut_subscriber.live.values()))
        reasons = {(book.health, book.reason) for book in cut.books}
        assert reasons == {(Health.STALE, Reason.DISCONNECTED)}
        await eventually(lambda: cut.supervisor.problems() == ["NATS is unreachable."])
        await eventually(lambda: not cut.supervisor.ready)
        await here.fresh(subscriber)
        assert subscriber.statuses[before:] == []
        patience(cut.supervisor, heartbeat_timeout_s=NEVER_S, isolated_s=NEVER_S)
        pipe.open.set()
        await here.fresh(cut_subscriber, subscriber)
        assert cut_subscriber.wrong == subscriber.wrong == []


async def test_a_gateway_that_is_cut_off_sends_its_clients_away_and_not_at_a_blip(tmp_path):
    async with world(tmp_path) as here, Pipe(here.port) as pipe, here.feeds():
        here.drain_s = 0.3
        cut, client = await here.gateway(port=pipe.port)
        await here.fresh(client)

        patience(cut.supervisor, heartbeat_timeout_s=0.5, isolated_s=NEVER_S)
        pipe.open.clear()  # a blip
        await eventually(lambda: not any(client.live.values()))
        await until_ready(cut.url, problem="NATS is unreachable.")
        pipe.open.set()
        await here.fresh(client)
        assert client.end_codes == []

        patience(cut.supervisor, heartbeat_timeout_s=0.5, isolated_s=ISOLATED_S)
        pipe.open.clear()
        began = own_s()
        await eventually(lambda: cut.supervisor.isolated)
        assert own_s() - began < ISOLATED_S + ISOLATION_SLACK_S
        await eventually(lambda: client.end_codes == [4200] * len(EXCHANGES))
        assert client.reconnect_in_ms == [100, 200, 300]
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{cut.url}/readyz")
        assert (answer.status_code, answer.json()["problems"][-1]) == (503, "NATS is unreachable.")
        response = await refused(ws_url(cut))
        assert response.status_code == 503
        assert 1 <= int(response.headers["Retry-After"]) <= 10

        patience(cut.supervisor, heartbeat_timeout_s=NEVER_S, isolated_s=NEVER_S)
        pipe.open.set()
        await until_ready(cut.url)
        again = Subscriber(here.published)
        task = asyncio.create_task(again.run(ws_url(cut), here.key))
        here.stack.push_async_callback(_ended, task)
        await here.fresh(again)
        assert client.wrong == again.wrong == []


async def test_a_feeds_node_whose_messages_come_late_is_not_shown(tmp_path, caplog):
    """Heartbeats and deltas arrive in order and at their usual rate, but all of them late."""
    async with world(tmp_path) as here, Pipe(here.port) as pipe, here.feeds(port=pipe.port):
        node, subscriber = await here.gateway(heartbeat_timeout_s=1.0)
        await here.fresh(subscriber)
        pipe.late_s = 1.5
        members = node.supervisor.presence.members
        await eventually(lambda: members.late)  # first its heartbeats pause for so long
        (name,) = {each.name for each in members.late.values()}
        await eventually(lambda: not any(subscriber.live.values()))
        problem = f"The messages of all feeds nodes arrive too late: {name}."
        await eventually(lambda: node.supervisor.problems() == [problem])
    assert [each.getMessage() for each in caplog.records if "take longer" in each.msg] == [
        f"Messages of node {name} take longer than 1 s, so its books are stale. Check the "
        "network between it and NATS, and its CPU."
    ]


async def test_a_feeds_node_that_nats_does_not_reach_closes_its_connections(tmp_path):
    """No exchange keeps two connections for one book after another node took it over."""
    async with (
        world(tmp_path) as here,
        Pipe(here.port) as pipe,
        here.feeds(port=pipe.port) as cut,
    ):
        gateway, subscriber = await here.gateway()
        await here.fresh(subscriber)
        assert serves(cut) == len(here.published.books)
        async with here.feeds() as other:
            pipe.open.clear()
            patience(cut.node, heartbeat_timeout_s=1.0, isolated_s=2.0)
            for each in (gateway.supervisor, other.node):
                patience(each, heartbeat_timeout_s=1.0, isolated_s=NEVER_S)
            await eventually(lambda: serves(other) == len(here.published.books))
            await eventually(lambda: len(cut.books) == 0)
            await here.fresh(subscriber)
            for exchange, symbol in here.published.books:
                await eventually(lambda e=exchange, s=symbol: here.simulated[e].followers(s) == 1)
            pipe.open.set()
            await eventually(lambda: serves(cut) > 0 or len(other.node.ownership) == 6)
            await here.fresh(subscriber)
            assert subscriber.wrong == []


async def test_nats_restarts_and_the_books_come_back(tmp_path):
    async with world(tmp_path) as here, AsyncExitStack() as broker:
        here.port = broker.enter_context(nats_server())
        async with here.feeds():
            node, subscriber = await here.gateway()
            await here.fresh(subscriber)
            await broker.aclose()
            await eventually(lambda: not node.supervisor._bus.connected)
            broker.enter_context(nats_server(port=here.port))
            await here.fresh(subscriber)
            assert subscriber.wrong == []


AGAIN = "Reconnected to NATS."


def _lines(caplog):
    return [each.getMessage() for each in caplog.records if each.name == "onebook.nodes"]


async def test_an_outage_of_nats_is_a_few_lines_however_long_it_is(caplog):
    """nats-py reports each connection attempt: five per second and node."""
    caplog.set_level(logging.INFO, "onebook.nodes")
    with ExitStack() as broker:
        port = broker.enter_context(nats_server())
        settings = config.load(overrides={"nats": {"servers": [f"nats://127.0.0.1:{port}"]}}).nats
        async with NatsBus(settings, name="test") as bus:
            for outages in (1, 2):
                broker.close()
                (server,) = bus._client._server_pool
                await eventually(lambda server=server: server.reconnects >= 5)
                broker.enter_context(nats_server(port=port))
                await eventually(lambda n=outages: _lines(caplog).count(AGAIN) == n)
    lines = _lines(caplog)
    assert lines.count("Lost the connection to NATS; reconnecting.") == 2
    assert lines.count(AGAIN) == 2
    refused = [each for each in lines if f"[Errno {errno.ECONNREFUSED}]" in each]
    assert len(refused) == 2


async def test_nodes_of_another_version_are_refused_clearly(tmp_path, caplog):
    async with world(tmp_path) as here, here.feeds() as feeds:
        node, subscriber = await here.gateway()
        await here.fresh(subscriber)
        with caplog.at_level(logging.ERROR, "onebook.nodes"):
            feeds.bus.publish(feeds.node.presence.subjects.heartbeats, encode_heartbeat(STRANGER))
            await eventually(lambda: 7 in node.supervisor.presence.members.incompatible)
        said = [each for each in caplog.records if each.levelno >= logging.ERROR]
        (line,) = {each.message for each in said if each.name.startswith("onebook.nodes")}
        assert line.startswith("Node old-one (Onebook 9.9) speaks version 99")
        assert 7 not in node.supervisor.presence.members.alive(NodeRole.FEEDS)
        await here.fresh(subscriber)


async def test_a_gateway_whose_only_feeds_node_is_of_another_version_says_so(tmp_path):
    async with world(tmp_path) as here:
        async with here.feeds():
            node, _ = await here.gateway()
        await eventually(lambda: node.supervisor.problems() == ["No feeds node is alive."])
        heartbeats = node.supervisor.presence.subjects.heartbeats
        async with NatsBus(here.settings("gateway").nats, name="test") as bus:
            bus.publish(heartbeats, encode_heartbeat(STRANGER))
            await eventually(lambda: 7 in node.supervisor.presence.members.incompatible)
        async with httpx.AsyncClient(trust_env=False) as http:
            problems = (await http.get(f"{node.url}/readyz")).json()["problems"]
        assert (
            "No feeds node that this node can use is alive: old-one (Onebook 9.9) speaks version "
            f"99 of the node protocol, this node version {wire.VERSION}."
        ) in problems


@pytest.mark.parametrize("given", ["wrong", "right"])
async def test_nats_wants_a_password(given, tmp_path):
    with nats_server("--user", "onebook", "--pass", "s3cret-of-nats") as port:
        settings = settings_in(
            tmp_path,
            nats={
                "servers": (f"nats://127.0.0.1:{port}",),
                "user": "onebook",
                "password": "s3cret-of-nats" if given == "right" else "guess-of-nats",
            },
        ).nats
        bus = NatsBus(settings, name="test", connect_timeout_s=PATIENCE_S)
        if given == "right":
            async with bus:
                assert bus.connected
            return
        with pytest.raises(ConfigError) as refused:
            await bus.__aenter__()
        assert "uthorization" in refused.value.message
        assert "guess-of-nats" not in refused.value.message
