"""Random Kraken accounts over HTTP, and an oracle that states every record of theirs.

An answer is right, or it says what it lacks. `ONEBOOK_ACCOUNTS=500` reads more accounts than the
suite does, `ONEBOOK_ACCOUNTS_FROM=7` begins at another seed.
"""

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from onebook.clock import SYSTEM_CLOCK
from onebook.config import AccountUrls, TransactionSettings
from onebook.transactions.credentials import Credentials
from onebook.transactions.kraken import KRAKEN
from transactions.accounting import EXACT, Answered, added_up, asked
from transactions.bybit_support import NOW_MS, AccountWorld
from transactions.kraken_support import FUTURES_KEY, KEY
from transactions.oracle.kraken.account import CONTRACT, RandomKraken
from transactions.oracle.kraken.exchange import PAGE_ROWS, RandomKrakenExchange, listening
from transactions.oracle.rows import COMPLETED, DAY_MS
from transactions.test_random_accounts import passing, shown, stated

DAYS = 700
FROM = int(os.environ.get("ONEBOOK_ACCOUNTS_FROM", "0"))
SEEDS = range(FROM, FROM + int(os.environ.get("ONEBOOK_ACCOUNTS", "12")))
# By `make test`: each account, in every way of reading; large ones in the smallest pages take
# hundreds of answers.
AT_ONCE = {
    *((seed, "one") for seed in (0, 1, 2, 5, 6, 7)),
    *((seed, "two") for seed in (1, 3, 4, 7, 8, 9, 10, 11)),
}
TRIES = 40
Row = dict[str, Any]
TYPES = KRAKEN.entry.types
Hosts = Callable[[str], AccountUrls]
HOSTS: dict[str, Hosts] = {
    "one": lambda url: AccountUrls(mainnet_url=url),
    "two": lambda url: AccountUrls(hosts={"spot": url, "futures": url}),
}


def account_of(seed: int) -> RandomKraken:
    account = RandomKraken(seed, from_ms=NOW_MS - DAYS * DAY_MS, to_ms=NOW_MS - 1)
    account.fill((500, 40, 200)[seed % 3])
    return account


