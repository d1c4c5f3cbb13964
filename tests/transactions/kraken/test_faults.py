"""Temporary faults of Kraken, undocumented types, and a walk that a deadline ends."""

from typing import Any, Final

import pytest

from onebook.config import TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.kraken import KrakenAccount, KrakenHistory
from onebook.simulator.accounts.kraken.server import FAULTS
from transactions.accounting import by_currency, read_again, summed
from transactions.bybit_support import NOW_MS, SETTINGS, run
from transactions.kraken.test_accounts import EVERYTHING, HISTORY, held
from transactions.kraken_support import KrakenWorld

PASSING: Final = tuple(
    kind for kind in FAULTS if kind not in ("unknown_type", "warning", "EAPI:Invalid nonce")
)


@pytest.mark.parametrize("seed", range(4))
def test_faults_that_pass_change_nothing(seed: int) -> None:
    account = KrakenAccount(HISTORY)
    faults = AccountFaults(rate=0.5, kinds=PASSING, seed=seed)
    world = KrakenWorld(account, spot={"faults": faults, "limited": False})
    records = run(read_again(world, *EVERYTHING, start_time=0, limit=10_000))
    assert len(faults.served) > 5
    assert summed(records) == by_currency(held(account))
    ids = [each["transactionId"] for each in records if each["view"] != "snapshot"]
    assert len(ids) == len(set(ids))


def test_a_type_that_is_not_documented_is_another_event_and_never_lost() -> None:
    account = KrakenAccount(HISTORY)
    faults = AccountFaults()
    faults.queue("/0/private/Ledgers", *["unknown_type"] * 40)
    world = KrakenWorld(account, spot={"faults": faults})
    records = run(read_again(world, *EVERYTHING[:-1], start_time=0, limit=10_000))
    assert summed(records) == by_currency(held(account))
    strange = [each for each in records if each["view"] == "primary" and each["kind"] == "other"]
    assert len(strange) > 20


def test_a_walk_that_the_deadline_ends_goes_on_where_it_stopped() -> None:
    """A new key of the lowest tier reads a page in six seconds."""
    account = KrakenAccount(KrakenHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=2_000))
    settings = SETTINGS.model_copy(update={"deadline_s": TransactionSettings().deadline_s})
    world = KrakenWorld(account, settings=settings)

    async def pages() -> tuple[list[dict[str, Any]], int]:
        records: list[dict[str, Any]] = []
        async with world:
            cursor, count = None, 0
            while not count or cursor:
                answer = await world.fetch(
                    "trades", "earn", "ledger", cursor=cursor, start_time=0, limit=10_000
                )
                assert answer["success"] is True
                records += answer["transactions"]
                cursor, count = answer["next_cursor"], count + 1
        return records, count

    records, count = run(pages())
    assert count > 4
    ids = [each["transactionId"] for each in records]
    assert len(ids) == len(set(ids))
    rows = [each for each in records if each["type"] == "ledger"]
    booked = {row.seq for row in account.ledger()}
    spot = [each for each in rows if each["account"]["wallet"].startswith("SPOT")]
    assert len(spot) == len(booked)
    ledger_calls = sum(path.endswith("/Ledgers") for path in world.transport.paths)
    assert ledger_calls < len(booked) / 50 + 3 * count + 5  # no page is read in every request


def test_a_balance_without_a_result_is_not_that_of_an_account_with_a_ledger() -> None:
    faults = AccountFaults()
    faults.queue("/0/private/BalanceEx", "no_result")
    world = KrakenWorld(KrakenAccount(HISTORY), spot={"faults": faults, "limited": False})

    async def holdings() -> dict[str, Any]:
        async with world:
            return await world.fetch("holdings", start_time=0)

    answer = run(holdings())
    assert answer["partial"] is True
    assert [each["error"] for each in answer["errors"]] == ["unreadable_answer"]
