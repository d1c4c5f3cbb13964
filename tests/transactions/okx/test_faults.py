"""Temporary faults of OKX, undocumented bills, and lists that an account lacks."""

from typing import Any, Final

import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory
from onebook.simulator.accounts.okx.server import OKX_FAULTS
from transactions.accounting import by_currency, read_again, summed
from transactions.bybit_support import NOW_MS, run
from transactions.okx.test_accounts import EVERYTHING, HISTORY, held
from transactions.okx_support import OkxWorld

NOT_PASSING: Final = ("unknown_type", "numbers")
PASSING: Final = tuple(kind for kind in OKX_FAULTS if kind not in NOT_PASSING)
BILLS: Final = "/api/v5/account/bills"
ARCHIVE: Final = "/api/v5/account/bills-archive"
FUNDING: Final = "/api/v5/asset/bills"
FUNDING_HISTORY: Final = "/api/v5/asset/bills-history"


@pytest.mark.parametrize("seed", range(4))
def test_faults_that_pass_change_nothing(seed: int) -> None:
    account = OkxAccount(HISTORY)
    faults = AccountFaults(rate=0.4, kinds=PASSING, seed=seed)
    world = OkxWorld(account, site={"faults": faults, "limited": False})
    records = run(read_again(world, *EVERYTHING, start_time=0, limit=10_000))
    assert len(faults.served) > 5
    assert summed(records) == by_currency(held(account))
    ids = [each["transactionId"] for each in records if each["view"] != "snapshot"]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("path", [BILLS, ARCHIVE, FUNDING, FUNDING_HISTORY])
def test_an_answer_without_data_is_asked_again_and_ends_nothing(path: str) -> None:
    account = OkxAccount(HISTORY)
    faults = AccountFaults()
    faults.queue(path, "no_data", "no_data")
    world = OkxWorld(account, site={"faults": faults, "limited": False})
    records = run(read_again(world, *EVERYTHING, start_time=0, limit=10_000))
    assert sum(faults.served.values()) == 2
    assert summed(records) == by_currency(held(account))


def test_a_code_that_is_not_documented_is_another_event_and_never_lost() -> None:
    account = OkxAccount(HISTORY)
    faults = AccountFaults()
    for path in (BILLS, ARCHIVE, FUNDING, FUNDING_HISTORY):
        faults.queue(path, *["unknown_type"] * 60)
    world = OkxWorld(account, site={"faults": faults, "limited": False})
    records = run(read_again(world, *EVERYTHING, start_time=0, limit=10_000))
    strange = [each for each in records if each["view"] == "primary" and each["kind"] == "other"]
    assert len(strange) > 100
    assert {each["native_type"].split(":")[1] for each in strange} == {"999"}
    lines = [each for each in records if each["type"] == "ledger"]
    changes = [each["balance"]["change"] for each in lines]
    assert len(changes) == sum(1 for _ in account.bills()) + sum(1 for _ in account.funding())


def test_an_account_in_spot_mode_lacks_nothing() -> None:
    account = OkxAccount(OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=300, derivatives=False))
    records = run(read_again(OkxWorld(account), *EVERYTHING, start_time=0, limit=10_000))
    assert summed(records) == by_currency(held(account))
    assert not any(each["type"] == "futures" for each in records)


def test_an_account_without_history_is_empty_and_whole() -> None:
    async def fetched() -> dict[str, Any]:
        async with OkxWorld(OkxAccount(OkxHistory(NOW_MS - DAY_MS, NOW_MS, rows=1))) as world:
            return await world.fetch(
                *EVERYTHING, start_time=NOW_MS - 50 * DAY_MS, end_time=NOW_MS - 40 * DAY_MS
            )

    answer = run(fetched())
    assert answer["total_transactions"] == len(
        [each for each in answer["transactions"] if each["view"] == "snapshot"]
    )
    assert all(each["complete"] for each in answer["coverage"])
