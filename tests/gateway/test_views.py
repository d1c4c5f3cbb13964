"""Several views of one symbol on a connection, each named by the client (`view`)."""

import pytest

from gateway.rig import SYMBOL, gateway, settled
from onebook.config import AccountsSettings, TierLimits, TierSettings
from onebook.model import Tier

SUBSCRIBE = {"type": "subscribe_aggregated", "symbol": SYMBOL}
UPDATE, DELTA = "aggregated_orderbook_update", "aggregated_orderbook_delta"


async def subscribe(client, **options):
    """Subscribe, and return the reply and the first book."""
    return await client.ask(**SUBSCRIBE, **options), await client.next()


async def test_two_views_of_a_symbol_have_their_own_options_and_updates(node, key):
    node.snapshot("okx")
    node.snapshot("kraken")
    async with node.client(key) as client:
        _, unnamed = await subscribe(client)
        reply, top = await subscribe(client, view="top", depth=1, exchanges=["okx"], id=7)
        _, changes = await subscribe(client, view="changes", mode="delta", interval_ms=10)
        assert "view" not in unnamed
        assert (reply["view"], reply["id"]) == ("top", 7)
        assert (top["view"], changes["view"]) == ("top", "changes")
        node.clock.put_forward(1)
        node.delta("okx", [("100", "7")])
        got = {message.get("view"): message for message in [await client.next() for _ in range(3)]}
        assert {name: message["type"] for name, message in got.items()} == {
            None: UPDATE,
            "top": UPDATE,
            "changes": DELTA,
        }
        assert [len(got[name]["data"]["bids"]) for name in (None, "top", "changes")] == [2, 1, 1]
        assert got["top"]["data"]["bids"][0]["exchanges"] == ["okx"]


@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_a_name_is_the_only_difference_to_the_stream_without_one(node, key, compression):
    node.snapshot("okx", [(str(100 - at), "1") for at in range(50)])
    async with node.client(key, compression=compression) as client:
        unnamed, first = await subscribe(client)
        named, second = await subscribe(client, view='"best", 最')
        assert named == unnamed | {
            "view": '"best", 最',
            "expected_gb_per_30_days": named["expected_gb_per_30_days"],  # known by now
        }
        assert second == first | {"view": '"best", 最'}
        assert len(node.streams) == 1
        node.clock.put_forward(1)
        node.delta("okx", [("100", "7")])
        first, second = await client.next(), await client.next()
        assert second == first | {"view": '"best", 最'}
        node.lose("okx")
        lost = [await client.next() for _ in range(4)]
        assert [message["type"] for message in lost] == ["exchange_status"] * 2 + [UPDATE] * 2
        assert lost[1] == lost[0] | {"view": '"best", 最'}


async def test_one_view_is_replaced_resynced_and_ended_and_the_others_go_on(node, key):
    node.snapshot("okx")
    async with node.client(key) as client:
        await subscribe(client, depth=2)
        await subscribe(client, view="a", depth=1)
        _, replaced = await subscribe(client, view="a", depth=1, levels="array")
        assert (replaced["view"], replaced["data"]["bids"]) == ("a", [[100, 1]])
        whole = await client.ask(type="resync", symbol=SYMBOL, view="a", id=1)
        assert (whole["view"], whole["id"], whole["data"]["bids"]) == ("a", 1, [[100, 1]])
        assert "view" not in await client.ask(type="resync", symbol=SYMBOL)
        listed = (await client.ask(type="get_subscriptions"))["data"]["subscriptions"]
        assert [(each.get("view"), each["options"]["depth"]) for each in listed] == [
            (None, 2),
            ("a", 1),
        ]
        ended = await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL, view="a")
        assert (ended["type"], ended["view"]) == ("unsubscribe_response", "a")
        node.clock.put_forward(1)
        node.delta("okx", [("100", "7")])
        assert "view" not in await client.next()
        assert (await client.ask(type="ping"))["type"] == "pong"
        assert "view" not in await client.ask(type="unsubscribe_aggregated", symbol=SYMBOL)
        assert len(node.streams) == 0