class Reader:
    """Reads an account as the facts say, repeating after each fault."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(base_url=url)
        self._nonce = SYSTEM_CLOCK.wall_ms()

    async def __aenter__(self) -> "Reader":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def ask(self, name: str, **fields: Any) -> Any:
        for _ in range(TRIES):
            self._nonce += 1
            body = urlencode({"nonce": self._nonce, **fields})
            try:
                response = await self._http.post(f"/0/private/{name}", content=body)
                found = EXACT(response.content)
            except (httpx.TransportError, ValueError):
                continue
            if found["error"] == []:
                return found["result"]
        raise AssertionError("the exchange fails for ever")

    async def log(self, first: int) -> list[Row]:
        for _ in range(TRIES):
            path = f"/api/history/v3/account-log?sort=asc&count=100&from={first}"
            try:
                response = await self._http.get(path)
                return EXACT(response.content)["logs"]
            except (httpx.TransportError, ValueError):
                continue
        raise AssertionError("the exchange fails for ever")

    async def ledger(self) -> dict[str, Row]:
        found: dict[str, Row] = {}
        offset = 0
        while True:
            page = (await self.ask("Ledgers", ofs=offset, end=NOW_MS // 1_000))["ledger"]
            found |= page
            offset += len(page)
            if len(page) < PAGE_ROWS:
                return found


def net(account: RandomKraken) -> dict[str, Decimal]:
    """The totals of the expected records."""
    total: defaultdict[str, Decimal] = defaultdict(Decimal)
    for rows in account.lists.values():
        for served in rows:
            for one in served.expected:
                if one.status != COMPLETED or one.view != "primary" or served.late:
                    continue
                for money, sign in ((one.received, 1), (one.sent, -1)):
                    if money is not None:
                        total[money[0]] += sign * money[1]
                for coin, fee in one.fees:
                    total[coin] -= fee
    return {coin: n for coin, n in total.items() if n}


class TestOracle:
    """The oracle is consistent: served rows, expected records, and totals."""

    @pytest.mark.parametrize("seed", SEEDS)
    def test_expected_records_add_up_to_the_rows(self, seed: int) -> None:
        account = account_of(seed)
        assert net(account) == {coin: n for coin, n in account.gained.items() if n}

    @pytest.mark.parametrize("seed", [0, 1, 2, 7])
    async def test_what_is_served_chains_and_is_whole(self, seed: int) -> None:
        account = account_of(seed)
        exchange = RandomKrakenExchange(account, seed, now_ms=lambda: NOW_MS)
        async with asyncio.timeout(120), listening(exchange) as url, Reader(url) as reader:
            ledger = await reader.ledger()
            held: defaultdict[str, Decimal] = defaultdict(Decimal)
            for row in account.balanced():
                if row["id"] in ledger:
                    held[row["asset"]] += Decimal(row["amount"]) - Decimal(row["fee"])
                    assert Decimal(ledger[row["id"]]["balance"]) == held[row["asset"]]
            old = {one.row["id"] for one in account.lists["ledger"] if not one.late}
            assert old <= ledger.keys()
            log: list[Row] = []
            while page := await reader.log(1 + len(log)):
                log += page
            balances: defaultdict[str, Decimal] = defaultdict(Decimal)
            for row in log:
                assert Decimal(row["old_balance"]) == balances[row["asset"]]
                balances[row["asset"]] = Decimal(row["new_balance"])
            assert len(log) == len(account.lists["log"])
            assert {row["asset"] for row in log} >= {CONTRACT, "usd"}
        assert exchange.violations == []


async def answers(
    account: RandomKraken, exchange: RandomKrakenExchange, random: Random, hosts: Hosts, tmp: Path
) -> Answered:
    """All records of an account, in one answer, a stream or pages."""
    streamed, limit = random.random() < 0.3, random.choice([13, 60, 400, 10_000])
    async with listening(exchange) as url:
        credentials = Credentials(
            KEY.api_key, KEY.secret,
            futures_key=FUTURES_KEY.api_key, futures_secret=FUTURES_KEY.secret,
        )  # fmt: skip
        settings = TransactionSettings(
            overrides={"kraken": hosts(url)},
            master_key_file=tmp / "master.key",
            deadline_s=3_600.0,
            stream_deadline_s=86_400.0,
        )
        world = AccountWorld(
            KRAKEN, credentials, None, settings=settings, clock=passing(), decode=EXACT
        )
        return await asked(
            world, *TYPES, start_time=account.from_ms, end_time=account.to_ms,
            streamed=streamed, limit=None if streamed else limit,
        )  # fmt: skip


def hashed(said: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert lists to tuples, so that the value can be counted."""
    return tuple(tuple(part) if isinstance(part, list) else part for part in said)


def check(account: RandomKraken, found: Answered) -> None:
    """Every record is right and unique; missing ones are reported."""
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
    if not any(not each["complete"] for each in found.coverage.values()):
        lines = sum(record["type"] == "ledger" for record in found.records)
        cash = [each for each in account.lists["log"] if each.row["asset"] != CONTRACT]
        rows = [*account.lists["ledger"], *cash]
        assert sum(not each.late for each in rows) <= lines <= len(rows)


@pytest.mark.parametrize(
    ("seed", "hosts"),
    [
        pytest.param(seed, hosts, marks=() if (seed, hosts) in AT_ONCE else pytest.mark.soak)
        for seed in SEEDS
        for hosts in HOSTS
    ],
)
async def test_an_answer_is_right_or_says_what_it_lacks(
    seed: int, hosts: str, tmp_path: Path
) -> None:
    account = account_of(seed)
    exchange = RandomKrakenExchange(account, seed, now_ms=lambda: NOW_MS)
    found = await answers(account, exchange, Random(f"{hosts} {seed}"), HOSTS[hosts], tmp_path)
    assert exchange.violations == []
    check(account, found)
