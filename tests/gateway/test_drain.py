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
