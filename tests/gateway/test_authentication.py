"""Authentication over real sockets: keys in messages and queries, verdicts, room for a key."""

import asyncio
from collections import Counter

import pytest

from gateway.rig import gateway, settled
from onebook.accounts.keys import new_key
from onebook.model import Tier


@pytest.mark.parametrize("text", ["nonsense", "", "ob_live_" + "x" * 49])
async def test_an_invalid_key_gets_authentication_error_then_close_4002(node, text):
    async with node.client() as client:
        await client.next()
        refusal = await client.ask(type="authenticate", api_key=text, id=1)
        assert (refusal["type"], refusal["error"]) == ("authentication_error", "invalid_api_key")
        assert (refusal["code"], refusal["id"]) == (4001, 1)
        assert await client.closed() == 4002


async def test_a_suspended_key_gets_api_key_disabled(node, key):
    await node.admin.move_key(key, "suspend", node.change())
    async with node.client() as client:
        await client.next()
        refusal = await client.ask(type="authenticate", api_key=key)
        assert refusal["error"] == "api_key_disabled"
        assert await client.closed() == 4002


async def test_a_key_in_the_address_counts_as_if_the_message_had_been_sent(node, key):
    async with node.client(query=f"?api_key={key}") as client:
        assert "available_commands" in await client.next()
        assert (await client.next())["session_id"]


async def test_an_empty_key_in_the_address_is_refused_as_a_wrong_one(node):
    async with node.client(query="?api_key=") as client:
        await client.next()
        refusal = await client.next()
        assert (refusal["type"], refusal["error"]) == ("authentication_error", "invalid_api_key")
        assert await client.closed() == 4002


async def test_a_later_message_wins_over_the_key_in_the_address(node, key):
    other = await node.key(Tier.PREMIUM)
    async with node.client(query=f"?api_key={key}") as client:
        await client.next()
        first = await client.next()
        second = await client.ask(type="authenticate", api_key=other)
        assert (first["user_tier"], second["user_tier"]) == ("basic", "premium")
        assert len(node.gateway.connections.by_key) == 1


async def test_an_operator_can_switch_the_key_in_the_address_off(tmp_path):
    async with gateway(tmp_path, query_key_allowed=False) as node:
        key = await node.key()
        async with node.client(query=f"?api_key={key}") as client:
            await client.next()
            refusal = await client.ask(type="get_exchanges")
            assert refusal["error"] == "authentication_required"


async def test_messages_sent_before_the_key_was_verified_wait_for_it(node, key):
    async with node.client() as client:
        await client.next()
        await client.say(type="authenticate", api_key=key)
        await client.say(type="get_exchanges")
        assert (await client.next())["session_id"]
        assert (await client.next())["type"] == "exchanges_data"


async def test_not_authenticated_in_10_s_is_closed_4001(node):
    async with node.client() as client:
        await client.next()
        node.later(9.9)
        assert (await client.ask(type="ping"))["type"] == "pong"
        node.later(0.2)
        refusal = await client.next()
        assert (refusal["error"], refusal["code"]) == ("authentication_required", 4001)
        assert await client.closed() == 4001


async def test_an_authenticated_connection_is_not_timed_out(node, key):
    async with node.client(key) as client:
        node.later(11)
        assert (await client.ask(type="ping"))["type"] == "pong"


@pytest.mark.parametrize(("tier", "most"), [(Tier.BASIC, 5), (Tier.DEVELOPER, 15)])
async def test_over_the_tiers_connections_is_closed_4004(node, tier, most):
    key = await node.key(tier)
    async with asyncio.TaskGroup() as group:
        leave, ready = asyncio.Event(), []
        for _ in range(most):
            group.create_task(_stay(node, key, ready, leave))
        await settled(lambda: len(ready) == most)
        async with node.client() as client:
            await client.next()
            refusal = await client.ask(type="authenticate", api_key=key)
            assert refusal["error"] == "connection_limit_exceeded"
            assert await client.closed() == 4004
        leave.set()
    await settled(lambda: not node.gateway.connections)
    async with node.client(key):
        pass


