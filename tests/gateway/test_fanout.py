"""One frame for all clients of a view, one write per client and tick."""

import asyncio
import itertools
import json
import random
import socket
import struct
import sys
import time

import pytest
import uvloop

from gateway.attack import raw, text
from gateway.helpers import Watched
from gateway.rig import SYMBOL, gateway, settled
from onebook import sockets
from onebook.gateway import GatewayLimits, fanout, frames
from onebook.streams import streams


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


async def test_several_streams_of_one_tick_are_one_write(node, key, monkeypatch):
    monkeypatch.setattr(streams, "PUBLISHING_MAX_S", 60.0)  # one tick, however slow the machine
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
    """The bytes charged so far, by key."""
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
        tuple(node.gateway.charges.portions())
    assert connection.output.behind
    return connection


async def got(peer):
    """Payload bytes that a disconnected client can still read, to the last byte."""
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
    node.gateway.charges.charge_delivered(connection)


CUTS = [cut_by_deadline, cut_by_drain, cut_by_stop]


async def charged_and_got(folder, cut):
    async with gateway(folder, limits=GatewayLimits(unsent_bytes_max=16_384)) as node:
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
    async with gateway(tmp_path, limits=GatewayLimits(unsent_bytes_max=16_384)) as node:
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
        # Only clients with bytes to charge are visited.
        assert connection.output not in node.gateway.connections.uncharged
        tuple(node.gateway.charges.portions())
        assert not node.gateway.connections.uncharged


# Bytes to a client keep their order and none is lost, whichever way they take to the socket


CLIENTS = 6
STEPS = 1_200
LEAVE_AT = (STEPS // 3, STEPS // 2)
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


WAYS = {
    "by send()": (fanout.spread, fanout.write_each),
    "by transport": (fanout.spread_purely, fanout.write_each_by_transport),
}
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Peer:
    """A raw client that reads small pieces, pauses on command and keeps everything."""

    def __init__(self, node, key):
        self.node, self.key = node, key
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.sock.setblocking(False)
        self.reads = asyncio.Event()
        self.reads.set()
        self.gone = False
        self.data = b""
        self.expected = []  # numbers of what was written to it
        self.bites = random.Random(0)

    async def connect(self):
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self.sock, ("127.0.0.1", self.node.port))
        await loop.sock_sendall(
            self.sock,
            b"GET /api/v1/ws?api_key=%s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % self.key.encode(),
        )
        while b"\r\n\r\n" not in self.data:
            self.data += await loop.sock_recv(self.sock, 4_096)
        self.data = self.data.partition(b"\r\n\r\n")[2]
        address = self.sock.getsockname()
        (self.connection,) = (
            each
            for each in self.node.gateway.connections
            if each.transport.get_extra_info("peername") == address
        )
        self.buffer(4_096)
        await settled(lambda: self.connection.processor.key is not None)

    def buffer(self, size):
        """Set the kernel's buffer sizes between the two."""
        server = self.connection.transport.get_extra_info("socket")
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    async def read(self):
        loop = asyncio.get_running_loop()
        while True:
            await self.reads.wait()
            data = await loop.sock_recv(self.sock, self.bites.choice((1_000, 3_000, 60_000)))
            if not data:
                return
            self.data += data

    def vanish(self):
        """Disconnect with a reset and unread bytes."""
        self.gone = True
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.sock.close()

    def frames(self):
        """The payloads of all complete text messages, and the remaining bytes."""
        texts, start = [], 0
        while end := frames.frame_end(self.data, start, 1 << 20):
            frame = self.data[start:end]
            assert frame[0] in (frames.TEXT, frames.PING)  # or bytes were mixed up
            if frame[0] == frames.TEXT:
                texts.append(frame[len(frame) - frames.payload_length(frame) :])
            start = end
        return texts, self.data[start:]

    def has_all_that_was_metered(self):
        metered = self.connection.output.sent + self.connection.output.total
        return sum(map(len, self.frames()[0])) == metered

    def numbers(self):
        return [m["n"] for m in map(json.loads, self.frames()[0]) if m["type"] == "numbered"]


