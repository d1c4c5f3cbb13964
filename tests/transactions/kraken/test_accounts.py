"""Whole simulated accounts through the service: the records equal the true events."""

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from onebook.core import show
from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import KrakenAccount, KrakenHistory, SimulatedKrakenKey
from onebook.transactions.kraken.assets import asset_of, futures_asset
from transactions.accounting import all_of, by_currency, summed
from transactions.bybit_support import NOW_MS, loop_now_ms, loop_s, run
from transactions.kraken_support import KEY, KrakenWorld

EVERYTHING = (
    "deposits", "withdrawals", "trades", "conversions", "margin", "futures", "transfers", "earn",
    "fees", "other", "ledger", "holdings",
)  # fmt: skip
UNIT = 10**12  # the simulated account counts in units of 1e-12
HISTORY = KrakenHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=600)


def held(account: KrakenAccount) -> dict[tuple[str, str], str]:
    """The true holdings, by our wallets and currencies, without positions."""
    found = {}
    for (wallet, native), amount in account.balances().items():
        if wallet != "spot" and "_" in native:
            continue
        currency, ours = asset_of(native) if wallet == "spot" else futures_asset(native, wallet)
        if amount:
            found[ours, currency] = show(Decimal(amount) / UNIT)
    return found


def test_every_event_has_its_kind() -> None:
    account = KrakenAccount(HISTORY)
    records, _ = run(all_of(KrakenWorld(account), *EVERYTHING))
    truth = Counter(event.kind for event in account.events())
    found = Counter((each["type"], each["kind"]) for each in records if each["view"] == "primary")
    assert found["trades", "trade"] == truth["trade"]
    assert found["deposits", "deposit"] >= truth["deposit"]  # and what was never booked
    assert found["margin", "interest"] == truth["rollover"]
    assert found["futures", "trade"] == truth["futures trade"]
    assert found["earn", "earn"] == truth["earn reward"]
    assert not any(each["kind"] == "other" for each in records)
    undone = [each for each in records if each["status"] in ("failed", "reversed")]
    returned = [each for each in undone if len(each["related"]) == 2]
    assert len(returned) == truth["withdrawal reversal"] + truth["deposit reversal"]


def test_trades_have_their_price_and_order() -> None:
    records, _ = run(all_of(KrakenWorld(history=HISTORY), "trades"))
    assert records
    for trade in records:
        assert trade["price"]
        assert trade["ids"]["order_id"]
        assert trade["instrument"]["base"] == trade["asset"]


