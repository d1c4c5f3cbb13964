"""Whole simulated accounts through the service: the records equal the true events."""

from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec

from onebook.core import show
from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkxKey
from onebook.transactions.adapter import Environment
from onebook.transactions.okx import OKX
from transactions.accounting import all_of, by_currency, summed
from transactions.bybit_support import NOW_MS, run
from transactions.okx_support import KEY, SITES, OkxWorld

EVERYTHING = OKX.entry.types
UNIT = 10**16  # the simulated account counts in units of 1e-16
HISTORY = OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=600)
OURS = {"trading": "TRADING", "funding": "FUNDING"}


def held(account: OkxAccount) -> dict[tuple[str, str], str]:
    """The true holdings of both accounts with a ledger."""
    return {
        (OURS[wallet], currency): show(Decimal(amount) / UNIT)
        for (wallet, currency), amount in account.balances().items()
        if wallet in OURS and amount
    }


def test_every_event_has_its_kind() -> None:
    account = OkxAccount(HISTORY)
    records, _ = run(all_of(OkxWorld(account), *EVERYTHING))
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


def test_a_deposit_that_is_credited_to_the_trading_account_counts_once() -> None:
    account = OkxAccount(msgspec.structs.replace(HISTORY, direct=True))
    records, summary = run(all_of(OkxWorld(account), *EVERYTHING, verify=True))
    truth = [event for event in account.events() if event.kind == "deposit"]
    assert len(truth) > 3
    direct = {
        each["transactionId"]
        for each in records
        if each["type"] == "deposits"
        and each["status"] == "completed"
        and each["account"]["wallet"] == "TRADING"
    }
    assert len(direct) == len(truth)
    lines = [each for each in records if each["type"] == "ledger" and direct & {*each["related"]}]
    assert sorted(each["related"][0] for each in lines) == sorted(direct)
    assert {each["account"]["wallet"] for each in lines} == {"TRADING"}
    sums, holds = summed(records), by_currency(held(account))
    assert {name: sums.get(name) for name in holds} == holds
    assert summary["verification"]["holds"] is True


def test_bank_money_has_its_order_and_keeps_its_id() -> None:
    account = OkxAccount(HISTORY)
    truth = [event for event in account.events() if event.kind.startswith("fiat ")]
    assert {event.kind for event in truth} == {"fiat deposit", "fiat withdrawal"}
    numbers = {row.seq for row in account.lists["fiat"] if row.state == "completed"}

    def read(world: OkxWorld) -> dict[str, Any]:
        records, summary = run(all_of(world, "deposits", "withdrawals"))
        assert not summary["errors"]
        return {
            each["transactionId"]: each
            for each in records
            if each["native_type"].startswith("6:") and each["asset"] == "EUR"
        }

    found = read(OkxWorld(account))
    assert {int(each["ids"]["transfer_id"][-4:]) for each in found.values()} <= numbers
    assert len(found) == len(truth)
    assert all(each["description"]["desc"].endswith("(SEPA)") for each in found.values())
    # A site without these lists: the bills stand for themselves, under the same ids.
    key = SimulatedOkxKey(KEY.api_key, KEY.secret, KEY.passphrase, region="us")
    plain = read(OkxWorld(account, key=key, fields={"host": "us"}))
    assert plain.keys() == found.keys()
    assert not any(each["ids"].get("transfer_id") for each in plain.values())


def test_what_the_exchange_forgot_is_said() -> None:
    account = OkxAccount(OkxHistory(NOW_MS - 1_600 * DAY_MS, NOW_MS, rows=1_500, seed=5))
    records, summary = run(all_of(OkxWorld(account), *EVERYTHING, verify=True))
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
        assert world.transport.asked[0][0] == SITES["global"]
        return dict(info.found)

    assert run(checked()) == {"host": "eea"}

    async def fetched() -> tuple[set[str], dict[str, Any]]:
        world = OkxWorld(history=HISTORY, key=key, fields={"host": "eea"})
        async with world:
            answer = await world.fetch("trades", "deposits", limit=10)
        return {host for host, _ in world.transport.asked}, answer

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


def test_what_is_no_record_is_named_by_coverage_and_proof() -> None:
    """Failed bank orders move nothing; savings interest is in no ledger until redeemed."""
    account = OkxAccount(HISTORY)
    failed = [row for row in account.lists["fiat"] if row.state == "failed"]
    assert failed
    records, summary = run(all_of(OkxWorld(account), *EVERYTHING, verify=True))
    orders = {each["ids"].get("transfer_id", "") or "" for each in records}
    assert not {f"{row.seq:04}" for row in failed} & {order[-4:] for order in orders}
    named = {each["what"] for each in summary["verification"]["unproven"]}
    assert "orders of banks that are pending, failed or cancelled" in named
    assert "earnings of Simple Earn before they are redeemed" in named
    omitted = {each["transaction_type"]: each.get("omitted", "") for each in summary["coverage"]}
    assert {kind for kind, sentence in omitted.items() if "Orders of banks" in sentence} == {
        "deposits", "withdrawals",
    }  # fmt: skip
    assert {kind for kind, sentence in omitted.items() if "Simple Earn" in sentence} == {"earn"}
    _, summary = run(all_of(OkxWorld(account), "trades", verify=True))
    named = {each["what"] for each in summary["verification"]["unproven"]}
    assert not any("banks" in each or "Earn" in each for each in named)
    assert not any("omitted" in each for each in summary["coverage"])
