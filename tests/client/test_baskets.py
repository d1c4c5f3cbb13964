"""A quote basket of a service from its client's perspective."""

from asyncio import timeout

import pytest

from client.place import place
from onebook.client import AsyncOnebook

MEMBERS = ("kraken", "kraken:USD", "kraken:USDC", "okx", "okx:USD", "okx:USDC")


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
async def test_a_basket_has_the_books_of_all_quotes_and_their_conversions(tmp_path, encoding):
    options = {"quotes": ["USDC", "USD"], "split": True, "mode": "delta", "encoding": encoding}
    async with (
        place(tmp_path) as rig,
        timeout(30),
        AsyncOnebook(rig.url, rig.key) as client,
    ):
        async for view in client.watch("BTC/USDT", depth=50, **options):
            if view.live and not view.stale_exchanges and view.update_number > 3:
                break
    assert view.members == MEMBERS
    shown = {name for level in (*view.bids, *view.asks) for name in level.exchanges}
    assert {name.partition(":")[2] for name in shown} == {"", "USD", "USDC"}
    steps = {each.members: each for each in view.conversions}
    assert {members: each.symbol for members, each in steps.items()} == {
        ("kraken:USD", "okx:USD"): "USDT/USD",  # okx does not list it
        ("kraken:USDC",): "USDC/USDT",
        ("okx:USDC",): "USDC/USDT",
    }
    assert steps["kraken:USD", "okx:USD"].exchanges == ("kraken",)
    assert steps["okx:USDC",].exchanges == ("okx",)
    for each in steps.values():
        assert each.reason is None
        assert each.age_ms is not None
        assert each.bid is not None
        assert each.ask is not None
        assert each.bid[0] < each.ask[0]