def test_a_range_is_the_part_of_the_whole() -> None:
    """Events that cross its ends: pairs, moves, and reversals days later."""
    account = KrakenAccount(HISTORY)
    whole, _ = run(all_of(KrakenWorld(account), *EVERYTHING[:-1]))
    times = sorted({each["timestamp"] for each in whole})
    undone = [each["timestamp"] for each in whole if each["status"] in ("failed", "reversed")]
    for first, last in (
        (times[10], times[-200]),
        (times[len(times) // 2], times[len(times) // 2 + 3]),
        (undone[0] - 1, undone[0] + 1),
        (undone[-1] + 1, undone[-1] + 20 * DAY_MS),
    ):
        part, _ = run(
            all_of(KrakenWorld(account), *EVERYTHING[:-1], start_time=first, end_time=last)
        )
        expected = [each for each in whole if first <= each["timestamp"] <= last]
        assert part == expected


@pytest.mark.parametrize("word", ["deposits", "withdrawals", "trades", "earn", "ledger", "margin"])
def test_a_type_that_is_asked_for_alone_is_the_same(word: str) -> None:
    account = KrakenAccount(HISTORY)
    whole, _ = run(all_of(KrakenWorld(account), *EVERYTHING[:-1]))
    alone, summary = run(all_of(KrakenWorld(account), word))
    assert alone == [each for each in whole if each["type"] == word]
    assert {each["transaction_type"] for each in summary["coverage"]} == {word}


def test_deposits_alone_cost_few_calls() -> None:
    world = KrakenWorld(history=HISTORY)
    run(all_of(world, "deposits"))
    assert Counter(world.transport.paths)["/0/private/Ledgers"] <= 3


def test_without_the_futures_key_only_spot_is_read() -> None:
    account = KrakenAccount(HISTORY)
    world = KrakenWorld(account, futures_key=False)
    records, summary = run(all_of(world, *EVERYTHING))
    wallets = {each["account"]["wallet"] for each in records if each["account"]}
    assert all(wallet.startswith("SPOT") for wallet in wallets)
    assert not any(path.startswith(("/api", "/derivatives")) for path in world.transport.paths)
    spot = {place: sum_ for place, sum_ in held(account).items() if place[0].startswith("SPOT")}
    assert summed(records) == by_currency(spot)
    assert summary["errors"][0]["error"] == "no_credentials"  # futures were asked for by name


def test_counts_that_are_wrong_under_a_filter_do_no_harm() -> None:
    account = KrakenAccount(HISTORY)
    right, _ = run(all_of(KrakenWorld(account), "withdrawals"))
    wrong, _ = run(all_of(KrakenWorld(account, spot={"wrong_counts": True}), "withdrawals"))
    assert wrong == right


def test_rows_that_arrive_meanwhile_move_nothing() -> None:
    account = KrakenAccount(HISTORY)
    expected, _ = run(all_of(KrakenWorld(account), *EVERYTHING[:-1]))
    account = KrakenAccount(HISTORY)
    world = KrakenWorld(account)
    world.exchange.before_page = lambda *_: account.happen("order", loop_now_ms())
    found, _ = run(all_of(world, *EVERYTHING[:-1]))
    ids = {each["transactionId"] for each in found}
    assert [each for each in expected if each["transactionId"] not in ids] == []
    assert len(ids) == len(found)


def test_the_counter_of_the_lowest_tier_is_never_exceeded() -> None:
    world = KrakenWorld(history=HISTORY, spot={"tier": "starter"})

    async def timed() -> float:
        await all_of(world, *EVERYTHING)
        return loop_s()

    taken_s = run(timed())
    calls = Counter(path for path in world.transport.paths if path.startswith("/0/private"))
    units = sum(
        n * (2 if "Ledgers" in path or "Trades" in path else 1) for path, n in calls.items()
    )
    assert taken_s <= (units - 15) / 0.33 + 10


def test_what_the_key_may_not_see_is_not_covered() -> None:
    from_s = (NOW_MS - 20 * DAY_MS) // 1_000
    key = SimulatedKrakenKey(KEY.api_key, KEY.secret, query_from_s=from_s)
    records, summary = run(all_of(KrakenWorld(history=HISTORY, key=key), "trades", "ledger"))
    assert records
    for entry in summary["coverage"]:
        assert (entry["complete"], entry["reason"]) == (False, "hidden_from_key")
        assert entry["from"] >= from_s * 1_000


def test_a_key_without_trades_leaves_prices_out() -> None:
    key = SimulatedKrakenKey(KEY.api_key, KEY.secret, ("query-funds", "query-ledger"))
    records, summary = run(all_of(KrakenWorld(history=HISTORY, key=key), "trades"))
    assert all(each["complete"] for each in summary["coverage"])
    assert records
    assert all("price" in each["incomplete"] for each in records)
    both = [each for each in records if each.get("sentCurrency") and each.get("receivedCurrency")]
    assert all(each["side"] and each["instrument"]["base"] == each["asset"] for each in both)


def test_a_key_without_the_ledger_is_no_empty_account() -> None:
    key = SimulatedKrakenKey(KEY.api_key, KEY.secret, ("query-funds", "query-closed-trades"))

    async def fetched() -> dict[str, Any]:
        async with KrakenWorld(history=HISTORY, key=key) as world:
            return await world.fetch("trades", "holdings")

    answer = run(fetched())
    assert answer["partial"]
    by_type = {each["transaction_type"]: each for each in answer["coverage"]}
    assert by_type["holdings"]["complete"]
    assert by_type["trades"]["reason"] == "permission_denied"


def test_raw_rows_are_shown_on_request() -> None:
    records, _ = run(all_of(KrakenWorld(history=HISTORY), *EVERYTHING[:-1], include_raw=True))
    for record in records:
        assert record["raw"]
        if record["type"] == "ledger" and record["account"]["wallet"].startswith("SPOT"):
            assert record["raw"]["refid"] == record["ids"]["transfer_id"]
