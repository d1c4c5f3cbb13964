"""A node that stops sends its clients a reconnect time."""

import asyncio
from http import HTTPStatus

from gateway.helpers import refused
from gateway.rig import PATIENCE_S, gateway, settled
from onebook.model import Tier


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


async def test_draining_does_not_wait_for_a_client_that_does_not_answer(tmp_path):
    async with gateway(tmp_path, drain_s=0.0, close_timeout_s=0.2) as node, node.client() as client:
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
