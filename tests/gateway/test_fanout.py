"""One frame for all clients of a view, one write for each client and tick."""

import asyncio

import pytest
import uvloop

from gateway.attack import raw, text
from gateway.helpers import Watched
from gateway.rig import SYMBOL, gateway, settled


async def test_the_same_view_is_one_stream_and_a_newcomer_gets_its_newest_book(node, key):
    async with node.client(key) as first, node.client(key) as second:
        node.snapshot("okx")
        one = await first.ask(type="subscribe_aggregated", symbol=SYMBOL)
        await first.next()
        node.delta("okx", [("100", "5")])
        await first.next()
        other = await second.ask(type="subscribe_aggregated", symbol=SYMBOL)
        assert one["subscription_id"] == other["subscription_id"]
        newest = await second.next()
        assert newest["update_number"] == 2
        assert newest["data"]["bids"][0]["amount"] == 5
        assert len(node.streams) == 1


async def test_newcomers_to_a_view_get_one_and_the_same_frame(node, key):
    async with node.client(key) as one, node.client(key) as two, node.client(key) as three:
        node.snapshot("okx")
        texts = []
        for client in (one, two, three):
            await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
            texts.append(await client.socket.recv())
        assert texts[0] == texts[1] == texts[2]


async def test_plain_and_compressed_clients_of_a_view_get_the_same_text(node, key):
    async with node.client(key) as plain, node.client(key, compression="deflate") as packed:
        node.snapshot("okx")
        for client in (plain, packed):
            await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
            await client.next()
        node.delta("okx", [("100", "5")])
        assert await plain.socket.recv() == await packed.socket.recv()


async def test_several_streams_of_one_tick_are_one_write(node, key):
    async with node.client(key) as client:
        for symbol in (SYMBOL, "ETH/USDT"):
            node.snapshot("okx", symbol=symbol)
            await client.ask(type="subscribe_aggregated", symbol=symbol, exchanges=["okx"])
            await client.next()
        (connection,) = node.gateway.connections
        writes = []
        node.clock.put_forward(1)
        connection.output.transport = Watched(connection.output.transport, writes.append)
        connection.output.direct_fd = -1  # so that the transport sees it
        node.delta("okx", [("100", "5")])
        node.delta("okx", [("100", "5")], symbol="ETH/USDT")
        symbols = {(await client.next())["symbol"] for _ in range(2)}
        assert symbols == {SYMBOL, "ETH/USDT"}
        assert len(writes) == 1


async def test_a_tick_with_much_for_one_client_is_written_in_bounded_pieces(tmp_path):
    symbols = [f"C{number}/USDT" for number in range(128)]
    bids = [(str(1_000_000 - n), "1.23456789") for n in range(40)]
    async with gateway(tmp_path, listed={"okx": symbols}) as node:
        key = await node.key()
        async with node.client(key) as client:
            for symbol in symbols:
                node.snapshot("okx", bids, [], symbol)
                response = await client.ask(
                    type="subscribe_aggregated", symbol=symbol, interval_ms=10
                )
                assert response["success"]
                await client.next()
            refusal = await client.ask(type="subscribe_aggregated", symbol="C0/USDT", depth=1)
            assert refusal["success"]
            await client.next()
            for symbol in symbols:
                node.delta("okx", [("1000001", "7")], symbol=symbol)
            got = {(await client.next())["symbol"] for _ in symbols}
            assert got == set(symbols)


async def test_a_status_comes_before_the_reply_to_a_command_that_came_after_it(node, key):
    node.snapshot("okx")
    async with node.client(key) as client:
        await client.say(type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"])
        await client.until("aggregated_orderbook_update")
        await client.say(type="unsubscribe_aggregated", symbol=SYMBOL)
        node.lose("okx")  # the reply is written before the end of the tick that has the status
        assert (await client.next())["type"] == "exchange_status"
        assert (await client.next())["type"] == "unsubscribe_response"
        assert (await client.ask(type="ping"))["type"] == "pong"


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
        if connection.output.behind:
            break
        amount += 1
        node.clock.put_forward(0.01)
        node.delta("okx", [(price, str(amount)) for price, _ in BIDS])
        await asyncio.sleep(0)
        node.gateway.charges.settle_all()
    assert connection.output.behind
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
    assert connection.output.ended
    node.later(5.1)


async def cut_by_drain(node, connection):
    node.gateway.drainer._clock.sleep = lambda seconds: asyncio.sleep(0)
    draining = asyncio.create_task(node.gateway.drain(0.0))
    await settled(lambda: connection.output.ended)
    node.clock.put_forward(10)
    await draining


async def cut_by_stop(node, connection):
    connection.output.abort()
    node.gateway.charges.settle(connection)


CUTS = [cut_by_deadline, cut_by_drain, cut_by_stop]


async def charged_and_got(folder, cut):
    async with gateway(folder, unsent_bytes_max=16_384) as node:
        key = await node.key()
        async with raw(node, key, receive_bytes=8_192) as peer:
            connection = await fall_asleep(node, peer)
            written = connection.output.sent + connection.output.total
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
            written = connection.output.sent + connection.output.total
        await settled(lambda: connection.lost)
        assert used(node) < written - 16_384


async def test_a_client_that_reads_pays_for_every_byte_within_a_beat(node, key):
    async with node.client(key) as client:
        node.snapshot("okx", BIDS, [])
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=200)
        await client.next()
        (connection,) = node.gateway.connections
        await node.acknowledged()
        assert 0 < used(node) <= connection.output.total
