"""Random accounts over HTTP, and an oracle that states every record of theirs.

An answer is right, or it says what it lacks. `ONEBOOK_ACCOUNTS=500` reads more accounts than the
soak does, `ONEBOOK_ACCOUNTS_FROM=7` begins at another seed.
"""

import asyncio
import os
from collections import Counter, defaultdict
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from msgspec import json

from clocks import made_of
from onebook.clock import Clock
from onebook.config import AccountUrls, TransactionSettings
from onebook.transactions.bybit import BYBIT, ENTRY
from onebook.transactions.credentials import Credentials
from transactions.accounting import EXACT, Answered, asked
from transactions.bybit_support import KEY, NOW_MS, AccountWorld
from transactions.oracle.account import RandomAccount
from transactions.oracle.exchange import RandomExchange, listening
from transactions.oracle.rows import DAY_MS, Amount, Expected, Served

DAYS = 75  # back to when leverage tokens still had their list
TOKENS_TO_MS = 1_759_276_800_000
FROM = int(os.environ.get("ONEBOOK_ACCOUNTS_FROM", "0"))
SEEDS = [*range(FROM, FROM + int(os.environ.get("ONEBOOK_ACCOUNTS", "12")))]
# Accounts that once had a fault of ours: rows without a time twice, and not at all; fills again
# after a failure of another query of them.
if not FROM:
    SEEDS += sorted({39, 41, 57, 105, 8253} - set(SEEDS))
AT_ONCE = {0, 1, 2, 41, 8253}  # by `make test`: each size, and accounts with a fault
UNREAD = "unreadable_record"
Record = dict[str, Any]


def passing() -> Clock:
    """A clock that only waiting moves on."""
    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        await asyncio.sleep(0)

    return made_of(wall_ms=lambda: NOW_MS, monotonic=lambda: now_s, sleep=sleep)


async def answers(account: RandomAccount, exchange: RandomExchange, random: Random) -> Answered:
    """All that the service says of an account, in one answer, a stream or pages."""
    streamed, limit = random.random() < 0.3, random.choice([13, 60, 400, 10_000])
    async with listening(exchange) as url:
        hosts = {"bybit": AccountUrls(mainnet_url=url)}
        world = AccountWorld(
            BYBIT, Credentials(KEY.api_key, KEY.secret), None, clock=passing(), decode=EXACT,
            accounts=TransactionSettings(overrides=hosts),
        )  # fmt: skip
        return await asked(
            world, *ENTRY.types, include_raw=True, start_time=account.from_ms,
            end_time=account.to_ms, streamed=streamed, limit=None if streamed else limit,
        )  # fmt: skip


def money_of(record: Record, name: str) -> Amount | None:
    found = record.get(name)
    if found is None:
        return None
    assert Decimal(found["amount_str"]) == found["amount"], "the number and the text differ"
    return found["currency"], Decimal(found["amount_str"])


def shown(record: Record) -> tuple[Any, ...]:
    """What a record says, in the words of `Expected`."""
    return (
        record["kind"], record["status"], record["view"], money_of(record, "sentCurrency"),
        money_of(record, "receivedCurrency"), fees(
            [(one["currency"], Decimal(one["amount"])) for one in record["fees"]]),
    )  # fmt: skip


def stated(one: Expected) -> tuple[Any, ...]:
    return one.kind, one.status, one.view, one.sent, one.received, fees(one.fees)


def fees(found: list[Amount]) -> list[Amount]:
    return sorted(each for each in found if each[1])


def key_of(kind: str, row: Any) -> str:
    return f"{kind} {json.encode(row, order='sorted').decode()}"


def expected_of(account: RandomAccount) -> dict[str, tuple[Served, Expected]]:
    return {
        key_of(one.type, served.row): (served, one)
        for rows in account.lists.values()
        for served in rows
        for one in served.expected
    }


def check(account: RandomAccount, found: Answered) -> None:
    """Every record is right and there once; what is missing is said to be."""
    expected = expected_of(account)
    keys = [key_of(record["type"], record["raw"]) for record in found.records]
    assert [key for key, count in Counter(keys).items() if count > 1] == []
    ids = Counter(record["transactionId"] for record in found.records)
    twice = [name for name, count in ids.items() if count > 1]
    assert [record["raw"] for record in found.records if record["transactionId"] in twice] == []
    gained: defaultdict[str, Decimal] = defaultdict(Decimal)
    for key, record in zip(keys, found.records, strict=True):
        served, one = expected[key]
        assert shown(record) == stated(one), key
        assert one.at_ms in (None, record["timestamp"]), key
        assert account.from_ms <= record["timestamp"] <= account.to_ms or one.kind == "balance"
        if not served.late and record["view"] == "primary" and record["status"] == "completed":
            count(record, gained)
    missing = defaultdict(list)
    for key in expected.keys() - set(keys):
        served, one = expected[key]
        if not served.late and not untold(served, one, account):
            missing[one.type].append((one.at_ms, key))
    for kind, lost in missing.items():
        entry = found.coverage[kind]
        assert not entry["complete"], lost
        assert entry["reason"] != UNREAD, lost
        floor_ms = entry["from"]
        assert floor_ms is None or all(at_ms is None or at_ms < floor_ms for at_ms, _ in lost)
    unread = {one.type for _, one in expected.values() if one.unreadable}
    for kind in {record["type"] for record in found.records if record["kind"] == "other"} & unread:
        if any(expected[key][1].unreadable for key in keys if key.startswith(f"{kind} ")):
            assert not found.coverage[kind]["complete"]
            assert found.partial
    if not missing:
        whole = {coin: total for coin, total in account.gained.items() if total}
        assert {coin: total for coin, total in gained.items() if total} == whole


def untold(served: Served, one: Expected, account: RandomAccount) -> bool:
    """Whether a row that has no time of its own may be outside of the range."""
    return one.unreadable and served.filter_ms < account.from_ms


def count(record: Record, gained: defaultdict[str, Decimal]) -> None:
    """Received less sent less fees; of the ledger's lines their own list is counted once."""
    for name, sign in (("receivedCurrency", 1), ("sentCurrency", -1)):
        found = money_of(record, name)
        if found is not None:
            gained[found[0]] += sign * found[1]
    for fee in record["fees"]:
        gained[fee["currency"]] -= Decimal(fee["amount"])


@pytest.mark.parametrize(
    "seed",
    [pytest.param(each, marks=() if each in AT_ONCE else pytest.mark.soak) for each in SEEDS],
)
async def test_the_answer_is_what_happened_or_says_what_it_lacks(seed: int) -> None:
    from_ms = NOW_MS - DAYS * DAY_MS
    account = RandomAccount(seed, from_ms=from_ms, to_ms=NOW_MS - 1, tokens_to_ms=TOKENS_TO_MS)
    random = Random(f"asked {seed}")
    account.fill((500, 40, 200)[seed % 3])
    exchange = RandomExchange(account, seed, now_ms=lambda: NOW_MS)
    found = await answers(account, exchange, random)
    assert exchange.violations == []
    check(account, found)
