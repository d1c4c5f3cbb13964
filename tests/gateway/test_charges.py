"""Every delivered byte is charged once, as it was sent."""

from gateway.rig import SYMBOL, gateway, settled
from onebook import sockets
from onebook.gateway import frames


async def test_payload_bytes_are_counted_as_sent_after_compression(node, key):
    async with node.client(key, compression="deflate") as client:
        node.snapshot("okx", [(str(1_000 - n), "1") for n in range(100)], [])
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=500)
        text = await client.socket.recv()
        await node.acknowledged()
        await node.accounts.meter.flush()
        (key_id,) = node.gateway.connections.by_key
        used = node.accounts.meter.used(key_id, node.clock.wall_ms())
        assert 0 < used < len(text) / 2


async def test_every_byte_of_a_plain_client_is_counted_once_also_at_the_end(node, key):
    async with node.client() as client:
        (await client.next())["type"]
        await client.say(type="authenticate", api_key=key)
        node.snapshot("okx")
        texts = [await client.socket.recv()]
        await client.say(type="subscribe_aggregated", symbol=SYMBOL)
        texts += [await client.socket.recv(), await client.socket.recv()]
        (key_id,) = node.gateway.connections.by_key
        (connection,) = node.gateway.connections
    await settled(lambda: connection.lost)
    used = node.accounts.meter.used(key_id, node.clock.wall_ms())
    assert used == sum(len(text.encode()) for text in texts)


async def test_data_limit_warning_at_authentication_above_80_percent(tmp_path):
    async with gateway(tmp_path, allowance_bytes=10_000) as node:
        key = await node.key()
        async with node.client(key) as client:
            (key_id,) = node.gateway.connections.by_key
            node.accounts.meter.add(key_id, 8_000)
            await node.accounts.meter.flush()
            assert (await client.next())["type"] == "data_limit_warning"
        async with node.client(key) as returned:
            warning = await returned.next()
            assert warning["type"] == "data_limit_warning"
            assert warning["reset_date"].endswith("Z")


async def test_what_a_tick_brought_is_not_charged_when_the_connection_ends_within_it(node, key):
    async with node.client(key) as client:
        (connection,) = node.gateway.connections
        before = connection.sent + connection.total
        first, second = (frames.text_frame(each) for each in (b"x" * 500, b"y" * 70_000))
        connection.sent += 500 + 70_000
        connection.out = (first, second)
        connection.end(4200, "test")
        assert connection.sent + connection.total == before
        assert await client.closed() == 4200


async def test_bytes_that_wait_for_their_acknowledgement_are_not_charged_to_the_next_key(
    node, key, monkeypatch
):
    """The kernel acknowledges late: the welcome before a key is free, and each key pays its own."""
    other = await node.key()
    unacknowledged = [100]
    monkeypatch.setattr(sockets, "unacknowledged", lambda fd: unacknowledged[0])
    shares = []
    async with node.client() as client:
        await client.next()
        for text in (key, other):
            await client.say(type="authenticate", api_key=text)
            welcome = await client.socket.recv()
            await client.say(type="get_subscriptions")
            shares.append(len(welcome.encode()) + len((await client.socket.recv()).encode()))
        unacknowledged[0] = 0
        (connection,) = node.gateway.connections
    await settled(lambda: connection.lost)
    report, now_ms = node.accounts.meter.used, node.clock.wall_ms()
    keys = {row.prefix: row.key_id for row in await node.store.accounts.list_keys()}
    assert [report(keys[text[: len(next(iter(keys)))]], now_ms) for text in (key, other)] == shares
