"""Whole simulated accounts through the service: what comes out is what happened."""

from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import pytest

from onebook.core import show
from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkxKey
from onebook.transactions.adapter import Environment
from onebook.transactions.okx import OKX
from transactions.bybit_support import NOW_MS, run
from transactions.okx_support import KEY, SITES, OkxWorld

EVERYTHING = OKX.entry.types
UNIT = 10**16  # the simulated account counts in units of 1e-16
HISTORY = OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=600)
OURS = {"trading": "TRADING", "funding": "FUNDING"}
Records = list[dict[str, Any]]


def summed(records: Records) -> dict[str, str]:
    """By currency what completed primary records say was moved."""
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for record in records:
        if record["view"] != "primary" or record["status"] != "completed":
            continue
        for name, sign in (("receivedCurrency", 1), ("sentCurrency", -1)):
            if money := record.get(name):
                sums[money["currency"]] += sign * Decimal(money["amount_str"])
        for fee in record["fees"]:
            sums[fee["currency"]] -= Decimal(fee["amount"])
    return {currency: show(amount) for currency, amount in sums.items() if amount}


def held(account: OkxAccount) -> dict[tuple[str, str], str]:
    """What both accounts with a ledger really hold."""
    return {
        (OURS[wallet], currency): show(Decimal(amount) / UNIT)
        for (wallet, currency), amount in account.balances().items()
        if wallet in OURS and amount
    }


def by_currency(balances: dict[tuple[str, str], str]) -> dict[str, str]:
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for (_, currency), amount in balances.items():
        sums[currency] += Decimal(amount)
    return {currency: show(amount) for currency, amount in sums.items() if amount}


async def all_of(world: OkxWorld, *types: str, **fields: Any) -> tuple[Records, dict[str, Any]]:
    async with world:
        lines = await world.everything(*types or EVERYTHING, **fields)
    assert lines[-1]["success"], lines[-1]
    return lines[:-1], lines[-1]


@pytest.mark.parametrize(("rows", "seed"), [(600, 1), (600, 2), (1_500, 3)])
def test_an_account_is_what_happened_to_the_last_digit(rows: int, seed: int) -> None:
    account = OkxAccount(OkxHistory(NOW_MS - 80 * DAY_MS, NOW_MS, rows=rows, seed=seed))
    records, summary = run(all_of(OkxWorld(account), verify=True))
    truth = held(account)
    assert summed(records) == by_currency(truth)
    holdings = {
        (each["account"]["wallet"], each["asset"]): each["balance"]["total"]
        for each in records
        if each["view"] == "snapshot" and each["account"]["wallet"] in OURS.values()
    }
    assert holdings == truth
    assert not summary["errors"]
    assert summary["verification"]["holds"] is True
    assert {each["grade"] for each in summary["verification"]["grades"]} == {"proven"}


def test_every_event_has_its_kind() -> None:
    account = OkxAccount(HISTORY)
    records, _ = run(all_of(OkxWorld(account)))
    truth = Counter(event.kind for event in account.events())
    found = Counter((each["type"], each["kind"]) for each in records if each["view"] == "primary")
    assert found["trades", "trade"] == truth["trade"] + truth["simple trade"]
    assert found["futures", "funding"] == truth["funding"]
    assert found["futures", "settlement"] == truth["settlement"]
    assert found["deposits", "deposit"] >= truth["deposit"] + truth["fiat deposit"]
    assert found["withdrawals", "withdrawal"] >= truth["withdrawal"] + truth["fiat withdrawal"]
    assert not any(each["kind"] == "other" for each in records)
    own = [each for each in records if each["type"] == "transfers" and each["direction"] == "both"]
    assert len(own) == truth["transfer"]


def test_every_record_has_an_id_of_its_own_and_refers_to_others() -> None:
    records, _ = run(all_of(OkxWorld(history=HISTORY)))
    by_id = {each["transactionId"]: each for each in records}
    assert len(by_id) == len(records)
    for record in records:
        for related in record["related"]:
            assert by_id[related]["type"] == record["related_type"]


@pytest.mark.parametrize(("limit", "rows"), [(7, 120), (100, 600), (333, 600)])
def test_pages_of_any_size_hold_every_record_once(limit: int, rows: int) -> None:
    """With the smallest ones, bills of the funding account end before those of trading."""
    history = OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=rows)

    async def paged() -> Records:
        async with OkxWorld(history=history, site={"limited": False}) as world:
            pages = await world.pages(*EVERYTHING[1:], start_time=0, limit=limit)
        return [record for page in pages for record in page["transactions"]]

    whole, _ = run(all_of(OkxWorld(history=history), *EVERYTHING[1:]))
    assert run(paged()) == whole


def test_what_the_exchange_forgot_is_said() -> None:
    account = OkxAccount(OkxHistory(NOW_MS - 1_600 * DAY_MS, NOW_MS, rows=1_500, seed=5))
    records, summary = run(all_of(OkxWorld(account), verify=True))
    coverage = {each["transaction_type"]: each for each in summary["coverage"]}
    floor_ms = coverage["trades"]["from"]
    assert NOW_MS - 90 * DAY_MS < floor_ms < NOW_MS - 88 * DAY_MS
    assert coverage["trades"]["reason"] == "older_not_kept"
    assert coverage["fiat"]["complete"]
    assert coverage["deposits"]["complete"]
    assert min(each["timestamp"] for each in records if each["type"] == "trades") >= floor_ms
    assert min(each["timestamp"] for each in records) < NOW_MS - 1_500 * DAY_MS
    assert summary["verification"]["holds"] is True


def test_the_region_of_a_key_is_found() -> None:
    key = SimulatedOkxKey(KEY.api_key, KEY.secret, KEY.passphrase, region="eea")

    async def checked() -> dict[str, str]:
        world = OkxWorld(history=HISTORY, key=key)
        session = world.adapter.account(Environment.MAINNET, world.credentials)
        info = await session.reader.check()
        await world.service.close()
        assert info.read_only
        assert world.transport.hosts[0] == SITES["global"]
        return dict(info.found)

    assert run(checked()) == {"host": "eea"}

    async def fetched() -> tuple[set[str], dict[str, Any]]:
        world = OkxWorld(history=HISTORY, key=key, fields={"host": "eea"})
        async with world:
            answer = await world.fetch("trades", "deposits", limit=10)
        return set(world.transport.hosts), answer

    hosts, answer = run(fetched())
    assert answer["total_transactions"] == 10
    assert hosts == {SITES["eea"]}


def test_a_demo_account_has_its_trading_account_alone() -> None:
    account = OkxAccount(HISTORY)
    key = SimulatedOkxKey(KEY.api_key, KEY.secret, KEY.passphrase, demo=True)
    world = OkxWorld(
        account, key=key, environment=Environment.DEMO, site={"demo_account": account}
    )  # fmt: skip

    async def fetched() -> dict[str, Any]:
        async with world:
            return await world.fetch(
                *EVERYTHING, start_time=NOW_MS - 20 * DAY_MS, limit=10_000, demo=True
            )

    answer = run(fetched())
    assert not answer["errors"]
    assert {each["environment"] for each in answer["transactions"]} == {"demo"}
    lines = [each for each in answer["transactions"] if each["type"] == "ledger"]
    assert lines
    assert {each["account"]["wallet"] for each in lines} == {"TRADING"}
    assert not any(each["type"] == "deposits" for each in answer["transactions"])
