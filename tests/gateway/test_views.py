"""Distinct views of a key, over all of its connections: counted, and limited by tier."""

from gateway.rig import SYMBOL, gateway, settled
from onebook.config import AccountsSettings, TierLimits, TierSettings
from onebook.gateway.views import KeyViews
from onebook.model import Tier
from onebook.streams import StreamKey

ONE, TWO = (StreamKey(symbol=symbol, exchanges=("okx",)) for symbol in ("A/B", "C/D"))


def test_a_view_counts_once_however_many_connections_have_it():
    views = KeyViews()
    for _ in range(2):
        views.join("key", ONE)
    assert views.count("key") == 1
    assert views.has_room("key", ONE, 1)
    assert not views.has_room("key", TWO, 1)
    assert views.has_room("other", TWO, 1)
    views.leave("key", ONE)
    assert not views.has_room("key", TWO, 1)
    views.leave("key", ONE)
    assert views.has_room("key", TWO, 1)
    assert views.count("key") == 0


def test_a_view_that_is_replaced_is_freed_only_if_no_other_client_has_it():
    views = KeyViews()
    views.join("key", ONE)
    assert views.has_room("key", TWO, 1, instead_of=ONE)
    views.join("key", ONE)
    assert not views.has_room("key", TWO, 1, instead_of=ONE)


async def test_the_views_of_a_key_are_limited_over_its_connections(tmp_path):
    async with gateway(tmp_path) as node:
        basic = TierLimits(requests_per_minute=600, connections_max=5, views_max=2)
        node.accounts.settings = AccountsSettings(tiers=TierSettings(basic=basic))
        key = await node.key()
        async with node.client(key) as one, node.client(key) as two:

            def subscribe(client, depth, symbol=SYMBOL):
                return client.ask(type="subscribe_aggregated", symbol=symbol, depth=depth)

            assert (await subscribe(one, 1))["success"]
            assert (await subscribe(two, 2))["success"]
            refusal = await subscribe(two, 3, "ETH/USDT")
            assert refusal["error"] == "subscription_limit_exceeded"
            assert refusal["message"] == "This key may have at most 2 different views at a time."
            assert (await subscribe(two, 3))["success"]  # instead of the one it had
            assert (await subscribe(two, 1))["success"]
            assert node.gateway.views.count(next(iter(node.gateway.connections.by_key))) == 1
            other = await node.key(Tier.PREMIUM)
            await two.say(type="authenticate", api_key=other)
            assert (await two.until("welcome"))["session_id"]
            assert sorted(map(node.gateway.views.count, node.gateway.connections.by_key)) == [1, 1]
        await settled(lambda: not node.gateway.connections)
        assert node.gateway.views._counts == {}
