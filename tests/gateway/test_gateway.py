"""The whole gateway over real sockets: rows of contract section 2 and the specification."""

import asyncio
import re
import weakref
from http import HTTPStatus

import pytest
import uvloop
from websockets.frames import Frame, Opcode

from gateway.helpers import raw, refused
from gateway.rig import BOOK, LISTED, PATIENCE_S, SYMBOL, gateway, settled
from onebook.clock import Clock
from onebook.config import GatewaySettings
from onebook.exchanges import EXCHANGES
from onebook.gateway import GatewayLimits
from onebook.gateway.authentication import Charges
from onebook.gateway.gateway import Drain
from onebook.gateway.registry import ConnectionRegistry
from onebook.model import Tier


@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_connect_authenticate_subscribe_receive(node, key, compression):
    async with node.client(compression=compression) as client:
        assert (await client.next())["type"] == "welcome"
        welcome = await client.ask(type="authenticate", api_key=key, id=1)
        assert (welcome["type"], welcome["user_tier"], welcome["id"]) == ("welcome", "basic", 1)
        assert welcome["authentication"] == {"api_key": key[:12] + "...", "status": "authenticated"}
        assert re.fullmatch(r"[0-9a-f-]{36}", welcome["session_id"])
        node.snapshot("okx")
        response = await client.ask(type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"])
        update = await client.next()
        assert update["subscription_id"] == response["subscription_id"]
        assert update["update_number"] == 1
        assert [level["price"] for level in update["data"]["bids"]] == [100, 99]
        node.delta("okx", [("100", "0")])
        update = await client.next()
        assert update["update_number"] == 2
        assert [level["price"] for level in update["data"]["bids"]] == [99]


async def test_numbers_arrive_as_the_exchange_sent_them(node, key):
    async with node.client(key) as client:
        node.snapshot("okx", [("0.000000012345", "123456789012.5")], [("64000.10", "0.100")])
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, levels="array")
        text = await client.socket.recv()
        assert '"bids":[[0.000000012345,123456789012.5]]' in text
        assert '"asks":[[64000.1,0.1]]' in text


