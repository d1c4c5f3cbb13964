"""Whole simulated accounts through the service: the records equal the true events."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import KrakenAccount, KrakenHistory
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory
from transactions.accounting import Records, all_of, by_currency, summed
from transactions.bybit_support import NOW_MS, AccountWorld, run
from transactions.kraken import test_accounts as kraken
from transactions.kraken_support import KrakenWorld
from transactions.okx import test_accounts as okx
from transactions.okx_support import OkxWorld


class Whole(NamedTuple):
    """An exchange: a generated account, its holdings by wallet and currency, and a service."""

    account: Callable[..., Any]  # of days, rows and a seed
    held: Callable[[Any], dict[tuple[str, str], str]]
    world: Callable[[Any], AccountWorld]
    unlimited: Callable[[Any], AccountWorld]  # without the limits of requests
    types: tuple[str, ...]  # the first or the last one is `holdings`


EXCHANGES: Final = {
    "kraken": Whole(
        lambda days, **past: KrakenAccount(KrakenHistory(NOW_MS - days * DAY_MS, NOW_MS, **past)),
        kraken.held,
        KrakenWorld,
        lambda account: KrakenWorld(account, spot={"limited": False}),
        kraken.EVERYTHING,
    ),
    "okx": Whole(
        lambda days, **past: OkxAccount(OkxHistory(NOW_MS - days * DAY_MS, NOW_MS, **past)),
        okx.held,
        OkxWorld,
        lambda account: OkxWorld(account, site={"limited": False}),
        okx.EVERYTHING,
    ),
}


@pytest.mark.parametrize(
    ("label", "days", "rows", "seed"),
    [
        ("kraken", 60, 600, 1),
        pytest.param("kraken", 60, 600, 2, marks=pytest.mark.soak),
        ("kraken", 2_500, 1_500, 3),
        ("okx", 80, 600, 1),
        pytest.param("okx", 80, 600, 2, marks=pytest.mark.soak),
        ("okx", 80, 1_500, 3),
    ],
)
def test_an_account_is_what_happened_to_the_last_digit(
    label: str, days: int, rows: int, seed: int
) -> None:
    exchange = EXCHANGES[label]
    account = exchange.account(days, rows=rows, seed=seed)
    records, summary = run(all_of(exchange.world(account), *exchange.types, verify=True))
    truth = exchange.held(account)
    wallets = {wallet for wallet, _ in truth}
    assert summed(records) == by_currency(truth)
    holdings = {
        (each["account"]["wallet"], each["asset"]): each["balance"]["total"]
        for each in records
        if each["view"] == "snapshot" and each["account"]["wallet"] in wallets
    }
    assert holdings == truth
    assert label == "okx" or all(each["complete"] for each in summary["coverage"])
    assert not summary["errors"]
    assert summary["verification"]["holds"] is True
    assert {each["grade"] for each in summary["verification"]["grades"]} == {"proven"}


@pytest.mark.parametrize("label", EXCHANGES)
def test_every_record_has_an_id_of_its_own_and_refers_to_others(label: str) -> None:
    exchange = EXCHANGES[label]
    account = exchange.account(60, rows=600)
    records, _ = run(all_of(exchange.world(account), *exchange.types))
    by_id = {each["transactionId"]: each for each in records}
    assert len(by_id) == len(records)
    for record in records:
        for related in record["related"]:
            assert by_id[related]["type"] == record["related_type"]


@pytest.mark.parametrize(
    ("label", "limit", "rows"),
    [
        ("kraken", 7, 40),
        pytest.param("kraken", 7, 600, marks=pytest.mark.soak),
        ("kraken", 50, 250),
        pytest.param("kraken", 50, 600, marks=pytest.mark.soak),
        pytest.param("kraken", 333, 600, marks=pytest.mark.soak),
        ("okx", 7, 35),
        ("okx", 100, 300),
        pytest.param("okx", 100, 600, marks=pytest.mark.soak),
        pytest.param("okx", 333, 600, marks=pytest.mark.soak),
    ],
)
def test_pages_of_any_size_hold_every_record_once(label: str, limit: int, rows: int) -> None:
    """With the smallest ones, bills of OKX's funding account end before those of trading."""
    exchange = EXCHANGES[label]
    account = exchange.account(60, rows=rows)
    types = tuple(each for each in exchange.types if each != "holdings")

    async def paged() -> Records:
        async with exchange.unlimited(account) as world:
            pages = await world.pages(*types, start_time=0, limit=limit)
        return [record for page in pages for record in page["transactions"]]

    whole, _ = run(all_of(exchange.world(account), *types))
    assert run(paged()) == whole
