"""Authentication over real sockets: keys in messages and queries, results, connection limits."""

import asyncio
import socket
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from gateway.attack import raw
from gateway.rig import PATIENCE_S, SYMBOL, gateway, settled
from onebook.accounts.keys import new_key
from onebook.gateway import GatewayLimits, frames
from onebook.model import GIB_BYTES, Tier
from onebook.store import AuditedChange


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


# Every delivered byte is charged once, as it was sent


async def test_payload_bytes_are_counted_as_sent_after_compression(node, key):
    async with node.client(key, compression="deflate") as client:
        node.snapshot("okx", [(str(1_000 - n), "1") for n in range(100)], [])
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=500)
        text = await client.socket.recv()
        await node.acknowledged()
        await node.accounts.meter.flush()
        (key_id,) = node.gateway.connections.by_key
        used = node.accounts.meter.used(key_id, node.clock.wall_ms())
        assert 0 < used < len(text) / 2


async def test_every_byte_of_a_plain_client_is_counted_once_also_at_the_end(node, key):
    async with node.client() as client:
        (await client.next())["type"]
        await client.say(type="authenticate", api_key=key)
        node.snapshot("okx")
        texts = [await client.socket.recv()]
        await client.say(type="subscribe_aggregated", symbol=SYMBOL)
        texts += [await client.socket.recv(), await client.socket.recv()]
        (key_id,) = node.gateway.connections.by_key
        (connection,) = node.gateway.connections
    await settled(lambda: connection.lost)
    used = node.accounts.meter.used(key_id, node.clock.wall_ms())
    assert used == sum(len(text.encode()) for text in texts)


async def test_data_limit_warning_at_authentication_above_80_percent(tmp_path):
    async with gateway(tmp_path, allowance_bytes=10_000) as node:
        key = await node.key()
        async with node.client(key) as client:
            (key_id,) = node.gateway.connections.by_key
            node.accounts.meter.add(key_id, 8_000)
            await node.accounts.meter.flush()
            assert (await client.next())["type"] == "data_limit_warning"
        async with node.client(key) as returned:
            warning = await returned.next()
            assert warning["type"] == "data_limit_warning"
            assert warning["reset_date"].endswith("Z")


