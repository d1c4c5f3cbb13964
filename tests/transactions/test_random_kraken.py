"""Random Kraken accounts over HTTP, and an oracle that states every record of theirs.

`ONEBOOK_ACCOUNTS=500` reads more accounts than the suite does, `ONEBOOK_ACCOUNTS_FROM=7` begins at
another seed.
"""

import asyncio
import os
from collections import defaultdict
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from msgspec import json

from onebook.simulator.accounts.admission import wall_ms
from transactions.bybit_support import NOW_MS
from transactions.oracle.kraken.account import CONTRACT, RandomKraken
from transactions.oracle.kraken.exchange import PAGE_ROWS, RandomKrakenExchange, listening
from transactions.oracle.rows import COMPLETED, DAY_MS

DAYS = 700
FROM = int(os.environ.get("ONEBOOK_ACCOUNTS_FROM", "0"))
SEEDS = range(FROM, FROM + int(os.environ.get("ONEBOOK_ACCOUNTS", "12")))
TRIES = 40
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
        self._nonce = wall_ms()

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
