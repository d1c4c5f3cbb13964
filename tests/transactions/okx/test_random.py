"""Random accounts, and an oracle that states every record of theirs.

An answer is right, or it says what it lacks. `ONEBOOK_ACCOUNTS=500` reads more accounts than the
suite does, `ONEBOOK_ACCOUNTS_FROM=7` begins at another seed.
"""

import asyncio
import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from onebook.errors import ExchangeFailed
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.okx import OKX
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import (
    CALLER,
    CLOCK,
    MASTER_KEY,
    NOW_MS,
    SETTINGS,
    MemoryStore,
    loop_now_ms,
    run,
)
from transactions.kraken.test_random import added_up, hashed
from transactions.okx_support import KEY
from transactions.oracle.okx.account import RandomOkx
from transactions.oracle.okx.exchange import RandomOkxExchange
from transactions.oracle.rows import DAY_MS
from transactions.test_random_accounts import PAGES_MAX, Answered, decoder, shown, stated

DAYS = 700
FROM = int(os.environ.get("ONEBOOK_ACCOUNTS_FROM", "0"))
SEEDS = range(FROM, FROM + int(os.environ.get("ONEBOOK_ACCOUNTS", "12")))
TYPES = OKX.entry.types
TRIES = 200


def account_of(seed: int) -> RandomOkx:
    account = RandomOkx(seed, from_ms=NOW_MS - DAYS * DAY_MS, to_ms=NOW_MS - 1)
    account.fill((400, 40, 150)[seed % 3])
    return account


async def asked(account: RandomOkx, exchange: RandomOkxExchange, random: Random) -> Answered:
    """All that the service says of an account, in pages of some size."""
    found, cursor = Answered(), None
    limit = random.choice([13, 60, 400, 10_000])
    vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
    await vault.put(
        "okx", "mainnet", Credentials(KEY.api_key, KEY.secret, passphrase=KEY.passphrase),
        now_ms=NOW_MS,
    )  # fmt: skip
    adapter = ExchangeAdapter(OKX, SETTINGS, clock=CLOCK, transport=exchange, random=Random(7))
    service = Transactions(
        [adapter], vault, cursor_secret=b"a secret", clock=CLOCK, settings=SETTINGS
    )
    try:
        for _ in range(PAGES_MAX):
            request = TransactionsRequest(
                exchange="okx", transaction_types=list(TYPES), start_time=account.from_ms,
                end_time=NOW_MS, cursor=cursor, limit=limit, verify=limit == 10_000,
            )  # fmt: skip
            query = service.plan(request, key_id=CALLER)
            try:
                tail = decoder.decode(await service.fetch(query, key_id=CALLER))
            except ExchangeFailed:
                await asyncio.sleep(60)
                continue
            if cursor is None and tail["next_cursor"] is None and limit == 10_000:
                checks = tail["verification"]["checks"]
                assert tail["verification"]["holds"] is True, [c for c in checks if c["breaks"]]
            cursor = found.add(tail["transactions"], tail)
            if cursor is None:
                return found
            await asyncio.sleep(30)
    finally:
        await service.close()
    raise AssertionError("The cursor leads on without an end.")


def check(account: RandomOkx, found: Answered) -> None:
    """Every record is right and there once."""
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


@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_is_right(seed: int) -> None:
    account = account_of(seed)
    exchange = RandomOkxExchange(account, seed, now_ms=loop_now_ms)
    found = run(asked(account, exchange, Random(seed)))
    assert exchange.violations == []
    check(account, found)