class Storm:
    """All kinds of writes to clients, in random order."""

    def __init__(self, node, peers, dice):
        self.node, self.peers, self.dice = node, peers, dice
        self.fanout = node.gateway.fanout
        self.streams = list(node.streams._open.values())
        self.count = self.amount = 0
        self.fell_behind = False

    def payload(self):
        self.count += 1
        size = self.dice.choice((10, 1_000, 12_000, 40_000))
        return json.dumps({"type": "numbered", "n": self.count, "x": "x" * size}).encode()

    def listening(self):
        return [p for p in self.peers if not p.connection.output.ended]

    def say(self):
        for peer in self.dice.sample(self.peers, 2):
            if not peer.connection.output.ended:
                peer.connection.output.send_text(self.payload())
                peer.expected.append(self.count)

    def ping(self):
        for peer in self.listening():
            peer.connection.ping(1.0)

    def tell(self):
        """Several frames of a tick, as statuses and as updates, and one flush."""
        for _ in range(self.dice.choice((1, 1, 3))):
            payload = self.payload()
            for peer in self.listening():
                if not peer.connection.output.behind:
                    peer.expected.append(self.count)
            stream = self.dice.choice(self.streams)
            if self.dice.random() < 0.5:
                self.fanout.status(stream, payload)
            else:
                self.fanout.publish(stream, payload, stream.full)
        self.flush()
        self.fell_behind |= any(peer.connection.output.behind for peer in self.listening())

    def flush(self):
        return self.fanout.flush(time.monotonic() + streams.PUBLISHING_MAX_S)

    def stall(self):
        self.dice.choice(self.peers).reads.clear()

    def resume(self):
        self.dice.choice(self.peers).reads.set()

    async def rage(self, reading):
        doings = (self.tell, self.tell, self.say, self.ping, self.stall, self.resume, self.resume)
        for step in range(STEPS):
            self.dice.choice(doings)()
            if self.dice.random() < 0.5:
                await asyncio.sleep(0)
            if step in LEAVE_AT:
                leaver = self.peers[LEAVE_AT.index(step)]
                reading[leaver].cancel()
                await asyncio.gather(reading[leaver], return_exceptions=True)
                leaver.vanish()


async def storm(folder, seed):
    async with gateway(folder, limits=GatewayLimits(unsent_bytes_max=4_096)) as node:
        node.snapshot("okx")
        node.snapshot("kraken")
        keys = [await node.key(name=f"a{n}") for n in range(CLIENTS)]
        peers = [Peer(node, key) for key in keys]
        for peer in peers:
            await peer.connect()
            for exchange in ("okx", "kraken"):
                message = {
                    "type": "subscribe_aggregated",
                    "symbol": SYMBOL,
                    "exchanges": [exchange],
                    "interval_ms": 10,
                    "id": exchange,
                }
                peer.connection.command(json.dumps(message))
        raging = Storm(node, peers, random.Random(seed))
        reading = {peer: asyncio.create_task(peer.read()) for peer in peers}
        try:
            await raging.rage(reading)
            await judge(raging)
        finally:
            for task in reading.values():
                task.cancel()
            await asyncio.gather(*reading.values(), return_exceptions=True)
            for peer in peers:
                peer.sock.close()