async def test_a_book_requested_once_has_the_options_of_the_view_that_it_names(node, key):
    node.snapshot("okx")
    async with node.client(key) as client:
        await subscribe(client, depth=2)
        await subscribe(client, view="a", depth=1)
        ask = {"type": "get_aggregated_orderbook", "symbol": SYMBOL}
        for named, levels in (({"view": "a"}, 1), ({}, 2), ({"view": "new"}, 2)):
            book = await client.ask(**ask, **named)
            assert book.get("view") == named.get("view")
            assert len(book["data"]["bids"]) == levels


async def test_every_error_about_a_view_has_its_name(node, key):
    async with node.client(key) as client:
        for wrong, error in [
            ({"type": "resync"}, "no_subscription"),
            ({"type": "unsubscribe_aggregated"}, "no_subscription"),
            (SUBSCRIBE | {"depth": 0}, "invalid_parameters"),
            (SUBSCRIBE | {"symbol": "NO/PE"}, "invalid_symbol"),
            ({"type": "get_aggregated_orderbook", "group": "x"}, "invalid_parameters"),
        ]:
            refused = await client.ask(**{"symbol": SYMBOL} | wrong, view="a", id=2)
            assert (refused["error"], refused["view"], refused["id"]) == (error, "a", 2)
        nameless = await client.ask(type="resync", symbol=SYMBOL)
        assert "view" not in nameless
        named = await client.ask(type="resync", symbol=SYMBOL, view="a")
        assert named["message"] == (
            'This connection has no subscription to "BTC/USDT" with the view "a".'
        )


async def test_the_end_of_a_connection_ends_all_of_its_views(node, key):
    async with node.client(key) as client:
        node.snapshot("okx")
        await subscribe(client)
        await subscribe(client, view="a")
        await subscribe(client, view="b", depth=1)
        (connection,) = node.gateway.connections
        views = node.gateway.views
        owner = connection.processor.key.key_id
        assert views.count(owner) == 3
    await settled(lambda: not len(node.streams))
    assert views.count(owner) == 0
    assert set(node.market.wanted.values()) == {0}


async def test_each_name_is_a_subscription_of_the_connection_and_a_view_of_the_tier(tmp_path):
    async with gateway(tmp_path, subscriptions_max=3) as node:
        basic = TierLimits(requests_per_minute=600, connections_max=5, views_max=4)
        node.accounts.settings = AccountsSettings(tiers=TierSettings(basic=basic))
        key = await node.key()
        async with node.client(key) as one, node.client(key) as two:
            for name in ("a", "b", "c"):
                assert (await one.ask(**SUBSCRIBE, view=name))["success"]
            refused = await one.ask(**SUBSCRIBE, view="d")
            assert (refused["error"], refused["view"]) == ("subscription_limit_exceeded", "d")
            assert (await one.ask(**SUBSCRIBE, view="c", depth=1))["success"]  # replaces
            for name in ("a", "d"):  # of two connections with equal views, one counts
                assert (await two.ask(**SUBSCRIBE, view=name))["success"]
            refused = await two.ask(**SUBSCRIBE, view="e")
            assert refused["message"] == "This key may have at most 4 different views at a time."
            other = await node.key(Tier.PREMIUM)
            await two.say(type="authenticate", api_key=other)
            assert (await two.until("welcome"))["session_id"]
            assert sorted(map(node.gateway.views.count, node.gateway.connections.by_key)) == [2, 3]


async def test_a_key_pays_for_each_of_its_views(node, key):
    node.snapshot("okx")
    async with node.client(key) as client:
        texts = []
        for named in ({}, {"view": "a"}):
            await client.ask(**SUBSCRIBE, **named)
            texts.append(await client.socket.recv())
        (connection,) = node.gateway.connections
        await node.acknowledged()
        before = connection.output.total
        node.clock.put_forward(1)
        node.delta("okx", [("100", "7")])
        updates = [await client.socket.recv() for _ in texts]
        await node.acknowledged()
        assert connection.output.total - before == sum(map(len, updates))
        assert len(updates[1]) == len(updates[0]) + len(',"view":"a"')
