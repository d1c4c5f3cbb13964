"""Steps of the wall clock with connected clients: only timestamps change."""

from datetime import datetime

import pytest

from gateway.rig import SYMBOL, gateway, settled
from onebook.accounts.billing import period_at
from onebook.accounts.keys import key_of
from onebook.model import DAY_MS
from onebook.store import UsageCell

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
STEPS = pytest.mark.parametrize(
    "step_s",
    [
        pytest.param(-HOUR_S, id="hour-back"),
        pytest.param(HOUR_S, id="hour-forward"),
        pytest.param(-DAY_S, id="day-back"),
        pytest.param(DAY_S, id="day-forward"),
    ],
)


async def billed(node):
    """The billed bytes of the periods around the present."""
    [row] = await node.store.accounts.list_keys()
    key = key_of(row)
    starts = {
        period_at(key.created_at_ms, node.clock.wall_ms() + days * DAY_MS).start_ms
        for days in (-31, -2, -1, 0, 1, 2, 31)
    }
    found = await node.store.usage.totals({UsageCell(key.key_id, each) for each in starts})
    return sum(found.values())


async def tick(node):
    """The work of one second: timeouts, pings, changed keys and billing."""
    node.later(1.0)
    await node.accounts.poll(node.clock.wall_ms())
    await node.acknowledged()
    await node.accounts.meter.flush()


@STEPS
async def test_connected_clients_notice_timestamps_and_nothing_else(node, key, step_s):
    node.snapshot("okx")
    async with node.client(key) as client:
        await client.ask(
            type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"], interval_ms=10
        )
        before = await client.until("aggregated_orderbook_update")
        await tick(node)
        for wall_step_s in (step_s, 0.0):  # away, and set right again
            node.clock.wall_step_s = wall_step_s
            await tick(node)
            node.clock.put_forward(0.1)
            node.delta("okx", [("100", str(2 + abs(wall_step_s)))])
            update = await client.until("aggregated_orderbook_update")
            moved = [datetime.fromisoformat(each["timestamp"]) for each in (before, update)]
            assert (moved[1] - moved[0]).total_seconds() == pytest.approx(wall_step_s, abs=600)
            await client.say(type="ping")
            pong = await client.until("pong")
            assert 0 <= pong["latency_ms"] < 600_000
            async with node.client(key) as another:
                assert (await another.ask(type="ping"))["type"] == "pong"
            await settled(lambda: len(node.gateway.connections) == 1)
        await tick(node)
        [connection] = node.gateway.connections
        assert await billed(node) >= connection.output.total > 0
        assert not node.accounts.meter.pending_bytes()


@STEPS
async def test_a_connection_without_a_key_has_its_ten_seconds(node, step_s):
    async with node.client() as client:
        await client.next()
        node.clock.wall_step_s = step_s
        node.later(1.0)
        assert (await client.ask(type="ping"))["type"] == "pong"
        node.later(9.1)
        assert await client.closed() == 4001


@STEPS
async def test_a_peer_that_answers_no_ping_is_closed_in_its_time(node, key, step_s):
    async with node.client(key) as client:
        [connection] = node.gateway.connections
        await settled(lambda: not connection.keepalive.ping_at)
        node.clock.wall_step_s = step_s
        for _ in range(round(node.settings.ping_interval_s)):
            node.later(0.0)  # its turn comes once in so many beats
        await settled(lambda: not connection.keepalive.ping_at)
        client.socket.transport.pause_reading()
        connection.ping(node.clock.monotonic())
        node.clock.put_forward(node.settings.ping_interval_s)
        for _ in range(round(node.settings.ping_interval_s)):
            node.later(0.0)
        assert connection.output.ended
        assert connection.code == 4108


@STEPS
async def test_rates_go_on(tmp_path, step_s):
    async with gateway(tmp_path) as node:
        key = await node.key()
        async with node.client(key) as client:
            answers = []
            while "error" not in answers:
                answers.append((await client.ask(type="ping"))["type"])
            node.clock.wall_step_s = step_s
            node.clock.put_forward(1.0)  # ten more a second, by the monotonic clock
            for number in range(5):
                await client.say(type="ping", id=number)
            answered = []
            while answered[-1:] != [4]:
                message = await client.next()
                answered += [message["id"]] if "id" in message else []
                assert message["type"] == "pong" or "id" not in message
            assert answered == list(range(5))
