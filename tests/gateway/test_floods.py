"""One socket costs the others little: floods over real sockets. docs/explanation/reliability.md."""

import asyncio
import time
import zlib

import pytest

from gateway.attack import frame, raw
from gateway.rig import SYMBOL, gateway, settled
from onebook.gateway.connection import Connection
from onebook.gateway.reader import CLOSING_BYTES_MAX, PIECE_PAUSE_S, PIECES_MAX
from steady import PATIENCE_S

READ_BYTES_MAX = 262_144  # the most that an event loop reads at a time


def deflated(data):
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (deflate.compress(data) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]


FLOODS = {
    "empty fragments": (frame(0x01), frame(0x00) * 2_000),
    "fragments of one byte": (frame(0x01), frame(0x00, b"x") * 2_000),
    "pings": (b"", frame(0x89) * 2_000),
    "pongs": (b"", frame(0x8A) * 2_000),
    "tiny texts": (b"", frame(0x81, b"{}") * 2_000),
    "unknown types": (b"", frame(0x81, b'{"type":"what"}') * 2_000),
}


@pytest.fixture
def taken(node, monkeypatch):
    """Bytes that the event loop handed to connections of the node."""
    total = []
    received = Connection.data_received

    def counting(connection, data):
        total.append(len(data))
        received(connection, data)

    monkeypatch.setattr(Connection, "data_received", counting)
    return total


async def push_until_stuck(peer, data):
    """Send until neither kernel takes more for 50 turns; how many bytes that were."""
    sent = turns = 0
    while turns < 50:
        count = peer.push(data)
        sent += count
        turns = 0 if count else turns + 1
        await asyncio.sleep(0)
    return sent


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_is_closed_4113_and_its_socket_not_read_any_more(node, taken, kind):
    first, again = FLOODS[kind]
    async with raw(node) as peer, node.client() as other:
        await other.next()
        taken.clear()
        await peer.send(first)
        async with asyncio.timeout(PATIENCE_S):
            sent = await push_until_stuck(peer, again)
        assert sent > sum(taken)
        assert sum(taken) <= CLOSING_BYTES_MAX + 2 * READ_BYTES_MAX
        read = sum(taken)
        assert (await other.ask(type="ping"))["type"] == "pong"
        assert sum(taken) - read < 1_000  # the other's ping and pong
        node.later(5.1)
        frames = await peer.all_frames()
    closes = [payload for first_byte, payload in frames if first_byte == 0x88]
    assert [int.from_bytes(each[:2], "big") for each in closes] == [4113]


async def test_a_fragmented_message_without_end_is_closed_1009(node, taken):
    async with raw(node) as peer:
        taken.clear()
        await peer.send(frame(0x01))
        await push_until_stuck(peer, frame(0x00, bytes(16_384)) * 8)
        assert sum(taken) <= CLOSING_BYTES_MAX + 2 * READ_BYTES_MAX
        node.later(5.1)
        frames = await peer.all_frames()
    assert [each[:2] for first, each in frames if first == 0x88] == [(1009).to_bytes(2, "big")]


async def test_others_are_served_between_the_frames_of_a_flood(tmp_path, monkeypatch):
    # A burst so large that the flood is not closed: what counts is whose turn it is.
    async with gateway(tmp_path, flood_burst=1_000_000) as node:
        acted = 0
        received = Connection.useless_frame

        def counting(connection):
            nonlocal acted
            acted += 1
            received(connection)

        monkeypatch.setattr(Connection, "useless_frame", counting)
        async with raw(node) as peer, node.client() as other:
            await other.next()
            flood = 10_000
            await peer.send(frame(0x8A) * flood)
            before = acted
            assert (await other.ask(type="ping"))["type"] == "pong"
            turns = 20  # of the event loop, from the client's send to its receive
            assert acted - before <= turns * node.settings.turn_frames_max < flood
            await settled(lambda: acted == flood)