async def test_what_a_tick_brought_is_not_charged_when_the_connection_ends_within_it(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        before = connection.output.sent + connection.output.total
        first, second = (frames.text_frame(each) for each in (b"x" * 500, b"y" * 70_000))
        connection.output.sent += 500 + 70_000
        connection.output.out = (first, second)
        connection.end(4200, "test")
        assert connection.output.sent + connection.output.total == before
        assert await client.closed() == 4200


async def test_bytes_that_wait_for_their_acknowledgement_are_not_charged_to_the_next_key(node, key):
    """With late acknowledgements, the welcome before a key is free, and each key pays its own."""
    other = await node.key()
    shares = []
    ours, theirs = socket.socketpair()
    ours.send(b"not read yet")
    async with node.client() as client:
        await client.next()
        (connection,) = node.gateway.connections
        connection.output.fd = ours.fileno()
        assert connection.output.unacknowledged()
        for text in (key, other):
            await client.say(type="authenticate", api_key=text)
            welcome = await client.socket.recv()
            await client.say(type="get_subscriptions")
            shares.append(len(welcome.encode()) + len((await client.socket.recv()).encode()))
        theirs.recv(100)
    await settled(lambda: connection.lost)
    ours.close()
    theirs.close()
    report, now_ms = node.accounts.meter.used, node.clock.wall_ms()
    keys = {row.prefix: row.key_id for row in await node.store.accounts.list_keys()}
    assert [report(keys[text[: len(next(iter(keys)))]], now_ms) for text in (key, other)] == shares


# Dead sockets of a key make room for a new one: half-open peers over real sockets


BASIC_CONNECTIONS = 5


async def half_open(node, key, stack):
    """All connections that a basic key may have, with peers that never answer again."""
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
        limits = GatewayLimits(liveness_wait_s=0.2)
        node = await stack.enter_async_context(gateway(tmp_path, limits=limits))
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
        limits = GatewayLimits(liveness_wait_s=5.0)
        node = await stack.enter_async_context(gateway(tmp_path, limits=limits))
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


# Open connections follow their key: suspension, rotation, allowance


@pytest.mark.parametrize("whose", ["key", "account"])
async def test_a_key_suspended_and_resumed_between_two_polls_closes_its_sockets(node, key, whose):
    [row] = await node.store.accounts.list_keys()
    move = node.admin.move_key if whose == "key" else node.admin.move_account
    name = row.key_id if whose == "key" else row.username
    async with node.client(key) as client:
        await node.accounts.poll(node.clock.wall_ms())
        await move(name, "suspend", node.change())
        await move(name, "resume", node.change())
        await node.accounts.poll(node.clock.wall_ms())
        assert (await client.next())["error"] == "api_key_disabled"
        assert await client.closed() == 4002
    async with node.client(key) as again:
        await node.admin.rotate_key(row.key_id, node.change(), overlap_ms=60_000)
        await node.accounts.poll(node.clock.wall_ms())
        assert (await again.ask(type="ping"))["type"] == "pong"


async def test_a_key_suspended_meanwhile_closes_its_sockets_4002(node, key):
    other = await node.key()
    async with node.client(key) as client, node.client(other) as bystander:
        await node.admin.move_key(
            key, "suspend", AuditedChange(node.clock.wall_ms(), "operator", "test")
        )
        await node.accounts.poll(node.clock.wall_ms())
        refusal = await client.next()
        assert (refusal["type"], refusal["error"]) == ("authentication_error", "api_key_disabled")
        assert await client.closed() == 4002
        assert (await bystander.ask(type="ping"))["type"] == "pong"


async def test_an_immediate_rotation_closes_what_the_old_text_opened_and_nothing_else(node, key):
    async with node.client(key) as old:
        made = await node.admin.rotate_key(key, node.change(), overlap_ms=0)
        async with node.client(made.text) as new:
            await node.accounts.poll(node.clock.wall_ms())
            refusal = await old.next()
            assert (refusal["type"], refusal["error"]) == (
                "authentication_error",
                "invalid_api_key",
            )
            assert await old.closed() == 4002
            assert (await new.ask(type="ping"))["type"] == "pong"


async def test_a_rotation_with_an_overlap_closes_nothing_and_each_text_is_shown_as_sent(node, key):
    async with node.client(key) as old:
        made = await node.admin.rotate_key(key, node.change(), overlap_ms=60_000)
        await node.accounts.poll(node.clock.wall_ms())
        assert (await old.ask(type="ping"))["type"] == "pong"
        async with node.client(key) as again:
            for client, text in ((old, key), (again, key), (again, made.text)):
                welcome = await client.ask(type="authenticate", api_key=text)
                assert welcome["authentication"]["api_key"] == f"{text[:12]}..."


async def test_over_the_allowance_all_sockets_get_data_limit_exceeded_and_4003(tmp_path):
    async with gateway(tmp_path, allowance_bytes=2_000) as node:
        key = await node.key()
        async with node.client(key) as first, node.client(key) as second:
            node.snapshot("okx", [(str(1_000 - n), "1") for n in range(50)], [])
            await first.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=50)
            await first.next()
            await node.acknowledged()
            await node.accounts.meter.flush()
            for client in (first, second):
                assert (await client.next())["type"] == "data_limit_warning"
                notice = await client.next()
                assert notice["type"] == "data_limit_exceeded"
                assert notice["data_usage"]["bytes_limit"] == 2_000
                assert notice["reset_date"].endswith("Z")
                assert await client.closed() == 4003
        async with node.client() as again:
            await again.next()
            assert (await again.ask(type="authenticate", api_key=key))["session_id"]
            assert (await again.next())["type"] == "data_limit_exceeded"
            assert await again.closed() == 4003


async def test_data_limit_warning_at_80_percent(tmp_path):
    async with gateway(tmp_path, allowance_bytes=10_000) as node:
        key = await node.key()
        async with node.client(key) as client:
            (key_id,) = node.gateway.connections.by_key
            node.accounts.meter.add(key_id, 8_000)
            await node.accounts.meter.flush()
            warning = await client.next()
            assert warning["type"] == "data_limit_warning"
            assert warning["data_usage"]["usage_percentage"] >= 80
            assert warning["data_usage"]["exceeded_by_gb"] == 0
            assert "interval_ms" in warning["action_required"]
            assert (await client.ask(type="ping"))["type"] == "pong"


async def test_usage_that_jumps_over_the_allowance_is_warned_of_before_the_end(tmp_path):
    async with gateway(tmp_path, allowance_bytes=10_000) as node:
        key = await node.key()
        async with node.client(key) as client:
            (key_id,) = node.gateway.connections.by_key
            node.accounts.meter.add(key_id, 10_000 + (GIB_BYTES << 1))
            await node.accounts.meter.flush()
            warning, end = await client.next(), await client.next()
            assert (warning["type"], end["type"]) == ("data_limit_warning", "data_limit_exceeded")
            assert warning["data_usage"] == end["data_usage"] | {"exceeded_by_gb": 2.0}
            assert "larger allowance" in warning["action_required"]
            assert await client.closed() == 4003