async def judge(raging):
    """Each peer received all its bytes in order; closed peers are removed."""
    while raging.flush():
        pass
    stayed = [peer for peer in raging.peers if not peer.gone]
    for peer in stayed:
        peer.buffer(1 << 20)  # small windows are slow to empty
        peer.reads.set()
    await settled(lambda: all(p.connection.lost for p in raging.peers if p.gone))
    await settled(lambda: not any(p.connection.transport.get_write_buffer_size() for p in stayed))
    for peer in stayed:
        await settled(peer.has_all_that_was_metered)
        assert peer.numbers() == peer.expected
        assert not peer.frames()[1]
        assert not peer.connection.output.behind
        assert not raging.fanout.missed(peer.connection.output)
    assert raging.fell_behind, "the test must reach flow control"
    assert raging.fanout.conflated_total, "the test must reach skipped updates"


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loop", LOOPS)
def test_bytes_never_overtake_each_other_and_none_is_lost(tmp_path, monkeypatch, loop, way, sliced):
    if sliced:  # each flush writes to one peer
        monkeypatch.setattr(fanout, "WRITES_AT_ONCE", 1)
        monkeypatch.setattr(streams, "PUBLISHING_MAX_S", 0.0)
    spread, write_each = WAYS[way]
    monkeypatch.setattr(fanout, "spread", spread)
    monkeypatch.setattr(fanout, "write_each", write_each)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(storm(tmp_path, seed))


WITHOUT_COMPILER = """
import sys
import time
sys.modules["onebook.gateway._direct"] = None
import pytest
from onebook.gateway import fanout
from onebook.gateway.fanout import ClientOutput
assert not fanout.COMPILED
assert issubclass(ClientOutput, fanout.PurePeer)
words = ["-k", "overtake and transport", "--no-cov", "-p", "no:cacheprovider"]
# anyio is a plugin of pytest and is imported here before it.
words += ["-W", "ignore:Module already imported"]
sys.exit(pytest.main([sys.argv[1], *words]))
"""


async def test_the_same_holds_where_nothing_is_compiled():
    """In its own process, because the base of a class cannot be changed again."""
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WITHOUT_COMPILER, __file__, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await running.communicate()
    assert running.returncode == 0, said.decode()
    assert b"4 passed" in said


class Transport:
    """The bytes passed to a peer's transport when its socket does not accept all."""

    def __init__(self):
        self.given = b""

    def write(self, data):
        self.given += data

    def get_write_buffer_size(self):
        return len(self.given)


def peer_of(sock, *frames_):
    """A peer with one end of a socket pair, and frames to send."""
    peer = fanout.Peer([])
    peer.transport = Transport()
    peer.direct_fd = sock.fileno()
    peer.out = frames_
    return peer


@pytest.fixture
def write_each():
    return fanout.write_each


@pytest.fixture
def pairs():
    """Socket pairs: ours, which is non-blocking, and the client's."""
    made = []

    def pair():
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        made.extend((ours, theirs))
        return ours, theirs

    yield pair
    for each in made:
        each.close()


def all_of(sock):
    heard = b""
    try:
        while data := sock.recv(1 << 16):
            heard += data
    except BlockingIOError:
        pass
    return heard


def test_a_socket_with_room_gets_everything_and_its_transport_nothing(write_each, pairs):
    ours, theirs = pairs()
    peer = peer_of(ours, b"one", b"two")
    write_each([peer])
    assert all_of(theirs) == b"onetwo"
    assert (peer.transport.given, peer.out, peer.buffered) == (b"", None, False)


def test_what_a_full_socket_does_not_take_goes_to_its_transport_in_order(write_each, pairs):
    ours, theirs = pairs()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    frame = bytes(range(256)) * 4_096
    peer = peer_of(ours, frame)
    write_each([peer])
    taken = all_of(theirs)
    assert peer.buffered
    assert taken + peer.transport.given == frame
    # While its transport holds bytes, nothing may overtake them.
    peer.out = (b"next",)
    write_each([peer])
    assert all_of(theirs) == b""
    assert peer.transport.given.endswith(b"next")
    # And once it holds none, the socket is written to again.
    peer.transport.given = b""
    peer.out = (b"last",)
    write_each([peer])
    assert all_of(theirs) == b"last"
    assert not peer.buffered


