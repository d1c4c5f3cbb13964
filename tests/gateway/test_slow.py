"""Slow clients: only the newest book is sent, and no client waits for another."""

import socket

import pytest

from gateway.rig import SYMBOL, gateway, settled
from onebook.gateway import GatewayLimits
from onebook.gateway.effects import OpenView

BIDS = [(str(100_000 - n), "1.23456789") for n in range(200)]
ASKS = [(str(100_001 + n), "9.87654321") for n in range(200)]
UPDATES_MAX = 2_000  # many more than fit into the buffers between us and a client


def narrow():
    """A socket with small buffers."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(True)
    return sock


class Slow:
    """A node, a client that reads and one that stops reading."""

    def __init__(self, node, reader, sleeper):
        self.node, self.reader, self.sleeper = node, reader, sleeper
        (self.connection,) = [
            each
            for each in node.gateway.connections
            if each.transport.get_extra_info("peername") == sleeper.socket.local_address
        ]
        self.amount = 100_000

    async def update(self):
        """One update, which the reading client receives."""
        self.amount += 1
        self.node.clock.put_forward(0.01)
        self.node.delta("okx", [(price, str(self.amount)) for price, _ in BIDS])
        return await self.reader.until_book()

    async def fall_asleep(self):
        """Publish until the sleeper's buffers are full."""
        self.sleeper.socket.transport.pause_reading()
        for _ in range(UPDATES_MAX):
            if self.connection.output.behind:
                return
            await self.update()
        raise AssertionError("the sleeper's buffers never filled up")


async def until_book(talk):
    while True:
        message = await talk.next()
        if message["type"].startswith("aggregated_orderbook_"):
            return message


@pytest.fixture(params=["full", "delta"])
async def slow(tmp_path, request):
    async with gateway(tmp_path, limits=GatewayLimits(unsent_bytes_max=4_096)) as node:
        key = await node.key()
        node.snapshot("okx", BIDS, ASKS)
        sock = narrow()
        sock.connect(("127.0.0.1", node.port))
        async with node.client(key) as reader, node.client(key, sock=sock) as sleeper:
            for client in (reader, sleeper):
                client.until_book = lambda talk=client: until_book(talk)
                await client.say(
                    type="subscribe_aggregated",
                    symbol=SYMBOL,
                    exchanges=["okx"],
                    depth=200,
                    interval_ms=10,
                    mode=request.param,
                    levels="object" if request.param == "full" else "array",
                )
                await client.until_book()
            yield Slow(node, reader, sleeper)


async def test_a_client_that_does_not_read_is_skipped_and_the_others_are_not_delayed(slow):
    await slow.fall_asleep()
    held = slow.connection.transport.get_write_buffer_size()
    conflated = slow.node.gateway.fanout.conflated_total
    numbers = [(await slow.update())["update_number"] for _ in range(50)]
    assert numbers == [*range(int(numbers[0]), int(numbers[0]) + 50)]
    assert slow.node.gateway.fanout.conflated_total == conflated + 50
    assert slow.connection.transport.get_write_buffer_size() <= held <= 256 * 1_024
    assert len(slow.node.gateway.fanout.missed(slow.connection.output)) == 1


async def test_it_gets_the_newest_book_when_it_reads_again_and_never_a_delta_with_a_hole(slow):
    await slow.fall_asleep()
    for _ in range(20):
        newest = await slow.update()
    slow.sleeper.socket.transport.resume_reading()
    previous = int((await slow.sleeper.until_book())["update_number"])
    while previous < newest["update_number"]:
        message = await slow.sleeper.until_book()
        if message["type"] == "aggregated_orderbook_delta":
            assert message["previous_update_number"] == previous
        previous = int(message["update_number"])
    assert message["type"] == "aggregated_orderbook_update"
    assert not slow.node.gateway.fanout.missed(slow.connection.output)
    following = await slow.update()
    assert (await slow.sleeper.until_book()) == following


async def test_the_states_that_it_did_not_see_are_counted(slow):
    first = await slow.update()
    while (await slow.sleeper.until_book())["update_number"] < first["update_number"]:
        pass
    got, skipped = 0, 0
    for _ in range(2):  # two slow moments
        await slow.fall_asleep()
        for _ in range(20):
            newest = await slow.update()
        slow.sleeper.socket.transport.resume_reading()
        while True:
            message = await slow.sleeper.until_book()
            got += 1
            skipped += message.get("skipped", 0)
            if message["update_number"] == newest["update_number"]:
                break
        assert message["skipped"] >= 19, "the newest one was sent to it, and none of the others"
        assert got + skipped == newest["update_number"] - first["update_number"]
    assert "skipped" not in await slow.update()
    assert "skipped" not in await slow.sleeper.until_book()


