"""Random accounts over HTTP, and an oracle that states every record of theirs.

An answer is right, or it says what it lacks. `ONEBOOK_ACCOUNTS=500` reads more accounts than the
suite does, `ONEBOOK_ACCOUNTS_FROM=7` begins at another seed.
"""

from collections import Counter, defaultdict
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from onebook.config import AccountUrls, TransactionSettings
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import CALLER, MASTER_KEY, NOW_MS, MemoryStore
from transactions.kraken_support import FUTURES_KEY, KEY
from transactions.oracle.kraken.account import RandomKraken
from transactions.oracle.kraken.exchange import RandomKrakenExchange, listening
from transactions.test_random_accounts import (
    PAGES_MAX,
    Answered,
    decoder,
    passing,
    shown,
    stated,
)
from transactions.test_random_kraken import SEEDS, account_of

TYPES = KRAKEN.entry.types
Record = dict[str, Any]


async def asked(
    account: RandomKraken, exchange: RandomKrakenExchange, random: Random, tmp: Any
) -> Answered:
    """All that the service says of an account, in one answer, a stream or pages."""
    found, cursor = Answered(), None
    streamed, limit = random.random() < 0.3, random.choice([13, 60, 400, 10_000])
    async with listening(exchange) as url:
        vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        credentials = Credentials(
            KEY.api_key, KEY.secret,
            futures_key=FUTURES_KEY.api_key, futures_secret=FUTURES_KEY.secret,
        )  # fmt: skip
        await vault.put("kraken", "mainnet", credentials, now_ms=NOW_MS)
        clock = passing()
        settings = TransactionSettings(
            overrides={"kraken": AccountUrls(mainnet_url=url)},
            master_key_file=tmp / "master.key",
            deadline_s=3_600.0,
            stream_deadline_s=86_400.0,
        )
        adapter = ExchangeAdapter(KRAKEN, settings, clock=clock, random=Random(7))
        service = Transactions(
            [adapter], vault, cursor_secret=b"a secret", clock=clock, settings=settings
        )
        try:
            for _ in range(PAGES_MAX):
                request = TransactionsRequest(
                    exchange="kraken", transaction_types=list(TYPES), start_time=account.from_ms,
                    end_time=account.to_ms, cursor=cursor, limit=None if streamed else limit,
                )  # fmt: skip
                query = service.plan(request, key_id=CALLER, streamed=streamed)
                if streamed:
                    lines = [line async for line in service.stream(query, key_id=CALLER)]
                    *records, tail = map(decoder.decode, b"".join(lines).splitlines())
                else:
                    tail = decoder.decode(await service.fetch(query, key_id=CALLER))
                    records = tail["transactions"]
                cursor = found.add(records, tail)
                if cursor is None:
                    return found
        finally:
            await service.close()
    raise AssertionError("The cursor leads on without an end.")


def hashed(said: tuple[Any, ...]) -> tuple[Any, ...]:
    """With a tuple in place of each list, so that it can be counted."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in said)


def check(account: RandomKraken, found: Answered) -> None:
    """Every record is right and there once; what is missing is said to be."""
    ids = Counter(record["transactionId"] for record in found.records)
    assert [name for name, count in ids.items() if count > 1] == []
    expected: Counter[tuple[Any, ...]] = Counter()
    late: Counter[tuple[Any, ...]] = Counter()
    for served in (served for rows in account.lists.values() for served in rows):
        for one in served.expected:
            counted = late if served.late else expected
            counted[one.type, one.at_ms, *hashed(stated(one))] += 1
    events = [record for record in found.records if record["type"] not in ("ledger", "holdings")]
    for event in events:
        said = hashed(shown(event))
        keys = [(event["type"], at_ms, *said) for at_ms in (event["timestamp"], None)]
        key = next((key for key in keys if expected[key] > 0 or late[key] > 0), None)
        assert key is not None, event
        (expected if expected[key] > 0 else late).subtract([key])
    missing = defaultdict(list)
    for key in expected.elements():
        missing[key[0]].append(key)
    for kind, lost in missing.items():
        entry = found.coverage[kind]
        assert not entry["complete"], lost
        assert entry["from"] is None or all((key[1] or 0) < entry["from"] for key in lost), lost
    if not missing and not late:
        gained = {coin: total for coin, total in account.gained.items() if total}
        assert added_up(events) == gained


def added_up(events: list[Record]) -> dict[str, Decimal]:
    """Received less sent less fees of what is completed."""
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for event in events:
        if event["view"] != "primary" or event["status"] != "completed":
            continue
        for name, sign in (("receivedCurrency", 1), ("sentCurrency", -1)):
            if money := event.get(name):
                sums[money["currency"]] += sign * Decimal(money["amount_str"])
        for fee in event["fees"]:
            sums[fee["currency"]] -= Decimal(fee["amount"])
    return {coin: total for coin, total in sums.items() if total}


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_answer_is_right_or_says_what_it_lacks(seed: int, tmp_path: Any) -> None:
    account = account_of(seed)
    exchange = RandomKrakenExchange(account, seed, now_ms=lambda: NOW_MS)
    found = await asked(account, exchange, Random(seed), tmp_path)
    assert exchange.violations == []
    check(account, found)
