"""Reading one Bybit account."""

from onebook.transactions.adapter import SNAPSHOT, Environment
from onebook.transactions.bybit.reader import unavailable_types
from onebook.transactions.credentials import Credentials
from transactions.bybit_support import KEY, World, run, simulated


def test_missing_permissions_name_the_types() -> None:
    assert unavailable_types({"SpotTrade", "Order", "AccountTransfer"}) == ()
    assert "spot_orders" in unavailable_types({"Order"})


def test_the_key_is_asked_about_once_for_all_pages() -> None:
    async def story() -> int:
        async with World(simulated()) as world:
            reader = world.adapter.reader(
                Environment.MAINNET, Credentials(KEY.api_key, KEY.secret), include_raw=False
            )
            for _ in range(3):
                await reader.page(world.adapter.sources["funding_wallet"], SNAPSHOT, "")
            assert reader.trouble is None
            return world.exchange.requests["/v5/user/query-api"]

    assert run(story()) == 1
