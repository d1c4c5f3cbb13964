"""Open connections follow their key: suspension, rotation, allowance."""

import pytest

from gateway.rig import SYMBOL, gateway
from onebook.model import GIB_BYTES
from onebook.store import AuditedChange


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