def test_a_broken_socket_is_left_to_its_transport_and_affects_no_other(write_each, pairs):
    broken, their_end = pairs()
    their_end.close()
    ours, theirs = pairs()
    peers = [peer_of(broken, b"lost"), peer_of(ours, b"kept")]
    write_each(peers)
    assert peers[0].transport.given == b"lost"
    assert all_of(theirs) == b"kept"


def test_a_peer_that_ended_or_has_nothing_to_get_is_passed_over(write_each, pairs):
    ours, theirs = pairs()
    ended, without = peer_of(ours, b"too late"), peer_of(ours, b"")
    ended.ended, without.out = True, None
    write_each([ended, without])
    write_each([])
    assert all_of(theirs) == b""
    assert ended.transport.given == without.transport.given == b""


@pytest.mark.parametrize("kind", [fanout.Peer, fanout.PurePeer])
def test_bytes_count_as_delivered_once_neither_kernel_nor_transport_holds_them(kind, pairs):
    ours, theirs = pairs()
    uncharged = []
    peer = kind(uncharged)
    peer.transport = Transport()
    assert peer.take_delivered() == peer.unacknowledged() == 0
    peer.fd = ours.fileno()
    ours.send(b"x" * 100)
    held = sockets.unacknowledged(peer.fd)
    assert held >= 100
    peer.sent = held + 70
    assert (peer.take_delivered(), peer.sent, peer.total) == (70, held, 70)
    assert (uncharged, peer.listed) == ([peer], True)
    assert peer.uncharged is uncharged
    assert peer.take_delivered() == 0
    assert uncharged == [peer], "it is in the list once"
    theirs.recv(100)
    peer.transport.write(b"y" * 40)
    peer.buffered = True
    peer.last_bytes = 10
    assert peer.unacknowledged() == 30
    assert (peer.take_delivered(), peer.sent, peer.total) == (held - 30, 30, held + 40)
    peer.undelivered = 20
    uncharged.clear()
    peer.listed = False
    assert (peer.take_delivered(), peer.sent, peer.total) == (10, 20, held + 50)
    assert (peer.take_delivered(), uncharged) == (0, []), "the rest is lost with the connection"


@pytest.mark.parametrize("count", [1, 4, 5, 700])
def test_any_number_of_peers_get_each_what_is_theirs(write_each, pairs, count):
    ends = [pairs() for _ in range(count)]
    texts = [b"%d" % (number // 3) for number in range(count)]
    write_each([peer_of(ours, text) for (ours, _), text in zip(ends, texts, strict=True)])
    assert [all_of(theirs) for _, theirs in ends] == texts


def test_writing_takes_a_bounded_part_of_a_turn_of_the_event_loop(pairs):
    times = itertools.count()
    sender = fanout.Fanout(join_bytes_max=1_000, monotonic=lambda: next(times))
    ends = [pairs() for _ in range(5 * fanout.WRITES_AT_ONCE)]
    peers = [peer_of(ours, b"x") for ours, _ in ends]
    sender._touched.extend(peers)
    for slices, is_left in ((3, True), (5, False), (5, False)):
        assert sender.flush(next(times) + 2.5) is is_left
        written = [peer.out is None for peer in peers]
        assert written == [n < slices * fanout.WRITES_AT_ONCE for n in range(len(peers))]
    assert {all_of(theirs) for _, theirs in ends} == {b"x"}


async def open_fds(folder, **limits):
    async with gateway(folder, limits=GatewayLimits(**limits)) as node, node.client():
        return [connection.output.direct_fd for connection in node.gateway.connections]


@pytest.mark.parametrize(("allowed", "direct_sockets"), [(True, 1), (False, 0)])
async def test_direct_send_decides_who_has_a_direct_socket(tmp_path, allowed, direct_sockets):
    fds = await open_fds(tmp_path, direct_send=allowed)
    assert sum(fd >= 0 for fd in fds) == direct_sockets