async def test_exchange_status_and_a_book_without_the_exchange_within_100_ms(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        node.snapshot("kraken")
        await client.ask(
            type="subscribe_aggregated",
            symbol=SYMBOL,
            exchanges=["okx", "kraken"],
            interval_ms=60_000,
        )
        await client.next()
        lost_at = asyncio.get_running_loop().time()
        node.lose("okx", "checksum")
        status, update = await client.next(), await client.next()
        assert asyncio.get_running_loop().time() - lost_at < 0.1
        assert (status["exchange"], status["state"], status["reason"]) == (
            "okx",
            "stale",
            "checksum",
        )
        assert update["data"]["stale_exchanges"] == ["okx"]


KEY_LIKE = b"ob_live_" + b"a" * 49


async def test_the_gateway_beats_while_it_is_entered_and_leaves_nothing(tmp_path):
    async with gateway(tmp_path) as node:
        ticks, tick = asyncio.Semaphore(0), node.gateway.scheduler.tick

        def counted():
            ticks.release()
            tick()
            raise RuntimeError("one failed tick does not end the scheduler")

        async def sleep(seconds):
            assert seconds == 1.0
            await asyncio.sleep(0)

        node.gateway.scheduler.tick = counted
        node.gateway.drainer._clock.sleep = sleep
        async with node.client() as client, node.gateway:
            await client.next()
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(3):
                    await ticks.acquire()
        await settled(lambda: not node.gateway.connections)


def test_the_same_conversation_on_uvloop(tmp_path):
    async def talk():
        async with gateway(tmp_path) as node:
            key = await node.key()
            async with node.client(key, compression="deflate") as client:
                node.snapshot("okx", *BOOK)
                await client.ask(type="subscribe_aggregated", symbol=SYMBOL, interval_ms=10)
                assert (await client.next())["update_number"] == 1
                node.delta("okx", [("100", "9")])
                assert (await client.next())["data"]["bids"][0]["amount"] == 9
                latency_ms = 0
                while not latency_ms:  # our pong to the first ping may still be on its way
                    await client.say(type="ping")
                    latency_ms = (await client.until("pong"))["latency_ms"]
                await raw(client, Frame(Opcode.CONT, b"{}").serialize(mask=True))
                assert await client.closed() == 1002

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


def test_the_exchanges_of_the_rig_are_known():
    assert set(LISTED) <= set(EXCHANGES)


# A node that stops sends its clients a reconnect time


async def test_draining_states_when_to_return_and_closes_4200_spread_over_the_time(tmp_path):
    async with gateway(tmp_path, drain_s=0.2) as node:
        key = await node.key(Tier.PREMIUM)
        async with node.client(key) as one, node.client(key) as two, node.client() as three:
            await three.next()
            draining = asyncio.create_task(node.gateway.drain())
            times = []
            for client in (one, two, three):
                notice = await client.until("server_shutdown")
                times.append(int(notice["reconnect_in_ms"]))
            assert sorted(times) == [67, 133, 200]
            response = await refused(node.url)
            assert response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            for client in (one, two, three):
                assert await client.closed() == 4200
            async with asyncio.timeout(PATIENCE_S):
                await draining
        assert not node.gateway.connections


class Closing:
    """A connection that is closed at once, and counts which of them are not freed yet."""

    def __init__(self, registry, references, counts):
        self.ended = False
        self.registry, self.references, self.counts = registry, references, counts
        registry.add(self)
        references.append(weakref.ref(self))

    @property
    def output(self):
        return self

    def send_text(self, payload):
        pass

    def end(self, code, reason):
        self.registry.remove(self)
        self.counts.append(sum(each() is not None for each in self.references))


async def test_draining_frees_each_connection_when_it_is_closed():
    """Freeing all of them at the end was one turn of the event loop: 46 ms (profiled) for 8,000."""
    registry, references, counts = ConnectionRegistry(), [], []
    for _ in range(3):
        Closing(registry, references, counts)
    clock = Clock()
    drain = Drain(
        GatewaySettings(drain_s=0.0),
        connections=registry,
        charges=Charges(meter=None, connections=registry, clock=clock),
        clock=clock,
        close_timeout_s=0.0,
    )
    await drain.run()
    assert counts == [3, 2, 1]


async def test_many_connections_are_charged_in_several_turns(node, key, monkeypatch):
    """All at once took 37 ms for 8,000 connections."""
    monkeypatch.setattr("onebook.gateway.authentication.CHARGED_AT_ONCE", 1)
    async with node.client(key) as one, node.client(key) as two, node.client(key) as three:
        for each in (one, two, three):
            await each.ask(type="ping")
        meter = node.accounts.meter
        (key_id,) = node.gateway.connections.by_key
        now_ms = node.clock.wall_ms()
        used = [meter.used(key_id, now_ms) for _ in node.gateway.charges.portions()]
        assert used == sorted({*used})
        assert len(used) == 2
        assert meter.used(key_id, now_ms) > used[-1] > used[0] > 0


async def test_draining_does_not_wait_for_a_client_that_does_not_answer(tmp_path):
    limits = GatewayLimits(close_timeout_s=0.2)
    async with gateway(tmp_path, drain_s=0.0, limits=limits) as node, node.client() as client:
        await client.next()
        client.socket.transport.pause_reading()
        async with asyncio.timeout(PATIENCE_S):
            await node.gateway.drain()
        await settled(lambda: not node.gateway.connections)


async def test_an_isolated_node_sends_clients_away_and_takes_them_again_when_it_is_back(tmp_path):
    async with gateway(tmp_path, drain_s=0.2) as node:
        key = await node.key(Tier.PREMIUM)
        async with node.client(key) as one, node.client(key) as two:
            node.gateway.isolated(True)
            assert not node.gateway.draining
            notices = [await each.until("server_shutdown") for each in (one, two)]
            assert sorted(int(each["reconnect_in_ms"]) for each in notices) == [100, 200]
            response = await refused(node.url)
            assert response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            assert 1 <= int(response.headers["Retry-After"]) <= 10
            assert [await each.closed() for each in (one, two)] == [4200, 4200]
        await settled(lambda: not node.gateway.connections)
        assert (await refused(node.url)).status_code == HTTPStatus.SERVICE_UNAVAILABLE
        node.gateway.isolated(False)
        async with node.client(key) as back:
            await back.say(type="ping")
            await back.until("pong")


async def test_clients_that_were_not_closed_yet_stay_when_the_node_is_back(tmp_path):
    async with gateway(tmp_path, drain_s=PATIENCE_S) as node, node.client() as client:
        await client.next()
        node.gateway.isolated(True)
        await client.until("server_shutdown")
        node.gateway.isolated(False)
        await client.say(type="ping")
        await client.until("pong")
        async with node.client() as other:
            await other.next()


async def test_an_isolated_node_that_stops_drains_its_clients_once_and_for_good(tmp_path):
    async with gateway(tmp_path, drain_s=PATIENCE_S) as node, node.client() as client:
        await client.next()
        node.gateway.isolated(True)
        await client.until("server_shutdown")
        draining = asyncio.create_task(node.gateway.drain(0.0))
        assert (await client.until("server_shutdown"))["reconnect_in_ms"] == 0
        assert await client.closed() == 4200
        async with asyncio.timeout(PATIENCE_S):
            await draining
        node.gateway.isolated(False)
        node.gateway.isolated(True)
        assert (await refused(node.url)).status_code == HTTPStatus.SERVICE_UNAVAILABLE
