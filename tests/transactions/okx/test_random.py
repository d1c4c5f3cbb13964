"""Random accounts, and an oracle that states every record of theirs.

An answer is right, or it says what it lacks. `ONEBOOK_ACCOUNTS=500` reads more accounts than the
suite does, `ONEBOOK_ACCOUNTS_FROM=7` begins at another seed.
"""

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from onebook.transactions.credentials import Credentials
from onebook.transactions.okx import OKX
from transactions.accounting import EXACT, Answered, added_up, asked
from transactions.bybit_support import NOW_MS, AccountWorld, loop_now_ms, run
from transactions.kraken.test_random import hashed
from transactions.okx_support import KEY
from transactions.oracle.okx.account import RandomOkx
from transactions.oracle.okx.exchange import RandomOkxExchange
from transactions.oracle.rows import DAY_MS
from transactions.test_random_accounts import shown, stated

DAYS = 700
FROM = int(os.environ.get("ONEBOOK_ACCOUNTS_FROM", "0"))
SEEDS = range(FROM, FROM + int(os.environ.get("ONEBOOK_ACCOUNTS", "12")))
AT_ONCE = range(6)  # by `make test`: two of each size
TYPES = OKX.entry.types


def account_of(seed: int) -> RandomOkx:
    account = RandomOkx(seed, from_ms=NOW_MS - DAYS * DAY_MS, to_ms=NOW_MS - 1)
    account.fill((400, 40, 150)[seed % 3])
    return account


async def answers(account: RandomOkx, exchange: RandomOkxExchange, random: Random) -> Answered:
    """All records of an account, in pages of some size."""
    limit = random.choice([13, 60, 400, 10_000])
    credentials = Credentials(KEY.api_key, KEY.secret, passphrase=KEY.passphrase)
    found = await asked(
        AccountWorld(OKX, credentials, exchange, decode=EXACT), *TYPES, pause_s=60,
        start_time=account.from_ms, end_time=NOW_MS, limit=limit, verify=limit == 10_000,
    )  # fmt: skip
    if len(found.tails) == 1 and limit == 10_000:
        proof = found.tails[0]["verification"]
        assert proof["holds"] is True, [check for check in proof["checks"] if check["breaks"]]
    return found


def check(account: RandomOkx, found: Answered) -> None:
    """Every record is right and unique."""
    assert not found.partial, found.errors
    ids = Counter(r["transactionId"] for r in found.records if r["view"] != "snapshot")
    assert [name for name, count in ids.items() if count > 1] == []
    expected: Counter[tuple[Any, ...]] = Counter()
    for one in account.expected:
        expected[one.type, *hashed(stated(one))] += 1
    events = [each for each in found.records if each["type"] not in ("ledger", "holdings")]
    seen = Counter((each["type"], *hashed(shown(each))) for each in events)
    assert seen - expected == Counter()
    assert expected - seen == Counter()
    assert added_up(events) == {coin: total for coin, total in account.gained.items() if total}
    lines = [each for each in found.records if each["type"] == "ledger"]
    assert len(lines) == len(account.bills["trading"]) + len(account.bills["funding"])


@pytest.mark.parametrize(
    "seed",
    [pytest.param(each, marks=() if each in AT_ONCE else pytest.mark.soak) for each in SEEDS],
)
def test_an_answer_is_right(seed: int) -> None:
    account = account_of(seed)
    exchange = RandomOkxExchange(account, seed, now_ms=loop_now_ms)
    found = run(answers(account, exchange, Random(seed)))
    assert exchange.violations == []
    check(account, found)
