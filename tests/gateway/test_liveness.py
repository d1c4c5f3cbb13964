"""Dead sockets of a key make room for a new one: half-open peers over real sockets."""

import asyncio
from contextlib import AsyncExitStack

from gateway.attack import raw
from gateway.rig import PATIENCE_S, gateway, settled

BASIC_CONNECTIONS = 5


async def half_open(node, key, stack):
    """All the connections that a basic key may have, of peers that never answer again."""
    return [await stack.enter_async_context(raw(node, key)) for _ in range(BASIC_CONNECTIONS)]


async def test_a_connection_with_an_old_unanswered_ping_gives_way_at_once(node, key):
    async with AsyncExitStack() as stack:
        await half_open(node, key, stack)
        node.clock.put_forward(3.1)
        async with node.client(key) as client:
            assert (await client.ask(type="ping"))["type"] == "pong"
            (group,) = node.gateway.connections.by_key.values()
            assert len(group) == BASIC_CONNECTIONS


async def test_one_that_answered_before_is_asked_again_and_gives_way(tmp_path):
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(gateway(tmp_path, liveness_wait_s=0.2))
        key = await node.key()
        await half_open(node, key, stack)
        for each in node.gateway.connections:
            each.keepalive.ping_at = 0.0  # as if it had answered, and broke then
        async with asyncio.timeout(PATIENCE_S), node.client(key) as client:
            assert (await client.ask(type="ping"))["type"] == "pong"
        assert sorted(each.code for each in node.gateway.connections) == [1006] * 4


async def test_a_connection_that_is_closing_gives_way_at_once(node, key):
    async with AsyncExitStack() as stack:
        await half_open(node, key, stack)
        closing = next(iter(node.gateway.connections))
        closing.end(4108, "nothing was read")
        async with node.client(key) as client:
            assert (await client.ask(type="ping"))["type"] == "pong"
        await settled(lambda: closing.lost)
        assert closing.code == 4108


async def test_connections_that_answer_keep_their_places(tmp_path):
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(gateway(tmp_path))
        key = await node.key()
        for _ in range(BASIC_CONNECTIONS):
            await stack.enter_async_context(node.client(key))
        node.clock.put_forward(60)
        for each in node.gateway.connections:
            each.keepalive.ping_at = 0.0
        client = await stack.enter_async_context(node.client())
        await client.next()
        refusal = await client.ask(type="authenticate", api_key=key)
        assert refusal["error"] == "connection_limit_exceeded"
        assert await client.closed() == 4004


async def test_a_key_suspended_while_it_waits_for_room_is_not_admitted(tmp_path):
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(gateway(tmp_path, liveness_wait_s=5.0))
        key = await node.key()
        await half_open(node, key, stack)
        for each in node.gateway.connections:
            each.keepalive.ping_at = 0.0
        client = await stack.enter_async_context(node.client())
        await client.next()
        await client.say(type="authenticate", api_key=key)
        await settled(lambda: node.gateway.authenticator.waiting)
        await node.admin.move_key(key, "suspend", node.change())
        await node.accounts.poll(node.clock.wall_ms())
        for each in node.gateway.connections:
            each.keepalive.ping_at = 0.0
        node.gateway.authenticator.answered()  # which ends the wait
        assert (await client.next())["error"] == "api_key_disabled"
        assert await client.closed() == 4002
