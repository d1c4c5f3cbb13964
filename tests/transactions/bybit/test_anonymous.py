"""Rows without an id that span two pages of Bybit: each counts once, over sockets."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec import json

from clocks import made_of
from onebook.clock import Clock
from onebook.config import AccountUrls, TransactionSettings
from onebook.model import DAY_MS, SECOND_MS
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit
from onebook.simulator.accounts.bybit.facts import FundLine
from onebook.simulator.accounts.history import HistoryTable
from onebook.simulator.accounts.serving import serving
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import CALLER, KEY, MASTER_KEY, NOW_MS, MemoryStore

PAGE = 100  # rows of a full page
SECOND = NOW_MS - DAY_MS


def passing() -> Clock:
    """A clock that only waits advance: no request limit takes real time."""
    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        await asyncio.sleep(0)

    return made_of(wall_ms=lambda: NOW_MS, monotonic=lambda: now_s, sleep=sleep)


def account(*seconds: int) -> Account:
    """An account whose funding wallet booked N equal rows, the newest second first."""
    found = Account(History(NOW_MS - 2 * DAY_MS, NOW_MS, executions=0))
    found.fund_ledger = HistoryTable()
    for age, rows in reversed(list(enumerate(seconds))):
        for _ in range(rows):
            add(found, SECOND - age * SECOND_MS)
    return found


def add(found: Account, at_ms: int) -> None:
    seq = len(found.fund_ledger) + 1
    found.fund_ledger.insert(at_ms, seq, FundLine("USDT", 100, 0, "Earn", "Earn", identified=False))


async def answers(exchange: SimulatedBybit, **fields: Any) -> list[dict[str, Any]]:
    """Every answer along our cursor, for the ledger only."""
    async with serving(exchange) as url:
        vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        await vault.put("bybit", "mainnet", Credentials(KEY.api_key, KEY.secret), now_ms=NOW_MS)
        clock = passing()
        adapter = ExchangeAdapter(
            BYBIT,
            TransactionSettings(overrides={"bybit": AccountUrls(mainnet_url=url)}),
            clock=clock,
            random=Random(7),
        )
        service = Transactions([adapter], vault, cursor_secret=b"a secret", clock=clock)
        found: list[dict[str, Any]] = []
        try:
            while not found or found[-1]["next_cursor"]:
                cursor = found[-1]["next_cursor"] if found else None
                ask = TransactionsRequest(
                    exchange="bybit", transaction_types=["ledger"], cursor=cursor, **fields
                )
                query = service.plan(ask, key_id=CALLER)
                found.append(json.decode(await service.fetch(query, key_id=CALLER)))
        finally:
            await service.close()
        return found


def simulated(found: Account, **options: Any) -> SimulatedBybit:
    return SimulatedBybit(found, [KEY], now_ms=lambda: NOW_MS, limited=False, **options)


def ids(found: list[dict[str, Any]]) -> list[str]:
    """Ids of the funding wallet's lines."""
    return [
        record["transactionId"]
        for answer in found
        for record in answer["transactions"]
        if record["account"]["wallet"] == "FUND"
    ]


def whole(found: list[dict[str, Any]]) -> bool:
    return all(entry["complete"] for entry in found[-1]["coverage"])


@pytest.mark.parametrize("by_offset", [False, True])
@pytest.mark.parametrize("limit", [50, 10_000])
@pytest.mark.parametrize("seconds", [(99, 2), (100, 3), (60, 30, 30, 90, 9)], ids=str)
async def test_none_is_lost_at_the_border_of_two_pages(
    seconds: tuple[int, ...], limit: int, by_offset: bool
) -> None:
    found = await answers(simulated(account(*seconds), by_offset=by_offset), limit=limit)
    assert whole(found)
    assert len(ids(found)) == len(set(ids(found))) == sum(seconds)


@pytest.mark.parametrize("limit", [None, 30])
async def test_ids_do_not_depend_on_where_pages_end(limit: int | None) -> None:
    """The same rows have the same ids, with pages of other sizes and other first rows."""
    exchange = simulated(account(30, 60, 45, 70))
    later = await answers(exchange, limit=limit, end_time=SECOND - SECOND_MS)
    assert set(ids(later)) < set(ids(await answers(exchange)))
    assert len(ids(later)) == 175


async def test_a_row_that_two_pages_repeat_counts_once() -> None:
    """If a cursor is an offset, a row booked between two pages shifts the second page."""
    here = account(99, 2)
    exchange = simulated(here, by_offset=True)
    pages = iter(range(100))

    def book(path: str) -> None:
        if path == "/v5/asset/fundinghistory" and next(pages) == 1:
            add(here, SECOND)

    exchange.before_page = book
    found = await answers(exchange, end_time=SECOND)
    assert len(ids(found)) == len(set(ids(found)))
    assert len(ids(found)) in (101, 102)  # without the row that came in between, or with it


async def test_a_second_that_no_page_can_hold_is_not_called_complete() -> None:
    """Its equal rows cannot be counted."""
    found = await answers(simulated(account(PAGE + 1)))
    assert not whole(found)
    assert "without an id" in found[0]["errors"][0]["message"]


async def test_rows_with_an_id_are_not_asked_for_twice() -> None:
    here = account()
    for at in range(250):
        line = FundLine("USDT", 100, 0, "Earn", "Earn")
        here.fund_ledger.append(SECOND, at + 1, line)
    exchange = simulated(here)
    assert len(ids(await answers(exchange))) == 250
    assert exchange.requests["/v5/asset/fundinghistory"] == 3 + 4  # three pages, empty windows


def unreadable(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of rows that could not be read."""
    return [r for answer in found for r in answer["transactions"] if r["kind"] == "other"]


def booked(rows: int, *, identified: bool, nonsense: Callable[[int], bool]) -> Account:
    """An account whose funding wallet booked N rows in one second, some without a coin."""
    here = account()
    for number in range(1, rows + 1):
        coin = "" if nonsense(number) else "USDT"
        line = FundLine(coin, 100, 0, "Earn", "Earn", identified=identified)
        here.fund_ledger.append(SECOND, number, line)
    return here


@pytest.mark.parametrize("limit", [40, 10_000])
async def test_an_unreadable_row_with_an_id_costs_no_other_row(limit: int) -> None:
    """Wherever it is, also at the start of a page: ids depend on the rows of a second."""
    here = booked(250, identified=True, nonsense=lambda n: n % 50 == 0)
    found = await answers(simulated(here), limit=limit)
    assert len(ids(found)) == len(set(ids(found))) == 245
    assert len({r["transactionId"] for r in unreadable(found)}) == 5
    assert {e["error"] for answer in found for e in answer["errors"]} == {"unreadable_record"}
    assert not whole(found)


@pytest.mark.parametrize("rows", [60, 101, 250])
async def test_unreadable_rows_without_an_id_are_never_called_complete(rows: int) -> None:
    here = booked(rows, identified=False, nonsense=lambda n: True)
    found = await answers(simulated(here))
    assert not whole(found)
    assert found[0]["partial"]
    if rows <= PAGE:
        assert len(unreadable(found)) == rows