async def test_a_client_with_two_views_counts_those_of_each(slow):
    options = slow.connection.processor.subscriptions[SYMBOL, None].options
    sent = {name: getattr(options, name) for name in ("depth", "interval_ms", "mode", "levels")}
    await slow.sleeper.say(
        type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"], view="b", **sent
    )
    joined = (await slow.sleeper.until_book())["update_number"]
    await slow.fall_asleep()
    for _ in range(5):
        newest = await slow.update()
    slow.sleeper.socket.transport.resume_reading()
    counts = {None: 0, "b": 0}
    done = set()
    while len(done) < 2:
        message = await slow.sleeper.until_book()
        view = message.get("view")
        counts[view] += 1 + message.get("skipped", 0)
        if message["update_number"] == newest["update_number"]:
            done.add(view)
    assert set(counts.values()) == {newest["update_number"] - joined}


async def test_nothing_is_acted_on_that_a_client_behind_sends(slow):
    await slow.fall_asleep()
    heard = slow.node.gateway.totals.messages
    for _ in range(100):
        await slow.sleeper.say(type="get_pairs")
    await slow.update()
    assert slow.node.gateway.totals.messages == heard
    slow.sleeper.socket.transport.resume_reading()
    for _ in range(100):
        await slow.sleeper.until("pairs_data")


async def test_subscribing_twice_while_behind_owes_one_book(slow):
    await slow.fall_asleep()
    client = slow.connection.processor
    (key,) = client.subscriptions.values()
    slow.connection.execute([OpenView(key, key)])
    assert len(slow.node.gateway.fanout.missed(slow.connection.output)) == 1


async def test_each_view_of_a_client_that_was_behind_gets_the_newest_book(slow):
    options = slow.connection.processor.subscriptions[SYMBOL, None].options
    sent = {name: getattr(options, name) for name in ("depth", "interval_ms", "mode", "levels")}
    await slow.sleeper.say(
        type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"], view="b", **sent
    )
    assert (await slow.sleeper.until_book())["view"] == "b"
    await slow.fall_asleep()
    newest = await slow.update()
    missed = slow.node.gateway.fanout.missed(slow.connection.output)
    assert {form.view for _, form in missed} == {None, "b"}
    slow.sleeper.socket.transport.resume_reading()
    last = {}
    while set(last.values()) != {newest["update_number"]} or len(last) < 2:
        message = await slow.sleeper.until_book()
        view, number = message.get("view"), message["update_number"]
        if message["type"] == "aggregated_orderbook_delta":
            assert message["previous_update_number"] == last.get(view, number - 1)
        last[view] = number


async def test_statuses_are_not_queued_for_a_client_behind(slow):
    await slow.fall_asleep()
    held = slow.connection.transport.get_write_buffer_size()
    slow.node.lose("okx")
    await slow.reader.until("exchange_status")
    assert slow.connection.transport.get_write_buffer_size() <= held


async def test_nothing_read_for_10_s_closes_4108(slow):
    await slow.fall_asleep()
    slow.node.later(9.9)
    assert not slow.connection.output.ended
    slow.node.later(0.2)
    assert slow.connection.output.ended
    assert slow.connection.code == 4108
    slow.node.later(5.1)
    await settled(lambda: slow.connection.lost)
    assert (await slow.reader.ask(type="ping"))["type"] == "pong"


async def test_a_client_that_reads_a_little_stays(slow):
    await slow.fall_asleep()
    for _ in range(5):
        slow.connection.keepalive._unread_bytes += 1  # as if one byte was read since the last look
        slow.node.later(9)
    assert not slow.connection.output.ended


async def test_a_late_answer_to_our_ping_does_not_end_a_client_that_reads_again(slow):
    await slow.fall_asleep()
    slow.connection.keepalive.ping_at = slow.node.clock.monotonic()
    slow.node.clock.put_forward(19)
    slow.sleeper.socket.transport.resume_reading()
    await slow.sleeper.until_book()
    assert len(slow.node.gateway.totals.behind) == 1
    await settled(lambda: not slow.connection.output.behind)
    assert not slow.connection.keepalive.ping_at
    assert not slow.node.gateway.totals.behind


async def test_a_client_that_leaves_while_behind_is_forgotten(slow):
    await slow.fall_asleep()
    slow.connection.transport.abort()
    await settled(lambda: slow.connection.lost)
    assert not slow.node.gateway.totals.behind
    assert len(slow.node.gateway.fanout._missed) == 0
    assert len(slow.node.gateway.scheduler) == 1
    await slow.update()