async def test_a_message_of_empty_fragments_holds_no_memory(tmp_path):
    async with gateway(tmp_path, flood_burst=1_000_000) as node, raw(node) as peer:
        (connection,) = node.gateway.connections
        await peer.send(frame(0x01) + frame(0x00) * 5_000 + frame(0x89, b"all"))
        assert await peer.frames(1) == [(0x8A, b"all")]
        assert connection._inbound.held_bytes == 0


async def test_half_a_frame_byte_by_byte_is_read_at_a_pace(node, taken):
    async with raw(node) as peer:
        taken.clear()
        await peer.send(frame(0x81, bytes(4_000))[:14])
        began_s = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(2_000):
                peer.push(b"x")
                await asyncio.sleep(0)
        pauses = (time.monotonic() - began_s) / PIECE_PAUSE_S
        assert len(taken) <= PIECES_MAX + 2 + 2 * pauses
        assert (await _pong(node))["type"] == "pong"


async def _pong(node):
    async with node.client() as other:
        await other.next()
        return await other.ask(type="ping")


LONG = b" " * 60_000


@pytest.mark.parametrize(
    "sent",
    [frame(0x81, LONG), frame(0x81, LONG)[:14], frame(0xC1, deflated(LONG))],
    ids=["message", "half of a message", "bomb"],
)
async def test_a_long_message_before_authentication_is_closed_1009(node, sent):
    async with node.client(compression="deflate") as client:
        await client.next()
        client.socket.transport.write(sent)
        assert await client.closed() == 1009


async def test_a_long_message_after_authentication_is_read(node, key):
    async with node.client(key) as client:
        await client.socket.send('{"type":"ping"' + " " * 60_000 + "}")
        assert (await client.next())["type"] == "pong"


async def test_bombs_are_refused_at_their_size(node):
    async with node.client(compression="deflate") as client:
        await client.next()
        bomb = frame(0xC1, deflated(bytes(10_000_000)))
        client.socket.transport.write(bomb)
        assert await client.closed() == 1009


async def test_many_sockets_of_one_address_behind_a_proxy_are_limited(tmp_path):
    address = {"X-Forwarded-For": "198.51.100.7"}
    async with gateway(tmp_path, sockets_per_address_max=2) as node:
        async with (
            node.client(additional_headers=address) as one,
            node.client(additional_headers=address) as two,
        ):
            await one.next()
            await two.next()
            with pytest.raises(Exception, match="429"):
                async with node.client(additional_headers=address):
                    pass
            async with node.client(additional_headers={"X-Forwarded-For": "198.51.100.8"}):
                pass
        await settled(lambda: not node.gateway.connections)
        async with node.client(additional_headers=address) as again:
            await again.next()


# Bursts of subscriptions


async def test_subscriptions_are_paced_after_a_burst(tmp_path):
    async with gateway(tmp_path, subscription_changes_burst=10) as node:
        key = await node.key()
        async with node.client(key) as client:
            (connection,) = node.gateway.connections
            heard = node.gateway.totals.messages
            for _ in range(20):
                await client.say(type="subscribe_aggregated", symbol=SYMBOL)
                await client.say(type="unsubscribe_aggregated", symbol=SYMBOL)
            await settled(lambda: connection._paused)
            assert node.gateway.totals.messages - heard == 11
            for _ in range(20):  # nothing is refused, only later
                await client.until("unsubscribe_response")
            assert node.gateway.totals.messages - heard == 40


async def test_thousands_of_pairs_in_one_write_leave_the_others_their_turns(node, key):
    pair = frame(0x81, b'{"type":"subscribe_aggregated","symbol":"BTC/USDT"}')
    pair += frame(0x81, b'{"type":"unsubscribe_aggregated","symbol":"BTC/USDT"}')
    async with raw(node, key) as peer, node.client(key) as other:
        heard = node.gateway.totals.messages
        await peer.send(pair * 4_900)
        for _ in range(5):
            assert (await other.ask(type="ping"))["type"] == "pong"
        assert node.gateway.totals.messages - heard < 1_000
