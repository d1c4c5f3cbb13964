"""Subscriptions over real sockets: replaced, ended, resent, and one-time books."""

from gateway.rig import SYMBOL, settled


async def test_delta_mode_over_the_wire_and_resync_in_the_middle(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, mode="delta", interval_ms=10)
        assert (await client.next())["type"] == "aggregated_orderbook_update"
        node.delta("okx", [("100", "7")])
        delta = await client.next()
        assert delta["type"] == "aggregated_orderbook_delta"
        assert (delta["previous_update_number"], delta["update_number"]) == (1, 2)
        whole = await client.ask(type="resync", symbol=SYMBOL, id="again")
        assert whole["type"] == "aggregated_orderbook_update"
        assert (whole["id"], whole["update_number"]) == ("again", 2)
        assert whole["data"]["bids"][0]["amount"] == 7
        node.delta("okx", [("100", "8")])
        assert (await client.next())["previous_update_number"] == 2


async def test_resync_before_the_first_book_is_answered_with_what_is_known(node, key):
    async with node.client(key) as client:
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, exchanges=["okx"])
        await client.say(type="resync", symbol=SYMBOL, id=1)
        first, second = await client.next(), await client.next()
        assert first["update_number"] == second["update_number"] == 1
        assert second["id"] == 1
        assert second["data"]["stale_exchanges"] == ["okx"]


async def test_unsubscribe_ends_the_updates_and_the_last_one_ends_the_stream(node, key):
    async with node.client(key) as first, node.client(key) as second:
        for client in (first, second):
            node.snapshot("okx")
            await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
            await client.until("aggregated_orderbook_update")
        assert (await first.ask(type="unsubscribe_aggregated", symbol=SYMBOL))["success"]
        node.delta("okx", [("100", "5")])
        await second.until("aggregated_orderbook_update")
        assert (await first.ask(type="ping"))["type"] == "pong"
        await second.ask(type="unsubscribe_aggregated", symbol=SYMBOL)
        assert len(node.streams) == 0
        assert set(node.market.wanted.values()) == {0}


async def test_subscribing_again_replaces_and_to_the_same_view_sends_the_book_again(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
        await client.next()
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL)
        assert (await client.next())["update_number"] == 1
        await client.ask(type="subscribe_aggregated", symbol=SYMBOL, depth=1)
        assert len((await client.next())["data"]["bids"]) == 1
        assert len(node.streams) == 1
        node.delta("okx", [("100", "5")])
        assert len((await client.next())["data"]["bids"]) == 1


async def test_a_look_is_answered_without_a_subscription(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        answer = await client.ask(type="get_aggregated_orderbook", symbol=SYMBOL, id=1)
        assert (answer["type"], answer["id"]) == ("aggregated_orderbook_data", 1)
        assert answer["data"]["stale_exchanges"] == ["binance", "kraken"]
        await client.say(type="get_aggregated_orderbook", symbol="DOGE/USDT", id=2)
        assert (await client.ask(type="ping"))["type"] == "pong"
        node.snapshot("binance", symbol="DOGE/USDT")
        assert (await client.next())["id"] == 2
        assert set(node.market.wanted.values()) == {0}


async def test_a_client_that_leaves_while_waiting_for_a_book_is_removed(node, key):
    async with node.client(key) as client:
        await client.say(type="get_aggregated_orderbook", symbol=SYMBOL)
        await client.ask(type="ping")
    await settled(lambda: not node.gateway.connections)
    assert set(node.market.wanted.values()) == {0}


async def test_resync_just_after_an_update_is_that_update_and_costs_the_others_nothing(node, key):
    """Delta subscribers of one view: each resync of one was an update of both, metered for both."""
    async with node.client(key) as first, node.client(key) as second:
        node.snapshot("okx")
        for client in (first, second):
            await client.ask(
                type="subscribe_aggregated", symbol=SYMBOL, mode="delta", interval_ms=60_000
            )
            assert (await client.next())["update_number"] == 1
        node.delta("okx", [("100", "7")])
        whole = await first.ask(type="resync", symbol=SYMBOL, id=5)
        assert (whole["id"], whole["update_number"]) == (5, 1)
        assert whole["data"]["bids"][0]["amount"] == 1
        assert (await second.ask(type="ping"))["type"] == "pong"
