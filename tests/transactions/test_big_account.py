"""Two years of a busy account with every kind of fault: every record exactly once.

The size is an eightieth of the full proof by default, so that it fits into the suite; the full one
(200,000 executions, 300,000 ledger lines, 20,000 deposits and withdrawals in two years) runs with
ONEBOOK_BIG=1.
"""

import os
import tracemalloc
from random import Random
from typing import Any

from msgspec import json

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import SimulatedBybit
from onebook.simulator.accounts.bybit.facts import ExecutionRow
from onebook.transactions.request import TransactionsRequest
from transactions.bybit_support import (
    CALLER,
    NOW_MS,
    SETTINGS,
    Account,
    AccountFaults,
    History,
    World,
    loop_s,
    run,
    simulated,
)

FULL = os.environ.get("ONEBOOK_BIG") == "1"
SCALE = 1 if FULL else 80
DAYS = 728 if FULL else 30
TYPES = (
    "holdings",
    "deposits",
    "withdrawals",
    "spot_orders",
    "futures",
    "ledger",
    "leverage_token_trades",
    "transfers",
)
LATE_DEPOSITS = 20
MEMORY_BYTES_MAX = 16 << 20  # all records at once would take more than twice this
LEDGER = "/v5/account/transaction-log"
FAULTS = ("10000", "10016", "10006", "429", "502", "truncated", "reset", "string_ext")


def busy_account() -> Account:
    return Account(
        History(
            NOW_MS - DAYS * DAY_MS,
            NOW_MS - DAY_MS,
            executions=212_000 // SCALE,
            deposits=10_000 // SCALE,
            withdrawals=10_000 // SCALE,
            transfers=1_500 // SCALE,
        )
    )


class Meddler:
    """Changes the account while it is read: late bookings, late status changes."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.random = Random(3)
        self.pending = [
            account.pend_deposit(NOW_MS - self.random.randrange(DAYS - 2) * DAY_MS - DAY_MS)
            for _ in range(LATE_DEPOSITS)
        ]

    def __call__(self, path: str) -> None:
        if path == "/v5/execution/list" and self.random.random() < 0.02:
            at_ms = NOW_MS - self.random.randrange(DAY_MS, DAYS * DAY_MS)
            self.account.insert_execution(self.random.choice(("spot", "linear", "inverse")), at_ms)
        if path == "/v5/asset/deposit/query-record" and self.random.random() < 0.05:
            deposit = self.random.choice(self.pending)
            deposit.status, deposit.credited_ms = 3, NOW_MS + round(loop_s() * 1_000)


def world(account: Account, meddler: Meddler) -> World:
    exchange = simulated(
        account,
        faults=AccountFaults(rate=0.02, kinds=FAULTS, seed=5),
        by_offset=True,
    )
    exchange.before_page = meddler
    return World(exchange)


def truth(account: Account) -> dict[str, int]:
    """The number of records of each kind, from the simulator's tables."""
    visible = [e for e in account.orders["spot"].entries if e.facts.done]
    return {
        "withdrawal": len(account.withdrawals),
        "order": len(visible),
        "ledger": len(account.ledger) + len(account.fund_ledger),
        "transfer": len(account.transfers) + len(account.universal),
    }


def executions_of(account: Account, *categories: str) -> set[str]:
    entries = [e for name in categories for e in account.executions[name].entries]
    return {e.facts.execution_id for e in entries} - account.inserted


def check(account: Account, meddler: Meddler, records: list[dict[str, Any]]) -> None:
    """Every record once, and the totals of the simulator's truth."""
    ids = [record["transactionId"] for record in records]
    assert len(ids) == len(set(ids))
    kinds: dict[str, int] = {}
    fills: dict[str, set[str]] = {"trade": set(), "future": set()}
    for record in records:
        kind = {"spot_orders": "trade", "futures_linear": "future", "futures_inverse": "future"}
        name = kind.get(record["type"], record["type"].removesuffix("s"))
        if record["kind"] == "order":
            name = "order"
        elif name in fills and record["ids"]["trade_id"]:
            fills[name].add(record["ids"]["trade_id"])
            continue
        kinds[name] = kinds.get(name, 0) + 1
    for name, count in truth(account).items():
        assert kinds[name] == count, name
    check_deposits(account, meddler, records)
    assert fills["trade"] - account.inserted == executions_of(account, "spot")
    assert fills["future"] - account.inserted == executions_of(account, "linear", "inverse")
    check_totals(account, records)


def check_deposits(account: Account, meddler: Meddler, records: list[dict[str, Any]]) -> None:
    """Records changed meanwhile may be newer than the query; all others are there."""
    late = {id(deposit) for deposit in meddler.pending}
    tables = (account.deposits, account.internal_deposits)
    entries = [entry for table in tables for entry in table.entries]
    settled = {str(entry.seq) for entry in entries if id(entry.facts) not in late}
    changed = {str(entry.seq) for entry in entries if id(entry.facts) in late}
    found = {r["ids"]["native"] for r in records if r["type"] == "deposits"}
    assert settled <= found <= settled | changed


