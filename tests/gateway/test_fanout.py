"""One frame for all clients of a view, one write for each client and tick."""

from gateway.helpers import Watched
from gateway.rig import SYMBOL, gateway


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
        connection.transport = Watched(connection.transport, writes.append)
        connection.direct_fd = -1  # so that the transport sees it
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
