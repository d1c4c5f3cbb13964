"""A link to NATS that hangs: packets are lost, nothing is closed, writes stay in buffers."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from nodes.servers import nats_server
from nodes.test_cluster import Pipe
from onebook.config import NatsSettings
from onebook.nodes.nats import CLOSE_S, FLUSH_S, HUNG_S, OUTBOX_BYTES_MAX, RECONNECT_WAIT_S, NatsBus
from steady import PATIENCE_S, own_s

CHUNK = bytes(500_000)
SLACK_S = 1.0


@asynccontextmanager
async def hanging():
    """A connection through a proxy, and the messages it receives from itself on `a`."""
    with nats_server() as port:
        async with Pipe(port) as pipe:
            url = f"nats://127.0.0.1:{pipe.port}"
            settings = NatsSettings(servers=(url,))
            async with NatsBus(settings, name="test") as bus:
                found = []
                bus.subscribe("a", lambda payload, reply: found.append(payload))
                await heard(bus, found, b"first")
                pipe.freeze()
                yield bus, found


async def heard(bus, found, payload):
    async with asyncio.timeout(PATIENCE_S):
        while payload not in found:
            bus.publish("a", payload)
            await asyncio.sleep(0.01)


async def fill(bus):
    """Publish more than the kernel's and the proxy's buffers hold."""
    for _ in range(OUTBOX_BYTES_MAX // len(CHUNK)):
        bus.publish("b", CHUNK)
        await asyncio.sleep(0)


@pytest.mark.parametrize("filled", [False, True])
async def test_a_link_that_hangs_is_given_up_and_made_again(filled):
    async with hanging() as (bus, found):
        if filled:
            await fill(bus)
        began = own_s()
        await heard(bus, found, b"again")
        assert own_s() - began < HUNG_S + RECONNECT_WAIT_S + SLACK_S


async def test_a_node_whose_link_hangs_stops_in_time_and_leaves_no_socket():
    """An unclosed socket causes a ResourceWarning, and each warning is an error."""
    async with hanging() as (bus, _):
        await fill(bus)
        began = own_s()
    assert own_s() - began < FLUSH_S + CLOSE_S + SLACK_S