def check_totals(account: Account, records: list[dict[str, Any]]) -> None:
    scale = 10**12
    changes: dict[str, int] = {}
    fees = 0
    for record in records:
        if record["type"] == "ledger" and record["account"]["wallet"] == "UNIFIED":
            change = units(record["balance"]["change"])
            changes[record["asset"]] = changes.get(record["asset"], 0) + change
        if record["kind"] != "order" and record["type"] == "spot_orders":
            fees += sum(units(fee["amount"]) for fee in record["fees"])
    assert changes == {coin: total for coin, total in account.unified.items() if coin in changes}
    spot: list[ExecutionRow] = [entry.facts for entry in account.executions["spot"].entries]
    assert fees == sum(fill.fee + fill.tax for fill in spot)
    assert scale


def units(text: str) -> int:
    whole, _, part = text.lstrip("-").partition(".")
    found = int(whole + part.ljust(12, "0"))
    return -found if text[0] == "-" else found


def test_one_run_holds_every_record_once() -> None:
    """Issue 4: inserted rows, limits, 429, 502, resets and late changes lose nothing."""
    account = busy_account()
    meddler = Meddler(account)

    async def story() -> tuple[list[dict[str, Any]], dict[str, Any], SimulatedBybit, float]:
        async with world(account, meddler) as here:
            ask = TransactionsRequest(
                exchange="bybit",
                transaction_types=TYPES,
                start_time=NOW_MS - DAYS * DAY_MS,
                verify=True,
            )
            query = here.service.plan(ask, key_id=CALLER, streamed=True)
            lines: list[dict[str, Any]] = []
            async for chunk in here.service.stream(query, key_id=CALLER):
                lines += [json.decode(line) for line in chunk.splitlines()]
            return lines[:-1], lines[-1], here.exchange, loop_s()

    records, summary, exchange, spent_s = run(story())
    assert summary["success"]
    assert not summary["errors"]
    assert all(entry["complete"] for entry in summary["coverage"]), [
        (e["transaction_type"], e["reason"]) for e in summary["coverage"]
    ]
    assert summary["next_cursor"] is None
    assert all(chain["holds"] for chain in summary["verification"]["ledger"])
    check(account, meddler, records)
    # An answer of 10006 forbids its path for a second: that is the exchange's limit, too.
    allowed_s = least_s(account) + exchange.faults.served[LEDGER, "10006"]
    print(f"{len(records)} records, {sum(exchange.requests.values())} requests, ", end="")
    print(f"{spent_s:.1f} s of virtual time; the exchange's limits allow {allowed_s:.1f} s")
    # A key that asks alone leaves `reserve_share` of the exchange's limits to others.
    assert spent_s <= 1.2 * allowed_s / (1 - SETTINGS.reserve_share)


def least_s(account: Account) -> float:
    """The fastest read that the exchange's limits allow, with full pages and no fault."""
    weeks, months = -(-DAYS // 7), -(-DAYS // 30)
    fills = sum(-(-len(table) // 100) for table in account.executions.values())
    return max(
        max(fills, 4 * weeks) / 50,
        (max(-(-len(account.ledger) // 50), weeks) + 2 * weeks) / 25,
        (max(-(-len(account.deposits) // 50), months) - 100) / 100 * 60,
        (max(-(-len(account.withdrawals) // 50), months) - 300) / 300 * 60,
        (weeks - 60) / 60 * 60,
    )


def test_killed_and_resumed_at_the_cursor_it_is_the_same() -> None:
    """Issue 4: pages along the cursor, a new process for each, every record once."""
    account = busy_account()
    meddler, random = Meddler(account), Random(11)

    async def page(cursor: str | None) -> dict[str, Any]:
        async with world(account, meddler) as here:
            return await here.fetch(
                *TYPES, start_time=NOW_MS - DAYS * DAY_MS, cursor=cursor, limit=10_000
            )

    records: list[dict[str, Any]] = []
    cursor = None
    while not records or cursor:
        answer = run(page(cursor))
        if records and random.random() < 0.2:
            continue  # killed before the answer was kept: asked for again
        records += answer["transactions"]
        cursor = answer["next_cursor"]
    check(account, meddler, records)


def test_memory_is_flat() -> None:
    """Issue 4: memory depends on the read-ahead, not on the number of records."""

    def peak_bytes(executions: int) -> int:
        account = Account(History(NOW_MS - 60 * DAY_MS, NOW_MS, executions=executions))

        async def story() -> int:
            async with World(simulated(account)) as here:
                ask = TransactionsRequest(
                    exchange="bybit",
                    transaction_types=("trades", "futures", "ledger"),
                    start_time=NOW_MS - 60 * DAY_MS,
                )
                query = here.service.plan(ask, key_id=CALLER, streamed=True)
                tracemalloc.start()
                async for _ in here.service.stream(query, key_id=CALLER):
                    pass
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                return peak

        return run(story())

    peak = peak_bytes(4_000)
    print(f"peak {peak >> 20} MB while 4,000 executions and their ledger went through")
    assert peak < MEMORY_BYTES_MAX
