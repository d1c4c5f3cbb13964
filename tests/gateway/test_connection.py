"""One connection from open to closed: pings, close frames, limits."""

import asyncio
import gc
import json
import socket
import struct
import time
import zlib
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from gateway.attack import frame
from gateway.attack import raw as raw_socket
from gateway.echo import echoing
from gateway.helpers import Watched, raw, unread
from gateway.rig import SYMBOL, gateway, settled
from onebook.gateway import GatewayLimits
from onebook.gateway.connection import (
    CLOSING_BYTES_MAX,
    PIECE_PAUSE_S,
    PIECES_MAX,
    TURN_FRAMES_MAX,
    ClientConnection,
    Inbound,
    Incoming,
    is_close,
)
from onebook.gateway.scheduler import TURN_S
from steady import PATIENCE_S

UNLIMITED = GatewayLimits(flood_burst=1_000_000)  # so that a flood is not closed


async def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(node, key):
    """A cycle would never be freed, because many open connections are frozen."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(3):
            async with raw_socket(node, key) as peer:
                await peer.send(frame(0x81, b'{"type":"ping"}'))
                await peer.frames(1)
            await settled(lambda: not len(node.gateway.connections))
        tuple(node.gateway.charges.portions())
        gc.collect()
        kinds = {type(each).__name__ for each in gc.garbage}
        assert not {each for each in kinds if "Connection" in each or "Protocol" in each}
        assert not kinds & {"ClientOutput", "CommandProcessor", "Handshake", "Inbound", "Keepalive"}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("reset", [False, True])
async def test_clients_that_vanish_together_are_released_in_turns(node, reset):
    """All at once were a turn of 486 ms (sampled) for 18,000."""
    release = node.gateway.subscriptions.release

    def release_slowly(client):
        node.clock.put_forward(TURN_S)
        release(client)

    async with AsyncExitStack() as stack:
        keys = [await node.key(name=f"a{number}") for number in range(20)]
        peers = [await stack.enter_async_context(raw_socket(node, key)) for key in keys]
        await settled(lambda: len(node.gateway.connections) == len(peers))
        node.gateway.subscriptions.release = release_slowly
        for peer in peers:
            if reset:
                peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sock.close()
        counts = [len(peers)]
        async with asyncio.timeout(PATIENCE_S):
            while counts[-1]:
                await asyncio.sleep(0)
                counts.append(len(node.gateway.connections))
        assert max(before - after for before, after in pairwise(counts)) <= 2


async def test_a_client_that_only_ends_its_sending_side_is_closed(node, key):
    async with raw_socket(node, key) as peer:
        await settled(lambda: len(node.gateway.connections) == 1)
        peer.sock.shutdown(socket.SHUT_WR)
        while await peer.read():
            pass
        await settled(lambda: not len(node.gateway.connections))


async def test_close_frames_of_clients_that_leave_together_are_read_in_turns(node, key):
    """All at once were turns of 20 to 27 ms (sampled) in a drain of 18,000."""
    async with raw_socket(node, key) as peer:
        await settled(lambda: len(node.gateway.connections) == 1)
        (connection,) = node.gateway.connections
        connection.end(4200, "the node drains")
        node.gateway.turns.read(Exhausting(node.gateway.turns))
        connection.data_received(frame(0x88, (4200).to_bytes(2, "big")))
        assert connection.queued
        assert not connection.transport.is_closing()
        await settled(lambda: not len(node.gateway.connections))
        await peer.all_frames()


class Exhausting:
    """A connection whose input takes the rest of the turn."""

    queued = False

    def __init__(self, turns):
        self._turns = turns

    def read(self, ends_at):
        self._turns.spend()
        return False


async def test_two_connections_share_a_parser_and_none_gets_the_message_of_another(node, key):
    async with raw_socket(node, key) as one, raw_socket(node, key) as two:
        await one.send(frame(0x01, b'{"type":"pi'))
        await two.send(frame(0x81, b'{"type":"ping","id":2}'))
        ((_, payload),) = await two.frames(1)
        assert json.loads(payload)["id"] == 2
        await one.send(frame(0x80, b'ng","id":1}'))
        ((_, payload),) = await one.frames(1)
        assert json.loads(payload)["id"] == 1
        await two.send(frame(0x81, b'{"type":"ping","id":3}'))
        ((_, payload),) = await two.frames(1)
        assert json.loads(payload)["id"] == 3


async def test_rate_limit_exceeded_and_the_connection_stays(node, key):
    async with node.client(key) as client:
        kinds = []
        while "error" not in kinds:  # some come back while we talk: 10 a second
            assert len(kinds) < 2_000
            message = await client.ask(type="ping")
            kinds.append(message["type"])
            if message["type"] == "rate_limit_warning":
                await client.next()
        assert kinds.count("pong") >= 599
        assert kinds.count("rate_limit_warning") == 1
        assert (message["error"], message["window"]) == ("rate_limit_exceeded", "per_minute")
        node.clock.put_forward(float(message["retry_after"]))
        assert (await client.ask(type="ping"))["type"] == "pong"


async def test_a_flood_of_control_frames_is_closed_4113(node, key):
    async with node.client(key) as client:
        await raw(client, Frame(Opcode.PING, b"").serialize(mask=True) * 45)
        assert await client.closed() == 4113


async def test_latency_is_the_last_round_trip_of_our_ping(node):
    async with node.client() as client:
        await client.next()
        (connection,) = node.gateway.connections
        await settled(lambda: not connection.keepalive.ping_at)
        assert 0 < (await client.ask(type="ping"))["latency_ms"] < 1_000


async def test_a_ping_every_20_s_and_silence_ends_the_connection(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        await settled(lambda: not connection.keepalive.ping_at)
        client.socket.transport.pause_reading()
        for _ in range(20):
            node.later(1)
        assert connection.keepalive.ping_at
        for _ in range(21):
            node.later(1)
        assert connection.output.ended
        for _ in range(6):
            node.later(1)
        await settled(lambda: not node.gateway.connections)
        assert connection.code == 4108


async def test_what_a_client_says_after_our_close_is_not_heard(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        heard = node.gateway.totals.messages
        connection.end(4200, "test")
        connection.end(4108, "once is enough")
        connection.output.send_text(b"{}")
        await raw(client, Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True))
        assert await client.closed() == 4200
        await settled(lambda: connection.lost)
        assert node.gateway.totals.messages == heard


async def test_two_messages_at_once_and_the_first_ends_the_connection(node, key):
    async with node.client(key) as client:
        heard = node.gateway.totals.messages
        await raw(
            client,
            Frame(Opcode.BINARY, b"x").serialize(mask=True)
            + Frame(Opcode.TEXT, b'{"type":"ping"}').serialize(mask=True),
        )
        assert await client.closed() == 1003
        assert node.gateway.totals.messages == heard


async def test_a_client_that_just_vanishes_is_counted_as_1006(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        client.socket.transport.abort()
        await settled(lambda: connection.lost)
    assert connection.code == 1006


async def test_over_tls_the_close_frame_is_followed_by_the_end(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections

        class NoHalves(Watched):
            def can_write_eof(self):
                return False

        connection.output.transport = NoHalves(connection.output.transport, lambda data: None)
        await raw(client, Frame(Opcode.CONT, b"").serialize(mask=True))
        assert await client.closed() == 1002


async def test_the_echo_build_for_conformance_suites_echoes(node):
    async with node.listening(echoing()), connect(node.url, proxy=None) as socket:
        for message in ("text", b"bytes", "x" * 100_000):
            await socket.send(message)
            assert await socket.recv() == message
        socket.transport.write(Frame(Opcode.TEXT, b"\xff").serialize(mask=True))
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1007


async def test_a_peer_that_does_not_answer_our_close_is_cut_off(node):
    async with node.client() as client:
        await client.next()
        (connection,) = node.gateway.connections
        client.socket.transport.pause_reading()
        connection.end(4200, "test")
        node.later(5.1)
        await settled(lambda: not node.gateway.connections)


async def test_uvicorns_own_shutdown_closes_the_clients_left(tmp_path):
    async with gateway(tmp_path) as node:

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        config = uvicorn.Config(
            app, port=0, ws=node.gateway.protocol, lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        node.port = server.servers[0].sockets[0].getsockname()[1]
        async with node.client() as client:
            await client.next()
            await server.shutdown()
            assert await client.closed() == 4200
        assert not server.server_state.connections


class Stuck:
    """A transport whose peer does not read."""

    aborted = False

    def get_write_buffer_size(self):
        return 1_000

    def is_closing(self):
        return self.aborted

    def pause_reading(self):
        pass

    def abort(self):
        self.aborted = True


async def test_a_peer_that_reads_nothing_before_the_upgrade_is_cut(node):
    connection = node.gateway.protocol(None, node.server_state, {})
    connection.connection_made(Stuck())
    connection.pause_writing()
    node.later(9)
    assert not connection.transport.aborted
    node.later(1.1)
    assert connection.transport.aborted
    connection.connection_lost(None)
    assert connection.lost


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
    """Bytes that the event loop passed to connections of the node."""
    total = []
    received = ClientConnection.data_received

    def counting(connection, data):
        total.append(len(data))
        received(connection, data)

    monkeypatch.setattr(ClientConnection, "data_received", counting)
    return total


async def push_until_stuck(peer, data):
    """Send until neither kernel accepts more for 50 turns; return the number of bytes."""
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
    async with raw_socket(node) as peer, node.client() as other:
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
    async with raw_socket(node) as peer:
        taken.clear()
        await peer.send(frame(0x01))
        await push_until_stuck(peer, frame(0x00, bytes(16_384)) * 8)
        assert sum(taken) <= CLOSING_BYTES_MAX + 2 * READ_BYTES_MAX
        node.later(5.1)
        frames = await peer.all_frames()
    assert [each[:2] for first, each in frames if first == 0x88] == [(1009).to_bytes(2, "big")]


async def test_others_are_served_between_the_frames_of_a_flood(tmp_path, monkeypatch):
    async with gateway(tmp_path, limits=UNLIMITED) as node:
        acted = 0
        received = ClientConnection.useless_frame

        def counting(connection):
            nonlocal acted
            acted += 1
            received(connection)

        monkeypatch.setattr(ClientConnection, "useless_frame", counting)
        async with raw_socket(node) as peer, node.client() as other:
            await other.next()
            flood = 10_000
            await peer.send(frame(0x8A) * flood)
            before = acted
            assert (await other.ask(type="ping"))["type"] == "pong"
            turns = 20  # of the event loop, from the client's send to its receive
            assert acted - before <= turns * TURN_FRAMES_MAX < flood
            await settled(lambda: acted == flood)


async def test_a_message_of_empty_fragments_holds_no_memory(tmp_path):
    async with gateway(tmp_path, limits=UNLIMITED) as node, raw_socket(node) as peer:
        (connection,) = node.gateway.connections
        await peer.send(frame(0x01) + frame(0x00) * 5_000 + frame(0x89, b"all"))
        assert await peer.frames(1) == [(0x8A, b"all")]
        assert connection._inbound.held_bytes == 0


async def test_half_a_frame_byte_by_byte_is_read_at_a_pace(node, taken):
    async with raw_socket(node) as peer:
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
    async with gateway(tmp_path, limits=GatewayLimits(changes_burst=10)) as node:
        key = await node.key()
        async with node.client(key) as client:
            (connection,) = node.gateway.connections
            heard = node.gateway.totals.messages
            for _ in range(20):
                await client.say(type="subscribe_aggregated", symbol=SYMBOL)
                await client.say(type="unsubscribe_aggregated", symbol=SYMBOL)
            await settled(lambda: connection._paused)
            # The burst and one that had to wait; on a busy machine a few more, as time passed.
            assert 11 <= node.gateway.totals.messages - heard < 40
            for _ in range(20):  # nothing is refused, only later
                await client.until("unsubscribe_response")
            assert node.gateway.totals.messages - heard == 40


async def test_thousands_of_pairs_in_one_write_leave_the_others_their_turns(node, key):
    pair = frame(0x81, b'{"type":"subscribe_aggregated","symbol":"BTC/USDT"}')
    pair += frame(0x81, b'{"type":"unsubscribe_aggregated","symbol":"BTC/USDT"}')
    async with raw_socket(node, key) as peer, node.client(key) as other:
        heard = node.gateway.totals.messages
        await peer.send(pair * 4_900)
        for _ in range(5):
            assert (await other.ask(type="ping"))["type"] == "pong"
        assert node.gateway.totals.messages - heard < 1_000


async def test_a_message_over_64_kib_is_closed_1009(node, key):
    async with node.client(key) as client:
        await client.socket.send(json.dumps({"type": "ping", "client_time": "x" * 65_400}))
        assert (await client.next())["type"] == "pong"
        await unread(client, "x" * 65_537)
        assert await client.closed() == 1009


async def test_a_small_frame_that_inflates_to_much_is_closed_1009(node, key):
    async with node.client(key, compression="deflate") as client:
        await unread(client, " " * 10_000_000)
        assert await client.closed() == 1009


async def test_fragments_over_64_kib_together_are_closed_1009(node, key):
    async with node.client(key) as client:

        async def pieces():
            for _ in range(10):
                yield "x" * 10_000

        await unread(client, pieces())
        assert await client.closed() == 1009


async def test_a_message_in_fragments_is_one_message(node, key):
    async with node.client(key) as client:

        async def pieces():
            for piece in ('{"type":', '"pi', 'ng"}'):
                yield piece

        await client.socket.send(pieces())
        assert (await client.next())["type"] == "pong"


async def test_a_binary_message_is_closed_1003(node, key):
    async with node.client(key) as client:
        await client.socket.send(b"{}")
        assert await client.closed() == 1003


async def test_text_that_is_not_utf8_is_closed_1007(node, key):
    async with node.client(key) as client:
        await raw(client, Frame(Opcode.TEXT, b"\xff\xfe").serialize(mask=True))
        assert await client.closed() == 1007


@pytest.mark.parametrize(
    "data",
    [
        Frame(Opcode.TEXT, b"{}").serialize(mask=False),
        b"\xa1\x80\x00\x00\x00\x00",
        Frame(Opcode.CONT, b"{}").serialize(mask=True),
        b"\x83\x80\x00\x00\x00\x00",
    ],
    ids=["no mask", "a reserved bit", "nothing to continue", "a reserved opcode"],
)
async def test_bytes_that_are_not_rfc_6455_are_closed_1002(node, key, data):
    async with node.client(key) as client:
        await raw(client, data)
        assert await client.closed() == 1002


async def test_frames_may_come_in_any_pieces(node, key):
    async with node.client(key) as client:
        two = Frame(Opcode.TEXT, b'{"type":"ping","id":1}').serialize(mask=True)
        two += Frame(Opcode.TEXT, b'{"type":"ping","id":2}').serialize(mask=True)
        received = node.gateway.totals.messages
        for at in range(len(two)):
            await raw(client, two[at : at + 1])
            await asyncio.sleep(0)
        assert [(await client.next())["id"] for _ in range(2)] == [1, 2]
        assert node.gateway.totals.messages == received + 2


async def test_a_close_in_the_middle_of_a_message_is_answered(node, key):
    async with node.client(key) as client:
        await raw(client, Frame(Opcode.TEXT, b'{"ty', fin=False).serialize(mask=True))
        await client.socket.close(1000)
        assert client.socket.close_code == 1000


# The parser alone


def test_frames_become_what_they_bring():
    inbound = Inbound(packed=False, message_bytes_max=100)
    sent = [
        (frame(0x81, b"text"), [(Incoming.TEXT, b"text")]),
        (frame(0x82, b"\0"), [(Incoming.BINARY, b"\0")]),
        (frame(0x8A, b"pong"), [(Incoming.PONG, b"pong")]),
        (frame(0x89, b"ping"), [(Incoming.PING, b"")]),
        (frame(0x01, b"a"), [(Incoming.FRAGMENT, b"")]),
        (frame(0x00, b"b"), [(Incoming.FRAGMENT, b"")]),
        (frame(0x80, b"c"), [(Incoming.FRAGMENT, b""), (Incoming.TEXT, b"abc")]),
    ]
    for data, brought in sent:
        assert list(inbound.received(data)) == brought
        assert inbound.begun == (brought == [(Incoming.FRAGMENT, b"")])
    assert inbound.to_send() == [b"\x8a\x04ping"]
    assert inbound.close_code is None


def test_a_close_is_answered_with_its_code_and_an_error_with_ours():
    closed = Inbound(packed=False, message_bytes_max=100)
    assert list(closed.received(frame(0x88, (4321).to_bytes(2, "big")))) == []
    assert (closed.close_code, closed.to_send()[0][:2]) == (4321, b"\x88\x02")
    long = Inbound(packed=False, message_bytes_max=100)
    assert list(long.received(frame(0x81, b"x" * 101))) == []
    assert long.close_code == 1009
    assert is_close(frame(0x88))
    assert not is_close(frame(0x81))
