"""One connection from open to closed: pings, close frames, limits."""

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from gateway.echo import echoing
from gateway.helpers import Watched, raw
from gateway.rig import gateway, settled


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
        assert connection.ended
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
        connection.send_text(b"{}")
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

        connection.transport = NoHalves(connection.transport, lambda data: None)
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
    """A transport whose peer reads nothing."""

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