async def _stay(node, key, ready, leave):
    async with node.client(key):
        ready.append(key)
        await leave.wait()


async def test_a_store_that_fails_sends_the_client_away_with_4129(node, key, caplog):
    async def fail(*_, **__):
        raise OSError("the disk is gone")

    node.accounts.verify_key = fail
    async with node.client() as client:
        await client.next()
        refusal = await client.ask(type="authenticate", api_key=key)
        assert refusal["error"] == "service_unavailable"
        assert await client.closed() == 4129
    assert key not in caplog.text


async def test_an_address_with_too_many_wrong_keys_is_sent_away(node, key):
    for _ in range(10):
        async with node.client(query="?api_key=wrong") as client:
            assert await client.closed() == 4002
    async with node.client(query=f"?api_key={key}") as client:
        await client.next()
        assert (await client.next())["error"] == "rate_limit_exceeded"
        assert await client.closed() == 4113


async def test_a_client_that_leaves_while_its_key_is_verified_is_removed(node, key):
    asked, answer = asyncio.Event(), asyncio.Event()
    verify = node.accounts.verify_key

    async def slow(*arguments, **options):
        asked.set()
        await answer.wait()
        return await verify(*arguments, **options)

    node.accounts.verify_key = slow
    async with node.client() as client:
        await client.say(type="authenticate", api_key=key)
        await asked.wait()
        client.socket.transport.abort()
        await settled(lambda: client.socket.close_code is not None)
    (connection,) = node.gateway.connections or [None]
    if connection is not None:
        connection.transport.abort()
    await settled(lambda: not node.gateway.connections)
    answer.set()
    await settled(lambda: not node.gateway.authenticator.tasks)
    assert node.gateway.connections.by_key == {}


async def test_60_wrong_keys_at_one_moment_get_10_verdicts(node):
    async def attempt(leave):
        async with node.client() as client:
            await client.next()
            await barrier.wait()
            refusal = await client.ask(type="authenticate", api_key=new_key())
            await leave.wait()
            return refusal["error"], await client.closed()

    barrier, leave = asyncio.Barrier(60), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(leave)) for _ in range(60)]
        leave.set()
    assert Counter(task.result() for task in tasks) == {
        ("invalid_api_key", 4002): 10,
        ("rate_limit_exceeded", 4113): 50,
    }


async def test_a_key_that_becomes_verifiable_again_is_logged_once(node, key, caplog):
    caplog.set_level("INFO")
    verify = node.accounts.verify_key

    async def fail(*_, **__):
        raise OSError("the disk is gone")

    node.accounts.verify_key = fail
    for _ in range(2):
        async with node.client(query=f"?api_key={key}") as client:
            assert await client.closed() == 4129
    node.accounts.verify_key = verify
    async with node.client(key):
        assert caplog.text.count("Cannot verify API keys") == 1
        assert caplog.text.count("API keys can be verified again") == 1


async def test_a_connection_that_was_timed_out_while_its_key_was_verified_has_no_key(node, key):
    answer, verify = asyncio.Event(), node.accounts.verify_key

    async def slow(*arguments, **options):
        await answer.wait()
        return await verify(*arguments, **options)

    node.accounts.verify_key = slow
    async with node.client(query=f"?api_key={key}") as client:
        node.later(11)
        answer.set()
        assert await client.closed() == 4001
    assert node.gateway.connections.by_key == {}


async def test_stopping_ends_the_verification_of_keys(node, key):
    asked = asyncio.Event()

    async def never(*_, **__):
        asked.set()
        await asyncio.Event().wait()

    node.accounts.verify_key = never
    async with node.client(query=f"?api_key={key}"):
        await asked.wait()
        await node.gateway.authenticator.stop()
        assert not node.gateway.authenticator.tasks
