"""Reading one Bybit account, and the permissions of its key."""

from typing import Any

import pytest

from onebook.model import DAY_MS
from onebook.transactions.adapter import SNAPSHOT, Environment
from onebook.transactions.bybit.adapter import (
    BYBIT,
    days_left,
    expires_at,
    granted_of,
    unavailable_types,
    warnings_of,
)
from onebook.transactions.bybit.endpoints import ENTRY, SOURCES
from onebook.transactions.credentials import Credentials
from onebook.transactions.exchange import ExchangeAdapter
from transactions.bybit_support import KEY, World, run, simulated


async def test_it_shows_its_facts_and_asks_nothing_by_itself() -> None:
    adapter = ExchangeAdapter(BYBIT)
    assert (adapter.entry, adapter.sources) == (ENTRY, SOURCES)
    assert adapter.waiting_s == 0
    assert [adapter.verdict(environment) for environment in adapter.environments] == [None, None]
    await adapter.close()


def test_environments_have_verdicts_of_their_own() -> None:
    async def story() -> list[bool]:
        async with World(simulated()) as world:
            await world.fetch("deposits")
            return [world.adapter.verdict(each) is None for each in world.adapter.environments]

    assert run(story()) == [False, True]


def test_missing_permissions_name_the_types() -> None:
    assert unavailable_types({"SpotTrade", "Order", "AccountTransfer"}) == ()
    assert "spot_orders" in unavailable_types({"Order"})


def test_the_key_is_asked_about_once_for_all_pages() -> None:
    async def story() -> int:
        async with World(simulated()) as world:
            account = world.adapter.account(
                Environment.MAINNET, Credentials(KEY.api_key, KEY.secret)
            )
            for _ in range(3):
                await account.reader.page(world.adapter.sources["funding_wallet"], SNAPSHOT, "")
            assert account.trouble is None
            return world.exchange.requests["/v5/user/query-api"]

    assert run(story()) == 1


def key(**fields: Any) -> dict[str, Any]:
    base = {
        "readOnly": 1,
        "deadlineDay": 80,
        "permissions": {"Spot": ["SpotTrade"], "Wallet": ["AccountTransfer", "Withdraw"]},
    }
    return base | fields


def test_permissions_of_every_group_count() -> None:
    assert granted_of(key()) == {"SpotTrade", "AccountTransfer", "Withdraw"}


@pytest.mark.parametrize(("days", "left"), [(80, 80), (0, 0), (-1, None), ("soon", None)])
def test_a_key_ends_or_does_not(days: Any, left: int | None) -> None:
    assert days_left(key(deadlineDay=days)) == left
    expected = None if left is None else 5 + left * DAY_MS
    assert expires_at(key(deadlineDay=days), 5) == expected


def test_a_read_only_key_of_some_age_warns_of_nothing() -> None:
    assert list(warnings_of(key())) == []


def test_what_reading_does_not_need_is_warned_of() -> None:
    said = list(warnings_of(key(readOnly=0, deadlineDay=1)))
    assert [text.split(" (")[0] for text in said[:3]] == [
        "The key can trade",
        "The key can withdraw",
        "The key can move funds between accounts",
    ]
    assert said[3] == "The key expires in 1 day; renew it at Bybit."
