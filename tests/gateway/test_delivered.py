"""Only what reached a client is charged: cut connections over real sockets."""

import asyncio

import pytest
import uvloop

from gateway.attack import raw, text
from gateway.rig import SYMBOL, gateway, settled

BIDS = [(str(100_000 - n), "1.23456789") for n in range(200)]
UPDATES_MAX = 3_000
TEXTS = (0x81, 0xC1)


def used(node):
    """What the node has charged so far, by all keys."""
    return sum(count.used_bytes for count in node.accounts.meter._counts.values())


async def fall_asleep(node, peer):
    """Subscribe and publish until the node's buffers for a client that does not read are full."""
    node.snapshot("okx", BIDS, [])
    await peer.send(
        text(
            type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"], depth=200, interval_ms=10
        )
    )
    (connection,) = node.gateway.connections
    amount = 100_000
    for _ in range(UPDATES_MAX):
        if connection.behind:
            break
        amount += 1
        node.clock.put_forward(0.01)
        node.delta("okx", [(price, str(amount)) for price, _ in BIDS])
        await asyncio.sleep(0)
        node.gateway.charges.settle_all()
    assert connection.behind
    return connection


async def got(peer):
    """Payload bytes of the messages that a client can read after it was cut, to the last byte."""
    data = peer.rest
    while more := await peer.read():
        data += more
    payload, at = 0, 0
    while at + 2 <= len(data):
        size, start = data[at + 1], at + 2
        if size == 126:
            size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        elif size == 127:
            size, start = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
        if data[at] in TEXTS:
            payload += min(size, max(0, len(data) - start))
        at = start + size
    return payload


async def cut_by_deadline(node, connection):
    node.later(10.1)
    assert connection.ended
    node.later(5.1)


async def cut_by_drain(node, connection):
    node.gateway.drainer._sleep = lambda seconds: asyncio.sleep(0)
    draining = asyncio.create_task(node.gateway.drain(0.0))
    await settled(lambda: connection.ended)
    node.clock.put_forward(10)
    await draining


async def cut_by_stop(node, connection):
    connection.abort()
    node.gateway.charges.settle(connection)


CUTS = [cut_by_deadline, cut_by_drain, cut_by_stop]


async def charged_and_got(folder, cut):
    async with gateway(folder, unsent_bytes_max=16_384) as node:
        key = await node.key()
        async with raw(node, key, receive_bytes=8_192) as peer:
            connection = await fall_asleep(node, peer)
            written = connection.sent + connection.total
            await cut(node, connection)
            await settled(lambda: connection.lost)
            return written, used(node), await got(peer)


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.__name__)
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_was_never_delivered_is_not_charged(tmp_path, run, cut):
    written, charged, received = run(charged_and_got(tmp_path, cut))
    # The welcome was read before; it is charged as well.
    assert charged <= received + 1_000
    assert charged >= received - 200_000
    assert written > charged


async def test_a_peer_that_resets_the_connection_pays_for_what_it_got(tmp_path):
    async with gateway(tmp_path, unsent_bytes_max=16_384) as node:
        key = await node.key()
        async with raw(node, key, receive_bytes=8_192) as peer:
            connection = await fall_asleep(node, peer)
            written = connection.sent + connection.total
        await settled(lambda: connection.lost)
        assert used(node) < written - 16_384


async def test_a_client_that_reads_pays_for_every_byte_within_a_beat(node, key):
    async with node.client(key) as client:
        node.snapshot("okx", BIDS, [])
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=200)
        await client.next()
        (connection,) = node.gateway.connections
        await node.acknowledged()
        assert 0 < used(node) <= connection.total
