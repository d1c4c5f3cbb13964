"""Random Kraken accounts over HTTP, and an oracle that states every record of theirs.

`ONEBOOK_ACCOUNTS=500` reads more accounts than the suite does, `ONEBOOK_ACCOUNTS_FROM=7` begins at
another seed.
"""

import asyncio
import os
from collections import Counter, defaultdict
from decimal import Decimal
from random import Random
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from msgspec import json

from onebook.clock import SYSTEM_CLOCK
from onebook.config import AccountUrls, TransactionSettings
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import CALLER, MASTER_KEY, NOW_MS, MemoryStore
from transactions.oracle.kraken.account import CONTRACT, RandomKraken
from transactions.oracle.kraken.exchange import PAGE_ROWS, RandomKrakenExchange, listening
from transactions.oracle.rows import COMPLETED, DAY_MS, Amount, Expected
from transactions.test_random_accounts import Answered, fees, money_of, passing

DAYS = 700
FROM = int(os.environ.get("ONEBOOK_ACCOUNTS_FROM", "0"))
SEEDS = range(FROM, FROM + int(os.environ.get("ONEBOOK_ACCOUNTS", "12")))
TRIES = 40
PAGES_MAX = 2_000
decoder = json.Decoder(float_hook=Decimal)
Row = dict[str, Any]


def account_of(seed: int) -> RandomKraken:
    account = RandomKraken(seed, from_ms=NOW_MS - DAYS * DAY_MS, to_ms=NOW_MS - 1)
    account.fill((500, 40, 200)[seed % 3])
    return account


class Reader:
    """Reads an account as the facts say, again after each fault."""

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
                found = decoder.decode(response.content)
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
                return decoder.decode(response.content)["logs"]
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
    """What the expected records add up to."""
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
    """The oracle agrees with itself: what it serves, what it expects, what was gained."""

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


def facts(
    kind: str, word: str, status: str, sent: Amount | None, received: Amount | None,
    charged: list[Amount],
) -> tuple[Any, ...]:  # fmt: skip
    return kind, word, status, sent, received, tuple(fees(charged))


def stated(one: Expected) -> tuple[Any, ...]:
    return facts(one.type, one.kind, one.status, one.sent, one.received, one.fees)


def shown(record: Row) -> tuple[Any, ...]:
    charged = [(one["currency"], Decimal(one["amount"])) for one in record["fees"]]
    sent, received = money_of(record, "sentCurrency"), money_of(record, "receivedCurrency")
    return facts(record["type"], record["kind"], record["status"], sent, received, charged)


async def asked(account: RandomKraken, exchange: RandomKrakenExchange, random: Random) -> Answered:
    """All that the service says of an account, in one answer, a stream or pages."""
    found, cursor = Answered(), None
    streamed, limit = random.random() < 0.3, random.choice([13, 60, 400, 10_000])
    async with listening(exchange) as url:
        vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        key = Credentials("key", "c2VjcmV0", futures_key="key", futures_secret="c2VjcmV0")
        await vault.put("kraken", "mainnet", key, now_ms=NOW_MS)
        clock = passing()
        urls = AccountUrls(hosts={"spot": url, "futures": url})
        settings = TransactionSettings(
            overrides={"kraken": urls}, deadline_s=3_600.0, stream_deadline_s=36_000.0
        )
        adapter = ExchangeAdapter(KRAKEN, settings, clock=clock, random=Random(7))
        service = Transactions(
            [adapter], vault, cursor_secret=b"a secret", clock=clock, settings=settings
        )
        try:
            for _ in range(PAGES_MAX):
                request = TransactionsRequest(
                    exchange="kraken", transaction_types=list(KRAKEN.entry.types),
                    start_time=account.from_ms, end_time=account.to_ms, cursor=cursor,
                    limit=None if streamed else limit,
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


def check(account: RandomKraken, found: Answered) -> None:
    """Every event has its record once; what is missing is said to be."""
    due: Counter[Any] = Counter()
    late: Counter[Any] = Counter()
    for rows in account.lists.values():
        for served in rows:
            for one in served.expected:
                (late if served.late else due)[stated(one)] += 1
    events = [one for one in found.records if one["type"] not in ("ledger", "holdings")]
    ids = Counter(one["transactionId"] for one in found.records)
    assert [name for name, count in ids.items() if count > 1] == []
    got = Counter(shown(one) for one in events if one["view"] == "primary")
    incomplete = {kind for kind, each in found.coverage.items() if not each["complete"]}
    assert got - due - late == Counter()
    missing = due - got
    assert {one[0] for one in missing} <= incomplete, missing
    if not incomplete:
        lines = sum(one["type"] == "ledger" for one in found.records)
        cash = [each for each in account.lists["log"] if each.row["asset"] != CONTRACT]
        rows = [*account.lists["ledger"], *cash]
        assert sum(not each.late for each in rows) <= lines <= len(rows)


class TestService:
    """The service's answer is what happened, or says what it lacks."""

    @pytest.mark.parametrize("seed", SEEDS)
    async def test_the_answer_is_what_happened(self, seed: int) -> None:
        account = account_of(seed)
        exchange = RandomKrakenExchange(account, seed, now_ms=lambda: NOW_MS)
        found = await asked(account, exchange, Random(f"asked {seed}"))
        assert exchange.violations == []
        check(account, found)
